"""Steps run once, leave a complete result or none, and name the remedy when they fail."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.toolchain import paths, steps
from scripts.toolchain.commands import Console, duration, remedy, run
from scripts.toolchain.errors import StepFailed
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


def making(target: Path, disk_gib: float = 0.0) -> Step:
    def make(console: Console, log: Path) -> None:
        with draft_of(target) as draft:
            draft.write_text("made")

    return Step(target.name, target.exists, make, disk_gib)


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

    parts = [making(cache / "a"), Step("b", lambda: False, fail), making(cache / "c")]
    with pytest.raises(StepFailed, match="b: the reason"):
        install(parts, console)
    assert (cache / "a").exists()
    assert not (cache / "c").exists()


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
    assert any(line.startswith("  … ") for line in lines)
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
