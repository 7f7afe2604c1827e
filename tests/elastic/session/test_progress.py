"""When training ends, and how much of it is done."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tidewater.contract import env
from tidewater.elastic.config import Config
from tidewater.elastic.data.sampler import Cursor
from tidewater.elastic.errors import ConfigError
from tidewater.elastic.session.loop import is_over, progress

ENVIRON = {env.JOB: "j", env.ETCD: "http://e:2379", env.CHECKPOINTS: "/checkpoints"}


def config(*flags: str) -> Config:
    return Config.parse(["--epochs", "2", "--batch-size", "10", *flags], ENVIRON)


def at(step: int, epoch: int, offset: int = 0) -> Any:
    return SimpleNamespace(step=step, cursor=Cursor(epoch, offset), stopped=False)


def test_training_ends_after_its_epochs() -> None:
    assert not is_over(at(19, 1, 90), config())
    assert is_over(at(20, 2), config())


def test_training_ends_after_its_steps_if_that_is_earlier() -> None:
    assert not is_over(at(6, 0, 60), config("--max-steps", "7"))
    assert is_over(at(7, 0, 70), config("--max-steps", "7"))
    assert is_over(at(20, 2), config("--max-steps", "100"))


def test_progress_is_the_share_of_all_samples() -> None:
    assert [progress(at(step, step // 10, 10 * (step % 10)), 100, config()) for step in (0, 5, 10, 20)] == [
        0,
        0.25,
        0.5,
        1,
    ]


def test_progress_is_the_share_of_what_ends_training_first() -> None:
    few, many = config("--max-steps", "8"), config("--max-steps", "1000")
    assert [progress(at(step, 0, 10 * step), 100, few) for step in (0, 4, 8)] == [0, 0.5, 1]
    assert progress(at(10, 1), 100, many) == 0.5


def test_only_the_steps_count_if_the_length_is_unknown() -> None:
    few = config("--max-steps", "8")
    assert [progress(at(step, 1, 10 * step), None, few) for step in (0, 4, 8)] == [0, 0.5, 1]


def test_progress_is_at_most_one_if_a_stream_is_longer_than_it_says() -> None:
    assert progress(at(30, 1, 130), 100, config()) == 1


@pytest.mark.parametrize(
    ("flags", "steps"),
    [((), 22), (("--max-steps", "7"), 7), (("--max-steps", "70"), 22)],
    ids=["epochs", "fewer steps", "more steps"],
)
def test_the_number_of_steps_is_known_in_advance(flags: tuple[str, ...], steps: int) -> None:
    assert config(*flags).steps(101) == steps


def test_the_number_of_steps_is_unknown_if_the_number_of_workers_decides() -> None:
    with pytest.raises(ConfigError, match=r"--batch-policy scale.*give --max-steps"):
        config("--batch-policy", "scale").steps(101)
    assert config("--batch-policy", "scale", "--max-steps", "7").steps(101) == 7


def test_a_negative_number_of_steps_is_refused() -> None:
    with pytest.raises(ConfigError, match="--max-steps is -1, the least is 0"):
        config("--max-steps", "-1")


@pytest.mark.parametrize(
    ("flags", "inner", "reported"),
    [
        ((), 22, 6),  # an epoch of 101 samples has 11 inner steps: steps of 4, 4 and 3
        (("--max-steps", "2"), 8, 2),
        (("--max-steps", "4"), 15, 4),
        (("--max-steps", "100"), 22, 6),
    ],
)
def test_schedulers_count_inner_steps_and_reports_the_steps_that_are_synchronised(
    flags: tuple[str, ...], inner: int, reported: int
) -> None:
    given = config("--sync-every", "4", *flags)
    assert (given.steps(101), given.reported_steps(101)) == (inner, reported)


def test_progress_between_inner_steps_is_that_of_synchronous_steps() -> None:
    inner = [progress(at(1, 0, 40), 100, config(), done, 40) for done in (0, 10, 20, 30)]
    assert inner == [progress(at(step, 0, 10 * step), 100, config()) for step in (4, 5, 6, 7)]
    limited = config("--max-steps", "2")
    assert [progress(at(1, 0, 40), 100, limited, done, 40) for done in (0, 10, 20)] == [0.5, 0.625, 0.75]
