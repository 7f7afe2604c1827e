"""The plug-in with the real engine and the unmodified SDK; the other providers only record."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from localcloud.standins.serve import package_version

from packages.localcloud.tests.standins.eks.components.test_cluster import OBSERVED
from packages.localcloud.tests.standins.engine_stack import EngineStack

pytestmark = pytest.mark.e2e

SOURCES = Path(__file__).parents[3] / "src"
RECORDER = Path(__file__).with_name("recording_provider.py")
PROGRAM = """
import pulumi, pulumi_aws as aws, pulumi_eks as eks
role = aws.iam.Role("node", assume_role_policy="{}")
vpc = aws.ec2.Vpc("vpc", cidr_block="10.0.0.0/16")
cluster = eks.Cluster("c", authentication_mode=eks.AuthenticationMode.API, skip_default_node_group=True,
    skip_default_security_groups=True, vpc_id=vpc.id, private_subnet_ids=["subnet-1", vpc.id],
    public_subnet_ids=["subnet-3"], version="1.34")
group = aws.eks.NodeGroup("gpu", cluster_name=cluster.eks_cluster.name, node_role_arn=role.arn, subnet_ids=[vpc.id],
    scaling_config=aws.eks.NodeGroupScalingConfigArgs(desired_size=1, min_size=0, max_size=3),
    opts=pulumi.ResourceOptions(depends_on=[cluster]))
pulumi.export("name", cluster.eks_cluster.name)
pulumi.export("kubeconfig", cluster.kubeconfig_json)
pulumi.export("scoped", cluster.get_kubeconfig(profile_name="p"))
"""


GIVEN = """
import pulumi, pulumi_aws as aws, pulumi_eks as eks
def change(args):
    props = {**args.props, "path": "/others/"} if args.type_ == "aws:iam/role:Role" else args.props
    return pulumi.ResourceTransformResult(props=props, opts=args.opts)
provider = aws.Provider("explicit", region="us-west-2")
options = pulumi.ResourceOptions(providers=[provider], transforms=[change])
parent = pulumi.ComponentResource("t:index:Own", "own", None, options)
child = pulumi.ResourceOptions(parent=parent)
cluster = eks.Cluster("c", authentication_mode=eks.AuthenticationMode.API, skip_default_node_group=True,
    skip_default_security_groups=True, vpc_id="vpc-1", private_subnet_ids=["subnet-1"], version="1.34",
    service_role=aws.iam.Role.get("role", "mine", opts=child), opts=child)
pulumi.export("role", cluster.eks_cluster.role_arn)
"""


def name_of(urn: str) -> str:
    return urn.rsplit("::", 1)[-1]


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EngineStack:
    """A stack that uses the eks stand-in alone; its other providers are in the user's plug-in cache and only record."""
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "user"))
    for package in ("aws", "kubernetes"):
        folder = tmp_path / "user" / "plugins" / f"resource-{package}-v{package_version(f'pulumi-{package}')}"
        folder.mkdir(parents=True)
        script = folder / f"pulumi-resource-{package}"
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{RECORDER}" {package} "$@"\n')
        script.chmod(0o755)
    record = {"RECORD": str(tmp_path / "record"), "PYTHONPATH": str(SOURCES)}
    stack = EngineStack(tmp_path, record, standins=("eks",))
    stack.program(PROGRAM)
    return stack


def test_a_stack_of_components_is_created_and_destroyed(stack: EngineStack) -> None:
    previewed = stack.pulumi("preview")
    assert "+ 13 to create" in previewed
    assert "warning" not in previewed + stack.up()
    resources = stack.resources()
    below = {
        (name_of(r["parent"]), r["type"], name_of(r["urn"]))
        for r in resources
        if "parent" in r and "eks:index:Cluster$" in r["urn"]
    }
    assert below == {row for row in OBSERVED if row[0]}
    outputs = next(r for r in resources if r["type"] == "pulumi:pulumi:Stack")["outputs"]
    assert outputs["name"] == "c-eksCluster-1234567"
    assert json.loads(outputs["kubeconfig"])["clusters"][0]["cluster"]["server"] == "https://cluster.example"
    assert '"--profile","p"' in outputs["scoped"]
    assert "13 unchanged" in stack.up()
    stack.pulumi("destroy", "--yes", "--skip-preview")
    lines = [json.loads(line) for line in (stack.folder / "record").read_text().splitlines()]
    deleted = [line["delete"] for line in lines if "delete" in line]
    before_the_cluster = deleted[: deleted.index("c-eksCluster")]
    assert {"gpu", "c-vpc-cni", "c-kube-proxy"} <= set(before_the_cluster)
    assert deleted.index("c-eksRole-4b490823") > deleted.index("c-eksCluster")


def test_a_role_that_was_there_before_is_read_used_and_left_there(stack: EngineStack) -> None:
    stack.program(GIVEN)
    assert "aws:iam:Role" in stack.pulumi("preview")
    assert "warning" not in stack.up()
    assert [each["outputs"]["name"] for each in stack.resources() if each["type"] == "aws:iam/role:Role"] == ["mine"]
    assert json.loads(stack.pulumi("stack", "output", "--json"))["role"] == "arn:mine"
    assert "unchanged" in stack.up()
    stack.pulumi("refresh", "--yes", "--skip-preview")
    stack.pulumi("destroy", "--yes", "--skip-preview")
    lines = [json.loads(line) for line in (stack.folder / "record").read_text().splitlines()]
    assert "aws:iam/role:Role" not in {line.get("create") for line in lines}
    assert "c-eksCluster" in {line.get("delete") for line in lines}
    assert "role" not in {line.get("delete") for line in lines}


def test_an_input_that_does_not_exist_is_named_and_makes_nothing(stack: EngineStack) -> None:
    stack.program(
        "import pulumi, pulumi_eks\n"
        "pulumi.ComponentResource('eks:index:Cluster', 'c', {'authenticationMode': 'API', 'wheels': 4}, remote=True)\n"
    )
    shown = stack.up(fails=True)
    assert "eks:index:Cluster resource 'c' has a problem" in shown
    assert "property wheels with value" in shown
    assert not (stack.folder / "record").exists()
