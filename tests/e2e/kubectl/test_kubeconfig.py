"""A token in place of a command: asked for once, and again when the file has changed or the token is old."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.kubectl.kubeconfig import USED_SECONDS, with_token

TOKEN = """printf .>>asked; printf '{"status": {"token": "t-%s"}}' $(wc -c <asked)"""


def written(path: Path, command: str) -> Path:
    """Write a kubeconfig with one user, who has a command; return its path."""
    user: dict[str, Any] = {"exec": {"command": "sh", "args": ["-c", f"cd {path} && {command}"]}}
    file = path / "kubeconfig"
    file.write_text(yaml.safe_dump({"users": [{"name": "one", "user": user}], "current-context": "one"}))
    return file


def user_of(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(file.read_text())["users"][0]["user"]
    return found


def test_a_token_is_used_until_it_is_old_or_the_file_has_changed(tmp_path: Path) -> None:
    file = written(tmp_path, TOKEN)
    copies = [with_token(file, os.environ) for _ in range(2)]
    assert [user_of(each) for each in copies] == [{"token": "t-1"}] * 2
    assert copies[0].stat().st_mode & 0o777 == 0o600
    old = copies[0].stat().st_mtime - USED_SECONDS - 1
    os.utime(copies[0], (old, old))
    os.utime(file, (old - 1, old - 1))
    assert user_of(with_token(file, os.environ)) == {"token": "t-2"}
    later = copies[0].stat().st_mtime + 1
    os.utime(file, (later, later))
    assert user_of(with_token(file, os.environ)) == {"token": "t-3"}


def test_a_user_whose_command_fails_keeps_it(tmp_path: Path) -> None:
    file = written(tmp_path, "exit 1")
    assert user_of(with_token(file, os.environ)) == user_of(file)


@pytest.mark.parametrize("text", [None, "users: []\n"], ids=["no file", "no user"])
def test_without_a_user_kubectl_is_left_to_say_so(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "kubeconfig"
    if text:
        file.write_text(text)
    assert with_token(file, os.environ).exists() == (text is not None)
