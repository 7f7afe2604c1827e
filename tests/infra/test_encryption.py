"""The stack keeps its KMS key: a second one would replace everything that the first one encrypts."""

from __future__ import annotations

from typing import Any

import pulumi
import pytest
from pulumi.output import UNKNOWN
from pulumi.runtime.sync_await import _sync_await

import settings
from infra.encryption import refuse_another
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
