"""A validation in a script's own loop goes on when workers are killed, join and leave in the middle of it."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.elastic.session.evaluation.test_evaluation_e2e import scored
from tests.elastic.workers import Worker
from tidewater.contract import exit_codes

pytestmark = pytest.mark.e2e

COUNT = 1200
SCRIPT = """
import time, torch, tidewater

class Samples(torch.utils.data.Dataset):
    def __init__(self, count, seconds):
        self.count, self.seconds = count, seconds
    def __len__(self):
        return self.count
    def __getitem__(self, index):
        time.sleep(self.seconds)
        return torch.tensor([float(index)])

config = tidewater.init()
model = torch.nn.Linear(1, 1)
held_out = Samples(COUNT, SECONDS)
with tidewater.session(
    config,
    model=model,
    optimizer=torch.optim.SGD(model.parameters(), lr=1e-3),
    dataset=Samples(8, 0),
    validation=held_out,
) as run:
    for epoch in run.epochs():
        for batch in run.batches():
            run.step(model(batch / 8).square().mean())
        validation = run.validation(held_out)
        if SKIPS and epoch:
            continue
        for batch, add in validation:
            print(f"scored={len(batch)}", flush=True)
            add(total=batch.double().sum(), squares=batch.double().square().sum(), count=len(batch))
        if validation.totals:
            print(f"epoch={epoch} totals={[int(each) for _, each in sorted(validation.totals.items())]}", flush=True)
raise SystemExit(run.exit_code)
"""
FLAGS = ("--batch-size", "4")
TOTALS = f"totals={[COUNT, sum(each**2 for each in range(COUNT)), sum(range(COUNT))]}"


def script(*, seconds: float = 0.0, skips: str = "False") -> tuple[str, str]:
    text = SCRIPT.replace("COUNT", str(COUNT)).replace("SECONDS", str(seconds))
    return ("-c", text.replace("SKIPS", skips))


def test_every_sample_counts_once_after_a_kill_a_join_and_a_leave(start: Callable[..., Worker]) -> None:
    long = script(seconds=0.02)
    a, b = (start(name, "--epochs", "1", *FLAGS, python=long) for name in "ab")
    for worker in (a, b):
        worker.wait_for(lambda worker: len(scored(worker)) >= 2)
    c = start("c", "--epochs", "1", *FLAGS, python=long)
    b.signal(signal.SIGKILL)
    c.wait_for(lambda worker: scored(worker))
    assert "totals" not in a.text()
    c.signal(signal.SIGTERM)
    assert c.wait() == exit_codes.LEFT, c.text()
    assert a.wait() == exit_codes.FINISHED, a.text()
    assert a.text().count(f"epoch=0 {TOTALS}") == 1
    assert "totals" not in b.text() + c.text()


def test_a_worker_that_skips_a_validation_ends_all_with_a_sentence_that_names_it(start: Callable[..., Worker]) -> None:
    flags = ("--epochs", "3", "--min-workers", "2", *FLAGS)
    skips = "(config.worker == 'b')"
    a, b = (start(name, *flags, python=script(skips=skips)) for name in "ab")
    assert a.wait() == b.wait() == exit_codes.USAGE
    for worker in (a, b):
        assert "worker b has ended after 0 validations" in worker.text()
        assert "worker a begins validation 1, over samples 0 to 1199" in worker.text()
