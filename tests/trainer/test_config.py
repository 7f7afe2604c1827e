"""Settings are checked as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract import env
from trainer.config import Config, parser
from trainer.errors import ConfigError

ENVIRON = {
    env.JOB: "digits", env.ETCD: "http://e1:2379, http://e2:2379", env.WORKER: "w-0", env.HOST: "10.0.0.7",
    env.MIN_WORKERS: "2", env.MAX_WORKERS: "5", env.DATA: "/data/digits", env.CHECKPOINTS: "/data/checkpoints/digits",
}  # fmt: skip


def test_the_environment_of_a_manifest_is_enough() -> None:
    config = Config.parse([], ENVIRON)
    assert (config.job, config.worker, config.host) == ("digits", "w-0", "10.0.0.7")
    assert config.etcd == ("http://e1:2379", "http://e2:2379")
    assert (config.min_workers, config.max_workers) == (2, 5)
    assert config.data == Path("/data/digits")


def test_a_flag_wins_over_the_environment() -> None:
    assert Config.parse(["--job", "other", "--max-workers", "9"], ENVIRON).job == "other"


def test_all_mistakes_are_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        Config.parse(
            ["--epochs", "0", "--lr", "-1", "--max-workers", "1", "--metrics-port", "65536"], {env.MIN_WORKERS: "3"}
        )
    for words in ("--job", "--etcd", "--data", "--checkpoints", "--epochs is 0", "--lr is -1", "--max-workers is 1"):
        assert words in str(caught.value)
    assert "--metrics-port is 65536, the last port is 65535" in str(caught.value)


def test_help_names_every_environment_variable() -> None:
    text = parser({}).format_help()
    for name, value in vars(env).items():
        if name.isupper():
            assert value in text
