"""The tolerance is what two runs without faults differ by, and rounding; what goes beyond it is named."""

from __future__ import annotations

import math

import pytest

from tests.cli.rehearse.records import EPSILON, near, recorded, scored
from tidewater.cli.rehearse import near as nearness
from tidewater.cli.rehearse.records import Event, Records
from tidewater.contract.rehearsal import Final, Sketch

FAR = 0.1
"""By how much the runs without faults differ."""


def run(*losses_and_sums: tuple[float, float], pieces: dict[str, str] | None = None, event: int = 1) -> Records:
    records = [("a", near(step, *values_of(pair), pieces)) for step, pair in enumerate(losses_and_sums, 1)]
    return recorded(*records, events=[Event(event, "the kill of b")])


def values_of(pair: tuple[float, float]) -> tuple[float, tuple[float, float]]:
    return pair[0], (pair[1], 0.0)


SEVERAL, ONE = run((1.0, 5.0), (0.5, 6.0)), run((1.0 + FAR, 5.0), (0.5, 6.0 + FAR))


@pytest.mark.parametrize("factor", [0.0, -1.0, 15.9])
def test_what_is_within_the_tolerance_is_none_of_the_findings(factor: float) -> None:
    made = run((1.0, 5.0), (0.5 + factor * FAR, 6.0 - factor * FAR))
    assert not [*nearness.losses(made, SEVERAL, ONE), *nearness.states(made, SEVERAL, ONE)]


def test_the_first_loss_beyond_the_tolerance_is_named() -> None:
    made = run((1.0, 5.0), (0.5 + 17 * FAR, 6.0))
    (finding,) = nearness.losses(made, SEVERAL, ONE)
    assert finding.sentence == ("the loss: 2.2 instead of 0.5 (tolerance 1.6) in step 2, after the kill of b (step 1)")


def test_a_loss_that_is_not_a_number_is_beyond_every_tolerance() -> None:
    assert list(nearness.losses(run((math.nan, 5.0)), SEVERAL, ONE))


def test_where_the_runs_without_faults_are_equal_by_chance_the_least_tolerance_is_left() -> None:
    least = 2.0 / 64  # of a tensor of norm 2
    close, far = (run((1.0, 5.0 + factor * least)) for factor in (0.99, 1.01))
    assert not list(nearness.states(close, SEVERAL, SEVERAL))
    (finding,) = nearness.states(far, SEVERAL, SEVERAL)
    assert finding.what == "the model's w"


@pytest.mark.parametrize(("epsilon", "tolerance"), [(0.0, 0.0), (EPSILON, 2.0**-5), (2.0**-7, 0.5)])
def test_whole_numbers_have_no_least_tolerance_and_short_types_a_larger_one(epsilon: float, tolerance: float) -> None:
    found = []
    for far in (tolerance * 0.99, tolerance * 1.01 + 1e-9):
        one, other = (Final(1, 0, 1, 1, 0, 1.0, 4, {}, {"w": Sketch(2.0, epsilon, (at,))}) for at in (5.0, 5.0 + far))
        reference = recorded(("a", one))
        found.append(len(list(nearness.states(recorded(("a", other)), reference, reference))))
    assert found == [0, 1]


def moments(*values: float, kind: str = "exp_avg") -> Records:
    """Return the records of a step with a moment of each of some parameters."""
    sketches = {
        f"optimizers/0/state/{at}/{kind}": Sketch(abs(value), EPSILON, (value,)) for at, value in enumerate(values)
    }
    return recorded(("a", Final(1, 0, 1, 1, 0, 1.0, 4, {}, sketches)))


def test_a_moment_that_consists_of_rounding_errors_of_others_may_have_any_of_their_size() -> None:
    reference, rounding = moments(1.0, 1e-9), 32 * EPSILON
    for noise, found in ((0.9 * rounding, 0), (1.1 * rounding, 1)):
        assert len(list(nearness.states(moments(1.0, noise), reference, reference))) == found
    (finding,) = nearness.states(moments(1e-9, 1e-7), moments(1e-9, 1e-9), moments(1e-9, 1e-9))
    assert finding.piece == "optimizers/0/state/1/exp_avg"


def test_only_the_first_step_with_another_state_counts() -> None:
    (finding,) = nearness.states(run((1.0, 8.0), (0.5, 9.0)), SEVERAL, ONE)
    assert "after step 1, before any fault" in finding.where


@pytest.mark.parametrize(("alone", "found"), [("1", ["the model's attribute calls"]), ("2", [])])
def test_a_whole_number_that_the_size_does_not_change_must_be_equal(alone: str, found: list[str]) -> None:
    several, one, faults = (run((1.0, 5.0), pieces={"attribute/calls": value}) for value in ("1", alone, "3"))
    assert [finding.what for finding in nearness.states(faults, several, one)] == found


@pytest.mark.parametrize(
    ("far", "alone", "found"),
    [
        pytest.param(0.02, 0.5, False, id="two-answers-of-100-at-a-tie"),
        pytest.param(0.03, 0.5, True, id="three"),
        pytest.param(0.15, 0.51, False, id="16-times-the-difference-without-faults"),
        pytest.param(math.nan, 0.5, True, id="no-number"),
    ],
)
def test_scores_are_compared_to_a_tolerance(far: float, alone: float, found: bool) -> None:
    faults, several, one = (recorded(("a", scored(4, score))) for score in (0.5 + far, 0.5, alone))
    assert [each.what for each in nearness.scores(faults, several, one)] == ["the score"] * found


@pytest.mark.parametrize("decided", [True, False])
def test_what_evaluations_decide_by_a_score_is_a_note(decided: bool) -> None:
    made = []
    for bad in ("1", "0", "0"):
        before, after = {"schedulers/0/num_bad_epochs": "0"}, {"schedulers/0/num_bad_epochs": bad}
        records = [("a", near(4, 1.0, [5.0], before)), ("a", near(5, 1.0, [5.0], after))]
        made.append(recorded(*records, ("a", scored(4, pieces=after if decided else before))))
    (finding,) = nearness.states(*made)
    assert (finding.what, finding.note) == ("the schedulers' 0/num_bad_epochs", decided)


def test_a_tensor_that_is_missing_is_infinitely_far() -> None:
    sketch = Sketch(1.0, EPSILON, (1.0,))
    assert nearness.distance(sketch, None) == math.inf == nearness.distance(sketch, Sketch(1.0, EPSILON, (1.0, 2.0)))
