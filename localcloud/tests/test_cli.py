"""The command line's promises that need neither root nor a daemon."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from localcloud import cli, preflight
from localcloud.errors import CloudError, DiskFull, KernelFeature, NotRoot, PortInUse
from localcloud.instance import Instance
from scripts.toolchain import ToolMissing


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    return Instance.open(tmp_path / "state")


def test_reset_spares_a_directory_that_is_not_ours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    assert cli.main(["reset", "--state", str(tmp_path)]) == 1
    assert "not localcloud's" in capsys.readouterr().err
    assert (tmp_path / "thesis.tex").exists()


def test_reset_empties_a_state_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "instance.json").write_text("garbage")
    (tmp_path / "logs").mkdir()
    assert cli.main(["reset", "--state", str(tmp_path)]) == 0
    assert list(tmp_path.iterdir()) == []


def test_status_without_a_daemon_says_how_to_start_one(instance: Instance, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["status", "--state", str(instance.state)]) == 1
    error = capsys.readouterr().err
    assert "python -m localcloud start" in error
    assert error.count("\n") == 1


def test_an_unknown_log_is_answered_with_those_there_are(
    instance: Instance, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = instance.state / "logs"
    logs.mkdir()
    (logs / "daemon.log").write_text("")
    assert cli.main(["logs", "--state", str(instance.state), "demon"]) == 1
    assert "there are daemon" in capsys.readouterr().err


def test_without_root_the_remedy_is_named() -> None:
    with pytest.raises(NotRoot, match="sudo"):
        preflight.check_root(1000)


def test_a_full_disk_is_named_with_what_is_needed(tmp_path: Path) -> None:
    with pytest.raises(DiskFull, match=r"0\.5 GiB free.*--state"):
        preflight.check_disk(512 * 1024**2, tmp_path)


def test_a_port_in_use_is_named(instance: Instance) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", instance.port))
        other.listen()
        with pytest.raises(PortInUse, match=str(instance.port)):
            preflight.check_port(instance)


def test_a_missing_tool_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CloudError, match=r"containerd.*make up"):
        preflight.check_tools()


def test_a_tool_that_was_not_built_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Path:
        raise ToolMissing(name)

    monkeypatch.setattr("shutil.which", lambda tool: f"/bin/{tool}")
    monkeypatch.setattr("scripts.toolchain.binary", missing)
    with pytest.raises(ToolMissing, match=r"etcd is not set up.*make up"):
        preflight.check_tools()


@pytest.mark.parametrize(
    ("failing", "text"),
    [("modprobe", "overlay"), ("add", "namespaces"), ("veth", "veth"), ("nft", "nftables")],
)
def test_a_kernel_feature_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, instance: Instance, failing: str, text: str
) -> None:
    kinds = {"modprobe": "modprobe", "veth": "veth", "nft": "nft"}

    def fails(command: list[str]) -> bool:
        kind = next((kind for kind, word in kinds.items() if word in command), "add")
        return kind == failing

    monkeypatch.setattr(preflight, "_fails", fails)
    monkeypatch.setattr("subprocess.run", lambda *_, **__: None)
    with pytest.raises(KernelFeature, match=text):
        preflight.check_kernel(instance, "nodev\text4\n" if failing == "modprobe" else "nodev\toverlay\n")
