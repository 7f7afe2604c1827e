"""Serve localcloud's own commands for a test, as the daemon does."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from localcloud import control
from localcloud.control import Command
from localcloud.instance import Instance

from packages.localcloud.tests.aws.fakes import OPERATOR, FakePrincipals

EVERYTHING = {"Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}


@contextlib.contextmanager
def served(
    instance: Instance, commands: Mapping[str, Command], policy: Mapping[str, Any] = EVERYTHING
) -> Iterator[Instance]:
    """Serve the commands to the instance's operator, who has this policy, on a port that no other program has.

    The port is in the instance's record, and in the instance that is yielded.
    """
    from werkzeug.serving import make_server

    keys = instance.credentials()
    operator = replace(OPERATOR, secret=keys.secret_key, policies=(policy,))
    app = control.application(FakePrincipals(keys={keys.access_key: operator}), commands)
    server = make_server("127.0.0.1", 0, app, threaded=True)
    record = instance.state / "instance.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "port": server.server_port}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield replace(instance, port=server.server_port)
    finally:
        server.shutdown()
        server.server_close()
