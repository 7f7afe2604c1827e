"""A hook that raises ``Stop`` on any worker ends the training of all with the same state, as after the last epoch."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.elastic.buffers.together import all_at_once
from tests.elastic.checkpoint.conftest import LINE
from tests.elastic.session.handover.test_handover import at
from tests.elastic.session.stopping.ranks import EPOCH, Build, Rank, begun, trained
from tidewater.contract import env, exit_codes
from tidewater.elastic import runtime
from tidewater.elastic.checkpoint import Checkpoints
from tidewater.elastic.checkpoint.directory import Directory
from tidewater.elastic.checkpoint.manifest import Manifest
from tidewater.elastic.checkpoint.snapshot import Snapshots
from tidewater.elastic.config import Config
from tidewater.elastic.errors import GroupBroken
from tidewater.elastic.script.content import Script
from tidewater.elastic.session.handover import plan
from tidewater.elastic.training import Evaluated, Report, Stop, Training

ENVIRON = {env.JOB: "j", env.ETCD: "http://e:2379", env.CHECKPOINTS: "/checkpoints"}
SCORED: dict[str, Any] = {"validation": [1.0] * 8, "score": lambda model, batch: model(batch).sum()}


def stopping(step: int, *ranks: int) -> Build:
    """Return hooks that stop on these ranks after that step."""

    def build(rank: int) -> Mapping[str, Any]:
        def on_step(report: Report) -> None:
            if rank in ranks and report.step >= step:
                raise Stop("the loss is good enough")

        return {"on_step": on_step}

    return build


def ends(made: list[Rank]) -> set[tuple[int, str]]:
    """Return the steps and states with which the ranks have ended."""
    return {(each.state.step, each.state.digest()) for each in made}


@pytest.mark.parametrize("asking", [(0, 1), (0,), (1,)], ids=["all", "rank 0", "rank 1"])
def test_all_ranks_end_with_the_same_state_when_any_of_them_asks(folder: Path, asking: tuple[int, ...]) -> None:
    made = trained(stopping(2, *asking), folder)
    ((step, _),) = ends(made)
    assert step == 4, "the step after the next: the others learn of it with its sums"
    assert all(each.finished for each in made)
    found = made[0].session.worker.checkpoints.load(LINE)
    assert found
    assert (found.step, found.tree["stopped"]) == (4, True)
    for rank, each in enumerate(made):
        (event,) = each.told.of("stopped")
        why = "the loss is good enough" if rank in asking else "another worker has asked for it"
        assert event == {"step": 4, "reason": why}


def test_the_state_is_evaluated_before_it_is_final(folder: Path) -> None:
    made = trained(lambda rank: {**stopping(1, 0)(rank), **SCORED}, folder)
    assert [each.state.evaluated for each in made] == [3, 3], (
        "on_step of step 1, the first of the generation, comes after the passes of step 2, as always"
    )
    assert [event["step"] for event in made[0].told.of("evaluated")] == [3]


@pytest.mark.parametrize("lost", ["the agreement", "the result of rank 0"])
@pytest.mark.parametrize("asks", [False, True], ids=["goes on", "stops"])
def test_what_follows_an_evaluation_is_made_up_for_in_the_next_generation(
    asks: bool, lost: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(rank: int) -> Mapping[str, Any]:
        def on_evaluation(evaluated: Evaluated) -> None:
            if asks and rank:
                raise Stop("good enough")

        return {**SCORED, "keep_best": "max", "on_evaluation": on_evaluation}

    def broken(*given: object) -> Any:
        raise GroupBroken("a peer is lost")

    def until_broken(rank: int) -> None:
        with pytest.raises(GroupBroken, match="a peer is lost"):
            made[rank].train()

    made = begun(build, folder, "--evaluate-every", "1", "--keep-checkpoints", "1")
    with monkeypatch.context() as patched:
        for each in made:
            patched.setattr(each.session, "exchange", broken)
        if lost != "the agreement":
            patched.setattr(made[0].session, "check", broken)
        all_at_once(until_broken, len(made))
    made[0].session.reports.adopt(made[1].state.whole(), made[0].state.load)
    all_at_once(lambda rank: made[rank].train(), len(made))
    ((step, _),) = ends(made)
    assert step == (EPOCH if asks else 4 * EPOCH)
    scores = {each.history.step: each.score for each in map(Manifest.of, folder.glob("step-*"))}
    assert scores.keys() == {EPOCH, step}
    assert scores[EPOCH] is not None


@pytest.mark.parametrize("asking", [(0, 1), (1,)], ids=["all", "one"])
def test_after_an_evaluation_no_further_step_is_made(folder: Path, asking: tuple[int, ...]) -> None:
    def build(rank: int) -> Mapping[str, Any]:
        def on_evaluation(evaluated: Evaluated) -> None:
            seen.append((rank, evaluated))
            if rank in asking and evaluated.epoch == 2:
                raise Stop("no better score")

        return {**SCORED, "on_evaluation": on_evaluation}

    seen: list[tuple[int, Evaluated]] = []
    made = trained(build, folder, "--evaluate-every", "1")
    ((step, _),) = ends(made)
    assert step == 2 * EPOCH
    assert all(each.finished for each in made)
    (first, *rest), (other, *_) = ([each for rank, each in seen if rank == mine] for mine in (0, 1))
    assert replace(first, writes=other.writes) == other
    assert first.writes != other.writes
    assert [(each.step, each.epoch) for each in (first, *rest)] == [(3, 1), (6, 2)]


def test_a_hook_that_one_worker_alone_has_stops_all(folder: Path) -> None:
    def stop(evaluated: Evaluated) -> None:
        raise Stop("good enough")

    made = trained(
        lambda rank: {**SCORED, **({"on_evaluation": stop} if rank else {})}, folder, "--evaluate-every", "1"
    )
    ((step, _),) = ends(made)
    assert step == EPOCH


def test_a_training_that_is_not_stopped_makes_all_its_steps(folder: Path) -> None:
    made = trained(lambda rank: {"on_step": lambda report: None}, folder)
    ((step, _),) = ends(made)
    assert step == 4 * EPOCH
    assert made[0].told.of("stopped") == []


def test_the_best_state_is_kept_next_to_the_newest(folder: Path) -> None:
    """SGD lowers the score with every step, so the first evaluation is the best one."""
    flags = ("--evaluate-every", "1", "--keep-checkpoints", "1")
    made = trained(lambda rank: {**SCORED, "keep_best": "max"}, folder, *flags)
    assert len(made[0].told.of("evaluated")) == 4
    assert made[0].session.worker.checkpoints.flush()
    assert sorted(each.name for each in folder.glob("step-*")) == [f"step-{step:012}" for step in (EPOCH, 4 * EPOCH)]


def test_the_best_state_is_kept_while_another_checkpoint_is_being_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, begin = threading.Event(), Directory.begin

    def slow(place: Directory, step: int) -> Any:
        assert go.wait(60)
        return begin(place, step)

    def on_step(report: Report) -> None:
        if report.step == EPOCH + 1:  # training has continued
            go.set()

    monkeypatch.setattr(Directory, "begin", slow)
    flags = ("--evaluate-every", "1", "--checkpoint-every", "2", "--keep-checkpoints", "1")
    trained(lambda rank: {**SCORED, "keep_best": "max", "on_step": on_step}, folder, *flags)
    scores = [Manifest.of(each).score for each in sorted(folder.glob("step-*"))]
    assert [score is not None for score in scores] == [True, True], "the first evaluation's and the last state's"


def test_where_a_better_state_is_stored_nothing_is_copied(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied, take = list[int](), Snapshots.take

    def noted(snapshots: Snapshots, state: Mapping[str, Any], *, fresh: bool = False) -> Any:
        copied.append(state["step"])
        return take(snapshots, state, fresh=fresh)

    def build(rank: int) -> Mapping[str, Any]:
        return {**SCORED, "keep_best": "max", "on_step": lambda report: stored.wait(60) if report.step == 4 else None}

    stored = threading.Event()
    monkeypatch.setattr(Snapshots, "take", noted)
    tidy = Checkpoints._tidy

    def tidied(*given: Any) -> None:
        tidy(*given)
        stored.set()

    monkeypatch.setattr(Checkpoints, "_tidy", tidied)
    trained(build, folder, "--evaluate-every", "1")
    assert copied == [EPOCH, 4 * EPOCH], "the first evaluation's and the last state"


def test_a_rank_that_missed_the_decision_gets_it() -> None:
    assert plan([at(4, 100, 1, 3, 0), at(4, 100, 1, 3, 1)]) == (1, frozenset({0}))


@contextlib.contextmanager
def unjoined(config: Config, prepare: Callable[[Config], Any]) -> Iterator[None]:
    """Prepare like a session, without etcd."""
    prepare(config)
    yield


@pytest.mark.parametrize(
    ("raised", "named"),
    [
        (SystemExit(), r"the script has called sys\.exit\(0\), and the job is not finished.*raise tidewater\.Stop"),
        (SystemExit(0), r"the script has called sys\.exit\(0\), and the job is not finished.*raise tidewater\.Stop"),
        (Stop("enough"), r"raised tidewater\.Stop\(enough\) elsewhere.*in on_step or on_evaluation"),
    ],
    ids=["exit", "exit-0", "stop-elsewhere"],
)
def test_a_script_that_exits_is_no_finished_job(
    raised: BaseException, named: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def build(config: Config) -> Training:
        raise raised

    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(runtime, "open_session", unjoined)
    assert runtime.run(build, ["--threads", str(torch.get_num_threads())]) == exit_codes.USAGE
    said = capsys.readouterr().err
    assert re.search(named, said), said


def test_a_script_that_exits_with_an_error_does_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(config: Config) -> Training:
        raise SystemExit(3)

    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(runtime, "open_session", unjoined)
    with pytest.raises(SystemExit) as ended:
        runtime.run(build, ["--threads", str(torch.get_num_threads())])
    assert ended.value.code == 3


def test_the_first_reason_of_a_worker_counts() -> None:
    reasons = iter(["first", "second"])

    def on_step(report: Report) -> None:
        raise Stop(next(reasons))

    model = nn.Linear(1, 1)
    training = Training(
        model, torch.optim.SGD(model.parameters()), SCORED["validation"], lambda model, batch: batch, on_step=on_step
    )
    script = Script(lambda config: training)
    hooked = script.hooked(Config.parse([], ENVIRON), torch.device("cpu"))
    for step in (1, 2):
        hooked.on_step(Report(step, 0, 1, 1, 0, 0.5, 0.1, (0,), 1, 0.1, 0.1))
    assert script.requests.stop == "first"
