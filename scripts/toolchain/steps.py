"""Runs the set-up's steps: those that are done are skipped, the others are timed and recorded.

    install([Step("uv", done=…, run=…)], Console())

Each step leaves either its whole result or nothing (it works on a draft and renames it), and one
set-up at a time works on a cache, so an interrupted or doubled run does no harm.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from scripts.toolchain import paths
from scripts.toolchain.commands import HEARTBEAT_SECONDS, Console, duration
from scripts.toolchain.errors import StepFailed

_GIB = 1 << 30


@dataclass(frozen=True)
class Step:
    """One part of the set-up.

    Args:
        name: What people and `timings.json` call it.
        done: Whether its result is there already; takes milliseconds.
        run: Makes the result, logging to the given file.
        disk_gib: Free space it may need at its worst.
    """

    name: str
    done: Callable[[], bool]
    run: Callable[[Console, Path], None]
    disk_gib: float = 0.0


def install(steps: Sequence[Step], console: Console) -> None:
    """Runs the steps that aren't done, in order.

    Raises:
        StepFailed: one went wrong; those before it stay done.
    """
    if all(step.done() for step in steps):
        return
    cache = paths.cache()
    _make(cache)
    with only_one(cache, console):
        for number, step in enumerate(steps, 1):
            if step.done():
                continue
            title = f"[{number}/{len(steps)}] {step.name}"
            console.say(title)
            check_disk(step, shutil.disk_usage(cache).free, cache)
            seconds = _timed(step, console, cache / "logs" / f"{step.name.replace(' ', '-')}.log")
            console.say(f"{title}: done in {duration(seconds)}")
            note_timing(step.name, seconds)


def check_disk(step: Step, free_bytes: int, cache: Path) -> None:
    """Refuses to begin what would fill the disk.

    Raises:
        StepFailed: less is free than the step may need.
    """
    if free_bytes < step.disk_gib * _GIB:
        raise StepFailed(
            f"{step.name} may need {step.disk_gib:g} GiB in {cache} and {free_bytes / _GIB:.1f} GiB are free: "
            "free some space or set TIDEWATER_CACHE to a folder on a larger disk"
        )


def timings() -> dict[str, float]:
    """How many seconds each part took when it was last made on this machine."""
    try:
        noted: dict[str, float] = json.loads((paths.cache() / "timings.json").read_text())
    except (OSError, ValueError):
        return {}
    return noted


def note_timing(name: str, seconds: float) -> None:
    """Records that the part `name` took `seconds`."""
    target = paths.cache() / "timings.json"
    draft = target.with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps({**timings(), name: round(seconds, 1)}, indent=1) + "\n")
    draft.replace(target)


@contextmanager
def only_one(cache: Path, console: Console) -> Iterator[None]:
    """Holds the cache's lock, after waiting for another set-up to finish if there is one."""
    with (cache / "lock").open("a+") as lock:
        waited = 0.0
        while not _locked(lock.fileno()):
            if waited % HEARTBEAT_SECONDS == 0:
                lock.seek(0)
                console.say(f"another set-up (process {lock.read().strip() or '?'}) works on {cache}; waiting for it")
            time.sleep(1)
            waited += 1
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


@contextmanager
def draft_of(target: Path) -> Iterator[Path]:
    """A path beside `target` to build at; becomes `target` if the block ends well, else is removed."""
    draft = target.with_name(f".{target.name}.draft")
    _remove(draft)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield draft
        if target.is_symlink() or target.exists():
            _remove(target)
        draft.rename(target)
    finally:
        _remove(draft)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _make(cache: Path) -> None:
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StepFailed(
            f"{cache} can't be made ({error.strerror}): set TIDEWATER_CACHE to a writable folder"
        ) from error


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _timed(step: Step, console: Console, log: Path) -> float:
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    started = time.monotonic()
    try:
        step.run(console, log)
    except StepFailed as error:
        raise StepFailed(f"{step.name}: {error}") from error
    except OSError as error:
        raise StepFailed(f"{step.name}: {error}; its log is {log}") from error
    return time.monotonic() - started
