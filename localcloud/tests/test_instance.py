"""What an instance promises about its names, addresses and its file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from localcloud.errors import StaleState
from localcloud.instance import Instance


def test_opening_twice_gives_the_same_instance(tmp_path: Path) -> None:
    assert Instance.open(tmp_path / "a") == Instance.open(tmp_path / "a")


def test_two_state_directories_share_no_name(tmp_path: Path) -> None:
    first, second = Instance.open(tmp_path / "a"), Instance.open(tmp_path / "b")
    assert first.id != second.id
    assert first.netns != second.netns
    assert first.veth != second.veth


def test_interface_name_fits_the_kernels_limit(tmp_path: Path) -> None:
    assert len(Instance.open(tmp_path).veth) <= 15


@pytest.mark.parametrize(
    "text",
    ["not json", "[]", "{}", '{"version": 1, "colour": "blue"}'],
    ids=["garbage", "a list", "empty", "unknown field"],
)
def test_unreadable_state_is_named_with_its_remedy(tmp_path: Path, text: str) -> None:
    (tmp_path / "instance.json").write_text(text)
    with pytest.raises(StaleState, match=r"instance\.json.*localcloud reset"):
        Instance.open(tmp_path)


def test_state_of_another_version_is_refused(tmp_path: Path) -> None:
    Instance.open(tmp_path)
    path = tmp_path / "instance.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 99}))
    with pytest.raises(StaleState, match="version 99"):
        Instance.open(tmp_path)


def test_a_copied_state_directory_is_refused(tmp_path: Path) -> None:
    Instance.open(tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "instance.json").write_text((tmp_path / "a" / "instance.json").read_text())
    with pytest.raises(StaleState, match="copied"):
        Instance.open(tmp_path / "b")
