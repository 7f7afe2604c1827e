"""Every security rule holds for every stack that comes with the project, and would be reported if it did not.

The graphs here come from mocks, quickly; tests/e2e holds the same against the state of stacks that were brought up.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests import graph
from tests.security import holds
from tests.security.registered import registered
from tests.security.rules import RULES
from tests.security.stack import SECRET, SIGNATURE, Stack
from tests.security.waivers import EVERY, WAIVERS

FILES = {"local": "Pulumi.local.yaml", "aws-dev": "Pulumi.aws-dev.yaml.example", "aws": "Pulumi.aws.yaml.example"}

# The list of checks that the project has set itself, by checkov's and Prowler's ids.
REQUIRED = {
    *(f"CKV_AWS_{number}" for number in (37, 38, 39, 58, 339, 100, 79, 341, 88, 130, 42, 184, 329, 330)),
    *(f"CKV_AWS_{number}" for number in (53, 54, 55, 56, 21, 145, 70, 300, 355, 356, 290, 274, 60, 61)),
    *(f"CKV_AWS_{number}" for number in (23, 382, 51, 163, 136, 7, 66, 338, 158)),
    *("CKV2_AWS_6", "CKV2_AWS_61", "s3_bucket_secure_transport_policy"),
    *("efs_have_backup_enabled", "efs_mount_target_not_publicly_accessible", "efs_not_publicly_accessible"),
    *("eks_cluster_deletion_protection_enabled", "eks_cluster_network_policy_enabled"),
}


@pytest.fixture(scope="module")
def stacks() -> dict[str, Stack]:
    """Return the graphs of the stacks that come with the project."""
    return {name: registered(graph.stack_config(file), name) for name, file in FILES.items()}


def test_no_required_rule_is_missing() -> None:
    assert set(RULES) >= REQUIRED


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_says_where_it_comes_from_and_what_turns_it_off(rule: str) -> None:
    assert RULES[rule].source.startswith("https://")
    assert RULES[rule].promise
    assert RULES[rule].turned_off, f"{rule} has no change that it must report"


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_holds(stacks: dict[str, Stack], rule: str) -> None:
    assert holds.broken(stacks, rule) == []


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_reports_when_its_setting_is_turned_off(stacks: dict[str, Stack], rule: str) -> None:
    assert holds.overlooked(stacks, rule) == []


def test_every_waiver_is_needed_and_gives_a_reason_in_one_line(stacks: dict[str, Stack]) -> None:
    assert holds.unneeded_waivers(stacks) == []
    for waiver in WAIVERS:
        assert waiver.rule in RULES
        assert set(waiver.stacks) <= set(EVERY)
        assert len(waiver.reason.splitlines()) == 1


def test_an_api_without_named_addresses_is_private() -> None:
    private = registered({**graph.stack_config("Pulumi.aws.yaml.example"), "publicAccessCidrs": []}, "aws")
    assert list(RULES["CKV_AWS_39"].check(private)) == []


def test_children_of_components_are_looked_at(stacks: dict[str, Stack]) -> None:
    for stack in stacks.values():
        (cluster,) = stack.of("aws:eks/cluster:Cluster")
        assert stack.attached("aws:eks/addon:Addon", "clusterName", cluster)


def test_secrets_of_a_state_file_are_read_and_encrypted_ones_refused() -> None:
    asset = {SIGNATURE: "c44067f5952c0a294b673a41bacd8c17", "path": "code.zip"}

    def state(secret: dict[str, str]) -> dict[str, object]:
        found = {"type": "t", "urn": "urn::n", "inputs": {"password": {SIGNATURE: SECRET, **secret}, "code": asset}}
        return {"deployment": {"resources": [found]}}

    (resource,) = Stack.of_state(state({"plaintext": json.dumps("open")})).resources
    assert resource.get("password") == "open"
    assert resource.get("code") == asset
    with pytest.raises(ValueError, match="--show-secrets"):
        Stack.of_state(state({"ciphertext": "abc"}))


def block(name: str) -> list[str]:
    """Return the rows of the table in docs/security.md between `<!-- name -->` and `<!-- end -->`."""
    text = (graph.ROOT / "docs" / "security.md").read_text()
    return text.split(f"<!-- {name} -->\n")[1].split("<!-- end -->")[0].splitlines()[2:]


def test_the_documentation_lists_every_rule_and_every_waiver() -> None:
    assert block("rules") == [f"| {rule.id} | {rule.promise} |" for rule in RULES.values()]
    assert block("waivers") == [
        f"| {waiver.rule} | `{waiver.resource}` | {', '.join(waiver.stacks)} | {waiver.reason} |" for waiver in WAIVERS
    ]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(
            {"imageCache": True, "dataset": "s3://pictures/animals/", "datasetStorage": "s3"}, id="cache-and-s3"
        ),
        pytest.param({"monitoring": "prometheus"}, id="prometheus"),
        pytest.param({"monitoring": "managed"}, id="managed-prometheus"),
        pytest.param({"vpcFlowLogs": 365}, id="flow-logs"),
        pytest.param({"fileAccess": "iam", "teams": [{"name": "vision", "maxWorkers": 1}]}, id="teams"),
        pytest.param({"instanceTypes": ["p4d.24xlarge"], "gpusPerWorker": 8, "efa": True}, id="efa"),
    ],
)
def test_no_option_breaks_a_rule(options: dict[str, Any]) -> None:
    stacks = {"aws": registered({**graph.stack_config(FILES["aws"]), **options}, "aws")}
    assert [finding for rule in RULES for finding in holds.broken(stacks, rule)] == []


def test_with_flow_logs_the_rule_holds_without_its_waiver() -> None:
    logged = registered({**graph.stack_config(FILES["aws"]), "vpcFlowLogs": 365}, "aws")
    assert list(RULES["CKV2_AWS_11"].check(logged)) == []
