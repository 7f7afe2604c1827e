"""Steps run once, leave a complete result or none, and name the remedy when they fail."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.toolchain import paths, steps
from scripts.toolchain.commands import Console, duration, remedy, run
from scripts.toolchain.errors import StepFailed, Stopped
from scripts.toolchain.steps import Step, draft_of, install


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def console(lines: list[str]) -> Console:
    return Console(lines.append)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TIDEWATER_CACHE", str(tmp_path / "cache"))
    return paths.cache()


def making(target: Path, disk_gib: float = 0.0, after: tuple[str, ...] = (), script: str = "") -> Step:
    """Return a step that makes a file, after running a shell script that has the file's folder as working directory."""

    def make(console: Console, log: Path) -> None:
        with draft_of(target) as draft:
            draft.write_text("made")
            run(["sh", "-euc", script], log=log, console=console, cwd=target.parent)

    return Step(target.name, target.exists, make, disk_gib, after)


def failing(name: str, script: str) -> Step:
    def fail(console: Console, log: Path) -> None:
        run(["sh", "-euc", f"{script}; echo the reason; exit 1"], log=log, console=console, cwd=paths.cache())

    return Step(name, lambda: False, fail)


def await_file(name: str) -> str:
    """Return a script that waits for a file, ten seconds at most."""
    return f"for i in $(seq 200); do [ ! -e {name} ] || break; sleep 0.05; done; [ -e {name} ]"


@pytest.fixture
def two_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "at_once", lambda cores, available_bytes: 2)


def test_a_finished_step_is_skipped_silently(cache: Path, console: Console, lines: list[str]) -> None:
    step = making(cache / "thing")
    install([step], console)
    assert lines[0] == "[1/1] thing"
    assert lines[1].startswith("[1/1] thing: done in ")
    assert steps.timings().keys() == {"thing"}
    lines.clear()
    install([step], console)
    assert lines == []


def test_steps_after_a_failed_step_do_not_run_and_the_results_before_it_stay(cache: Path, console: Console) -> None:
    def fail(console: Console, log: Path) -> None:
        raise StepFailed("the reason")

    parts = [making(cache / "a"), Step("b", lambda: False, fail, after=("a",)), making(cache / "c", after=("b",))]
    with pytest.raises(StepFailed, match="b: the reason"):
        install(parts, console)
    assert (cache / "a").exists()
    assert not (cache / "c").exists()


@pytest.mark.usefixtures("two_at_once")
def test_two_steps_run_at_the_same_time_and_a_third_one_after_them(
    cache: Path, console: Console, lines: list[str]
) -> None:
    a = making(cache / "a", script=f"touch a.runs; {await_file('b.runs')}")
    b = making(cache / "b", script=f"touch b.runs; {await_file('a.runs')}")
    install([a, b, making(cache / "c", after=("a", "b"), script="[ -e a ] && [ -e b ]")], console)
    assert lines[:2] == ["[1/3] a", "[2/3] b"]
    assert lines[-2] == "[3/3] c"
    assert steps.timings().keys() == {"a", "b", "c"}


@pytest.mark.usefixtures("two_at_once")
def test_a_failing_step_ends_the_one_that_runs_at_the_same_time(cache: Path, console: Console) -> None:
    slow = making(cache / "slow", script="trap 'touch ended; exit 1' TERM; touch runs; sleep 60 & wait")
    with pytest.raises(StepFailed, match=r"(?s)^bad: .*the reason$"):
        install([slow, failing("bad", await_file("runs"))], console)
    assert (cache / "ended").exists()
    assert not (cache / "slow").exists()
    assert not list(cache.glob(".*.draft"))


@pytest.mark.usefixtures("two_at_once")
def test_a_failing_step_lets_no_other_step_begin(cache: Path, console: Console) -> None:
    with pytest.raises(StepFailed, match="the reason"):
        install([failing("bad", ":"), making(cache / "a", script="sleep 60"), making(cache / "b")], console)
    assert not (cache / "b").exists()


@pytest.mark.usefixtures("two_at_once")
def test_an_interruption_ends_what_runs(cache: Path) -> None:
    """What `main` makes of SIGTERM, too: an exception in the thread that waits."""

    def interrupt(line: str) -> None:
        if line == "[2/2] b":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        install([making(cache / "a", script="sleep 60"), making(cache / "b", script="sleep 60")], Console(interrupt))
    assert not (cache / "a").exists()
    assert not list(cache.glob(".*.draft"))


def test_after_a_stop_no_command_begins(tmp_path: Path, console: Console) -> None:
    console.stop()
    with pytest.raises(Stopped):
        run(["touch", tmp_path / "made"], log=tmp_path / "log", console=console.titled("a"))
    assert not (tmp_path / "made").exists()


@pytest.mark.usefixtures("two_at_once")
def test_each_line_of_a_step_names_it(cache: Path, console: Console, lines: list[str]) -> None:
    def talk(console: Console, log: Path) -> None:
        console.say("installing gcc")

    install([Step("Debian packages", lambda: False, talk)], console)
    assert lines[1] == "[1/1] Debian packages: installing gcc"


@pytest.mark.parametrize(
    ("cores", "gib", "expected"),
    [
        pytest.param(2, 24, 2, id="one for each core"),
        pytest.param(16, 12, 3, id="with 4 GiB each"),
        pytest.param(1, 24, 1, id="one core"),
        pytest.param(2, 1, 1, id="little memory"),
    ],
)
def test_as_many_steps_run_at_once_as_cores_and_memory_allow(cores: int, gib: int, expected: int) -> None:
    assert steps.at_once(cores, gib << 30) == expected


def test_a_step_waits_while_the_disk_has_no_room_for_it_and_for_what_runs(cache: Path) -> None:
    big, small, running = (making(cache / name, gib) for name, gib in (("big", 7), ("small", 1), ("running", 2)))
    assert steps.startable([big, small], [running], 4 << 30) is small
    assert steps.startable([big], [running], 4 << 30) is None
    assert steps.startable([big], [], 4 << 30) is big, "the check of the disk refuses it"


def test_a_step_starts_when_those_that_it_needs_have_finished(cache: Path) -> None:
    needed, other = making(cache / "needed"), making(cache / "other")
    step = making(cache / "step", after=("needed", "not in this list"))
    assert steps.startable([step, other], [needed], 0) is other
    assert steps.startable([needed, step], [], 0) is needed
    assert steps.startable([step], [other], 0) is step


def test_an_interrupted_step_leaves_nothing_behind(cache: Path) -> None:
    target = cache / "folder"

    def interrupted() -> None:
        with draft_of(target) as draft:
            draft.mkdir()
            (draft / "half").write_text("")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(cache.iterdir()) == []


def test_a_draft_replaces_the_previous_result(cache: Path) -> None:
    target = cache / "folder"
    target.mkdir(parents=True)
    (target / "old").write_text("")
    with draft_of(target) as draft:
        draft.mkdir()
        (draft / "new").write_text("")
    assert [path.name for path in target.iterdir()] == ["new"]


def test_insufficient_disk_space_is_reported_before_a_step_begins(cache: Path) -> None:
    with pytest.raises(StepFailed, match=r"big may need 7 GiB in .* and 1\.0 GiB are free: .* TIDEWATER_CACHE"):
        steps.check_disk(making(cache / "big", disk_gib=7), 1 << 30, cache)


def test_a_cache_that_cannot_be_created_is_an_error_that_names_the_variable(
    tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TIDEWATER_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(StepFailed, match="set TIDEWATER_CACHE to a writable folder"):
        install([making(paths.cache() / "thing")], console)


def test_a_second_set_up_waits_for_the_first_and_reports_it(cache: Path, console: Console, lines: list[str]) -> None:
    cache.mkdir(parents=True)
    held = (
        "import sys\n"
        "from pathlib import Path\n"
        "from scripts.toolchain.commands import Console\n"
        "from scripts.toolchain.steps import only_one\n"
        "with only_one(Path(sys.argv[1]), Console()):\n"
        "    print('held', flush=True)\n"
        "    sys.stdin.readline()\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", held, str(cache)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=paths.CHECKOUT,
        text=True,
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "held\n"

    def release(line: str) -> None:
        lines.append(line)
        other.communicate("go\n")

    with steps.only_one(cache, Console(release)):
        assert lines == [f"another set-up (process {other.pid}) works on {cache}; waiting for it"]


def test_a_failing_command_shows_the_end_of_its_log_and_the_remedy(tmp_path: Path, console: Console) -> None:
    script = "echo begin; echo 'dial tcp: lookup proxy: no such host'; exit 3"
    with pytest.raises(StepFailed) as caught:
        run(["sh", "-c", script], log=tmp_path / "log", console=console)
    message = str(caught.value)
    first, *tail = message.splitlines()
    assert first.startswith("`sh -c echo begin;")
    assert "ended with status 3: the package registry can't be reached: check the network (and HTTPS_PROXY)" in first
    assert tail == ["    begin", "    dial tcp: lookup proxy: no such host"]


def test_a_missing_command_is_an_error_that_names_it(tmp_path: Path, console: Console) -> None:
    with pytest.raises(StepFailed, match="no-such-command can't be started"):
        run(["no-such-command"], log=tmp_path / "log", console=console)


def test_a_long_command_reports_progress(
    tmp_path: Path, console: Console, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scripts.toolchain.commands.HEARTBEAT_SECONDS", 0.05)
    run(["sh", "-c", "read line; sleep 0.2; echo $line"], log=tmp_path / "log", console=console, stdin="fed\n")
    assert any(line.startswith("… ") for line in lines)
    assert (tmp_path / "log").read_text() == "fed\n"


@pytest.mark.parametrize(
    ("output", "part"),
    [
        pytest.param("write: no space left on device", "disk is full", id="disk"),
        pytest.param("compile: signal: killed", "memory ran out", id="memory"),
        pytest.param("verifying module: checksum mismatch", "don't trust", id="checksum"),
        pytest.param("undefined: foo", "", id="unknown"),
    ],
)
def test_known_failures_come_with_a_remedy(output: str, part: str) -> None:
    assert part in remedy(output)
    assert bool(part) == bool(remedy(output))


@pytest.mark.parametrize(("seconds", "text"), [(0.42, "0.4 s"), (12.3, "12 s"), (365.0, "6 min 05 s")])
def test_durations_are_readable(seconds: float, text: str) -> None:
    assert duration(seconds) == text
