"""The security rules over the state of the stack, and what the network policies in its cluster let through."""

from __future__ import annotations

import pytest

from tests.e2e.checkout import STACK, Checkout
from tests.e2e.elasticjob import make_stack
from tests.e2e.training import wait_for_world
from tests.security import real
from tests.security.reach import Host, Pod
from tests.security.real import Real
from tidewater.contract import labels, metrics

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def stack(checkout: Checkout) -> Real:
    """Return the stack, with two workers that train."""
    make_stack(checkout, {"workers": "2"})
    wait_for_world(checkout, 2)
    return real.read(checkout, STACK)


def test_every_rule_holds_and_reports_each_setting_that_is_turned_off(stack: Real) -> None:
    assert stack.broken_rules() == []


def test_the_engine_registers_what_the_quick_tests_look_at(stack: Real) -> None:
    assert stack.unlike_registered() == {}


def test_the_charts_objects_are_in_the_graph(stack: Real) -> None:
    assert [each for each in stack.stack.of("kubernetes:apps/v1:Deployment") if "karpenter" in each.name]


def test_the_api_server_has_accepted_every_policy_as_it_was_registered(stack: Real) -> None:
    assert stack.changed_policies() == []


def test_the_policies_apply_to_every_pod_of_the_namespace(stack: Real) -> None:
    assert stack.pods_out_of_reach() == []


def test_the_pods_that_run_reach_what_they_use_and_no_more(stack: Real) -> None:
    workers, (member,) = stack.running(labels.COMPONENT_WORKER), stack.running(labels.COMPONENT_ETCD)
    assert len(workers) == 2
    network, dns = stack.network, Pod("kube-system", {"k8s-app": "kube-dns"})
    for worker in workers:
        assert all(network.lets(worker, other, 40123) for other in workers)
        assert network.lets(worker, member, 2379)
        assert network.lets(worker, dns, 53, "UDP")
        assert network.lets(worker, Host("52.218.0.1"), 443)
        assert network.lets(dns, worker, metrics.FIRST_PORT)
        assert not network.lets(dns, worker, 40123)
        assert not network.lets(worker, Host("169.254.169.254"), 80)
    assert not network.lets(dns, member, 2379)
