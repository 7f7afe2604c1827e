"""The number of GPUs is determined without torch, from any available source."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidewater.elastic.launch import gpus

LISTED = """GPU 0: NVIDIA A10G (UUID: GPU-1)
GPU 1: NVIDIA A10G (UUID: GPU-2)
"""


def environ(tmp_path: Path, answer: str | None = None, status: int = 0) -> dict[str, str]:
    """Return an environment with an nvidia-smi that prints ``answer``, or without nvidia-smi."""
    tools = tmp_path / "bin"
    tools.mkdir()
    if answer is not None:
        (tools / "nvidia-smi").write_text(f"#!/bin/sh\n/bin/cat <<'END'\n{answer}END\nexit {status}\n")
        (tools / "nvidia-smi").chmod(0o755)
    return {"PATH": str(tools), "NVIDIA_VISIBLE_DEVICES": "all"}


def nodes(tmp_path: Path, *names: str) -> Path:
    """Return a directory like /dev with these device nodes."""
    folder = tmp_path / "dev"
    folder.mkdir()
    for name in names:
        (folder / name).touch()
    return folder


def test_nvidia_smi_counts_the_gpus(tmp_path: Path) -> None:
    given = environ(tmp_path, LISTED)
    assert gpus.visible(given, nodes(tmp_path)) == gpus.Visible(("0", "1"), "nvidia-smi -L")


@pytest.mark.parametrize(("answer", "status"), [(None, 0), ("no driver\n", 9)], ids=["absent", "failing"])
def test_without_nvidia_smi_the_device_nodes_are_counted(tmp_path: Path, answer: str | None, status: int) -> None:
    given = environ(tmp_path, answer, status)
    dev = nodes(tmp_path, "nvidia0", "nvidia3", "nvidiactl", "nvidia-uvm", "null")
    assert gpus.visible(given, dev) == gpus.Visible(("0", "1"), f"{dev}/nvidia*")


def test_an_image_that_requests_all_gpus_has_none_on_a_machine_without_gpus(tmp_path: Path) -> None:
    given = environ(tmp_path)
    assert gpus.visible(given, nodes(tmp_path)).names == ()


def test_cuda_visible_devices_takes_precedence_and_is_parsed_as_cuda_does(tmp_path: Path) -> None:
    given = {**environ(tmp_path, LISTED), "CUDA_VISIBLE_DEVICES": "2, 3,-1,0"}
    assert gpus.visible(given).names == ("2", "3")
    assert gpus.visible({**given, "CUDA_VISIBLE_DEVICES": ""}).names == ()


def test_a_process_sees_only_its_own_gpu_and_nothing_changes_without_gpus() -> None:
    assert gpus.Visible(("2", "3"), "").only(1) == {"CUDA_VISIBLE_DEVICES": "3"}
    assert gpus.Visible((), "").only(1) == {}
