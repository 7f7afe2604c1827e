"""An AWS account in this process: an application such as moto's behind a port, which boto3 finds by the environment.

    with served(moto()) as endpoint:
        use(monkeypatch, endpoint)

moto's state belongs to the process: all accounts in it are the same one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


def moto() -> Any:
    """Return moto's own application, without the rules of the one-machine cloud and without images of machines."""
    os.environ["MOTO_EC2_LOAD_DEFAULT_AMIS"] = "false"  # they take a second after each reset
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

    return DomainDispatcherApplication(create_backend_app)


@contextmanager
def served(app: Any) -> Iterator[str]:
    """Serve an account; yield its endpoint."""
    from moto.moto_server.werkzeug_app import MotoRequestHandler
    from werkzeug.serving import make_server

    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=MotoRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def use(environment: pytest.MonkeyPatch, endpoint: str, **more: str) -> None:
    """Let boto3 find the account, and no other one that this machine knows."""
    for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SESSION_TOKEN"):
        environment.delenv(name, raising=False)
    own = {"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    for name, value in {**own, "AWS_EC2_METADATA_DISABLED": "true", "NO_PROXY": "127.0.0.1", **more}.items():
        environment.setenv(name, value)
