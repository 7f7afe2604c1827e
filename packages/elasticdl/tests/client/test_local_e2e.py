"""The first steps of a new user of the command: write data, write a zoo, train in one process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e


def elasticdl(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a folder."""
    return subprocess.run(
        [sys.executable, "-m", "elasticdl", *words],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_example_of_zoo_init_trains_on_real_digits_in_this_process(tmp_path: Path) -> None:
    assert elasticdl(tmp_path, "zoo", "init", "model_zoo").returncode == 0
    assert elasticdl(tmp_path, "data", "write", "digits", "digits").returncode == 0
    train = ["train", "--distribution_strategy=Local", "--model_zoo=model_zoo", "--training_data=digits/train"]
    model = ["--model_def=mnist.mnist_functional_api.custom_model", "--minibatch_size=16"]
    evaluation = ["--validation_data=digits/test", "--evaluation_steps=100", "--log_loss_steps=50"]
    done = elasticdl(tmp_path, *train, *model, *evaluation, "--num_epochs=3", "--output=model")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"Loss: [0-9.e-]+ step=\d+$", done.stdout, re.MULTILINE)
    measured = re.findall(r"Evaluation metrics\[step=\d+\]: \{'accuracy': ([0-9.]+)\}", done.stdout)
    assert float(measured[-1]) > 0.9
    assert any((tmp_path / "model").iterdir())
    wrong = elasticdl(tmp_path, *train, *model, "--training_data=digits/none")
    assert wrong.returncode == 2
    assert "digits/none" in wrong.stdout + wrong.stderr
