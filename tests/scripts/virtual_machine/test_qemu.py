"""What the virtual machine executes, and how its end is read from the console."""

from __future__ import annotations

import io
import subprocess
from pathlib import Path

import pytest

from scripts.virtual_machine import __main__ as entry
from scripts.virtual_machine import kernel, qemu


def test_the_script_runs_the_command_in_the_checkout_with_little_of_the_environment(tmp_path: Path) -> None:
    checkout = tmp_path / "a checkout"
    checkout.mkdir()
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/root", "AWS_PROFILE": "mine"}
    script = qemu.script(
        ["sh", "-c", 'echo "$PWD $HOME ${AWS_PROFILE:-none} $1"', "sh", "two words"], checkout, environment
    )
    done = subprocess.run(["sh"], input=script, capture_output=True, text=True, env={}, check=False)
    assert (done.stdout, done.stderr) == (f"{checkout} /root none two words\n", "")


def test_the_output_is_passed_on_and_the_exit_status_is_that_of_the_command() -> None:
    shown = io.StringIO()
    lines = ["1 failed\n", "virtual machine: exit status 3\n", "[   40.8] reboot: Power down\n"]
    assert qemu.forward(lines, shown) == 3
    assert shown.getvalue() == "1 failed\n[   40.8] reboot: Power down\n"


def test_a_kernel_that_panics_gives_no_exit_status() -> None:
    assert qemu.forward(["[   17.5] Kernel panic - not syncing\n"], io.StringIO()) is None


def test_init_prints_the_line_that_is_read_and_mounts_what_qemu_shares() -> None:
    init, command = kernel.INIT.read_text(), qemu.command(Path("/kernel"), Path("/s"))
    after = init[init.index("\nprintf ") :].splitlines()[1]
    ended = subprocess.run(
        ["sh", "-c", f"printf unended; (exit 7); {after}"], capture_output=True, text=True, check=True
    )
    assert qemu.forward([f"{line}\r\n" for line in ended.stdout.splitlines()], io.StringIO()) == 7
    [share] = [each for each in command if "mount_tag" in each]
    assert "readonly=on" in share
    assert f" {share.partition('mount_tag=')[2].partition(',')[0]} /host\n" in init
    assert "mount -t cgroup2 cgroup2 /sys/fs/cgroup\n" in init


def test_what_is_missing_is_said_before_anything_is_downloaded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shutil.which", lambda program: None)
    monkeypatch.setattr(kernel, "step", lambda: pytest.fail("downloaded"))
    assert entry.main(["true"]) == 1
    assert "apt-get install --no-install-recommends qemu-system-x86" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        entry.main([])
    assert "name a command" in capsys.readouterr().err
