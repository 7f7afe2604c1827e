"""The command shows one snapshot, or one after another, and survives an API server that is away for a while."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from tests.cli.top.fakes import FakeClock, FakeCluster
from tests.cli.top.objects import Trainer, job, pod
from tidewater.cli.session import Tools
from tidewater.cli.top.app import Options, register, watch
from tidewater.cli.top.read import Wanted
from tidewater.kube.errors import NotFound, Unreachable

WANTED = Wanted("digits")


class Stage:
    """A job of two workers that trains, and what happens to it while `top` sleeps."""

    def __init__(self) -> None:
        self.trainers = {index: Trainer(index) for index in range(2)}
        self.cluster = FakeCluster(elasticjobs=[job()], pods=[pod(0), pod(1)])
        for index, trainer in self.trainers.items():
            self.cluster.pages[f"digits-worker-{index}"] = self._page(trainer)

    def run(self, events: Iterator[None], options: Options) -> str:
        """Return what `top` prints until the job ends."""
        console = Console(file=io.StringIO(), width=110)
        watch(self.cluster, WANTED, options, console, FakeClock(events))
        assert isinstance(console.file, io.StringIO)
        return console.file.getvalue()

    def train(self, steps: int = 5) -> None:
        for trainer in self.trainers.values():
            trainer.trains(steps)

    def end(self) -> None:
        self.cluster.objects["elasticjobs"] = [job(state="Succeeded", completionTime="2026-11-23T10:13:00Z")]

    @staticmethod
    def _page(trainer: Trainer) -> Callable[[], str]:
        return lambda: trainer.page


def test_once_prints_one_snapshot_with_a_rate() -> None:
    stage = Stage()

    def events() -> Iterator[None]:
        stage.train()
        yield

    text = stage.run(events(), Options(once=True))
    assert text.count("digits  training  Running") == 1
    assert "step 5" in text
    assert "samples/s" in text


def test_snapshots_follow_until_the_job_has_ended() -> None:
    stage = Stage()

    def events() -> Iterator[None]:
        stage.train()
        yield
        stage.end()
        yield

    text = stage.run(events(), Options())
    assert text.count("digits  training  Running") == 2
    assert text.count("digits  training  Succeeded") == 1
    assert "digits: Running → Succeeded" in text


def test_a_kill_is_in_the_recording(tmp_path: Path) -> None:
    stage = Stage()

    def events() -> Iterator[None]:
        stage.train()
        yield
        del stage.cluster.objects["pods"][1]
        stage.trainers[0].recovers("lost", 0.12)
        stage.trainers[0].trains(1, generation=2, world_size=1)
        yield
        stage.end()
        yield

    stage.run(events(), Options(record=tmp_path / "top.txt"))
    text = (tmp_path / "top.txt").read_text()
    assert text.count("--- ") == 3
    assert "Worker 1 is gone" in text
    assert "training went on after 0.12 s: a worker was lost" in text


def test_while_the_api_server_is_away_the_last_numbers_stay_and_say_so() -> None:
    stage = Stage()

    def events() -> Iterator[None]:
        stage.cluster.refused["pods"] = Unreachable("the API server can't be reached")
        yield
        stage.cluster.refused.clear()
        stage.end()
        yield

    text = stage.run(events(), Options())
    assert text.count("as of 10:12:00: the API server can't be reached") == 1
    assert "Succeeded" in text


def test_an_api_server_that_is_away_from_the_beginning_and_a_job_that_is_deleted_are_errors() -> None:
    stage = Stage()
    stage.cluster.refused["pods"] = Unreachable("the API server can't be reached")
    with pytest.raises(Unreachable):
        stage.run(iter(()), Options())
    stage.cluster.refused.clear()

    def events() -> Iterator[None]:
        stage.cluster.objects["elasticjobs"].clear()
        yield

    with pytest.raises(NotFound):
        stage.run(events(), Options())


def test_the_command_line_names_the_job_and_refuses_it_together_with_all_namespaces() -> None:
    stage = Stage()
    stage.end()
    app = typer.Typer()
    app.callback()(lambda: None)
    register(app)
    tools = Tools(connect=lambda access: stage.cluster, clock=FakeClock())
    shown = CliRunner().invoke(app, ["top", "digits", "--once"], obj=tools)
    assert (shown.exit_code, "digits  training  Succeeded" in shown.stdout) == (0, True)
    both = CliRunner().invoke(app, ["top", "digits", "-A"], obj=tools)
    assert "exclude each other" in str(both.exception)
