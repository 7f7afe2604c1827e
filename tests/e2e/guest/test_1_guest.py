"""A stack in the VPC, on the cluster, on the file systems and with the roles that something else made, behind a proxy.

It leaves all as it was.

Each test uses the stack as the one before left it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from localcloud.instance import Instance
from localcloud.kube.network import Network

from tests.e2e.checkout import DESTROY, LONG_TRAINING, ROOT, UP, Checkout, wait_until
from tests.e2e.elasticjob import PYTORCH
from tests.e2e.guest.forward_proxy import ForwardProxy
from tests.e2e.guest.platform import CLUSTER, LUSTRE_DRIVER, Platform
from tests.e2e.inventory import Inventory, added, aws_inventory
from tests.e2e.stopping import repeat, stop_once_printed
from tests.e2e.training import assert_steps_only_grow, latest_step, node_of, running_workers, wait_for_world
from tests.infra.preflight.roles.given_roles import make
from tidewater.contract import stack
from tidewater.contract.pod_defaults import confined

pytestmark = [pytest.mark.e2e, pytest.mark.incremental, pytest.mark.timeout(1800)]

GUEST = "guest"
NOT_MADE = {
    *("vpcs", "subnets", "route tables", "nat gateways", "addresses", "security groups"),
    *("clusters", "log groups", "file systems", "roles"),
}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "notebook", "namespace": "training"},
    "spec": {
        "securityContext": stack.non_root(1000),
        "terminationGracePeriodSeconds": 1,
        "containers": [
            {
                "name": "notebook",
                "image": PYTORCH,
                "command": ["sleep", "3600"],
                "securityContext": confined(),
                "volumeMounts": [{"name": name, "mountPath": f"/{name}"} for name in ("data", "lustre")],
            }
        ],
        "volumes": [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in ("data", "lustre")],
    },
}
SMALL = {
    "tidewater:trainerArgs": LONG_TRAINING,
    "tidewater:checkpoints": "/lustre/runs",
    "tidewater:protect": False,
}


Before = tuple[Inventory, dict[str, Any]]


@dataclass(frozen=True)
class Guest:
    """The checkout with the stack's config, and the platform."""

    checkout: Checkout
    platform: Platform

    def surroundings(self) -> Before:
        """Return what is in the account, and all that is said of the platform."""
        return aws_inventory(self.checkout.cloud()), self.platform.described()


@pytest.fixture(scope="module")
def guest(checkout: Checkout) -> Guest:
    """Make the platform, and the config of a stack into it."""
    checkout.run("localcloud start")
    platform = Platform.make(checkout)
    local = yaml.safe_load((ROOT / "Pulumi.local.yaml").read_text())
    del local["config"]["tidewater:publicAccessCidrs"]
    local["config"] |= {**platform.config, **SMALL}
    config = checkout.path / f"Pulumi.{GUEST}.yaml"
    config.write_text(yaml.safe_dump(local))
    checkout.run(f"pulumi stack select --create {GUEST}")
    arns = make(checkout.client("iam"), json.loads(checkout.run("python -m scripts.roles").text))
    config.write_text(yaml.safe_dump({**local, "config": {**local["config"], "tidewater:roleArns": arns}}))
    checkout.forget_outputs()
    return Guest(checkout, platform)


@pytest.fixture(scope="module")
def proxy(guest: Guest) -> Iterator[ForwardProxy]:
    """A proxy in the cloud's network, through which the stack's pods reach AWS."""
    with ForwardProxy(Network(Instance.load(guest.checkout.state)).listen()) as found:
        guest.checkout.run(f"pulumi config set httpProxy {found.url}")
        yield found


@pytest.fixture(scope="module")
def before(guest: Guest) -> Before:
    """What surrounds the stack before it is made."""
    return guest.surroundings()


def test_all_that_the_network_and_the_cluster_lack_is_refused_at_once_before_anything_is_made(guest: Guest) -> None:
    before = guest.surroundings()
    guest.checkout.run("kubectl create namespace training && pulumi config set kubernetesVersion 1.34")
    refused = guest.checkout.fails("pulumi preview").text
    guest.checkout.run("kubectl delete namespace training && pulumi config rm kubernetesVersion")
    assert "the configuration has 6 mistakes; nothing was changed" in refused
    assert f"vpcId = {guest.platform.vpc}: has DNS host names turned off" in refused
    assert "have no route to the internet, and the VPC lacks endpoints for ec2, ecr.api, ecr.dkr, s3, sts" in refused
    assert "surgeNodes = karpenter: Karpenter calls IAM" in refused
    assert f"clusterName = {CLUSTER}: lacks the addon {LUSTRE_DRIVER}" in refused
    assert f"kubernetesVersion = 1.34: the cluster {CLUSTER} has 1.35" in refused
    assert f"namespace = training: the cluster {CLUSTER} has one of this name already" in refused
    assert guest.surroundings() == before
    guest.platform.connect()


@pytest.mark.usefixtures("proxy")
def test_after_an_up_that_was_killed_it_trains_on_nodes_of_its_own_on_the_cluster(guest: Guest, before: Before) -> None:
    stop_once_printed(guest.checkout, UP, "Job job-dataset-digits creating")
    repeat(guest.checkout, UP)
    wait_for_world(guest.checkout, 2)
    step = latest_step(guest.checkout)
    wait_until("more steps", lambda: latest_step(guest.checkout) > step)
    assert_steps_only_grow(guest.checkout)
    workers = running_workers(guest.checkout)
    assert len({node_of(guest.checkout, pod) for pod in workers}) == len(workers) == 2
    assert guest.checkout.outputs["clusterName"] == CLUSTER
    assert guest.checkout.outputs["fileSystemId"] == guest.platform.files
    made = added(before[0], aws_inventory(guest.checkout.cloud()))
    assert made.keys() & NOT_MADE == set()


def test_code_and_karpenters_calls_go_through_the_proxy_and_nothing_else_does(
    guest: Guest, proxy: ForwardProxy
) -> None:
    """Of what pods call, only AWS is behind the proxy: neither etcd, the API server nor the Pod Identity Agent."""
    endpoint = Instance.load(guest.checkout.state).cloud_endpoint
    code = guest.checkout.outputs["codeUri"].removeprefix("s3://")
    assert ("GET", f"{endpoint}/{code}") in {(method, target.partition("?")[0]) for method, target in proxy.asked}
    assert "POST" in {method for method, _ in proxy.asked}, "as Karpenter calls EC2"
    assert proxy.hosts == {urlsplit(endpoint).netloc}


def checkpoints(guest: Guest) -> list[str]:
    """Return the complete checkpoints of the job on Lustre."""
    return sorted(each.parent.name for each in guest.platform.runs.glob("digits/step-*/manifest.json"))


def test_checkpoints_are_in_the_folder_of_the_lustre_file_system(guest: Guest) -> None:
    wait_until("two checkpoints on Lustre", lambda: len(checkpoints(guest)) >= 2)
    events = [line for pod in running_workers(guest.checkout) for line in guest.checkout.logs(pod) if "event" in line]
    assert not [line for line in events if line["event"] == "checkpoint_failed"]


def test_an_unchanged_stack_changes_nothing(guest: Guest) -> None:
    guest.checkout.run(f"{UP} --refresh --expect-no-changes")


def test_the_destroyed_stack_leaves_all_as_it_was(guest: Guest, before: Before) -> None:
    """A person's pod mounts the stack's files until its namespace is deleted. Checkpoints on Lustre are its owner's."""
    guest.checkout.run(f"kubectl apply -f - <<< '{json.dumps(POD)}'")
    guest.checkout.run("kubectl wait -n training pod/notebook --for=condition=Ready --timeout=120s")
    guest.checkout.run(DESTROY)
    assert checkpoints(guest)
    assert guest.surroundings()[1] == before[1]
    assert added(before[0], aws_inventory(guest.checkout.cloud())) == {}
