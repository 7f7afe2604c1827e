"""The plug-in under the real engine, with the unmodified SDK; the providers below it only record."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from localcloud.tests.standins.eks.test_cluster import OBSERVED
from scripts import toolchain

pytestmark = pytest.mark.e2e

CHECKOUT = Path(__file__).parents[4]
PROGRAM = """
import pulumi, pulumi_aws as aws, pulumi_eks as eks
role = aws.iam.Role("node", assume_role_policy="{}")
vpc = aws.ec2.Vpc("vpc", cidr_block="10.0.0.0/16")
cluster = eks.Cluster("c", authentication_mode=eks.AuthenticationMode.API, skip_default_node_group=True,
    vpc_id=vpc.id, private_subnet_ids=["subnet-1", vpc.id], public_subnet_ids=["subnet-3"], version="1.34")
group = eks.ManagedNodeGroup("gpu", cluster=cluster, node_role=role, gpu=True, ami_type="AL2023_x86_64_NVIDIA",
    instance_types=["g5.xlarge"],
    scaling_config=aws.eks.NodeGroupScalingConfigArgs(desired_size=1, min_size=0, max_size=3))
eks.ManagedNodeGroup("core", cluster=cluster.core, node_role_arn=role.arn, subnet_ids=[vpc.id])
eks.Addon("efs", cluster=cluster, addon_name="aws-efs-csi-driver", opts=pulumi.ResourceOptions(depends_on=[group]))
pulumi.export("name", cluster.eks_cluster.name)
pulumi.export("kubeconfig", cluster.kubeconfig_json)
pulumi.export("scoped", cluster.get_kubeconfig(profile_name="p"))
pulumi.export("group", group.node_group.id)
"""


class Stack:
    """A stack in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.record = folder / "record"
        (folder / "Pulumi.yaml").write_text("name: t\nruntime: python\n")
        self.program(PROGRAM)
        plugins = folder / "bin"
        plugins.mkdir()
        for name in ("pulumi-language-python", "pulumi-resource-eks"):
            (plugins / name).symlink_to(CHECKOUT / "localcloud/standins/bin" / name)
        recorder = Path(__file__).with_name("recording_provider.py")
        for package in ("aws", "kubernetes"):
            script = plugins / f"pulumi-resource-{package}"
            script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{recorder}" {package} "$@"\n')
            script.chmod(0o755)
        self._environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("PULUMI_", "AWS_"))},
            "PATH": f"{plugins}:{os.environ['PATH']}",
            "PYTHONPATH": str(CHECKOUT),
            "LOCALCLOUD_PYTHON": sys.executable,
            "PULUMI_HOME": str(folder / "home"),
            "PULUMI_BACKEND_URL": f"file://{folder}",
            "PULUMI_CONFIG_PASSPHRASE": "x",
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "RECORD": str(self.record),
        }

    def program(self, text: str) -> None:
        (self.folder / "__main__.py").write_text(text)

    def pulumi(self, *arguments: str, fails: bool = False) -> str:
        argv = [str(toolchain.binary("pulumi")), *arguments, "--non-interactive"]
        done = subprocess.run(
            argv, cwd=self.folder, env=self._environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stdout

    def resources(self) -> list[dict[str, Any]]:
        exported: dict[str, Any] = json.loads(self.pulumi("stack", "export"))
        resources: list[dict[str, Any]] = exported["deployment"]["resources"]
        return resources


def name_of(urn: str) -> str:
    return urn.rsplit("::", 1)[-1]


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    stack = Stack(tmp_path)
    stack.pulumi("stack", "init", "dev")
    return stack


def test_a_stack_of_components_lives_its_life(stack: Stack) -> None:
    assert "+ 26 to create" in stack.pulumi("preview")
    stack.pulumi("up", "--yes", "--skip-preview")
    resources = stack.resources()
    below = {
        (name_of(r["parent"]), r["type"], name_of(r["urn"]))
        for r in resources
        if "parent" in r and "eks:index:Cluster$" in r["urn"]
    }
    addon = {("c", "eks:index:Addon", "efs"), ("efs", "aws:eks/addon:Addon", "efs")}
    assert below == {row for row in OBSERVED if row[0]} | addon
    outputs = next(r for r in resources if r["type"] == "pulumi:pulumi:Stack")["outputs"]
    assert outputs["name"] == "c-eksCluster-1234567"
    assert json.loads(outputs["kubeconfig"])["clusters"][0]["cluster"]["server"] == "https://cluster.example"
    assert '"--profile","p"' in outputs["scoped"]
    assert outputs["group"] == "id-gpu"
    assert "26 unchanged" in stack.pulumi("up", "--yes", "--skip-preview")
    stack.pulumi("destroy", "--yes", "--skip-preview")
    lines = [json.loads(line) for line in stack.record.read_text().splitlines()]
    deleted = [line["delete"] for line in lines if "delete" in line]
    before_the_cluster = deleted[: deleted.index("c-eksCluster")]
    assert {"gpu", "core", "efs", "c-vpc-cni", "c-kube-proxy"} <= set(before_the_cluster)
    assert deleted.index("efs") < deleted.index("gpu")
    assert deleted.index("c-eksRole-4b490823") > deleted.index("c-eksCluster")


def test_an_input_that_does_not_exist_is_named_and_makes_nothing(stack: Stack) -> None:
    stack.program(
        "import pulumi, pulumi_eks\n"
        "pulumi.ComponentResource('eks:index:Cluster', 'c', {'authenticationMode': 'API', 'wheels': 4}, remote=True)\n"
    )
    shown = stack.pulumi("up", "--yes", "--skip-preview", fails=True)
    assert "eks:index:Cluster resource 'c' has a problem" in shown
    assert "property wheels with value" in shown
    assert not stack.record.exists()
