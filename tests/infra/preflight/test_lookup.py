"""AWS's answers become facts, also where the official plug-in leaves something out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi
import pytest

import settings
from infra import preflight
from infra.account import connect
from tests import facts, graph

ZONES = "aws:index/getAvailabilityZones:getAvailabilityZones"
TYPE = "aws:ec2/getInstanceType:getInstanceType"


def without_what_has_no_value(token: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Answer as the official plug-in does: without the outputs that Terraform's provider sets no value for."""
    found = graph.answer(token, arguments)
    if token != TYPE:
        return found
    optional = ("efaMaximumInterfaces", "gpuses")
    return {key: value for key, value in found.items() if value or key not in optional}


def test_what_the_plug_in_leaves_out_of_its_answer_a_type_does_not_have() -> None:
    found: list[settings.Settings] = []

    def program() -> None:
        wanted = settings.load()
        found.append(preflight.check(wanted, connect(wanted), graph.aws))

    names = ["m6i.xlarge", "m6i.2xlarge"]
    config = {**graph.defaults(), "gpusPerWorker": 0, "instanceTypes": names}
    graph.run(program, config, ask=without_what_has_no_value)
    assert found[0].workers.nodes.hardware == tuple(facts.instance_type(name) for name in names)
    assert (found[0].workers.nodes.smallest.gpus, found[0].workers.nodes.smallest.efa) == (0, 0)


@pytest.mark.parametrize("zones", [pytest.param("4", id="a-count"), pytest.param("us-west-2a,us-west-2b", id="names")])
def test_a_stack_in_a_zone_where_aws_has_trouble_can_still_be_changed(
    zones: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(token: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        found = graph.answer(token, arguments)
        if token == ZONES and arguments.get("state") == "available":
            return {"names": [name for name in found["names"] if name != "us-west-2a"]}
        return found

    monkeypatch.setattr(graph, "STASHED", {"tidewater-local-zones": graph.ZONES})
    made = graph.run(graph.program, {**graph.defaults(), "availabilityZones": zones}, ask=ask)
    used = {each.inputs["availabilityZone"] for each in made.all("aws:ec2/subnet:Subnet")}
    assert "us-west-2a" in used


@pytest.mark.parametrize("refused", [ZONES, TYPE])
def test_a_question_that_aws_refuses_is_one_sentence_with_the_remedy(refused: str) -> None:
    def ask(token: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if token == refused:
            raise graph.Refused("invocation of x returned an error: UnauthorizedOperation: not authorized.")
        return graph.answer(token, arguments)

    with pytest.raises(pulumi.RunError, match=r"nothing was changed: .*not authorized\. Allow it .*scripts\.policy"):
        graph.run(graph.program, graph.defaults(), ask=ask)
