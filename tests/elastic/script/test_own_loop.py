"""What a loop of a script's own gets, and the sentence for each misuse."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch

import tidewater
from tests.elastic.script.conftest import EPOCHS, MICRO_BATCH, SAMPLES, STEPS, Alone, Given
from tidewater.contract import exit_codes
from tidewater.elastic import runtime
from tidewater.elastic.config import Config
from tidewater.elastic.script.own_loop import Run

Settings = Callable[..., Config]
Body = Callable[[Run, Given, Any], object]


def trained(config: Config, body: Body, **more: Any) -> tuple[Given, int]:
    """Train with this body of the loop."""
    given = Given(**more)
    return given, trained_by(config, given, body)


def trained_by(config: Config, given: Given, body: Body) -> int:
    with tidewater.session(config, **given.fields) as run:
        for batch in run.batches():
            body(run, given, batch)
    return run.exit_code


def again(alone: Alone) -> None:
    """Let this process have one more session, of another job."""
    alone.begin()
    runtime._opened = False


def by_tensor(run: Run, given: Given, batch: Any) -> None:
    run.step(given.loss(batch))


def by_function(run: Run, given: Given, batch: Any) -> None:
    run.step(lambda: given.loss(batch))


def by_pair(run: Run, given: Given, batch: Any) -> None:
    run.step((given.loss(batch) * len(batch[0]), len(batch[0])))


def by_own_steps(run: Run, given: Given, batch: Any) -> None:
    if run.sums(given.loss(batch)):
        given.optimizer.step()
        run.applied()


def weights(given: Given) -> list[torch.Tensor]:
    return [each.detach().clone() for each in (*given.model.parameters(), *given.model.buffers())]


def test_every_way_to_give_the_loss_trains_the_same(alone: Alone, config: Settings) -> None:
    found = []
    for body in (by_tensor, by_function, by_own_steps):
        again(alone)
        given, code = trained(config(), body)
        assert code == exit_codes.FINISHED
        assert alone.state.step == STEPS
        found.append(weights(given))
    assert all(torch.equal(*pair) for other in found[1:] for pair in zip(found[0], other, strict=True))


def test_a_pair_is_a_sum_with_its_weight(alone: Alone, config: Settings) -> None:
    means, _ = trained(config(), by_tensor)
    again(alone)
    sums, _ = trained(config(), by_pair)
    for pair in zip(weights(means), weights(sums), strict=True):
        torch.testing.assert_close(*pair)


def test_first_comes_a_rehearsal_which_changes_nothing(alone: Alone, config: Settings) -> None:
    sizes: list[tuple[bool, int]] = []
    seen: list[list[torch.Tensor]] = []

    def body(run: Run, given: Given, batch: Any) -> None:
        sizes.append((alone.joined, len(batch[0])))
        seen.append(weights(given))
        assert run.rank == (0 if alone.joined else -1)
        by_tensor(run, given, batch)

    trained(config(), body)
    rehearsed = [size for joined, size in sizes if not joined]
    assert (min(rehearsed), max(rehearsed)) == (2, MICRO_BATCH)
    assert sum(size for joined, size in sizes if joined) == SAMPLES * EPOCHS
    assert all(torch.equal(*pair) for pair in zip(seen[0], seen[len(rehearsed)], strict=True))


def test_each_final_step_is_reported_once(alone: Alone, config: Settings) -> None:
    yielded: list[int] = []
    hooked: list[int] = []
    given = Given(on_step=lambda report: hooked.append(report.step))
    with tidewater.session(config(), **given.fields) as run:
        for batch in run.batches():
            by_tensor(run, given, batch)
            yielded += [report.step for report in run.reports()]
        yielded += [report.step for report in run.reports()]
    assert yielded == hooked == list(range(1, STEPS + 1))


def test_the_script_can_end_training_for_all(alone: Alone, config: Settings) -> None:
    def body(run: Run, given: Given, batch: Any) -> None:
        by_tensor(run, given, batch)
        if any(report.step == 1 for report in run.reports()):
            run.stop("enough")

    assert trained(config(), body)[1] == exit_codes.FINISHED
    assert alone.state.step < STEPS
    assert [event["reason"] for event in alone.told.of("stopped")] == ["enough"]


def test_a_worker_that_leaves_goes_on_until_its_loop_ends(alone: Alone, config: Settings) -> None:
    def body(run: Run, given: Given, batch: Any) -> None:
        by_tensor(run, given, batch)
        if alone.joined:
            run.leave()
            alone.state.stopped = True  # so that this generation ends, as if the others had formed the next one

    alone.etcd.finish = lambda record: None  # type: ignore[method-assign]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidewater.elastic.session.session.Session.finish", lambda session: None)
        with pytest.raises(SystemExit) as ended:
            trained(config(), body)
    assert ended.value.code == exit_codes.LEFT


def test_a_script_may_end_its_loop_after_it_has_asked_to_leave(alone: Alone, config: Settings) -> None:
    given, buffers = Given(), list[torch.Tensor]()

    def leaves() -> None:
        nonlocal buffers
        with tidewater.session(config(), **given.fields) as run:
            for batch in run.batches():
                buffers = weights(given)
                loss = given.loss(batch)  # batch normalization has changed its running statistics
                if alone.joined:
                    run.leave()
                    break
                run.step(loss)

    with pytest.raises(SystemExit) as ended:
        leaves()
    assert ended.value.code == exit_codes.LEFT
    assert all(torch.equal(*pair) for pair in zip(buffers, weights(given), strict=True))


def no_step(run: Run, given: Given, batch: Any) -> None:
    given.loss(batch)


def two_steps(run: Run, given: Given, batch: Any) -> None:
    loss = given.loss(batch)
    run.step(loss)
    run.step(loss)


def own_backward(run: Run, given: Given, batch: Any) -> None:
    loss = given.loss(batch)
    loss.backward(retain_graph=True)  # type: ignore[no-untyped-call]
    run.step(loss)


def own_step(run: Run, given: Given, batch: Any) -> None:
    run.step(given.loss(batch))
    given.optimizer.step()


def own_zeros(run: Run, given: Given, batch: Any) -> None:
    given.optimizer.zero_grad()
    run.step(given.loss(batch))


def own_zeros_in_place(run: Run, given: Given, batch: Any) -> None:
    given.optimizer.zero_grad(set_to_none=False)
    run.step(given.loss(batch))


def own_scheduler(run: Run, given: Given, batch: Any) -> None:
    run.step(given.loss(batch))
    given.fields["scheduler"].step()


def not_applied(run: Run, given: Given, batch: Any) -> None:
    run.sums(given.loss(batch))


def applied_without_sums(run: Run, given: Given, batch: Any) -> None:
    run.sums(given.loss(batch))
    run.applied()


def no_loss(run: Run, given: Given, batch: Any) -> None:
    run.step("loss")


def a_second_loop(run: Run, given: Given, batch: Any) -> None:
    for _ in run.batches():
        pass


def ends_as_if_finished(run: Run, given: Given, batch: Any) -> None:
    sys.exit(0)


def stops(run: Run, given: Given, batch: Any) -> None:
    raise tidewater.Stop("enough")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (no_step, r"got no run\.step\(loss\) for its batch.*once for each batch"),
        (two_steps, r"run\.step\(\) was called without a batch, or twice for one: call it once"),
        (own_backward, r"backward\(\) itself: leave it out"),
        (own_step, r"optimizer\.step\(\) itself: leave it out"),
        (own_zeros, r"changed the gradients between two micro-batches.*zero_grad\(\).*leave it out"),
        (own_zeros_in_place, r"changed the gradients between two micro-batches"),
        (own_scheduler, r"scheduler\.step\(\) itself: leave it out"),
        (not_applied, r"run\.applied\(\) was not called: call it"),
        (applied_without_sums, r"run\.applied\(\) was called where run\.sums\(\) has not returned True"),
        (no_loss, r"returns a str: it must return one number"),
        (a_second_loop, r"run\.batches\(\) was called a second time.*one loop is enough"),
        (ends_as_if_finished, r"has called sys\.exit\(0\), and the job is not finished"),
        (stops, r"has raised tidewater\.Stop\(enough\) elsewhere"),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_a_misuse_ends_the_worker_with_a_sentence(
    body: Body, says: str, alone: Alone, config: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    given = Given()
    given.fields["scheduler"] = torch.optim.lr_scheduler.StepLR(given.optimizer, 100)
    with pytest.raises(SystemExit) as ended:
        trained_by(config(), given, body)
    assert ended.value.code == exit_codes.USAGE
    said = capsys.readouterr().err
    assert re.search(says, said), said
    assert alone.closed
    assert alone.joined == (body is not_applied), "all else shows in the rehearsal"


@pytest.mark.parametrize("where", ["in-the-rehearsal", "later", "without-a-loop"])
def test_a_loop_that_ends_before_training_is_refused(
    where: str, alone: Alone, config: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    given = Given()

    def breaks() -> None:
        with tidewater.session(config(), **given.fields) as run:
            for batch in run.batches() if where != "without-a-loop" else ():
                if alone.joined or where == "in-the-rehearsal":
                    break
                by_tensor(run, given, batch)

    with pytest.raises(SystemExit) as ended:
        breaks()
    assert ended.value.code == exit_codes.USAGE
    assert "before training was over" in (said := capsys.readouterr().err)
    assert "run.stop(reason) and go on with the loop" in said
    assert "run.leave()" in said


def test_with_a_scaler_the_script_cannot_step_the_optimizers(
    alone: Alone, config: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        trained(config("--amp", "fp16"), by_own_steps)
    assert "run.sums() is used with --amp fp16" in capsys.readouterr().err
    assert not alone.joined


@pytest.mark.parametrize("joined", [True, False])
def test_an_exception_of_the_script_comes_through_and_the_worker_withdraws(
    joined: bool, alone: Alone, config: Settings
) -> None:
    def body(run: Run, given: Given, batch: Any) -> None:
        loss = given.loss(batch)
        if alone.joined == joined:
            raise KeyError("label")
        run.step(loss)

    with pytest.raises(KeyError, match="label"):
        trained(config(), body)
    assert alone.closed
    assert not torch.is_autocast_enabled("cpu")


def test_too_little_memory_in_the_scripts_own_pass_has_a_note_with_the_remedy(alone: Alone, config: Settings) -> None:
    def body(run: Run, given: Given, batch: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError) as raised:
        trained(config(), body)
    assert "give run.step a function" in raised.value.__notes__[0]


def test_a_function_that_does_not_fit_in_memory_gets_smaller_micro_batches(alone: Alone, config: Settings) -> None:
    sizes: list[int] = []

    def body(run: Run, given: Given, batch: Any) -> None:
        def loss() -> torch.Tensor:
            sizes.append(len(batch[0]))
            if len(batch[0]) > 2:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return given.loss(batch)

        run.step(loss)

    assert trained(config(), body)[1] == exit_codes.FINISHED
    assert alone.state.micro_batch == 1
    assert sizes.count(MICRO_BATCH) == 1


def test_after_the_loop_the_optimizer_belongs_to_the_script_again(alone: Alone, config: Settings) -> None:
    given, _ = trained(config(), by_tensor)
    given.optimizer.step()


def test_the_forward_pass_runs_under_autocast_and_the_rest_does_not(alone: Alone, config: Settings) -> None:
    def body(run: Run, given: Given, batch: Any) -> None:
        assert torch.is_autocast_enabled("cpu")
        assert given.model(batch[0]).dtype == torch.bfloat16
        run.step(given.loss(batch))
        assert not torch.is_autocast_enabled("cpu")

    trained(config("--amp", "bf16"), body)


def test_a_scripts_own_autocast_around_the_step_ends_with_its_batch(alone: Alone, config: Settings) -> None:
    def body(run: Run, given: Given, batch: Any) -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            run.step(given.loss(batch))

    trained(config("--amp", "bf16"), body)
    assert not torch.is_autocast_enabled("cpu")


def test_a_process_has_one_session(alone: Alone, config: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    trained(config(), by_tensor)
    with pytest.raises(SystemExit) as ended:
        trained(config(), by_tensor)
    assert ended.value.code == exit_codes.USAGE
    assert "has opened a session before" in capsys.readouterr().err


def test_the_settings_are_those_of_init(alone: Alone, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        trained(cast("Config", {"epochs": 3}), by_tensor)
    assert "give it what tidewater.init() returns" in capsys.readouterr().err


class Endless(torch.utils.data.Dataset[int]):
    def __getitem__(self, index: int) -> int:
        return index


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (lambda: {"dataset": Endless()}, "the training's dataset, Endless, has no length or no index"),
        (lambda: {"validation": Endless()}, "the training's validation, Endless, has no length or no index"),
        (
            lambda: {"optimizer": torch.optim.SGD(torch.nn.Linear(2, 1).parameters(), lr=0.1)},
            "has a parameter that its model doesn't have",
        ),
    ],
    ids=["dataset", "validation", "optimizer"],
)
def test_what_cannot_be_trained_is_refused_before_the_loop(
    more: Callable[[], dict[str, Any]],
    says: str,
    alone: Alone,
    config: Settings,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        trained(config(), lambda *_: pytest.fail("the loop has a batch"), **more())
    assert ended.value.code == exit_codes.USAGE
    assert says in capsys.readouterr().err


def test_wrong_settings_end_the_script_with_a_sentence(config: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        config("--epochs", "0")
    assert ended.value.code == exit_codes.USAGE
    assert "--epochs is 0" in capsys.readouterr().err
