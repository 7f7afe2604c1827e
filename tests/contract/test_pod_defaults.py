"""What the controller's pods and the stack's pods have in common."""

from __future__ import annotations

import yaml

from tidewater.contract import pod_defaults


def test_a_container_has_no_privileges_and_writes_nowhere() -> None:
    assert pod_defaults.confined() == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_two_confined_containers_are_printed_without_references_to_each_other() -> None:
    assert "&" not in yaml.safe_dump([pod_defaults.confined(), pod_defaults.confined()])


def test_a_lost_node_loses_its_pods_soon_whether_it_reports_or_not() -> None:
    found = {each["key"]: each["tolerationSeconds"] for each in pod_defaults.lost_node_tolerations()}
    assert found == {"node.kubernetes.io/not-ready": 15, "node.kubernetes.io/unreachable": 15}
