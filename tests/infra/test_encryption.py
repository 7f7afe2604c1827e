"""The stack keeps its KMS key: a second one would replace everything that the first one encrypts.

With an existing key all that the stack stores is encrypted with it, and nothing is made or changed of the key.
"""

from __future__ import annotations

import json
from typing import Any

import pulumi
import pytest
from pulumi.output import UNKNOWN
from pulumi.runtime.sync_await import _sync_await

import settings
from infra import policies
from infra.encryption import control_plane_log_group_name, refuse_another
from infra.policies.roles import flow_log_group_name
from tests import graph

KEY = "arn:aws:kms:us-west-2:123456789012:key/1234"


def test_a_key_that_the_state_lacks_is_not_made_again_and_the_commands_that_keep_it_are_named() -> None:
    unknown: Any = UNKNOWN

    def program() -> None:
        to_be_made, recorded = pulumi.Output.from_input(unknown), pulumi.Output.from_input(KEY)
        _sync_await(refuse_another("tidewater-local", "us-west-2", to_be_made, recorded))

    with pytest.raises(settings.ConfigurationError) as error:
        graph.run(program, {})
    (mistake,) = error.value.mistakes
    assert mistake.startswith(f"the state lacks the stack's KMS key {KEY}, so another one would be made")
    assert "aws kms cancel-key-deletion --key-id 1234 --region us-west-2" in mistake
    assert "pulumi import aws:kms/key:Key tidewater-local-key 1234 --protect=false" in mistake
    assert "--provider aws=urn:pulumi:local::tidewater::pulumi:providers:aws::tidewater-local" in mistake


def test_nothing_is_made_with_another_key_than_that_of_the_first_update(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "STASHED", {"tidewater-local-key": KEY})
    registered = graph.Graph()
    with pytest.raises(settings.ConfigurationError, match="import the state from before it"):
        graph.run(graph.program, graph.defaults(), graph=registered)
    assert not registered.all("eks:index:Cluster") + registered.all("aws:efs/fileSystem:FileSystem")


def test_all_that_the_stack_stores_is_encrypted_with_an_existing_key_and_nothing_is_made_of_it() -> None:
    changes = {"publicAccessCidrs": [graph.ADDRESS], "dataKeyArn": KEY, "vpcFlowLogs": 14}
    made = graph.deploy({**graph.defaults(), **changes})
    assert [each.type for each in made.resources if each.type.startswith("aws:kms/")] == []
    assert made.one("aws:efs/fileSystem:FileSystem").inputs["kmsKeyId"] == KEY
    assert made.one("eks:index:Cluster").inputs["encryptionConfigKeyArn"] == KEY
    (rule,) = made.one("aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration").inputs[
        "rules"
    ]
    assert rule["applyServerSideEncryptionByDefault"]["kmsMasterKeyId"] == KEY
    groups = made.all("aws:cloudwatch/logGroup:LogGroup")
    assert [each.inputs["kmsKeyId"] for each in groups] == [KEY, KEY]


def test_workers_and_teams_may_use_an_existing_key_for_their_objects() -> None:
    team = {"name": "vision", "maxWorkers": 4, "userArns": ["arn:aws:iam::123456789012:role/vision"]}
    changes = {"publicAccessCidrs": [graph.ADDRESS], "dataKeyArn": KEY, "checkpoints": "both"}
    made = graph.deploy({**graph.defaults(), **changes, "fileAccess": "iam", "teams": [team]})
    for label in ("trainer", "team"):
        statements = json.loads(made.one("aws:iam/rolePolicy:RolePolicy", label).inputs["policy"])["Statement"]
        (use,) = (each for each in statements if "kms:Decrypt" in each["Action"])
        assert (use["Action"], use["Resource"]) == (["kms:Decrypt", "kms:GenerateDataKey"], KEY)


def test_the_documentation_has_the_statement_that_the_policy_of_an_existing_key_needs() -> None:
    text = (graph.ROOT / "docs" / "deploy-aws.md").read_text()
    shown = text.partition("### With a KMS key of your own")[2].partition("```json\n")[2].partition("```")[0]
    groups = [control_plane_log_group_name("tidewater-production"), flow_log_group_name("tidewater-production")]
    _, logs = policies.encryption_key("123456789012", "us-west-2", "aws", groups)["Statement"]
    assert json.loads(shown) == logs
