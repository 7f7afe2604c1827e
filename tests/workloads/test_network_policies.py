"""Who reaches whom in the training namespace, for pods with the labels that they really get.

The one-machine cloud does not enforce NetworkPolicies, so a pure evaluator says what they mean.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import settings
from tests import graph
from tests.security.reach import Host, Network, Pod, selects
from tidewater.contract import metrics
from tidewater.controller import objects
from tidewater.controller.decide.actions import CreatePod
from tidewater.elasticjob import codec, names
from workloads import network_policies
from workloads.etcd import manifests as etcd

SPACE = "training"
NAMESPACES = {each: {"kubernetes.io/metadata.name": each} for each in (SPACE, "kube-system", "monitoring")}
POLICY = "kubernetes:networking.k8s.io/v1:NetworkPolicy"
JOB = f"kubernetes:{names.API_VERSION}:{names.KIND}"

COREDNS = Pod("kube-system", {"k8s-app": "kube-dns"})
STRANGER = Pod(SPACE, {"app": "notebook"})
PROMETHEUS = Pod("monitoring", {"app": "prometheus"})
S3 = Host("52.218.0.1")
IDENTITY_AGENT = Host("169.254.170.23")
NODE_METADATA = Host("169.254.169.254")
NODE = Host("10.0.1.10")
API_SERVER = Host("10.0.32.5")
"""The control plane's interfaces are in the VPC's subnets."""

ANY_PORT = 40123
"""One that the system chose, as for gloo, NCCL and the trainer's own connections."""


@pytest.fixture(scope="module")
def deployed() -> graph.Graph:
    """Return the graph of the production example, which has three members of etcd."""
    return graph.production()


@pytest.fixture(scope="module")
def network(deployed: graph.Graph) -> Network:
    return Network([each.inputs for each in deployed.all(POLICY)], NAMESPACES)


def worker_of(deployed: graph.Graph, number: int) -> Pod:
    """Return a worker of the stack's job, with the labels that the controller gives it."""
    registered = json.dumps({"apiVersion": names.API_VERSION, "kind": names.KIND, **deployed.one(JOB).inputs})
    manifest = json.loads(registered, parse_float=lambda text: int(float(text)))  # Pulumi has no whole numbers
    made = objects.pod(codec.job_of(manifest), CreatePod(names.WORKER, number, core=True))
    return Pod(SPACE, made["metadata"]["labels"])


def labelled(deployed: graph.Graph, type_: str, name: str) -> Pod:
    """Return a pod of a StatefulSet or Job."""
    return Pod(SPACE, deployed.one(type_, name).inputs["spec"]["template"]["metadata"]["labels"])


@pytest.fixture(scope="module")
def worker(deployed: graph.Graph) -> Pod:
    return worker_of(deployed, 0)


@pytest.fixture(scope="module")
def member(deployed: graph.Graph) -> Pod:
    return labelled(deployed, "kubernetes:apps/v1:StatefulSet", "etcd")


@pytest.fixture(scope="module")
def dataset(deployed: graph.Graph) -> Pod:
    return labelled(deployed, "kubernetes:batch/v1:Job", "dataset")


OTHER_JOB = Pod(SPACE, dict(names.pod_labels("other", names.MASTER, 0)))
"""A pod of a user's own ElasticJob, which the stack's program knows nothing of."""


def test_workers_reach_each_other_on_any_port(network: Network, deployed: graph.Graph) -> None:
    one, other = worker_of(deployed, 0), worker_of(deployed, 1)
    assert network.lets(one, other, ANY_PORT)
    assert network.lets(other, one, ANY_PORT, "UDP")


def test_pods_of_jobs_reach_etcd_and_nobody_else_does(network: Network, worker: Pod, member: Pod, dataset: Pod) -> None:
    assert network.lets(worker, member, etcd.CLIENT_PORT)
    assert network.lets(OTHER_JOB, member, etcd.CLIENT_PORT)
    assert not network.lets(worker, member, etcd.PEER_PORT)
    for other in (dataset, STRANGER, PROMETHEUS, NODE):
        assert not network.lets(other, member, etcd.CLIENT_PORT)
        assert not network.lets(other, member, etcd.PEER_PORT)


def test_members_of_etcd_reach_each_other_and_nothing_else_but_names(
    network: Network, worker: Pod, member: Pod
) -> None:
    assert network.lets(member, member, etcd.PEER_PORT)
    assert network.lets(member, COREDNS, 53, "UDP")
    assert not network.lets(member, S3, 443)
    assert not network.lets(member, IDENTITY_AGENT, 80)
    assert not network.lets(member, worker, ANY_PORT)


def test_every_pod_resolves_names(network: Network, worker: Pod, member: Pod, dataset: Pod) -> None:
    for pod in (worker, member, dataset, OTHER_JOB):
        assert network.lets(pod, COREDNS, 53, "UDP")
        assert network.lets(pod, COREDNS, 53, "TCP")
        assert not network.lets(pod, COREDNS, 9153)


def test_workers_and_dataset_reach_s3_and_the_agent_with_their_credentials(
    network: Network, worker: Pod, dataset: Pod
) -> None:
    for pod in (worker, dataset, OTHER_JOB):
        assert network.lets(pod, S3, 443)
        assert network.lets(pod, IDENTITY_AGENT, 80)


def test_no_pod_reaches_the_nodes_credentials_or_the_kubelet(
    network: Network, worker: Pod, member: Pod, dataset: Pod
) -> None:
    for pod in (worker, member, dataset, OTHER_JOB, STRANGER):
        assert not network.lets(pod, NODE_METADATA, 80)
        assert not network.lets(pod, NODE, 10250)
        assert not network.lets(pod, S3, 80)


def test_metrics_are_scraped_from_any_namespace_and_through_the_api_server(network: Network, worker: Pod) -> None:
    every = [each["containerPort"] for each in metrics.ports(network_policies.METRICS_PORTS)]
    for source in (PROMETHEUS, API_SERVER):
        assert all(network.lets(source, worker, int(str(port))) for port in every)
        assert not network.lets(source, worker, metrics.FIRST_PORT - 1)
        assert not network.lets(source, worker, metrics.FIRST_PORT + network_policies.METRICS_PORTS)
    assert not network.lets(Host("8.8.8.8"), worker, metrics.FIRST_PORT)


def test_strangers_reach_no_worker(network: Network, worker: Pod, dataset: Pod) -> None:
    for other in (STRANGER, PROMETHEUS, dataset, NODE):
        assert not network.lets(other, worker, ANY_PORT)


def test_what_no_policy_names_is_denied_in_both_directions(network: Network) -> None:
    assert not network.lets(PROMETHEUS, STRANGER, 80)
    assert not network.lets(STRANGER, PROMETHEUS, 80)


def rules(network: Network, direction: str) -> Iterator[dict[str, Any]]:
    """Yield all rules of one direction."""
    for each in network.policies:
        yield from each["spec"].get(direction) or ()


def test_the_policies_keep_to_what_the_vpc_cni_enforces(network: Network) -> None:
    for rule in [*rules(network, "ingress"), *rules(network, "egress")]:
        assert all(not isinstance(each["port"], str) for each in rule.get("ports", ()))
        assert not [
            each for each in [*rule.get("from", ()), *rule.get("to", ())] if "except" in each.get("ipBlock", {})
        ]


def test_egress_to_etcd_passes_by_its_service_too(network: Network, deployed: graph.Graph) -> None:
    service = next(
        each.inputs["spec"]
        for each in deployed.all("kubernetes:core/v1:Service")
        if each.inputs["spec"].get("clusterIP") != "None"
    )
    peers = [
        (peer["podSelector"], rule)
        for rule in rules(network, "egress")
        for peer in rule["to"]
        if "podSelector" in peer and "namespaceSelector" not in peer
    ]
    ports = [
        port["port"] for selector, rule in peers if selects(selector, service["selector"]) for port in rule["ports"]
    ]
    (port,) = service["ports"]
    assert port["port"] in ports
    (container,) = deployed.one("kubernetes:apps/v1:StatefulSet").inputs["spec"]["template"]["spec"]["containers"]
    assert {"name": port["targetPort"], "containerPort": port["port"]} in container["ports"]


def test_a_range_of_the_vpc_comes_from_the_settings() -> None:
    own = graph.deploy({**graph.stack_config("Pulumi.local.yaml"), "vpcCidr": "172.16.0.0/16"})
    scraped = own.one(POLICY, "-jobs").inputs["spec"]["ingress"][1]["from"]
    assert {"ipBlock": {"cidr": "172.16.0.0/16"}} in scraped


def test_denial_comes_last_so_that_a_stack_that_trains_goes_on(deployed: graph.Graph) -> None:
    deny = deployed.one(POLICY, "default-deny")
    opened = [each for each in deployed.all(POLICY) if each.parent == deny.parent and each is not deny]
    assert len(opened) == 4
    assert all(deployed.needs(deny, each) for each in opened)


@pytest.mark.parametrize(
    "pods", [("kubernetes:apps/v1:StatefulSet", "etcd"), ("kubernetes:batch/v1:Job", "dataset"), (JOB, "")]
)
def test_no_pod_runs_before_its_policies(deployed: graph.Graph, pods: tuple[str, str]) -> None:
    assert deployed.needs(deployed.one(*pods), deployed.one(POLICY, "default-deny"))


def opened(proxy: str) -> Network:
    """Return the policies of a stack with this proxy."""
    found = [*network_policies.manifests(SPACE, (), settings.Proxy(proxy, ())), network_policies.default_deny(SPACE)]
    return Network(found, NAMESPACES)


def test_pods_reach_the_proxy_at_its_address_and_port_only(worker: Pod, member: Pod, dataset: Pod) -> None:
    one = opened("http://10.0.9.9:3128")
    for pod in (worker, dataset, OTHER_JOB):
        assert one.lets(pod, Host("10.0.9.9"), 3128)
        assert not one.lets(pod, Host("10.0.9.9"), 3129)
        assert not one.lets(pod, Host("10.0.9.10"), 3128)
    assert not one.lets(member, Host("10.0.9.9"), 3128)


def test_of_a_proxy_with_a_name_the_port_is_open_on_every_address(network: Network, worker: Pod) -> None:
    one = opened("http://proxy.example.com:3128")
    assert one.lets(worker, Host("10.0.9.9"), 3128)
    assert not one.lets(worker, Host("10.0.9.9"), 3129)
    assert not network.lets(worker, Host("10.0.9.9"), 3128)
