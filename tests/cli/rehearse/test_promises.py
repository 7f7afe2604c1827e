"""The table has each promise, held or not or not tried, and what to do; the report has the same for a program."""

from __future__ import annotations

import json

from tests.cli.rehearse.records import begun, final, recorded
from tidewater.cli.rehearse.compare import Finding, Promise
from tidewater.cli.rehearse.promises import Outcome, Runs, judge, report, table
from tidewater.cli.rehearse.records import Records
from tidewater.cli.rehearse.remedies import Seen, remedy


def run(weight: str = "x", variable: str = "1") -> Records:
    pieces = {"model/w": "x", "variable/seen": "1"}
    other = {"model/w": weight, "variable/seen": variable}
    return recorded(("a", begun(1, [0])), ("a", final(1, pieces)), ("b", final(1, other)))


def lines(outcome: Outcome) -> list[str]:
    return [text for text, _ in table(outcome)]


def test_a_script_that_keeps_every_promise() -> None:
    outcome = judge(Runs(run(), run(), run(), run()), [])
    assert outcome.held
    assert lines(outcome) == [f"✓ {promise.value}" for promise in Promise]


def test_a_difference_has_its_remedy_below_it_and_the_promise_does_not_hold() -> None:
    outcome = judge(Runs(run(), run(), run(), run(weight="y")), [])
    assert not outcome.held
    place = lines(outcome).index(f"✗ {Promise.ALIKE.value}")
    assert lines(outcome)[place + 1 : place + 3] == [
        "  the model's w: x in a and y in b after step 1, before any fault",
        f"  → {remedy('model/w', Seen.BETWEEN_WORKERS)}",
    ]
    assert sum(line.startswith("✓") for line in lines(outcome)) == len(Promise) - 1


def test_a_variable_for_show_breaks_no_promise_and_is_mentioned() -> None:
    outcome = judge(Runs(run(), run(), run(), run(variable="2")), [])
    assert outcome.held
    assert "  note: the script's variable seen: 1 in a and 2 in b after step 1, before any fault" in lines(outcome)


def test_what_was_not_tried_is_neither_held_nor_broken() -> None:
    failure = Finding(Promise.TRAINS, "worker-0 ended with exit code 2", "in a run without faults", "look at it")
    outcome = judge(Runs(Records(), Records(), Records(), Records()), [failure])
    assert not outcome.held
    assert lines(outcome)[0] == f"✗ {Promise.TRAINS.value}"
    assert lines(outcome)[3:] == [f"- {promise.value}: not tried" for promise in [*Promise][1:]]
    found = json.loads(json.dumps(report(outcome, {"script": "train.py"})))
    assert (found["script"], found["held"], found["steps"]["faults"]) == ("train.py", False, 0)
    assert [each["held"] for each in found["promises"]] == [False, *[None] * (len(Promise) - 1)]
    assert found["promises"][0]["findings"][0]["what"] == "worker-0 ended with exit code 2"


def test_a_generator_needs_a_seed_wherever_it_is() -> None:
    for piece in ("optimizer/0.rng", "variable/rng", "object/augment.rng"):
        assert "seed it with config.seed" in remedy(piece, Seen.BETWEEN_WORKERS, "generator 1f")
