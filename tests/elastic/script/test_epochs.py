"""A loop of a script's own over epochs validates at their ends, and each misuse gets a sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import ConcatDataset, TensorDataset

import tidewater
from tests.elastic.script.conftest import BATCH_SIZE, EPOCHS, MICRO_BATCH, SAMPLES, STEPS, Alone, Given
from tidewater.contract import exit_codes
from tidewater.elastic.config import Config
from tidewater.elastic.data.sampler import Cursor
from tidewater.elastic.errors import GroupBroken
from tidewater.elastic.script.epochs import samples_of
from tidewater.elastic.script.own_loop import Run

Settings = Callable[..., Config]
AtEnd = Callable[[Run, Given], object]
VAL, TEST = TensorDataset(torch.arange(200.0)), TensorDataset(torch.arange(7.0))
EMPTY = TensorDataset(torch.empty(0))


def trained(config: Config, at_end: AtEnd, **more: Any) -> tuple[Given, int]:
    """Train by epochs, and do this at the end of each."""
    given = Given(**{"validation": VAL, **more})
    with tidewater.session(config, **given.fields) as run:
        for _ in run.epochs():
            for batch in run.batches():
                run.step(given.loss(batch))
            at_end(run, given)
    return given, run.exit_code


def test_each_epoch_ends_with_the_totals_of_every_sample_once(alone: Alone, config: Settings) -> None:
    seen: list[Any] = []
    modes, held_out = set(), ConcatDataset[Any]([VAL, TEST])

    def validate(run: Run, given: Given) -> None:
        normalization: Any = given.model[1]
        found, before = [], normalization.running_mean.clone()
        for data in (VAL, TEST):
            validation = run.validation(data)
            for (numbers,), add in validation:
                modes.add((given.model.training, torch.is_grad_enabled()))
                normalization.running_mean += 1
                add(total=numbers.sum(), count=len(numbers))
            found.append(validation.totals)
        assert given.model.training
        assert torch.is_grad_enabled()
        assert torch.equal(normalization.running_mean, before)
        seen.append((run.epoch, alone.joined, found))

    _, code = trained(config(), validate, validation=held_out)
    assert code == exit_codes.FINISHED
    assert alone.state.step == STEPS
    totals = [{"count": 200.0, "total": 199 * 100.0}, {"count": 7.0, "total": 21.0}]
    assert seen == [(0, False, [None, None]), *((epoch + 1, True, totals) for epoch in range(EPOCHS))]
    assert modes == {(False, False)}


def test_an_epoch_comes_again_without_batches_if_a_loss_interrupts_its_validation(
    alone: Alone, config: Settings
) -> None:
    given, losses, given_up, turns = Given(validation=VAL), [GroupBroken("a peer is lost")], list[Any](), list[Any]()

    def check() -> None:
        if losses:
            raise losses.pop()

    with tidewater.session(config(), **given.fields) as run:
        session: Any = run._session
        session.check, session.give_up = check, lambda error: given_up.append((str(error), len(turns)))
        for epoch in run.epochs():
            batches, totals = 0, []
            for batch in run.batches():
                run.step(given.loss(batch))
                batches += 1
            for _ in range(2):
                validation = run.validation(VAL)
                for (numbers,), add in validation:
                    add(count=len(numbers))
                totals.append(validation.totals)
            turns.append((epoch, batches > 0, totals))
    nothing, all_of_it = [None, None], [{"count": 200.0}] * 2
    assert turns == [(0, True, nothing), (0, True, nothing), (0, False, all_of_it), (1, True, all_of_it)]
    assert given_up == [("a peer is lost", 2)]


def test_a_worker_that_missed_the_end_of_an_epoch_gets_a_turn_of_the_current(alone: Alone, config: Settings) -> None:
    given, lost, turns = Given(validation=VAL), [GroupBroken("the others have gone on")], list[Any]()

    def knows() -> bool:
        if lost and alone.state.step == 1:
            raise lost.pop()
        return False

    with tidewater.session(config(), **given.fields) as run:
        session: Any = run._session
        session.knows = knows
        session.give_up = lambda error: vars(alone.state).update(step=3, cursor=Cursor(1, BATCH_SIZE))
        for epoch in run.epochs():
            for batch in run.batches():
                run.step(given.loss(batch))
            for (numbers,), add in (validation := run.validation(VAL)):
                add(count=len(numbers))
            turns.append((epoch, run.steps, validation.totals))
    assert turns[1:] == [(0, 3, None), (1, 4, {"count": 200.0})]


def test_the_rehearsal_validates_a_small_batch_and_the_largest_that_training_can_have(
    alone: Alone, config: Settings
) -> None:
    sizes = list[int]()

    def validate(run: Run, given: Given) -> None:
        for (numbers,), add in run.validation(VAL):
            sizes.extend([] if alone.joined else [len(numbers)])
            add(count=len(numbers))

    trained(config("--micro-batch", "0"), validate)
    assert sizes == [2, BATCH_SIZE]


def test_too_little_memory_in_a_validation_has_a_note_with_the_remedy(alone: Alone, config: Settings) -> None:
    def validate(run: Run, given: Given) -> None:
        for _, _ in run.validation(VAL):
            raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError) as raised:
        trained(config(), validate)
    assert any("a batch of the validation doesn't fit" in note for note in raised.value.__notes__)


def test_a_tensor_may_be_the_dataset(alone: Alone, config: Settings) -> None:
    held_out, totals = torch.arange(200.0), list[Any]()

    def validate(run: Run, given: Given) -> None:
        validation = run.validation(held_out)
        for numbers, add in validation:
            add(total=numbers.sum())
        totals.append(validation.totals)

    trained(config(), validate, validation=held_out)
    assert totals == [None, *[{"total": 199 * 100.0}] * EPOCHS]


def test_an_epoch_has_its_own_batches_and_the_weights_are_those_of_one_loop(alone: Alone, config: Settings) -> None:
    found = []
    for by_epochs in (False, True):
        alone.begin()
        tidewater.elastic.runtime._opened = False
        given = Given()
        with tidewater.session(config(), **given.fields) as run:
            for _ in run.epochs() if by_epochs else [0]:
                for batch in run.batches():
                    run.step(given.loss(batch))
        found.append([each.detach().clone() for each in given.model.parameters()])
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))


def test_in_a_rehearsal_each_data_set_has_its_part_of_the_samples_that_are_used() -> None:
    both = ConcatDataset[Any]([VAL, TEST])
    assert [samples_of(each, both, 207) for each in (VAL, TEST, both)] == [range(200), range(200, 207), range(207)]
    assert [samples_of(each, both, 60) for each in (VAL, TEST, both)] == [range(58), range(58, 60), range(60)]
    assert [samples_of(each, both, 2) for each in (VAL, TEST)] == [range(2), range(1, 2)]


def test_autocast_that_the_script_has_left_on_in_a_validation_ends_with_it(alone: Alone, config: Settings) -> None:
    """A worker that joins later would train without it."""

    def validate(run: Run, given: Given) -> None:
        for (numbers,), add in run.validation(VAL):
            torch.set_autocast_enabled("cpu", True)
            torch.set_autocast_dtype("cpu", torch.float16)
            add(count=len(numbers))
        assert not torch.is_autocast_enabled("cpu")
        assert torch.get_autocast_dtype("cpu") == torch.bfloat16

    trained(config(), validate)
    assert alone.state.step == STEPS


@pytest.mark.parametrize(("stops", "steps"), [("within the epoch", 2), ("at its end", SAMPLES // MICRO_BATCH)])
def test_after_stop_the_last_state_is_validated_once(stops: str, steps: int, alone: Alone, config: Settings) -> None:
    given, turns = Given(validation=VAL), list[Any]()
    with tidewater.session(config("--batch-size", str(MICRO_BATCH)), **given.fields) as run:
        for epoch in run.epochs():
            for batch in run.batches():
                run.step(given.loss(batch))
                if stops == "within the epoch":
                    run.stop("enough")
            run.stop("enough")
            for (numbers,), add in (validation := run.validation(VAL)):
                add(count=len(numbers))
            turns.append((epoch, run.steps, validation.totals))
    assert run.exit_code == exit_codes.FINISHED
    assert turns == [(0, 0, None), (0, steps, {"count": 200.0})]


def test_training_can_end_by_what_a_validation_has_shown(alone: Alone, config: Settings) -> None:
    _, code = trained(config(), lambda run, given: run.stop("good enough"))
    assert code == exit_codes.FINISHED
    assert alone.state.step == STEPS // EPOCHS


@pytest.mark.parametrize("ends", ["by itself", "by break"])
def test_a_worker_that_has_left_within_an_epoch_validates_nothing(ends: str, alone: Alone, config: Settings) -> None:
    given, found = Given(validation=VAL), list[Any]()

    def trains() -> None:
        with tidewater.session(config(), **given.fields) as run:
            session: Any = run._session
            for epoch in run.epochs():
                for batch in run.batches():
                    run.step(given.loss(batch))
                    if alone.joined:
                        run.leave()
                        if ends == "by break":
                            break
                        session.knows = lambda: True
                validation = run.validation(VAL)
                for _, add in validation:
                    add(count=1)
                    found.append(alone.left)
                found.append((epoch, validation.totals))

    with pytest.raises(SystemExit) as ended:
        trains()
    assert ended.value.code == exit_codes.LEFT
    assert found == [False, False, (0, None), (0, None)]


def test_after_the_end_of_training_nothing_is_validated(alone: Alone, config: Settings) -> None:
    given, totals = Given(validation=VAL), list[Any]()
    with tidewater.session(config(), **given.fields) as run:
        for epoch in run.epochs():
            if epoch == 1:
                run.finish("one epoch is enough")
            for batch in run.batches():
                run.step(given.loss(batch))
            validation = run.validation(VAL)
            for (numbers,), add in validation:
                add(count=len(numbers))
            totals.append((epoch, validation.totals))
    assert run.exit_code == exit_codes.FINISHED
    assert totals == [(0, None), (0, {"count": 200.0}), (1, None)]


@pytest.mark.parametrize("then", ["goes on", "validates again", "breaks"])
def test_a_worker_that_leaves_may_end_a_validation(then: str, alone: Alone, config: Settings) -> None:
    given = Given(validation=VAL)

    def trains() -> None:
        with tidewater.session(config(), **given.fields) as run:
            for _ in run.epochs():
                for batch in run.batches():
                    run.step(given.loss(batch))
                for _, add in run.validation(VAL):
                    add(count=1)
                    if alone.joined:
                        run.leave()
                        break
                if then == "validates again" and alone.left:
                    assert list(run.validation(VAL)) == []
                if then == "breaks" and alone.left:
                    break

    with pytest.raises(SystemExit) as ended:
        trains()
    assert ended.value.code == exit_codes.LEFT
    assert given.model.training


def breaks(run: Run, given: Given) -> None:
    for _, add in run.validation(VAL):
        add(count=1)
        break


def without_add(run: Run, given: Given) -> None:
    for _ in run.validation(VAL):
        pass


def adds_twice(run: Run, given: Given) -> None:
    for _, add in run.validation(VAL):
        add(count=1)
        add(loss=1)


def adds_other_sums(run: Run, given: Given) -> None:
    for place, (_, add) in enumerate(run.validation(VAL)):
        add(**{f"sum_{place}": 1})


def adds_a_text(run: Run, given: Given) -> None:
    for _, add in run.validation(VAL):
        add(label="cat")


def adds_a_tensor(run: Run, given: Given) -> None:
    for (numbers,), add in run.validation(VAL):
        add(losses=numbers)


def adds_nothing(run: Run, given: Given) -> None:
    for _, add in run.validation(VAL):
        add()


def within(run: Run, given: Given) -> None:
    for _, add in run.validation(VAL):
        add(count=1)
        for _, more in run.validation(VAL):
            more(count=1)


def loops_again(run: Run, given: Given) -> None:
    for batch in run.batches():
        run.step(given.loss(batch))


@pytest.mark.parametrize(
    ("at_end", "named"),
    [
        (breaks, "has left a loop over run.validation() before its end"),
        (without_add, "has called no add() for its batch"),
        (adds_twice, "add() was called a second time for one batch"),
        (adds_other_sums, "add() has got the sums sum_1, and for other batches of this validation sum_0"),
        (adds_a_text, "add() has got a str as label: give one number"),
        (adds_a_tensor, "add() has got a tensor of shape (2,) as losses: give one number"),
        (adds_nothing, "add() was called without a sum"),
        (within, "was begun where another one has not ended"),
        (loops_again, "run.batches() was called a second time in one turn of run.epochs()"),
        (lambda run, given: run.validation(TEST), "a dataset, TensorDataset, that tidewater.session() has not"),
        (lambda run, given: run.validation(EMPTY), "the dataset of run.validation(), TensorDataset, is empty"),
        (lambda run, given: run.validation(None), "a dataset, NoneType, that tidewater.session() has not"),
    ],
)
def test_a_misuse_of_a_validation_is_refused_in_the_rehearsal(
    at_end: AtEnd, named: str, alone: Alone, config: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        trained(config(), at_end, validation=ConcatDataset([VAL, EMPTY]))
    assert ended.value.code == exit_codes.USAGE
    assert named in capsys.readouterr().err
    assert not alone.joined


def in_training(run: Run, given: Given) -> None:
    for _ in run.epochs():
        for _ in run.batches():
            run.validation(VAL)


def before_training(run: Run, given: Given) -> None:
    for _ in run.epochs():
        run.validation(VAL)


def outside_of_epochs(run: Run, given: Given) -> None:
    run.validation(VAL)


def without_epochs(run: Run, given: Given) -> None:
    for _ in run.batches():
        pass


def leaves_its_batches(run: Run, given: Given) -> None:
    for _ in run.epochs():
        for batch in run.batches():
            run.step(given.loss(batch))
            break


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (in_training, "run.validation() was called where no epoch has ended"),
        (before_training, "run.validation() was called where no epoch has ended"),
        (outside_of_epochs, "run.validation() was called where no epoch has ended"),
        (without_epochs, "the training has validation but no score"),
        (leaves_its_batches, "before its loop over run.batches() had ended"),
    ],
)
def test_a_misuse_of_the_loops_is_refused(
    body: AtEnd, named: str, alone: Alone, config: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    given = Given(validation=VAL)
    settings = config()
    with pytest.raises(SystemExit) as ended, tidewater.session(settings, **given.fields) as run:
        body(run, given)
    assert ended.value.code == exit_codes.USAGE
    assert named in capsys.readouterr().err
