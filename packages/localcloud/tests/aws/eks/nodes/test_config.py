"""Labels, taints and kubelet options of a NodeConfig."""

from __future__ import annotations

from typing import Any

import pytest
from localcloud.aws.eks.nodes import config
from localcloud.aws.eks.nodes.config import BadNodeConfig, NodeConfig


def node_config(**fields: Any) -> NodeConfig:
    given = {"cluster": "demo", "endpoint": "https://e", "ca_pem": "pem", "cidr": "172.20.0.0/16"}
    return NodeConfig(**(given | fields))


@pytest.mark.parametrize(
    "flags",
    [
        ("--node-labels=a=1,b=2",),
        ("--node-labels=a=0,b=2", "--v=2", "--node-labels=a=1"),
        ("--node-labels a=1,b=2",),
        ("--node-labels", "a=1,b=2"),
    ],
    ids=["one flag", "the last wins", "one word", "two words"],
)
def test_labels_come_from_all_flags(flags: tuple[str, ...]) -> None:
    assert config.labels(node_config(flags=flags)) == {"a": "1", "b": "2"}


def test_taints_come_from_kubelets_fields_or_from_the_last_flag() -> None:
    fields = {"registerWithTaints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]}
    of_fields = {"key": "karpenter.sh/unregistered", "value": "", "effect": "NoExecute"}
    assert config.taints(node_config(kubelet=fields)) == [of_fields]
    flags = ("--register-with-taints=old:NoSchedule", "--register-with-taints=gpu=true:NoSchedule,b:NoExecute")
    assert config.taints(node_config(kubelet=fields, flags=flags)) == [
        {"key": "gpu", "value": "true", "effect": "NoSchedule"},
        {"key": "b", "value": "", "effect": "NoExecute"},
    ]


def test_the_address_of_the_dns_follows_from_the_range_of_services() -> None:
    assert config.kubelet_options(node_config())["clusterDNS"] == ["172.20.0.10"]
    assert config.kubelet_options(node_config(kubelet={"clusterDNS": ["1.2.3.4"]}))["clusterDNS"] == ["1.2.3.4"]


def test_flags_are_options_of_kubelet_and_win_over_its_fields() -> None:
    flags = ("--max-pods=40", "--kube-reserved=cpu=1,memory=1Gi", "--root-dir=/elsewhere")
    given = node_config(kubelet={"maxPods": 20, "podsPerCore": 2}, flags=flags)
    assert config.kubelet_options(given) == {
        "clusterDNS": ["172.20.0.10"],
        "maxPods": 40,
        "podsPerCore": 2,
        "kubeReserved": {"cpu": "1", "memory": "1Gi"},
    }
    assert config.unknown_flags(given) == ["--root-dir"]


def test_quotes_around_a_flags_value_are_no_part_of_it() -> None:
    given = node_config(flags=('--node-labels="karpenter.sh/nodepool=surge,role=trainer"',))
    assert config.labels(given) == {"karpenter.sh/nodepool": "surge", "role": "trainer"}


def test_a_complete_configuration_is_accepted() -> None:
    labels = "--node-labels=karpenter.sh/nodepool=surge,node.kubernetes.io/lifecycle=spot,kubernetes.io/os=linux"
    config.check(node_config(flags=(labels,)))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"cluster": ""}, "has no spec.cluster.name"),
        ({"endpoint": "", "cidr": ""}, "spec.cluster.apiServerEndpoint, spec.cluster.cidr"),
        ({"cidr": "172.20"}, "'172.20' is no range"),
        ({"flags": ("--node-labels=role",)}, "'role' must have the form"),
        ({"flags": ("--node-labels=role=a/b",)}, "role=a/b is no label"),
        (
            {"flags": ("--node-labels=node-role.kubernetes.io/worker=",)},
            "may not set the label node-role",
        ),
        ({"flags": ("--register-with-taints=gpu",)}, "is no taint"),
        ({"flags": ("--register-with-taints=gpu=true:Never",)}, "gpu=true:Never is no taint"),
        ({"kubelet": {"registerWithTaints": [{"effect": "NoSchedule"}]}}, "no list of taints"),
        ({"flags": ("--max-pods=many",)}, "'many' is no number"),
        ({"flags": ('--node-labels="role=trainer',)}, "spec.kubelet.flags: No closing quotation"),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value,
)
def test_what_nodeadm_or_kubelet_refuses_is_refused(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadNodeConfig, match=reason):
        config.check(node_config(**fields))
