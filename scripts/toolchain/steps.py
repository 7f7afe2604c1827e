"""Runs the set-up's steps: those that are done are skipped, the others are timed and recorded.

    install([Step("uv", done=…, run=…), Step("Python environment", done=…, run=…, after=("uv",))], Console())

Several steps run at the same time: a linker uses one core, and a download none. A step that fails ends the others.

Each step leaves either its whole result or nothing (it works on a draft and renames it), and one
set-up at a time works on a cache, so an interrupted or doubled run does no harm.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from scripts.toolchain import paths
from scripts.toolchain.commands import HEARTBEAT_SECONDS, Console, duration
from scripts.toolchain.errors import StepFailed

GIB = 1 << 30
_FOR_ALL = stat.S_IROTH | stat.S_IXOTH
_MEMORY_GIB = 4  # for each step: what compiling the largest package, or linking Pulumi, needs


@dataclass(frozen=True)
class Step:
    """One part of the set-up.

    Args:
        name: What people and `timings.json` call it.
        done: Whether its result is there already; takes milliseconds.
        run: Makes the result, logging to the given file.
        disk_gib: Free space it may need at its worst.
        after: Names of the steps that it needs the results of. Those that are not in the same list don't count.
    """

    name: str
    done: Callable[[], bool]
    run: Callable[[Console, Path], None]
    disk_gib: float = 0.0
    after: tuple[str, ...] = ()


def install(steps: Sequence[Step], console: Console) -> None:
    """Run the steps that aren't done, some at the same time; each one comes after those that it needs.

    Raises:
        StepFailed: one went wrong; those that ran at the same time are ended, those that had finished stay done.
    """
    if all(step.done() for step in steps):
        return
    cache = paths.cache()
    _make(cache)
    with only_one(cache, console), ThreadPoolExecutor() as pool:
        try:
            _run_all(steps, cache, console, pool)
        except BaseException:  # an interruption too
            console.stop()
            raise


def at_once(cores: int, available_bytes: int) -> int:
    """Return how many steps may run at the same time: one for each core, if each has enough memory."""
    return max(1, min(cores, available_bytes // (_MEMORY_GIB * GIB)))


def startable(waiting: Sequence[Step], running: Collection[Step], free_bytes: int) -> Step | None:
    """Return the first of the steps in `waiting` that can begin now.

    All that it needs has finished, and the disk has room for it and for what is running. If nothing is running, a step
    is returned without regard to the disk: waiting would free nothing.
    """
    unfinished = {step.name for step in (*waiting, *running)}
    needed = sum(step.disk_gib for step in running)
    for step in waiting:
        if unfinished.isdisjoint(step.after) and (not running or free_bytes >= (needed + step.disk_gib) * GIB):
            return step
    return None


def _run_all(steps: Sequence[Step], cache: Path, console: Console, pool: ThreadPoolExecutor) -> None:
    limit = at_once(os.cpu_count() or 1, _available_memory())
    titles = {step: f"[{number}/{len(steps)}] {step.name}" for number, step in enumerate(steps, 1)}
    waiting, running = list(steps), dict[Future[float], Step]()
    while waiting or running:
        while len(running) < limit:
            free = shutil.disk_usage(cache).free
            step = startable(waiting, running.values(), free)
            if step is None:
                break
            waiting.remove(step)
            if not step.done():
                console.say(titles[step])
                check_disk(step, free, cache)
                log = cache / "logs" / f"{step.name.replace(' ', '-')}.log"
                running[pool.submit(_timed, step, console.titled(titles[step]), log)] = step
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            step = running.pop(future)
            seconds = future.result()
            console.say(f"{titles[step]}: done in {duration(seconds)}")
            note_timing(step.name, seconds)


def _available_memory() -> int:
    """Return how many bytes of memory this machine can give without swapping."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))


def check_disk(step: Step, free_bytes: int, cache: Path) -> None:
    """Refuses to begin what would fill the disk.

    Raises:
        StepFailed: less is free than the step may need.
    """
    if free_bytes < step.disk_gib * GIB:
        raise no_room(f"{step.name} may need {step.disk_gib:g} GiB", free_bytes, cache)


def no_room(need: str, free_bytes: int, cache: Path) -> StepFailed:
    """Return the error for a disk that is too small for `need`, for example "etcd may need 1 GiB"."""
    return StepFailed(
        f"{need} in {cache} and {free_bytes / GIB:.1f} GiB are free: "
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
    """A path next to `target` to build at; becomes `target` if the block ends well, else is removed."""
    with scratch_of(target) as draft:
        yield draft
        if target.is_symlink() or target.exists():
            _remove(target)
        draft.rename(target)


@contextmanager
def scratch_of(target: Path) -> Iterator[Path]:
    """A path next to `target`, with nothing there, that is removed when the block ends."""
    path = target.with_name(f".{target.name}.draft")
    _remove(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield path
    finally:
        _remove(path)


def readable(folder: Path) -> bool:
    """Return whether a result is there for pods that aren't root. Under a umask of 027 or 077 it was made in vain."""
    return folder.is_dir() and folder.stat().st_mode & _FOR_ALL == _FOR_ALL


def make_readable(folder: Path) -> None:
    """Let everyone read a folder and what is in it. Files of uv's cache keep the modes that they have there."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(mode | (_FOR_ALL if path.is_dir() or mode & stat.S_IXUSR else stat.S_IROTH))


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
