"""The GPUs of a machine are found, and named for a person, without torch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.elastic.launch.machines import LISTED, device_node, machine
from tidewater.elastic.launch.gpus import Gpu, Visible, has_gpu, visible_gpus

FIRST = Gpu("0", "GPU-1", "00000000:10:1C.0")
SECOND = Gpu("1", "GPU-2", "00000000:10:1D.0")


def nodes(tmp_path: Path, *names: str) -> Path:
    """Return a directory like /dev with these device nodes."""
    folder = tmp_path / "dev"
    folder.mkdir()
    for name in names:
        device_node(folder / name)
    return folder


def test_nvidia_smi_names_the_gpus(tmp_path: Path) -> None:
    assert visible_gpus(machine(tmp_path, LISTED), nodes(tmp_path)) == Visible((FIRST, SECOND), "nvidia-smi", True)


@pytest.mark.parametrize(
    ("answer", "status"),
    [(None, 0), ("no driver\n", 9), ("Unable to determine the device handle\n", 0)],
    ids=["absent", "failing", "puzzling"],
)
def test_without_nvidia_smi_the_device_nodes_are_counted(tmp_path: Path, answer: str | None, status: int) -> None:
    dev = nodes(tmp_path, "nvidia0", "nvidia3", "nvidiactl", "nvidia-uvm", "null")
    found = visible_gpus(machine(tmp_path, answer, status), dev)
    assert found == Visible((Gpu("0"), Gpu("1")), f"{dev}/nvidia*", True)


def test_an_image_that_requests_all_gpus_has_none_on_a_machine_without_gpus(tmp_path: Path) -> None:
    assert visible_gpus(machine(tmp_path), nodes(tmp_path)).gpus == ()


def test_cuda_visible_devices_takes_precedence_and_is_parsed_as_cuda_does(tmp_path: Path) -> None:
    given = {**machine(tmp_path, LISTED), "CUDA_VISIBLE_DEVICES": "2, 3,-1,0"}
    assert visible_gpus(given).gpus == (Gpu("2"), Gpu("3"))
    assert visible_gpus({**given, "CUDA_VISIBLE_DEVICES": ""}).gpus == ()


def test_an_index_names_a_gpu_only_if_cuda_counts_as_nvidia_smi_does(tmp_path: Path) -> None:
    given = {**machine(tmp_path, LISTED), "CUDA_VISIBLE_DEVICES": "1"}
    assert visible_gpus(given).gpus == (Gpu("1"),)
    assert visible_gpus({**given, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}).gpus == (SECOND,)


def test_a_uuid_names_a_gpu_if_its_beginning_is_unique(tmp_path: Path) -> None:
    given = {**machine(tmp_path, LISTED), "CUDA_VISIBLE_DEVICES": "GPU-2,GPU-"}
    assert visible_gpus(given).gpus == (Gpu("GPU-2", SECOND.uuid, SECOND.bus_id), Gpu("GPU-"))


@pytest.mark.parametrize(
    ("chosen", "names", "has"),
    [
        pytest.param({}, ["nvidia0"], True, id="a-node"),
        pytest.param({}, ["nvidiactl", "nvidia-uvm"], False, id="only-the-drivers-nodes"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "0"}, ["nvidia0"], True, id="chosen"),
        pytest.param({"CUDA_VISIBLE_DEVICES": ""}, ["nvidia0"], False, id="none-chosen"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "0"}, [], False, id="chosen-and-not-there"),
    ],
)
def test_a_process_has_a_gpu_if_there_is_a_device_node(
    chosen: dict[str, str], names: list[str], *, has: bool, tmp_path: Path
) -> None:
    assert has_gpu(chosen, nodes(tmp_path, *names)) == has


def test_a_process_sees_only_its_own_gpu_and_nothing_changes_without_gpus() -> None:
    assert Visible((Gpu("2"), Gpu("3")), "").only(1) == {"CUDA_VISIBLE_DEVICES": "3"}
    by_bus = {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert Visible((FIRST, SECOND), "", by_bus=True).only(2) == by_bus
    assert Visible((), "").only(1) == {}
    assert Visible((), "").of(1) is None
