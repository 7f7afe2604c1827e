"""Serve localcloud's own commands for a test, as the daemon does."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from localcloud import control
from localcloud.control import Command
from localcloud.instance import Instance
from localcloud.tests.aws.fakes import OPERATOR, FakePrincipals

EVERYTHING = {"Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}


@contextlib.contextmanager
def served(
    instance: Instance, commands: Mapping[str, Command], policy: Mapping[str, Any] = EVERYTHING
) -> Iterator[None]:
    """Serve the commands on the instance's endpoint; its operator has this policy."""
    from werkzeug.serving import make_server

    keys = instance.credentials()
    operator = replace(OPERATOR, secret=keys.secret_key, policies=(policy,))
    app = control.application(FakePrincipals(keys={keys.access_key: operator}), commands)
    server = make_server("127.0.0.1", instance.port, app, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
