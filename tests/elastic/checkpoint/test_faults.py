"""Full and read-only volumes and killed writers: training continues, and no complete checkpoint is lost."""

from __future__ import annotations

import errno
import fcntl
import gc
import json
import os
import resource
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.elastic.checkpoint.conftest import Told, at, large, save, small
from tidewater.elastic.checkpoint import Checkpoints, directory
from tidewater.elastic.checkpoint.directory import Directory

ROOT = Path(__file__).resolve().parents[3]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts file systems")


def visible(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir() if not each.name.startswith("."))


def hidden(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir() if each.name.startswith("."))


def run(script: str, *arguments: object, mounts: bool = False) -> Any:
    """Run a script in a separate process; return its last line of output, parsed as JSON."""
    prelude = """
        import io, json, os, sys, time
        from pathlib import Path
        from tests.elastic.checkpoint.conftest import LINE, Told, at, large, small
        from tidewater.elastic.checkpoint import Checkpoints
        from tidewater.elastic.checkpoint.directory import Directory
    """
    done = subprocess.run(
        [
            *(["unshare", "--mount"] if mounts else []),
            *(sys.executable, "-c", textwrap.dedent(prelude) + textwrap.dedent(script), *map(str, arguments)),
        ],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def limited() -> Iterator[int]:
    """Limit the size of files that this process writes; yield the limit in bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    limit = 2 << 20
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    yield limit
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_that_cannot_grow_fails_the_checkpoint_with_the_reason(
    checkpoints: Checkpoints, folder: Path, told: Told, limited: int
) -> None:
    save(checkpoints, 10)
    for step in (20, 30):
        assert not checkpoints.save(at(step), large(step, 2 * limited), wait=True)
    assert [fields["reason"] for fields in told.of("checkpoint_failed")] == ["[Errno 27] File too large"] * 2
    assert (visible(folder), hidden(folder)) == (["step-000000000010"], [])
    save(checkpoints, 40)
    assert visible(folder) == ["step-000000000010", "step-000000000040"]


@needs_root
@pytest.mark.e2e
def test_a_full_volume_fails_the_checkpoint_until_there_is_room(tmp_path: Path) -> None:
    script = """
        volume = Path(sys.argv[1])
        assert os.system(f"mount -t tmpfs -o size=12m tidewater-test {volume}") == 0
        told = Told()
        checkpoints = Checkpoints([Directory(volume)], keep=2, log=told.log)
        assert checkpoints.save(at(10), large(10, 3 << 20), wait=True)
        (volume / "filler").write_bytes(bytes(7 << 20))
        assert not checkpoints.save(at(20), large(20, 3 << 20), wait=True)
        before = sorted(os.listdir(volume))
        (volume / "filler").unlink()
        assert checkpoints.save(at(30), large(30, 3 << 20), wait=True)
        after, step = sorted(os.listdir(volume)), checkpoints.load(LINE).step
        print(json.dumps([told.of("checkpoint_failed"), before, after, step]))
    """
    ((failed,), before, after, step) = run(script, tmp_path, mounts=True)
    assert (failed["step"], failed["place"]) == (20, str(tmp_path))
    assert failed["reason"].startswith("[Errno 28] No space left on device: make room")
    assert before == ["filler", "step-000000000010"]
    assert after == ["step-000000000010", "step-000000000030"]
    assert step == 30


@needs_root
@pytest.mark.e2e
def test_a_read_only_volume_fails_the_checkpoint_but_loading_works(tmp_path: Path) -> None:
    script = """
        volume = Path(sys.argv[1])
        told = Told()
        checkpoints = Checkpoints([Directory(volume)], keep=2, log=told.log)
        assert checkpoints.save(at(10), small(10), wait=True)
        assert os.system(f"mount --bind {volume} {volume} && mount -o remount,ro,bind {volume}") == 0
        assert not checkpoints.save(at(20), small(20), wait=True)
        print(json.dumps([told.of("checkpoint_failed"), checkpoints.load(LINE).step, checkpoints.finished()]))
    """
    ((failed,), step, finished) = run(script, tmp_path, mounts=True)
    assert "Read-only file system" in failed["reason"]
    assert (step, finished) == (10, False)


@pytest.mark.e2e
def test_a_killed_writer_leaves_complete_checkpoints_intact_and_the_next_writer_cleans_up(tmp_path: Path) -> None:
    script = """
        folder = Path(sys.argv[1])
        Checkpoints([], keep=2, log=Told().log).prepare()
        def child(act):
            pid = os.fork()
            if pid == 0:
                act()
                os._exit(0)
            return pid
        def save_for_ever(first):
            checkpoints = Checkpoints([Directory(folder)], keep=2, log=Told().log)
            for step in range(first, first + 1000):
                checkpoints.save(at(step), large(step, 24 << 20), wait=True)
        def check():
            told = Told()
            checkpoints = Checkpoints([Directory(folder)], keep=2, log=told.log)
            found = checkpoints.load(LINE)
            whole = found is None or found.tree["model"]["weight"].eq(found.step).all().item()
            step = found.step + 1 if found else 1
            saved = checkpoints.save(at(step), small(step), wait=True)
            left = [name for name in os.listdir(folder) if name.startswith(".")]
            Path(sys.argv[2]).write_text(json.dumps([told.of("checkpoint_skipped"), whole, saved, left]))
        results = []
        for attempt in range(12):
            pid = child(lambda: save_for_ever(1000 * (attempt + 1)))
            while not any(name.endswith(".writing") for name in os.listdir(folder)):
                time.sleep(0.001)
            time.sleep(0.006 * attempt)
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            left = sum(name.startswith(".") for name in os.listdir(folder))
            os.waitpid(child(check), 0)
            results.append([left, *json.loads(Path(sys.argv[2]).read_text())])
        print(json.dumps(results))
    """
    (tmp_path / "volume").mkdir()
    results = run(script, tmp_path / "volume", tmp_path / "result")
    assert len(results) == 12
    assert any(left for left, *_ in results), "no kill came while something was being written"
    assert all(each[1:] == [[], True, True, []] for each in results), results


def test_files_of_another_live_writer_are_not_removed(checkpoints: Checkpoints, folder: Path) -> None:
    upload = Directory(folder).begin(15)
    stream = upload.create("file")
    stream.write(memoryview(b"data"))
    save(checkpoints, 20, 30, 40)
    assert len(hidden(folder)) == 2
    stream.close()
    assert upload.commit(b"{}") == "step-000000000015"
    assert (folder / "step-000000000015" / "file").read_bytes() == b"data"
    assert hidden(folder) == []


@pytest.mark.parametrize("name", [".step-000000000001-0123abcd.writing", ".step-000000000001-0123abcd.gone"])
def test_hidden_directories_without_a_lock_holder_are_removed(
    name: str, checkpoints: Checkpoints, folder: Path
) -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "__0_0.distcp").write_bytes(b"half")
    (folder / ".mine").mkdir()
    (folder / ".step-000000000002-0123abcd.lock").touch()
    save(checkpoints, 10)
    assert hidden(folder) == [".mine"]


def test_a_writer_whose_lock_file_was_removed_before_locking_creates_another(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.mkdir()
    flock = fcntl.flock
    swept: list[Path] = []

    def sweep_first(file: Any, operation: int) -> None:
        if not swept:
            swept.extend(folder.iterdir())
            swept[0].unlink()
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", sweep_first)
    upload = Directory(folder).begin(10)
    assert len(swept) == 1
    assert swept[0].name not in hidden(folder)
    assert len(hidden(folder)) == 2
    upload.abort()
    assert hidden(folder) == []


def test_without_locks_recently_modified_files_are_not_removed(
    checkpoints: Checkpoints, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(file: object, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    upload = Directory(folder).begin(15)
    left = folder / ".step-000000000001-0123abcd.writing"
    left.mkdir()
    left.with_suffix(".lock").touch()
    save(checkpoints, 20)
    assert left.exists()
    monkeypatch.setattr(directory, "_UNTOUCHED_SECONDS", -1.0)
    save(checkpoints, 30)
    assert hidden(folder) == []
    monkeypatch.undo()
    upload.abort()


def test_small_states_of_many_steps_leave_no_open_files_and_no_threads(checkpoints: Checkpoints) -> None:
    save(checkpoints, 1)
    gc.collect()
    files, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    for step in range(2, 30):
        assert checkpoints.save(at(step), small(step), wait=True)
    # There may be fewer: those of earlier tests end at any time.
    assert len(os.listdir("/proc/self/fd")) <= files
    assert threading.active_count() <= threads
