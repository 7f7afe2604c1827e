"""The permissions of the nodes' agents in AWS."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from packages.localcloud.tests.aws.fakes import ACCOUNT, REGION


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    """A boto3 session with the key of the EFS driver."""
    from localcloud.aws.gateway import Gateway
    from localcloud.aws.principals import EFS_DRIVER_ACTIONS, MotoPrincipals
    from werkzeug.serving import make_server

    principals = MotoPrincipals(ACCOUNT, REGION)
    key, secret = principals.create_agent("efs-csi-driver", EFS_DRIVER_ACTIONS)
    server = make_server("127.0.0.1", 0, Gateway(ACCOUNT, principals, {}, [], {}), threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    session: Any = boto3.Session(key, secret, region_name=REGION)
    yield lambda service: session.client(service, endpoint_url=f"http://127.0.0.1:{server.server_port}")
    server.shutdown()
    server.server_close()


def test_the_efs_driver_may_describe_file_systems(driver: Any) -> None:
    assert "FileSystems" in driver("efs").describe_file_systems()


@pytest.mark.parametrize(
    ("service", "call", "arguments"),
    [
        ("efs", "create_file_system", {"CreationToken": "t"}),
        ("efs", "delete_file_system", {"FileSystemId": "fs-0123456789abcdef0"}),
        ("s3", "list_buckets", {}),
        ("iam", "create_user", {"UserName": "me"}),
        ("ec2", "describe_instances", {}),
        ("eks", "list_clusters", {}),
    ],
)
def test_the_efs_driver_may_do_nothing_else(driver: Any, service: str, call: str, arguments: dict[str, str]) -> None:
    with pytest.raises(ClientError) as caught:
        getattr(driver(service), call)(**arguments)
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] in (400, 403)
    assert "not authorized" in str(caught.value)
