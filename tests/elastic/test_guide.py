"""The scripts in the guide to training run as printed.

The first has batch normalization with feature maps of one pixel at the end, clips gradients and uses a scheduler of
torch. The second has a loop of its own, with its validation.
"""

from __future__ import annotations

import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.elastic.workers import Worker
from tests.pages import blocks
from tidewater.contract import exit_codes

pytestmark = pytest.mark.e2e

MOST_LINES = 40
BATCH = 64


@pytest.fixture(params=["own-script", "own-loop"])
def script(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Return the first script of a page of docs/training."""
    path = tmp_path / "my_script.py"
    path.write_text(blocks(f"docs/training/{request.param}.md", "python")[0])
    return path


def test_a_users_script_has_at_most_40_lines(script: Path) -> None:
    assert len(script.read_text().splitlines()) <= MOST_LINES


@pytest.fixture
def one_left_over(digits: Path, tmp_path: Path) -> Path:
    """Return the digits without some images, so that an epoch's last step has a single sample."""
    shutil.copytree(digits, tmp_path / "data")
    images = sorted((tmp_path / "data" / "train").rglob("*.png"))
    for image in images[: (len(images) - 1) % BATCH]:
        image.unlink()
    assert len(sorted((tmp_path / "data" / "train").rglob("*.png"))) % BATCH == 1
    return tmp_path / "data"


def accuracies(*workers: Worker) -> dict[int, float]:
    """Return the accuracy after each epoch, from 1, as the runtime logs it or as the script prints it."""
    found: dict[int, float] = {}
    for worker in workers:
        printed = re.findall(r"^epoch (\d+): accuracy ([\d.]+)$", worker.text(), re.MULTILINE)
        found |= {int(line["epoch"]): float(line["accuracy"]) for line in worker.events("evaluated")}
        found |= {int(epoch) + 1: float(accuracy) for epoch, accuracy in printed}
    return found


def test_a_users_script_continues_when_a_worker_is_killed_and_finishes(
    start: Callable[..., Worker], script: Path, one_left_over: Path
) -> None:
    arguments = ("--epochs", "3", "--evaluate-every", "1", "--batch-size", str(BATCH), "--data", str(one_left_over))
    a, b = (start(name, *arguments, python=(str(script),)) for name in "ab")
    a.wait_for_world(2)
    b.signal(signal.SIGKILL)
    a.wait_for(lambda worker: worker.events("recovered"))
    assert a.wait() == exit_codes.FINISHED
    found = accuracies(a, b)  # on a busy machine b may have made the first epoch alone
    assert sorted(found) == [1, 2, 3]
    assert found[3] > 0.5
