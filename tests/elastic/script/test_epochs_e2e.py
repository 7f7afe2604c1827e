"""A validation in a script's own loop goes on when workers are killed, join and leave in the middle of it.

If all are lost, it is made again after the steps since the last checkpoint.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.elastic.schedules.arena import COMMON
from tests.elastic.schedules.forked import Job
from tests.elastic.schedules.ledger import verdict
from tests.elastic.schedules.points import MIDDLE, was_hit
from tests.elastic.schedules.script import TOTAL
from tests.elastic.session.evaluation.held_out import scored
from tests.elastic.workers import Worker
from tests.farm import Farm
from tidewater.contract import exit_codes
from tidewater.elastic.checkpoint.places import MANIFEST

pytestmark = pytest.mark.e2e

COUNT = 600
WARM_UPS = 2
"""Batches of a validation in a rehearsal: a small one and the largest."""
SCRIPT = """
import torch, tidewater
from tests.elastic.session.evaluation.held_out import Samples

config = tidewater.init()
model = torch.nn.Linear(1, 1)
held_out = Samples(COUNT, SECONDS)
with tidewater.session(
    config,
    model=model,
    optimizer=torch.optim.SGD(model.parameters(), lr=1e-3),
    dataset=Samples(8),
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
        worker.wait_for(lambda worker: len(scored(worker, warm_ups=WARM_UPS)) >= 2)
    c = start("c", "--epochs", "1", *FLAGS, python=long)
    b.signal(signal.SIGKILL)
    c.wait_for(lambda worker: scored(worker, warm_ups=WARM_UPS))
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
        assert f"worker a begins validation 1, over samples 0 to {COUNT - 1}" in worker.text()


EPOCHS, SAVED_EVERY = 3, 3
"""An epoch has eight steps."""
TWO_WORKERS = (
    *COMMON,
    *("--epochs", str(EPOCHS), "--checkpoint-every", str(SAVED_EVERY)),
    *("--min-workers", "2", "--min-step-seconds", "0.05", "--lease-seconds", "3"),
)


def test_a_validation_in_which_all_workers_are_lost_is_made_again_whole(farm: Farm, etcd: str, tmp_path: Path) -> None:
    calm, job = (Job(farm, tmp_path / name, etcd, *TWO_WORKERS) for name in ("calm", "job"))
    undisturbed = [calm.start(name, own_loop="tensor") for name in "ab"]
    assert [worker.wait() for worker in undisturbed] == [exit_codes.FINISHED] * 2, calm.told()
    lost = [job.start(name, own_loop="tensor", armed={MIDDLE: "kill"}) for name in "ab"]
    assert [worker.wait() for worker in lost] == [-signal.SIGKILL] * 2, job.told()
    assert all(was_hit(worker.folder, MIDDLE) for worker in lost)
    job.book.refresh()
    assert job.book.validated == []
    saved = max(int(path.parent.name.split("-")[1]) for path in job.checkpoints.rglob(f"step-*/{MANIFEST}"))
    assert saved in (SAVED_EVERY, 2 * SAVED_EVERY)  # the later one may be half written when its writer is killed
    again = [job.start(name, own_loop="tensor") for name in "cd"]
    assert [worker.wait() for worker in again] == [exit_codes.FINISHED] * 2, job.told()
    for each in (calm, job):
        each.book.refresh()
        each.book.refresh()  # the newest entries count only after another refresh
    assert job.book.restored[-1].step == saved
    assert verdict(job.book.without_what_was_undone(), TOTAL) == [], job.told()
    made, expected = (
        sorted((each.epoch, each.times, each.outputs) for each in book.validated) for book in (job.book, calm.book)
    )
    assert [epoch for epoch, _, _ in expected] == sorted([*range(EPOCHS)] * 2)
    assert made == expected
