"""`pulumi preview` with the real engine, in an account with AWS's limits: it says what is missing and makes nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from localcloud.aws.compute.quotas import QUOTAS

from packages.localcloud.tests.standins.engine_stack import EngineStack
from tests import graph
from tests.aws import moto_server
from tests.aws.moto_server import KEYS

pytestmark = pytest.mark.e2e

STANDARD, G = "L-1216C47A", "L-DB2E81BA"
PROGRAM = f"""
import os, runpy, sys
sys.path.insert(0, {str(graph.ROOT)!r})
os.chdir({str(graph.ROOT)!r})
runpy.run_path("__main__.py", run_name="__main__")
"""


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """The endpoint of an account with AWS's default quotas."""
    with moto_server.serve({code: quota.default for code, quota in QUOTAS.items()}) as endpoint:
        yield endpoint


def test_a_new_account_is_told_all_that_it_lacks_before_anything_is_made(tmp_path: Path, endpoint: str) -> None:
    keys = {name.upper(): value for name, value in KEYS.items()}
    stack = EngineStack(tmp_path, {"AWS_ENDPOINT_URL": endpoint, **keys})
    (tmp_path / "Pulumi.yaml").write_text((graph.ROOT / "Pulumi.yaml").read_text())
    stack.program(PROGRAM)
    (tmp_path / "bin" / "aws").symlink_to(Path(sys.executable).with_name("aws"))
    stack.pulumi("stack", "init", "new")
    stack.pulumi("config", "set", "--path", "tidewater:instanceTypes[0]", "g5.xlarge")
    stack.pulumi("config", "set", "--path", "tidewater:systemInstanceTypes[0]", "m5.xlrge")
    refused = stack.pulumi("preview", fails=True)
    assert "the configuration has 3 mistakes; nothing was changed" in refused
    assert "systemInstanceTypes = m5.xlrge: us-west-2 has no such instance type; similar ones are m5.xlarge" in refused
    assert "publicAccessCidrs = []: only machines in the stack's VPC" in refused
    assert f"instanceTypes: 2 nodes need 8 vCPUs of the quota {G} (" in refused
    assert "Traceback" not in refused
    assert "Vpc" not in stack.pulumi("up", "--yes", "--skip-preview", fails=True)
    ec2 = moto_server.client("ec2", endpoint)
    assert [vpc for vpc in ec2.describe_vpcs()["Vpcs"] if not vpc["IsDefault"]] == []

    stack.pulumi("config", "set", "--path", "tidewater:systemInstanceTypes[0]", "m5.large")
    stack.pulumi("config", "set", "tidewater:systemNodes", "2")
    stack.pulumi("config", "set", "tidewater:etcdMembers", "1")
    stack.pulumi("config", "set", "--path", "tidewater:publicAccessCidrs[0]", graph.ADDRESS)
    quotas = moto_server.client("service-quotas", endpoint)
    quotas.request_service_quota_increase(ServiceCode="ec2", QuotaCode=G, DesiredValue=8)
    allowed = stack.pulumi("preview")
    assert "aws:ec2:Vpc" in allowed
    assert f"at maxWorkers = 8 the nodes need up to 60 vCPUs of the quota {G} (" in allowed

    state = stack.pulumi("stack", "export")
    stack.pulumi("config", "set", "tidewater:namespace", "other")
    stack.pulumi("stack", "rename", "another")
    moved, kept = stack.pulumi("preview", fails=True), stack.pulumi("stack", "export")
    assert "namespace = other: the stack's etcd, data and job are in training; set it back" in moved
    assert "the stack's name 'another': its cluster has its name from 'new'; name the stack so again" in moved
    stack.pulumi("stack", "rename", "new")
    assert kept.replace("another", "new") == state == stack.pulumi("stack", "export")
