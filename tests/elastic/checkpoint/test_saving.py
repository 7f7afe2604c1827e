"""The loaded state equals the saved one, and training does not wait for saving."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import numpy
import pytest
import torch

from tests.elastic.checkpoint.conftest import Slow, Told, at, loaded, save, small, trained
from tests.elastic.checkpoint.conftest import same as same_bits
from tests.elastic.group.faulty import ERRORS
from tidewater.elastic.checkpoint import Checkpoints
from tidewater.elastic.checkpoint.directory import Directory
from tidewater.elastic.checkpoint.places import Upload
from tidewater.elastic.checkpoint.snapshot import Snapshots
from tidewater.elastic.errors import ConfigError


def test_a_model_and_its_optimizer_are_restored_bit_for_bit(checkpoints: Checkpoints) -> None:
    model, optimizer = trained()
    state = {"step": 3, "model": dict(model.state_dict()), "optimizer": optimizer.state_dict(), "accuracy": None}
    assert checkpoints.save(at(3), state, wait=True)
    found = loaded(checkpoints)
    assert found.step == 3
    assert same_bits(found.tree, state)
    other, fresh = trained()
    other.load_state_dict(found.tree["model"])
    fresh.load_state_dict(found.tree["optimizer"])
    assert same_bits(fresh.state_dict(), optimizer.state_dict())


@pytest.mark.parametrize(
    "tensor",
    [
        *(torch.tensor(1.5), torch.zeros(0), torch.zeros(3, 0, 2), torch.tensor(True), torch.arange(6).reshape(2, 3).T),
        *(torch.randn(5).to(torch.bfloat16), torch.randn(5).half(), torch.randn(3, dtype=torch.complex64)),
        *(
            torch.arange(10)[::3],
            torch.ones(1).expand(4),
            torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        ),
        *(torch.full((2,), float("nan")), torch.arange(4, dtype=torch.uint8), torch.randn(4).to(torch.float8_e4m3fn)),
    ],
    ids=lambda tensor: f"{tensor.dtype}-{list(tensor.shape)}-{list(tensor.stride())}",
)
def test_tensors_of_every_kind_are_restored(tensor: torch.Tensor, checkpoints: Checkpoints) -> None:
    assert checkpoints.save(at(1), {"tensor": tensor}, wait=True)
    assert same_bits(loaded(checkpoints).tree["tensor"], tensor.contiguous())


def test_tensors_of_equal_shape_and_any_strides_stay_separate(checkpoints: Checkpoints) -> None:
    values = torch.arange(12.0).reshape(3, 4)
    state = {"rows": values, "columns": values.T.contiguous().T, "again": values + 1, "whole": values.int()}
    for step in (1, 2):
        assert checkpoints.save(at(step), state, wait=True)
    assert same_bits(loaded(checkpoints).tree, state)


def test_the_saved_state_is_the_state_at_the_call_to_save(folder: Path, told: Told) -> None:
    begun = threading.Event()
    place = Slow(folder, begun.set)
    checkpoints = Checkpoints([place], keep=2, log=told.log)
    state = small(10)
    assert checkpoints.save(at(10), state)
    assert begun.wait(60)
    state["model"]["weight"].zero_()
    place.go.set()
    assert checkpoints.flush()
    assert same_bits(loaded(checkpoints).tree, small(10))


def test_a_checkpoint_requested_too_soon_is_dropped_and_reported(folder: Path, told: Told) -> None:
    place = Slow(folder)
    checkpoints = Checkpoints([place], keep=2, log=told.log)
    assert checkpoints.save(at(10), small(10))
    assert not checkpoints.save(at(20), small(20))
    assert not checkpoints.flush(deadline=0.0)
    place.go.set()
    assert checkpoints.flush()
    assert told.of("checkpoint_dropped") == [{"step": 20, "reason": "step 10 is still being written"}]
    assert told.steps("checkpoint_saved") == [10]


def test_a_checkpoint_is_reported_with_the_places_that_have_it_and_not_if_no_place_has_it(
    tmp_path: Path, open_places: Callable[..., Checkpoints]
) -> None:
    (tmp_path / "c").write_text("in the way")
    checkpoints = open_places(f"{tmp_path / 'a'},{tmp_path / 'b'},{tmp_path / 'c'}")
    nowhere = open_places(tmp_path / "c")
    said: list[tuple[int, str]] = []
    for each in (checkpoints, nowhere):
        each.on_saved = lambda step, where: said.append((step, where))
        each.save(at(10), small(10), wait=True)
    assert said == [(10, f"{tmp_path / 'a'},{tmp_path / 'b'}")]


def test_a_caller_that_waits_gets_both_checkpoints_written(folder: Path, told: Told) -> None:
    place = Slow(folder)
    checkpoints = Checkpoints([place], keep=2, log=told.log)
    assert checkpoints.save(at(10), small(10))
    threading.Timer(0.1, place.go.set).start()
    assert checkpoints.save(at(20), small(20), wait=True)
    assert told.steps("checkpoint_saved") == [10, 20]


def test_snapshot_memory_is_reused(checkpoints: Checkpoints) -> None:
    save(checkpoints, 10)
    snapshots = checkpoints._prepared()
    before = {name: tensor.data_ptr() for name, tensor in snapshots._memory.items()}
    save(checkpoints, 20)
    assert {name: tensor.data_ptr() for name, tensor in snapshots._memory.items()} == before


def test_a_state_with_changed_shapes_is_saved_correctly(checkpoints: Checkpoints) -> None:
    for step, shape in ((1, (2, 3)), (2, (3, 2)), (3, (7,))):
        assert checkpoints.save(at(step), {"x": torch.full(shape, float(step))}, wait=True)
        assert same_bits(loaded(checkpoints).tree, {"x": torch.full(shape, float(step))})


def test_values_of_numpy_and_of_the_standard_library_are_saved_exactly(checkpoints: Checkpoints) -> None:
    state: dict[Any, Any] = {
        "seen": {3, 1},
        "last": deque([numpy.float32(0.1), torch.ones(2)], maxlen=2),
        "noise": numpy.arange(6, dtype="f4").reshape(2, 3),
        "began": datetime(2026, 1, 2, tzinfo=UTC),
        "counts": Counter("aab"),
        1: complex(1, 2),
    }
    assert checkpoints.save(at(1), state, wait=True)
    found = loaded(checkpoints).tree
    noise, last = found.pop("noise"), found.pop("last")
    assert (noise.dtype, noise.tolist()) == (numpy.float32, state.pop("noise").tolist())
    assert same_bits(list(last), list(state.pop("last")))
    assert same_bits(found, state)


@pytest.mark.parametrize(
    ("state", "says"),
    [
        pytest.param({"more": {"sampler": object()}}, "object at more.sampler", id="object"),
        pytest.param({"a": torch.zeros(2).to_sparse()}, "sparse", id="sparse"),
        pytest.param({"a": {"b": 1}, "a.b": 2}, "two values called a.b", id="same-name"),
    ],
)
def test_an_unsupported_state_fails_only_the_checkpoint(
    state: dict[str, Any], says: str, checkpoints: Checkpoints, told: Told, folder: Path
) -> None:
    assert not checkpoints.save(at(1), state, wait=True)
    (failed,) = told.of("checkpoint_failed")
    assert says in str(failed["reason"])
    save(checkpoints, 2)
    assert sorted(each.name for each in folder.iterdir()) == ["step-000000000002"]


def test_an_error_of_the_gpu_is_no_failure_of_the_checkpoint(
    checkpoints: Checkpoints, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(checkpoints, 10)

    def fails(*_: object, **__: object) -> NoReturn:
        raise ERRORS["device"]()

    monkeypatch.setattr(Snapshots, "take", fails)
    with pytest.raises(torch.AcceleratorError):
        checkpoints.save(at(20), small(20))
    assert not told.of("checkpoint_failed")


def test_every_place_gets_the_checkpoint(tmp_path: Path, open_places: Callable[..., Checkpoints], told: Told) -> None:
    both = open_places(f"{tmp_path / 'a'}, {tmp_path / 'b'}")
    save(both, 10, 20)
    assert sorted(told.steps("checkpoint_saved")) == [10, 10, 20, 20]  # type: ignore[type-var]
    for name in "ab":
        assert loaded(open_places(tmp_path / name)).step == 20


def test_the_other_places_get_the_checkpoint_if_one_place_fails(
    tmp_path: Path, open_places: Callable[..., Checkpoints], told: Told
) -> None:
    (tmp_path / "file").write_text("in the way")
    both = open_places(f"{tmp_path / 'file' / 'a'},{tmp_path / 'b'}")
    assert both.save(at(10), small(10), wait=True)
    (failed,) = told.of("checkpoint_failed")
    assert (failed["step"], failed["place"]) == (10, str(tmp_path / "file" / "a"))
    assert "Not a directory" in str(failed["reason"])
    assert [fields["path"] for fields in told.of("checkpoint_saved")] == [str(tmp_path / "b" / "step-000000000010")]


def test_an_unexpected_error_is_also_reported_as_an_event(folder: Path, told: Told) -> None:
    class Odd(Directory):
        def begin(self, step: int) -> Any:
            raise ZeroDivisionError("odd")

    checkpoints = Checkpoints([Odd(folder)], keep=2, log=told.log)
    assert not checkpoints.save(at(1), small(1), wait=True)
    assert told.of("checkpoint_failed")[0]["reason"] == "ZeroDivisionError: odd"


def test_an_upload_is_aborted_when_torch_fails(folder: Path, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **more: object) -> None:
        raise RuntimeError("enforce fail")

    checkpoints = Checkpoints([Directory(folder)], keep=2, log=told.log)
    checkpoints.prepare()
    monkeypatch.setattr(torch, "save", fail)
    assert not checkpoints.save(at(1), small(1), wait=True)
    assert "enforce fail" in str(told.of("checkpoint_failed")[0]["reason"])
    assert list(folder.iterdir()) == []


def test_the_end_of_the_job_is_recorded_in_every_place_and_found_in_any_of_them(
    tmp_path: Path, open_places: Callable[..., Checkpoints], told: Told
) -> None:
    both = open_places(f"{tmp_path / 'a'},{tmp_path / 'b'}")
    assert not both.finished()
    save(both, 10)
    both.finish(b"{}")
    assert both.finished()
    assert open_places(tmp_path / "b").finished()
    (tmp_path / "c").write_text("in the way")
    assert open_places(f"{tmp_path / 'c'},{tmp_path / 'b'}").finished()


def test_a_place_without_the_final_checkpoint_does_not_say_that_the_job_is_finished(
    tmp_path: Path, open_places: Callable[..., Checkpoints], told: Told
) -> None:
    save(open_places(tmp_path / "b"), 10)
    (tmp_path / "b").rename(tmp_path / "kept")
    (tmp_path / "b").write_text("in the way")
    both = open_places(f"{tmp_path / 'a'},{tmp_path / 'b'}")
    save(both, 20)
    (tmp_path / "b").unlink()
    (tmp_path / "kept").rename(tmp_path / "b")  # the place is back, with an older checkpoint
    both.finish(b"{}")
    assert both.finished()
    assert told.of("checkpoint_failed")[-1] == {
        "place": str(tmp_path / "b"),
        "reason": "the end of the job is not recorded: it does not have the final checkpoint",
    }
    alone = open_places(tmp_path / "b")
    assert not alone.finished()
    assert loaded(alone).step == 10


def test_the_end_is_recorded_nowhere_before_a_place_has_the_final_checkpoint(
    tmp_path: Path, open_places: Callable[..., Checkpoints]
) -> None:
    (tmp_path / "c").write_text("in the way")
    checkpoints = open_places(f"{tmp_path / 'c'}")
    assert not checkpoints.save(at(10), small(10), wait=True)
    with pytest.raises(OSError, match=f"{tmp_path / 'c'}: it does not have the final checkpoint"):
        checkpoints.finish(b"{}")


def test_a_checkpoint_that_is_not_finished_when_its_worker_ends_is_reported(folder: Path, told: Told) -> None:
    place = Slow(folder)
    checkpoints = Checkpoints([place], keep=2, log=told.log)
    assert checkpoints.save(at(10), small(10))
    checkpoints.close(deadline=0.0)
    (failed,) = told.of("checkpoint_failed")
    assert (failed["step"], failed["place"]) == (10, str(folder))
    assert "still being written" in str(failed["reason"])
    place.go.set()
    checkpoints.close(time.monotonic() + 60)
    assert len(told.of("checkpoint_failed")) == 1


@pytest.mark.parametrize("text", ["", " , ", "gs://bucket/x", "s3://", "s3:///prefix", "/a,/a"])
def test_an_invalid_place_is_refused_by_name(text: str, open_places: Callable[..., Checkpoints]) -> None:
    with pytest.raises(ConfigError, match="--checkpoints"):
        open_places(text)


def test_an_upload_may_be_aborted_after_its_commit(folder: Path) -> None:
    upload: Upload = Directory(folder).begin(1)
    upload.commit(b"{}")
    upload.abort()
    assert (folder / "step-000000000001").is_dir()
