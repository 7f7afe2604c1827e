"""What a script builds and draws is the same in every worker, and what is built can be compared."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Subset, TensorDataset

from tidewater.contract import env
from tidewater.elastic.config import Config
from tidewater.elastic.data.seeds import generators_kept
from tidewater.elastic.script.content import Script, alike
from tidewater.elastic.session.assembly import Content
from tidewater.elastic.training import Report, Training

ENVIRON = {env.JOB: "j", env.ETCD: "http://e:2379", env.CHECKPOINTS: "/checkpoints"}
DATA = TensorDataset(torch.arange(40.0).view(20, 2), torch.arange(20))
REPORT = Report(28, 1, 4, 2, 0, 0.5, 0.1, (1, 2), 4, 0.01, 0.01)


@pytest.fixture(autouse=True)
def kept() -> Iterator[None]:
    """Restore the generators after the test, for other tests."""
    with generators_kept():
        yield


def build(config: Config) -> Training:
    """Split the data with every global generator, and draw from every one in ``on_step``."""
    order: Any = [*np.random.permutation(20), *random.sample(range(20), 20), *torch.randperm(20).tolist()]
    model = nn.Linear(2, 3)
    return Training(
        model=model,
        optimizer=torch.optim.SGD(model.parameters()),
        dataset=Subset(DATA, order[::2]),
        loss=lambda model, batch: model(batch[0]).mean(),
        validation=Subset(DATA, order[1::2]),
        score=lambda model, batch: torch.tensor(0.0),
        on_step=lambda report: drawn.append((random.random(), np.random.rand(), float(torch.rand(())))),
    )


drawn: list[tuple[float, ...]] = []


def prepared(seed: int) -> Content:
    script = Script(build)
    try:
        return script.prepare(Config.parse(["--seed", str(seed), "--threads", str(torch.get_num_threads())], ENVIRON))
    finally:
        script.close()


def test_workers_with_one_seed_build_the_same_and_with_another_one_not() -> None:
    one = prepared(3)
    assert len(one.samples) == 8
    random.random(), np.random.rand(), torch.rand(1)  # as after any other history
    other = prepared(3)
    assert (one.samples, one.alike) == (other.samples, other.alike)
    assert torch.equal(one.training.model.weight, other.training.model.weight)  # type: ignore[arg-type]
    assert prepared(4).samples != one.samples


@pytest.mark.parametrize("flag", ["--evaluate-every", "--epochs", "--compare-every", "--max-bad-samples"])
def test_a_flag_that_decides_what_the_workers_do_together_must_be_equal(flag: str) -> None:
    one, other = (
        alike(config, build(config)) for config in (Config.parse([flag, value], ENVIRON) for value in ("3", "4"))
    )
    assert (one[flag], other[flag]) == ("3", "4")


def test_which_score_is_the_best_must_be_equal() -> None:
    config = Config.parse([], ENVIRON)
    lowest, highest = (alike(config, replace(build(config), keep_best=mode)) for mode in ("min", "max"))
    assert {name for name, value in lowest.items() if value != highest[name]} == {"keep_best"}


def test_data_that_say_what_they_are_are_compared_by_that_and_their_samples_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = []
    for digest in ("v1", "v1", "v2"):
        monkeypatch.setattr(Subset, "digest", digest, raising=False)
        found.append(prepared(3))
    one, other, another = found
    assert one.samples == {}
    assert one.alike == other.alike
    differ = [name for name, value in one.alike.items() if another.alike[name] != value]
    assert differ == ["the dataset", "the validation data"]


def test_what_on_step_draws_is_the_same_in_all_workers() -> None:
    drawn.clear()
    for content in (prepared(3), prepared(3)):
        random.random(), np.random.rand(), torch.rand(1)
        content.training.on_step(REPORT)
    assert len(set(drawn)) == 1
    content.training.on_step(Report(29, 1, 4, 2, -1, 0.5, 0.1, (), 4, 0.01, 0.01))
    assert len({each[0] for each in drawn}) == len({each[2] for each in drawn}) == 2
