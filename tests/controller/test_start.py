"""The entry point of the controller's pod: it installs what the image lacks, in the locked versions."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tidewater.controller import start

HERE = importlib.metadata.version("pyyaml")


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that were started; each ends with 0."""
    commands: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        commands.append([*command, Path(command[-1]).read_text()])
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    return commands


def test_packages_of_other_versions_count_as_missing() -> None:
    lock = f"pyyaml=={HERE} \\\n    --hash=sha256:aa\npytest==0.0.1 \\\n    --hash=sha256:bb\nno-such-package==2.0\n"
    assert start.missing(lock) == ["pytest==0.0.1", "no-such-package==2.0"]


def test_all_locked_packages_have_hashes() -> None:
    lock = start.locked()
    packages = [line for line in lock.splitlines() if "==" in line]
    assert len(packages) > 5
    assert all(line.endswith("\\") for line in packages)


def test_nothing_is_installed_in_an_image_that_has_all(
    monkeypatch: pytest.MonkeyPatch, ran: list[list[str]], tmp_path: Path
) -> None:
    monkeypatch.setattr(start, "locked", lambda: f"pyyaml=={HERE} \\\n    --hash=sha256:aa\n")
    start.install(tmp_path)
    assert ran == []


def test_pip_gets_the_whole_lock_and_verifies_the_hashes(
    monkeypatch: pytest.MonkeyPatch, ran: list[list[str]], tmp_path: Path
) -> None:
    lock = "no-such-package==2.0 \\\n    --hash=sha256:aa\n"
    monkeypatch.setattr(start, "locked", lambda: lock)
    start.install(tmp_path)
    ((*command, given),) = ran
    assert "--require-hashes" in command
    assert command[command.index("--target") + 1] == str(tmp_path)
    assert given == lock


def test_an_image_without_pip_and_without_the_packages_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(start, "locked", lambda: "no-such-package==2.0\n")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"neither pip nor no-such-package==2\.0"):
        start.install(tmp_path)
