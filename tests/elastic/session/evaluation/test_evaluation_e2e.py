"""An evaluation continues across membership changes, and all ranks agree on whether it is finished."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.elastic.session.evaluation.held_out import scored
from tests.elastic.workers import Worker
from tidewater.contract import exit_codes
from tidewater.elastic.session.evaluation import ROUND

pytestmark = pytest.mark.e2e

SCRIPT = """
import torch, tidewater
from tests.elastic.session.evaluation.held_out import Samples

def score(model, batch):
    print(f"scored={len(batch)}", flush=True)
    return batch.double().sum() / COUNT

def training(config):
    model = torch.nn.Linear(1, 1)
    return tidewater.Training(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.01),
        dataset=Samples(8),
        loss=lambda model, batch: model(batch / 8).square().mean(),
        validation=Samples(COUNT, SECONDS),
        score=score,
    )

raise SystemExit(tidewater.run(training))
"""
DEAF = """
from tidewater.elastic.errors import GroupBroken
from tidewater.elastic.session.evaluation import Validation

rounds, times = Validation._rounds, []

def once(self, *args):
    yield from rounds(self, *args)
    times.append(self)
    if len(times) == 1:
        raise GroupBroken("the last sum was for the others only")

Validation._rounds = once
"""
SHORT = ("--batch-size", "4", "--evaluate-every", "1")


def script(count: int, seconds: float, before: str = "") -> tuple[str, str]:
    """Return a script that trains on eight samples and evaluates on ``count``, which take ``seconds`` each to load."""
    return ("-c", before + SCRIPT.replace("COUNT", str(count)).replace("SECONDS", str(seconds)))


def test_evaluated_samples_still_count_after_a_kill_a_join_and_a_leave(start: Callable[..., Worker]) -> None:
    count = 600
    long = script(count, 0.02)
    a, b = (start(name, "--epochs", "1", *SHORT, python=long) for name in "ab")
    for worker in (a, b):
        worker.wait_for(lambda worker: len(scored(worker)) >= 2)
    c = start("c", "--epochs", "1", *SHORT, python=long)
    b.signal(signal.SIGKILL)
    c.wait_for(lambda worker: scored(worker))
    assert not a.events("evaluated")
    c.signal(signal.SIGTERM)
    assert c.wait() == exit_codes.LEFT
    assert a.wait() == exit_codes.FINISHED
    assert [event["accuracy"] for event in a.events("evaluated")] == ["0.4992"]
    assert count <= sum(scored(a, b, c)) <= count + 2 * ROUND
    assert a.events("evaluating")


def test_a_rank_without_the_last_sum_continues_together_with_ranks_that_have_it(start: Callable[..., Worker]) -> None:
    flags = ("--epochs", "3", "--min-workers", "2", *SHORT)
    a = start("a", *flags, python=script(200, 0))
    b = start("b", *flags, python=script(200, 0, DEAF))
    assert a.wait() == b.wait() == exit_codes.FINISHED
    assert any("the last sum" in event["reason"] for event in b.events("step_discarded"))
    assert float(a.events("finished")[0]["accuracy"]) == float(b.events("finished")[0]["accuracy"]) == 0.4975
