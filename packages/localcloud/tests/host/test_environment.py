"""What the shell's PATH and umask do to the cloud, and what they don't."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest
from localcloud import cli, contexts
from localcloud.host import environment
from localcloud.instance import Instance
from localcloud.kube.pki import Authority


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_files_with_secrets_have_modes_of_their_own(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        instance = Instance.create(tmp_path / "state")
        contexts.publish(instance, {"demo": contexts.Cluster("https://198.18.0.2:6443", "certificate")})
        _, key = Authority.create("demo").pair.write(tmp_path / "pki", "ca")
    finally:
        os.umask(before)
    for path in (instance.credentials_file, instance.kubeconfig, key):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


@pytest.mark.parametrize(
    ("path", "first"), [("", "/usr/local/sbin"), ("/opt/bin:", "/opt/bin"), ("/usr/bin:/bin", "/usr/bin")]
)
def test_programs_of_the_administrator_are_found_whatever_path_the_shell_has(path: str, first: str) -> None:
    """`su` keeps a person's PATH, without the folders of nft and conntrack."""
    folders = environment.path_of_host(path).split(":")
    assert folders[0] == first
    assert "/usr/sbin" in folders
    assert len(folders) == len(set(folders))
    assert "" not in folders, "the working directory"


def test_a_start_finds_them_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str | None] = []
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("localcloud.preflight.check_machine", lambda: found.append(shutil.which("ip")))
    assert cli.main(["check"]) == 0
    assert found != [None]
