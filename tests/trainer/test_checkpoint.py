"""Checkpoints are whole or not used."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from trainer.checkpoint import Checkpoints
from trainer.log import Log


@pytest.fixture
def told() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def checkpoints(tmp_path: Path, told: io.StringIO) -> Checkpoints:
    return Checkpoints(tmp_path / "ck", Log("t", stream=told))


def test_the_newest_is_loaded_and_two_are_kept(checkpoints: Checkpoints, tmp_path: Path) -> None:
    for step in (10, 20, 30):
        assert checkpoints.save(step, f"state {step}".encode())
    found = checkpoints.load()
    assert found is not None
    assert (found.step, found.payload) == (30, b"state 30")
    assert len(list((tmp_path / "ck").iterdir())) == 2


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: data[:-3], id="cut-short"),
        pytest.param(lambda data: data[:-1] + b"?", id="flipped"),
        pytest.param(lambda data: b"", id="empty"),
        pytest.param(lambda data: b"\0" * len(data), id="zeros"),
        pytest.param(lambda data: data.replace(b'"version": 1', b'"version": 7'), id="other-version"),
    ],
)
def test_a_damaged_one_is_skipped_with_a_message_and_the_one_before_is_used(
    damage: object, checkpoints: Checkpoints, tmp_path: Path, told: io.StringIO
) -> None:
    for step in (10, 20):
        checkpoints.save(step, f"state {step}".encode())
    newest = tmp_path / "ck" / "step-000000000020.ckpt"
    newest.write_bytes(damage(newest.read_bytes()))  # type: ignore[operator]
    found = checkpoints.load()
    assert found is not None
    assert found.step == 10
    assert "event=checkpoint_skipped" in told.getvalue()
    assert newest.name in told.getvalue()


def test_no_checkpoint_is_none(checkpoints: Checkpoints) -> None:
    assert checkpoints.load() is None


def test_a_volume_that_cannot_be_written_is_reported_and_training_goes_on(tmp_path: Path, told: io.StringIO) -> None:
    (tmp_path / "file").write_text("in the way")
    assert not Checkpoints(tmp_path / "file" / "ck", Log("t", stream=told)).save(10, b"x")
    assert "event=checkpoint_failed step=10" in told.getvalue()


def test_the_end_is_recorded_on_the_volume(checkpoints: Checkpoints) -> None:
    assert not checkpoints.finished()
    checkpoints.finish(b"{}")
    assert checkpoints.finished()
