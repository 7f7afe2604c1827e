"""The newest complete checkpoint is loaded; a damaged one is skipped with a message and deleted later."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from pathlib import Path, PosixPath
from typing import NoReturn

import pytest
from torch.distributed.checkpoint.metadata import _MEM_FORMAT_ENCODING

from tests.elastic.checkpoint.conftest import LINE, Told, at, loaded, save, small
from tests.elastic.checkpoint.conftest import same as same_bits
from tidewater.elastic.checkpoint import Checkpoints, Unreadable
from tidewater.elastic.checkpoint import format as dcp
from tidewater.elastic.checkpoint.manifest import Entry, Manifest, hash_of
from tidewater.elastic.errors import RecordError


def steps(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def grow(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def empty(path: Path) -> None:
    path.write_bytes(b"")


def zeros(path: Path) -> None:
    path.write_bytes(b"\0" * path.stat().st_size)


@pytest.mark.parametrize("damage", [cut, flip, grow, empty, zeros, Path.unlink], ids=lambda each: each.__name__)
@pytest.mark.parametrize("file", ["__0_0.distcp", ".metadata", "tree.json", "manifest.json"])
def test_a_damaged_checkpoint_is_skipped_with_a_message_and_the_previous_one_is_used(
    damage: Callable[[Path], object], file: str, checkpoints: Checkpoints, folder: Path, told: Told
) -> None:
    save(checkpoints, 10, 20)
    damage(folder / "step-000000000020" / file)
    found = loaded(checkpoints)
    assert (found.step, found.path) == (10, str(folder / "step-000000000010"))
    assert same_bits(found.tree, small(10))
    if (damage, file) != (Path.unlink, "manifest.json"):  # without a manifest it is not a checkpoint
        (skipped,) = told.of("checkpoint_skipped")
        assert skipped["path"] == str(folder / "step-000000000020")
        assert skipped["reason"]


def test_a_checkpoint_that_does_not_fit_in_memory_is_not_taken_for_a_damaged_one(
    checkpoints: Checkpoints, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(checkpoints, 10, 20)

    def fails(*_: object) -> NoReturn:
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(dcp, "_read_tensors", fails)
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        checkpoints.load(LINE)
    assert not told.of("checkpoint_skipped")


def test_every_single_flipped_bit_of_the_manifest_is_detected(
    checkpoints: Checkpoints, folder: Path, told: Told
) -> None:
    save(checkpoints, 10)
    path = folder / "step-000000000010" / "manifest.json"
    data = path.read_bytes()
    whole = Manifest.decode(data)
    for index in range(len(data)):
        flipped = bytearray(data)
        flipped[index] ^= 1
        try:
            assert Manifest.decode(bytes(flipped)) == whole  # only white space has changed
        except Exception as error:
            assert type(error).__name__ == "RecordError"  # noqa: PT017  (both outcomes are correct)


def test_a_checkpoint_of_another_version_is_skipped(checkpoints: Checkpoints, folder: Path, told: Told) -> None:
    save(checkpoints, 10, 20)
    path = folder / "step-000000000020" / "manifest.json"
    path.write_text(path.read_text().replace('"version": 2', '"version": 7'))
    assert loaded(checkpoints).step == 10
    assert told.of("checkpoint_skipped")[0]["reason"] == "it has version 7, this code reads 2"


def test_a_checkpoint_written_by_an_older_python_can_be_read(
    checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr(  # like that of Python 3.11.2, the version in Debian 12
            _MEM_FORMAT_ENCODING, "__reduce_ex__", lambda self, _: (getattr, (type(self), self.name))
        )
        save(checkpoints, 10)
    assert loaded(checkpoints).step == 10


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return print, ("pickle has run",)


class Devious:
    def __reduce__(self) -> tuple[object, tuple[type, str]]:
        return getattr, (PosixPath, "cwd")


@pytest.mark.parametrize(("evil", "named"), [(Evil(), "builtins.print"), (Devious(), "'cwd' of")])
def test_metadata_that_would_run_code_is_not_unpickled(
    checkpoints: Checkpoints,
    folder: Path,
    told: Told,
    capsys: pytest.CaptureFixture[str],
    evil: object,
    named: str,
) -> None:
    save(checkpoints, 10)
    path = folder / "step-000000000010"
    (path / ".metadata").write_bytes(pickle.dumps(evil))
    manifest = Manifest.of(path)
    metadata = Entry((path / ".metadata").stat().st_size, hash_of(path / ".metadata"))
    (path / "manifest.json").write_bytes(Manifest(at(10), {**manifest.files, ".metadata": metadata}).encode())
    with pytest.raises(RecordError, match="start again: move them away and give --begin-again"):
        checkpoints.load(LINE)
    assert named in str(told.of("checkpoint_skipped")[0]["reason"])
    assert "pickle has run" not in capsys.readouterr().out


def test_a_job_whose_checkpoints_are_all_unusable_does_not_start_from_the_beginning(
    checkpoints: Checkpoints, folder: Path
) -> None:
    save(checkpoints, 10, 20)
    for name in steps(folder):
        flip(folder / name / "__0_0.distcp")
    with pytest.raises(RecordError, match=r"step-000000000020: .*and give --begin-again, or give the job a new name"):
        checkpoints.load(LINE)
    assert steps(folder) == ["step-000000000010", "step-000000000020"]


def test_without_any_checkpoint_loading_returns_none(checkpoints: Checkpoints, folder: Path) -> None:
    assert (checkpoints.load(LINE), checkpoints.newest(LINE)) == (None, None)
    folder.mkdir()
    (folder / "step-000000000010").mkdir()
    (folder / "step-000000000020.ckpt").write_text("of an older version")
    (folder / "notes.txt").write_text("step-000000000030")
    assert (checkpoints.load(LINE), checkpoints.newest(LINE)) == (None, None)


def test_the_newest_checkpoint_of_all_places_is_loaded(tmp_path: Path, open_places: Callable[..., Checkpoints]) -> None:
    save(open_places(tmp_path / "a"), 10, 20)
    save(open_places(tmp_path / "b"), 30)
    both = open_places(f"{tmp_path / 'a'},{tmp_path / 'b'}")
    assert loaded(both).path == str(tmp_path / "b" / "step-000000000030")
    assert both.newest(LINE) == at(30)
    flip(tmp_path / "b" / "step-000000000030" / "__0_0.distcp")
    assert loaded(both).path == str(tmp_path / "a" / "step-000000000020")


def test_if_no_checkpoint_is_found_and_a_place_is_unreadable_loading_fails(
    tmp_path: Path, open_places: Callable[..., Checkpoints], told: Told
) -> None:
    (tmp_path / "a").write_text("in the way")
    with pytest.raises(Unreadable, match=re.escape(str(tmp_path / "a"))):
        open_places(f"{tmp_path / 'a'},{tmp_path / 'b'}").load(LINE)
    save(open_places(tmp_path / "b"), 10)
    assert loaded(open_places(f"{tmp_path / 'a'},{tmp_path / 'b'}")).step == 10


def test_only_the_newest_checkpoints_are_kept(open_places: Callable[..., Checkpoints], folder: Path) -> None:
    save(open_places(folder, keep=3), 10, 20, 30, 40, 50)
    assert steps(folder) == ["step-000000000030", "step-000000000040", "step-000000000050"]
    save(open_places(folder, keep=1), 60)
    assert steps(folder) == ["step-000000000060"]


def test_the_checkpoint_just_written_is_kept_even_if_newer_steps_exist(
    open_places: Callable[..., Checkpoints], folder: Path
) -> None:
    save(open_places(folder, keep=1), 100)
    save(open_places(folder, keep=1), 10, 20)
    assert steps(folder) == ["step-000000000020", "step-000000000100"]


def test_a_damaged_checkpoint_is_deleted_after_the_next_successful_one(checkpoints: Checkpoints, folder: Path) -> None:
    save(checkpoints, 10, 20)
    flip(folder / "step-000000000020" / "__0_0.distcp")
    assert checkpoints.load(LINE) is not None
    assert steps(folder) == ["step-000000000010", "step-000000000020"]
    save(checkpoints, 12)
    assert steps(folder) == ["step-000000000010", "step-000000000012"]


def test_a_repeated_step_replaces_the_old_checkpoint_only_when_it_is_complete(
    open_places: Callable[..., Checkpoints], folder: Path
) -> None:
    save(open_places(folder, keep=1), 10)
    again = {**small(10), "again": True}
    checkpoints = open_places(folder, keep=1)
    assert checkpoints.save(at(10), again, wait=True)
    (name,) = steps(folder)
    assert name.startswith("step-000000000010-")
    assert same_bits(loaded(open_places(folder)).tree, again)
    save(open_places(folder, keep=1), 20)
    assert steps(folder) == ["step-000000000020"]
