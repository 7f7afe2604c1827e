"""The security rules over the state files of stacks that were really brought up, and the policies in their clusters."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.security import holds
from tests.security.reach import Host, Pod
from tests.security.real import Real
from tests.security.registered import registered
from tests.security.rules import RULES
from tests.security.stack import Stack
from tidewater.contract import labels, metrics
from tidewater.elasticjob import names

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

SPACE = "training"


def graphs(real: dict[str, Real]) -> dict[str, Stack]:
    """Return the graphs of the stacks."""
    return {name: each.stack for name, each in real.items()}


def counted(stack: Stack) -> Counter[tuple[str, str]]:
    """Return the AWS resources by type and name."""
    return Counter((each.type, each.name) for each in stack.resources if each.type.startswith("aws:"))


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_holds_for_real_stacks(real: dict[str, Real], rule: str) -> None:
    assert holds.broken(graphs(real), rule) == []


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_reports_when_a_setting_of_a_real_stack_is_turned_off(real: dict[str, Real], rule: str) -> None:
    assert holds.overlooked(graphs(real), rule) == []


def test_every_waiver_is_needed_by_real_stacks(real: dict[str, Real]) -> None:
    assert holds.unneeded_waivers(graphs(real)) == []


def test_the_engine_registers_what_the_quick_tests_look_at(real: dict[str, Real]) -> None:
    for name, each in real.items():
        assert counted(each.stack) == counted(registered(each.config, name)), name


def test_the_charts_objects_are_in_the_graph(real: dict[str, Real]) -> None:
    for each in real.values():
        assert [found for found in each.stack.of("kubernetes:apps/v1:Deployment") if "karpenter" in found.name]


def pods(real: Real, component: str) -> list[Pod]:
    """Return the running pods of a component in the training namespace."""
    return [
        Pod(SPACE, pod["metadata"]["labels"], pod["status"]["podIP"])
        for pod in real.pods
        if pod["metadata"]["namespace"] == SPACE
        and pod["metadata"]["labels"].get(labels.COMPONENT) == component
        and pod["status"]["phase"] == "Running"
    ]


def test_the_api_server_has_accepted_every_policy_as_it_was_registered(real: dict[str, Real]) -> None:
    for each in real.values():
        wanted = {
            found.get("metadata.name"): found.get("spec")
            for found in each.stack.of("kubernetes:networking.k8s.io/v1:NetworkPolicy")
        }
        stored = {found["metadata"]["name"]: found["spec"] for found in each.policies}
        assert set(wanted) == set(stored)
        for name in wanted:
            given = {key: value for key, value in wanted[name].items() if value}
            assert {key: value for key, value in stored[name].items() if value} == given


def test_the_pods_that_run_reach_what_they_use_and_no_more(real: dict[str, Real]) -> None:
    local = real["local"]
    workers, (member,) = pods(local, labels.COMPONENT_WORKER), pods(local, labels.COMPONENT_ETCD)
    assert len(workers) == 2
    network, dns = local.network, Pod("kube-system", {"k8s-app": "kube-dns"})
    for worker in workers:
        assert all(network.lets(worker, other, 40123) for other in workers)
        assert network.lets(worker, member, 2379)
        assert network.lets(worker, dns, 53, "UDP")
        assert network.lets(worker, Host("52.218.0.1"), 443)
        assert network.lets(dns, worker, metrics.FIRST_PORT)
        assert not network.lets(dns, worker, 40123)
        assert not network.lets(worker, Host("169.254.169.254"), 80)
    assert not network.lets(dns, member, 2379)


def test_three_members_of_etcd_reach_each_other(real: dict[str, Real]) -> None:
    members = pods(real["aws"], labels.COMPONENT_ETCD)
    assert len(members) == 3
    network = real["aws"].network
    assert all(network.lets(one, other, 2380) for one in members for other in members)


def test_every_pod_of_the_namespace_has_an_owner_which_the_vpc_cni_requires(real: dict[str, Real]) -> None:
    for each in real.values():
        here = [pod for pod in each.pods if pod["metadata"]["namespace"] == SPACE]
        assert here
        assert all(pod["metadata"].get("ownerReferences") for pod in here)
        assert all(
            pod["metadata"]["labels"][names.LABEL_GROUP_NAME] == names.GROUP
            for pod in here
            if pod["metadata"]["labels"].get(labels.COMPONENT) == labels.COMPONENT_WORKER
        )
