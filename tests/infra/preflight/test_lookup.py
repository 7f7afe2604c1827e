"""AWS's answers become facts, also where the official plug-in leaves something out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import settings
from infra import preflight
from infra.account import connect
from tests import facts, graph

TYPE = "aws:ec2/getInstanceType:getInstanceType"


def without_what_has_no_value(token: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Answer as the official plug-in does: without the outputs of which Terraform's provider sets no value."""
    found = graph.answer(token, arguments)
    if token != TYPE:
        return found
    optional = ("efaMaximumInterfaces", "gpuses")
    return {key: value for key, value in found.items() if value or key not in optional}


def test_what_the_plug_in_leaves_out_of_its_answer_a_type_does_not_have() -> None:
    found: list[settings.Settings] = []

    def program() -> None:
        wanted = settings.load()
        found.append(preflight.check(wanted, connect(wanted)))

    names = ["m6i.xlarge", "m6i.2xlarge"]
    config = {**graph.defaults(), "gpusPerWorker": 0, "instanceTypes": names}
    graph.run(program, config, ask=without_what_has_no_value)
    assert found[0].workers.nodes.hardware == tuple(facts.instance_type(name) for name in names)
    assert (found[0].workers.nodes.smallest.gpus, found[0].workers.nodes.smallest.efa) == (0, 0)
