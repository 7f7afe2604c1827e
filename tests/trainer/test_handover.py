"""Whose state counts at the beginning of a generation."""

from __future__ import annotations

from trainer.handover import plan

NOBODY = (0, 0, 0)


def test_a_newcomer_gets_the_state_of_the_survivors() -> None:
    assert plan([(4, 100, 1), (4, 100, 1), NOBODY]) == (0, frozenset({2}))


def test_who_missed_the_last_step_catches_up_with_who_has_applied_it() -> None:
    assert plan([(4, 100, 1), (4, 101, 1), (4, 100, 1)]) == (1, frozenset({0, 2}))


def test_a_step_that_only_a_cut_off_worker_has_applied_yields_to_the_survivors_own() -> None:
    """Rank 1 applied step 101 in generation 4 and was left behind; rank 0 made it anew in generation 5."""
    assert plan([(5, 101, 1), (4, 101, 0)]) == (0, frozenset({1}))
    assert plan([(5, 101, 1), (4, 102, 0)]) == (0, frozenset({1}))


def test_when_nobody_has_a_state_rank_0_reads_one_and_all_others_get_it() -> None:
    assert plan([NOBODY, NOBODY, NOBODY]) == (0, frozenset({1, 2}))


def test_equal_states_move_nothing() -> None:
    assert plan([(4, 100, 1), (4, 100, 1)]) == (0, frozenset())


def test_a_state_that_was_left_behind_is_compared_with_the_checkpoint_before_anyone_gets_it() -> None:
    """Two that were left behind with equal states: what the first finds may be newer, so the second gets it too."""
    assert plan([(4, 100, 0), (4, 100, 0)]) == (0, frozenset({1}))


def test_of_equal_states_the_one_that_was_not_left_behind_is_the_source() -> None:
    assert plan([(4, 100, 0), (4, 100, 1)]) == (1, frozenset({0}))
