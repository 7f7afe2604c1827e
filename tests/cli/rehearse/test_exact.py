"""What differs between workers, after a transfer or between two runs is named, with the step and the fault before."""

from __future__ import annotations

import pytest

from tests.cli.rehearse.records import begun, final, recorded, scored
from tidewater.cli.rehearse import exact
from tidewater.cli.rehearse.compare import Promise
from tidewater.cli.rehearse.records import Event, Records

NOTHING: frozenset[str] = frozenset()


def test_workers_that_differ_are_named_with_the_first_step_and_what_happened_before() -> None:
    made = recorded(
        ("a", final(1, {"model/w": "x"})),
        ("b", final(1, {"model/w": "x"})),
        ("a", final(5, {"model/w": "y"})),
        ("b", final(5, {"model/w": "z"})),
        ("a", final(6, {"model/w": "u"})),
        ("b", final(6, {"model/w": "v"})),
        events=[Event(4, "the kill of c"), Event(6, "the join of d")],
    )
    (finding,) = exact.between_workers(made, NOTHING)
    assert finding.sentence == "the model's w: y in a and z in b after step 5, after the kill of c (step 4)"
    assert (finding.promise, finding.note) == (Promise.ALIKE, False)


@pytest.mark.parametrize(
    ("piece", "values", "note"),
    [
        pytest.param("variable/best", ("1.5", "1.25"), True, id="a-number-of-the-script"),
        pytest.param("variable/rng", ("generator 1f", "generator 2f"), False, id="a-generator-of-the-script"),
        pytest.param("variable/ema['w']", ("float32[2] 1f", "float32[2] 2f"), False, id="a-tensor-of-the-script"),
        pytest.param("attribute/a.calls", ("3", "4"), False, id="a-counter"),
        pytest.param("attribute/a.cached", ("3", "4"), True, id="a-cache"),
        pytest.param("stateful/mean/count", ("3", "absent"), False, id="a-part-of-stateful"),
    ],
)
def test_what_may_be_for_show_is_a_note(piece: str, values: tuple[str, str], note: bool) -> None:
    one, other = ({piece: value} if value != "absent" else {} for value in values)
    (finding,) = exact.between_workers(recorded(("a", final(1, one)), ("b", final(1, other))), {"attribute/a.cached"})
    assert finding.note is note


def test_draws_of_a_worker_that_took_no_part_are_not_compared() -> None:
    made = recorded(("a", final(1, {"draws/on_step": "x"})), ("b", final(1, {}, rank=-1)))
    assert not list(exact.between_workers(made, NOTHING))


def test_a_state_that_arrives_otherwise_than_it_was_is_found_and_one_that_arrives_is_not() -> None:
    had = {"model/w": "x", "optimizers/0/lr": "0.1"}
    made = recorded(
        ("a", final(3, had)),
        ("b", begun(4, [], pieces=had)),
        ("c", begun(4, [], pieces={**had, "optimizers/0/lr": "0.2"})),
        ("a", begun(4, [])),
    )
    (finding,) = exact.handed_over(made, NOTHING)
    assert finding.sentence.startswith(
        "the optimizers' 0/lr: a had 0.1 after step 3, and c, which got the state, 0.2, before any fault"
    )


def test_a_state_with_a_step_that_is_still_to_be_reported_is_compared_after_that() -> None:
    had = {"stateful/ema/value": "0.5", "draws/on_step": "x"}
    made = recorded(
        ("a", final(4, had)),
        ("a", scored(4, pieces={"stateful/ema/value": "0.25"})),
        ("b", begun(5, [])),
        ("b", final(4, {"stateful/ema/value": "0.5"}, rank=-1)),
        ("c", final(4, {"stateful/ema/value": "0.375"}, rank=-1)),
    )
    (finding,) = exact.handed_over(made, NOTHING)
    assert finding.sentence.startswith("stateful, ema/value: a had 0.5 after step 4, and c, which got the state, 0.375")


def test_a_step_that_a_worker_gets_with_a_state_does_not_count_twice() -> None:
    made = recorded(("a", final(4)), ("a", final(4, rank=-1)))
    assert made.repeated == []
    made.add("a.4711", final(4))
    assert made.repeated == [(4, "a")]


def test_after_an_evaluation_its_state_is_compared_and_handed_over() -> None:
    before, after = {"optimizers/0/lr": "0.1"}, {"optimizers/0/lr": "0.01", "draws/on_evaluation": "x"}
    made = recorded(
        ("a", final(4, before)),
        ("b", final(4, before)),
        ("a", scored(4, pieces=after)),
        ("b", scored(4, pieces={**after, "optimizers/0/lr": "0.02"})),
        ("c", begun(5, [], pieces={"optimizers/0/lr": "0.01"})),
    )
    assert not list(exact.handed_over(made, NOTHING))
    (finding,) = exact.between_workers(made, NOTHING)
    assert finding.where == "0.01 in a and 0.02 in b after the evaluation at step 4, before any fault"


def test_two_runs_have_the_same_scores() -> None:
    one, other = (recorded(("a", final(4)), ("a", scored(4, score))) for score in (0.5, 0.75))
    assert not list(exact.repeatable(one, one))
    (finding,) = exact.repeatable(one, other)
    assert finding.sentence == "the score: 0.5 in one run and 0.75 in another one, after step 4"


def test_a_cache_changes_now_and_then_and_a_counter_always() -> None:
    finals = [
        ("a", final(step, {"attribute/calls": str(step), "attribute/table": str(step // 8), "model/w": "x"}))
        for step in range(1, 13)
    ]
    assert exact.caches(recorded(*finals)) == {"attribute/table"}


def test_two_runs_are_compared_up_to_the_first_difference_and_without_variables() -> None:
    one = recorded(("a", final(1, {"variable/x": "1"})), ("a", final(2, {"model/w": "x"}, loss=0.5)), ("a", final(3)))
    same = recorded(("a", final(1, {"variable/x": "2"})), ("a", final(2, {"model/w": "x"}, loss=0.5)), ("a", final(3)))
    other = recorded(("a", final(1)), ("a", final(2, {"model/w": "y"}, loss=0.25)), ("a", final(3, loss=9.0)))
    assert not list(exact.repeatable(one, same))
    assert [finding.sentence for finding in exact.repeatable(one, other)] == [
        "the loss: 0.5 in one run and 0.25 in another one, step 2",
        "the model's w: x in one run and y in another one after step 2",
    ]


def test_a_sample_with_another_content_is_named() -> None:
    one, other = Records(), Records()
    one.reads["sample 3 of the dataset"] |= {"first", "second"}
    other.reads["sample 3 of the dataset"] |= {"first"}  # one epoch less
    assert not list(exact.repeatable(one, other))
    other.reads["sample 3 of the dataset"] |= {"another"}
    (finding,) = exact.repeatable(one, other)
    assert finding.what == "sample 3 of the dataset"
    assert finding.remedy.startswith("something is drawn without a seed")


def steps(*made: tuple[int, list[int], list[int]]) -> Records:
    """Return the records of steps with the samples of two ranks."""
    records = [
        each
        for step, mine, theirs in made
        for each in (("a", begun(step, mine)), ("b", begun(step, theirs, rank=1)), ("a", final(step)))
    ]
    return recorded(*records)


def test_samples_that_are_lost_or_counted_twice_are_listed() -> None:
    reference = steps((1, [0, 2], [1, 3]), (2, [4], [5]))
    assert not list(exact.samples(steps((1, [0, 1, 2], [3]), (2, [4, 5], [])), reference))
    found = [finding.sentence for finding in exact.samples(steps((1, [0, 2], [3]), (2, [4, 5], [5])), reference)]
    assert found == [
        "samples 1: lost in step 1, before any fault",
        "samples 5: counted too often in step 2, before any fault",
    ]


def test_an_attempt_that_was_discarded_does_not_count() -> None:
    made = recorded(("a", begun(1, [0])), ("a", begun(1, [0, 1], generation=2)), ("a", final(1, generation=2)))
    assert made.samples(1) == {0: 1, 1: 1}


def test_a_step_that_is_final_twice_is_found() -> None:
    made = recorded(("a", final(1)), ("a", final(1)), ("b", final(1, generation=2)))
    assert [finding.what for finding in exact.samples(made, made)] == ["step 1", "step 1"]


def test_an_epoch_has_each_sample_once() -> None:
    whole = [(step, [2 * step - 2], [2 * step - 1]) for step in range(1, 5)]
    again = [(step + 4, mine, theirs) for step, mine, theirs in whole]
    assert not list(exact.epochs(steps(*whole, *again)))
    again[1] = (6, [2], [2])
    (finding,) = exact.epochs(steps(*whole, *again))
    assert finding.sentence == "samples 2 (2 times), 3 (0 times): in epoch 1"
