"""Every validation sample belongs to exactly one rank, wherever an evaluation continues."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidewater.elastic.session.evaluation import ROUND, Seat


@given(start=st.integers(0, 500), total=st.integers(1, 500), size=st.integers(1, 5))
def test_the_ranks_share_the_remaining_samples_in_an_equal_number_of_rounds(start: int, total: int, size: int) -> None:
    shares = [list(Seat(rank, size).shares(start, total)) for rank in range(size)]
    assert len({len(rounds) for rounds in shares}) == 1
    taken = [sample for together in zip(*shares, strict=True) for share in together for sample in share]
    assert taken == list(range(start, total))
    assert all(len(share) <= ROUND for rounds in shares for share in rounds)


def test_only_the_last_round_has_fewer_samples() -> None:
    assert [list(map(len, Seat(rank, 2).shares(0, 3 * ROUND + 1))) for rank in (0, 1)] == [[ROUND, ROUND], [ROUND, 1]]
