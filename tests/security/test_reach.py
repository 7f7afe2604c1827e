"""The evaluator of NetworkPolicies, by the examples and the rules of Kubernetes' documentation."""

from __future__ import annotations

from typing import Any

import pytest

from tests.security.reach import Host, Network, Place, Pod

DB = {"role": "db"}
NAMESPACES = {"default": {"project": "other"}, "mine": {"project": "myproject"}}

DOCUMENTED: dict[str, Any] = {
    "metadata": {"name": "test-network-policy", "namespace": "default"},
    "spec": {
        "podSelector": {"matchLabels": DB},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [
            {
                "from": [
                    {"ipBlock": {"cidr": "172.17.0.0/16", "except": ["172.17.1.0/24"]}},
                    {"namespaceSelector": {"matchLabels": {"project": "myproject"}}},
                    {"podSelector": {"matchLabels": {"role": "frontend"}}},
                ],
                "ports": [{"protocol": "TCP", "port": 6379}],
            }
        ],
        "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/24"}}], "ports": [{"protocol": "TCP", "port": 5978}]}],
    },
}
"""https://kubernetes.io/docs/concepts/services-networking/network-policies/#networkpolicy-resource"""

DATABASE = Pod("default", DB)
DB_SELECTOR = {"matchLabels": DB}


def policy(pods: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p", "namespace": "default"}, "spec": {"podSelector": pods, **spec}}


@pytest.mark.parametrize(
    ("source", "destination", "port", "allowed"),
    [
        pytest.param(Pod("default", {"role": "frontend"}), DATABASE, 6379, True, id="a-pod-by-its-label"),
        pytest.param(Pod("mine", {}), DATABASE, 6379, True, id="any-pod-of-a-namespace"),
        pytest.param(Host("172.17.0.9"), DATABASE, 6379, True, id="an-address-in-the-block"),
        pytest.param(Host("172.17.1.9"), DATABASE, 6379, False, id="an-excepted-address"),
        pytest.param(Pod("default", {"role": "other"}), DATABASE, 6379, False, id="another-pod"),
        pytest.param(Pod("default", {"role": "frontend"}), DATABASE, 6380, False, id="another-port"),
        pytest.param(DATABASE, Host("10.0.0.7"), 5978, True, id="out-to-the-block"),
        pytest.param(DATABASE, Host("10.0.1.7"), 5978, False, id="out-to-elsewhere"),
        pytest.param(DATABASE, Pod("mine", {}, "10.0.0.7"), 5978, True, id="out-to-a-pod-in-the-block"),
        pytest.param(Pod("default", {}), Pod("mine", {}), 1, True, id="pods-without-policies"),
    ],
)
def test_the_documented_policy_means_what_the_documentation_says(
    source: Place, destination: Place, port: int, allowed: bool
) -> None:
    assert Network([DOCUMENTED], NAMESPACES).lets(source, destination, port) is allowed


def test_an_empty_selector_isolates_every_pod_of_the_namespace_and_no_other() -> None:
    network = Network([policy({}, policyTypes=["Ingress"])], NAMESPACES)
    assert not network.lets(Host("1.2.3.4"), Pod("default", {}), 80)
    assert network.lets(Host("1.2.3.4"), Pod("mine", {}), 80)
    assert network.lets(Pod("default", {}), Host("1.2.3.4"), 80)


def test_a_connection_needs_both_sides() -> None:
    out = policy(DB_SELECTOR, policyTypes=["Egress"], egress=[{}])
    closed = policy({"matchLabels": {"role": "closed"}}, policyTypes=["Ingress"])
    network = Network([out, closed], NAMESPACES)
    assert network.lets(DATABASE, Pod("default", {}), 80)
    assert not network.lets(DATABASE, Pod("default", {"role": "closed"}), 80)


def test_policies_add_up() -> None:
    first = policy(DB_SELECTOR, ingress=[{"ports": [{"port": 1}]}])
    second = policy({}, ingress=[{"ports": [{"port": 2, "endPort": 4}]}])
    network = Network([first, second], NAMESPACES)
    assert [network.lets(Host("1.2.3.4"), DATABASE, port) for port in range(1, 6)] == [True, True, True, True, False]


def test_without_types_a_policy_is_about_ingress_and_about_egress_if_it_has_such_rules() -> None:
    only_in = Network([policy(DB_SELECTOR, ingress=[{}])], NAMESPACES)
    both = Network([policy(DB_SELECTOR, egress=[{"ports": [{"port": 1}]}])], NAMESPACES)
    assert only_in.lets(DATABASE, Host("1.2.3.4"), 80)
    assert not both.lets(DATABASE, Host("1.2.3.4"), 80)
    assert not both.lets(Host("1.2.3.4"), DATABASE, 80)


def test_the_protocol_counts() -> None:
    network = Network([policy({}, ingress=[{"ports": [{"port": 53, "protocol": "UDP"}]}])], NAMESPACES)
    assert network.lets(Host("1.2.3.4"), DATABASE, 53, "UDP")
    assert not network.lets(Host("1.2.3.4"), DATABASE, 53, "TCP")


@pytest.mark.parametrize(
    ("expression", "selected"),
    [
        ({"key": "role", "operator": "In", "values": ["db"]}, True),
        ({"key": "role", "operator": "NotIn", "values": ["db"]}, False),
        ({"key": "none", "operator": "NotIn", "values": ["db"]}, True),
        ({"key": "role", "operator": "Exists"}, True),
        ({"key": "role", "operator": "DoesNotExist"}, False),
    ],
)
def test_expressions_select_by_label(expression: dict[str, Any], selected: bool) -> None:
    network = Network([policy({"matchExpressions": [expression]}, policyTypes=["Ingress"])], NAMESPACES)
    assert network.lets(Host("1.2.3.4"), DATABASE, 80) is not selected


def test_a_port_by_name_is_refused() -> None:
    network = Network([policy({}, ingress=[{"ports": [{"port": "http"}]}])], NAMESPACES)
    with pytest.raises(ValueError, match="http"):
        network.lets(Host("1.2.3.4"), DATABASE, 80)
