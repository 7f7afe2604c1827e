"""The ranks that divide a model make the same number of passes, whatever samples a step has for them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidewater.elastic.data.loader import Place, requests_of
from tidewater.elastic.data.sampler import Cursor, Step


@given(samples=st.integers(1, 40), workers=st.integers(1, 3), shards=st.integers(1, 4), micro_batch=st.integers(0, 5))
def test_the_ranks_of_a_worker_make_the_same_number_of_passes_with_each_sample_once(
    samples: int, workers: int, shards: int, micro_batch: int
) -> None:
    step, size = Step(tuple(range(samples)), Cursor()), workers * shards
    places = [Place(Cursor(), rank, size, samples, 1, micro_batch, shards=shards) for rank in range(size)]
    requests = [requests_of(step, 0, place, 1) for place in places]
    for first in range(0, size, shards):
        assert len({len(each) for each in requests[first : first + shards]}) == 1
    used = [sample for each in requests for request in each if request.weight for sample in request.samples]
    assert sorted(used) == list(range(samples))
    assert abs(sum(request.weight for each in requests for request in each) - 1) < 1e-9
    assert all(len(request.samples) == 1 for each in requests for request in each if not request.weight)
