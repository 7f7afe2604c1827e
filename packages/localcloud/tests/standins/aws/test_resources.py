"""Create, read, update, import and delete of every resource type, as the official plug-in does them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from localcloud.standins.aws import schema
from localcloud.standins.aws.registry import ENTRIES
from localcloud.standins.values import UNKNOWN

from packages.localcloud.tests.standins.aws.cases import CASES
from packages.localcloud.tests.standins.aws.conftest import make_engine
from packages.localcloud.tests.standins.aws.harness import Engine
from packages.localcloud.tests.standins.aws.world import Case, World

REPEATABLE = [
    case for case in CASES if case.token.endswith((":Cluster", ":Addon", ":AccessEntry", ":PodIdentityAssociation"))
]


@pytest.fixture(scope="module")
def world(endpoint: str) -> Iterator[World]:
    made = World(make_engine(endpoint))
    yield made
    made.take_down()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.token)
def test_a_type_is_created_read_updated_and_deleted(case: Case, world: World, engine: Engine) -> None:
    inputs = case.inputs(world)
    made = engine.create(case.token, "r", inputs)
    assert made.id
    assert set(made.outputs) - {"id"} <= set(schema.outputs(case.token)), "an output that the SDK doesn't know"
    assert not engine.diff(made, inputs).changes, "a second update would change something"

    assert engine.refresh(made), "it is not found again"
    assert not engine.diff(made, inputs).changes, "a refresh shows drift where there is none"

    if case.importable:
        imported = engine.import_(case.token, "r", case.import_id(made))
        assert imported is not None
        assert imported.id == made.id or case.token.endswith(("Route", "Attachment"))
        naming = ENTRIES[case.token].naming
        named = {naming.property} if naming else set()  # an automatic name is made anew for what has none in the state
        wrong = set(engine.diff(imported, inputs).diffs) - case.unread - named
        assert not wrong, f"an import doesn't know {wrong}"

    if case.replaced:
        assert engine.diff(made, case.replaced(world)).replaces
    if case.changed:
        changed = case.changed(world)
        diff = engine.diff(made, changed)
        assert diff.changes
        assert not diff.replaces
        engine.update(made, changed)
        assert not engine.diff(made, changed).changes
        assert engine.refresh(made)
        assert not engine.diff(made, changed).changes, "the update was not carried out"

    engine.delete(made)
    if not case.token.endswith(("DefaultSecurityGroup", "BackupPolicy", "Versioning")):
        assert not engine.refresh(made), "it is still there"
    engine.delete(made)  # once more, as after an update that was cut off


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.token)
def test_a_preview_knows_the_inputs_and_nothing_that_aws_makes(case: Case, world: World, engine: Engine) -> None:
    outputs = engine.preview(case.token, "r", case.inputs(world))
    assert {name for name, value in outputs.items() if value is UNKNOWN} <= set(schema.outputs(case.token))
    if "arn" in set(schema.outputs(case.token)) - schema.input_names(case.token):
        assert outputs["arn"] is UNKNOWN


@pytest.mark.parametrize("case", REPEATABLE, ids=lambda case: case.token)
def test_the_next_up_adopts_what_a_killed_up_was_creating(case: Case, world: World, engine: Engine) -> None:
    naming = ENTRIES[case.token].naming
    inputs = case.inputs(world) | ({naming.property: "repeated"} if naming else {})
    made, again = engine.create(case.token, "r", inputs), engine.create(case.token, "r", inputs)
    assert (again.id, again.outputs) == (made.id, made.outputs)
    engine.delete(made)


def test_every_type_has_a_case() -> None:
    assert {case.token for case in CASES} == set(ENTRIES)
