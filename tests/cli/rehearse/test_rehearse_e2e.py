"""Scripts that are rehearsed on this machine: a mistake is named, and every other promise holds.

The average of the loss of the first one counts its steps in an attribute that it does not store. The other one has a
loop of its own, which validates, and no mistake.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts import toolchain
from tests.elastic.packages.wheels import wheel

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = """
import torch
from torch import nn

import tidewater


class Mean:
    def __init__(self):
        self.mean, self.count = 0.0, 0

    def add(self, report):
        self.count += 1
        self.mean += (report.loss - self.mean) / self.count

    def state_dict(self):
        return {"mean": self.mean}

    def load_state_dict(self, state):
        self.mean = state["mean"]


def training(config):
    inputs = torch.randn(500, 8)
    model, mean = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.1), nn.Linear(16, 3)), Mean()
    return tidewater.Training(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters()),
        dataset=torch.utils.data.TensorDataset(inputs, inputs.argmax(1) % 3),
        loss=lambda model, batch: nn.functional.cross_entropy(model(batch[0]), batch[1]),
        stateful={"mean": mean},
        on_step=mean.add,
    )


raise SystemExit(tidewater.run(training))
"""


OWN_LOOP = """
import torch
from torch import nn

import net
import alpha
import tidewater

config = tidewater.init()
generator = torch.Generator().manual_seed(0)
inputs = torch.randn(400, 8, generator=generator)
data = torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True))
model = net.model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
with tidewater.session(config, model=model, optimizer=optimizer, dataset=data, validation=data) as run:
    for epoch in run.epochs():
        for batch, targets in run.batches():
            run.step(nn.functional.mse_loss(model(batch), targets))
        validation = run.validation(data)
        for (batch, targets), add in validation:
            add(loss=nn.functional.mse_loss(model(batch), targets, reduction="sum"), count=len(batch))
        assert validation.totals is None or 0 < validation.totals["loss"] < 10 * validation.totals["count"]
raise SystemExit(run.exit_code)
"""


NET = """
from torch import nn


def model():
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 1))
"""


def rehearsed(folder: Path, script: str, *source: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """Rehearse a script. Return how the command ended, and its report."""
    (folder / "my_script.py").write_text(script)
    path = f"{toolchain.binary('etcd').parent}{os.pathsep}{os.environ['PATH']}"
    flags = ["--report", "report.json", "--patience", "300", *source, "my_script.py", "--batch-size", "32"]
    done = subprocess.run(
        [sys.executable, "-m", "tidewater.cli", "rehearse", *flags],
        cwd=folder,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(folder / "cache")},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    return done, json.loads((folder / "report.json").read_text())


@pytest.mark.e2e
def test_a_loop_of_the_scripts_own_in_a_folder_with_packages_holds_every_promise(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(NET)
    line = wheel(tmp_path / "wheels", "alpha")
    (tmp_path / "lock.txt").write_text(f"--no-index\n--find-links wheels\n{line}\n")
    done, report = rehearsed(tmp_path, OWN_LOOP, "--code", ".", "--requirements", "lock.txt")
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(each["held"] for each in report["promises"])
    assert "note:" not in done.stdout


@pytest.mark.e2e
def test_a_mistake_is_named_with_its_remedy_and_the_other_promises_hold(tmp_path: Path) -> None:
    done, report = rehearsed(tmp_path, SCRIPT)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "the attribute of the stateful object mean.count: " in done.stdout
    assert "→ return it in the object's state_dict(), and set it in load_state_dict()" in done.stdout
    broken = {each["promise"] for each in report["promises"] if not each["held"]}
    assert {"alike", "handed_over"} <= broken <= {"alike", "handed_over", "state"}, done.stdout
    assert set(report["steps"].values()) == {36}
