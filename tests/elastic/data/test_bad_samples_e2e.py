"""Two real workers with samples that can't be read. The warm-up would use the first of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.elastic.workers import Worker
from tidewater.contract import exit_codes

pytestmark = pytest.mark.e2e

TOTAL, BAD, EPOCHS = 40, (0, 17, 31), 3
SCRIPT = f"""
import torch
import tidewater

class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return {TOTAL}

    def __getitem__(self, index):
        if index in {BAD}:
            raise ValueError(f"{{index}}.png is damaged")
        return torch.full((2,), float(index))

def used(report):
    if report.rank >= 0:
        print("event=used", "samples=" + ",".join(map(str, report.samples)), flush=True)

def training(config):
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    return tidewater.Training(
        model=model, optimizer=optimizer, dataset=Numbers(), loss=lambda model, batch: model(batch).mean(), on_step=used
    )

raise SystemExit(tidewater.run(training))
"""


def test_samples_that_cannot_be_read_are_reported_once_and_all_others_used_once_in_each_epoch(
    start: Callable[..., Worker],
) -> None:
    common = ("--bad-samples", "skip", "--min-workers", "2", "--epochs", str(EPOCHS), "--batch-size", "8")
    workers = [start(name, *common, "--data-workers", count, python=("-c", SCRIPT)) for name, count in ("a0", "b1")]
    assert [worker.wait() for worker in workers] == [exit_codes.FINISHED] * 2, workers[0].account()
    used = Counter[int]()
    for worker in workers:
        for event in worker.events("used"):
            used.update(map(int, filter(None, event["samples"].split(","))))
    assert used == dict.fromkeys(set(range(TOTAL)) - set(BAD), EPOCHS)
    skipped = [event for worker in workers for event in worker.events("sample_skipped")]
    assert sorted(int(event["sample"]) for event in skipped) == sorted(BAD)
    assert all(event["error"] == f"ValueError: {event['sample']}.png is damaged" for event in skipped)
    assert [worker.events("finished")[0]["skipped"] for worker in workers] == [str(len(BAD))] * 2
