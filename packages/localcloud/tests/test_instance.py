"""What an instance promises about its names, addresses and files, and which folders it leaves alone."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from localcloud.errors import CloudError, ForeignState, NotRunning, StaleState
from localcloud.instance import Instance, default_state


def change(state: Path, **fields: object) -> None:
    """Overwrite fields of the instance's record."""
    path = state / "instance.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_the_state_lies_in_the_checkout_if_no_other_place_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCALCLOUD_STATE", raising=False)
    assert default_state() == Path(__file__).parents[3] / ".localcloud"


def test_creating_twice_and_loading_give_the_same_instance(tmp_path: Path) -> None:
    made = Instance.create(tmp_path / "a")
    assert made == Instance.create(tmp_path / "a") == Instance.load(tmp_path / "a")


def test_the_region_of_the_next_start_is_recorded(tmp_path: Path) -> None:
    made = Instance.create(tmp_path)
    moved = made.in_region("eu-west-1")
    assert (made.region, moved.region) == ("us-west-2", "eu-west-1")
    assert Instance.create(tmp_path) == Instance.load(tmp_path) == moved


@pytest.mark.parametrize("there", [False, True], ids=["nothing", "an empty folder"])
def test_loading_makes_nothing(tmp_path: Path, there: bool) -> None:
    state = tmp_path / "state"
    if there:
        state.mkdir()
    with pytest.raises(NotRunning, match="localcloud start"):
        Instance.load(state)
    assert state.exists() == there
    assert not there or list(state.iterdir()) == []


def test_two_state_directories_share_no_name(tmp_path: Path) -> None:
    first, second = Instance.create(tmp_path / "a"), Instance.create(tmp_path / "b")
    assert first.id != second.id
    assert first.netns != second.netns
    assert first.veth != second.veth


def test_interface_name_fits_the_kernels_limit(tmp_path: Path) -> None:
    assert len(Instance.create(tmp_path).veth) <= 15


@pytest.mark.parametrize(
    "files",
    [
        pytest.param({"thesis.tex": "years of work"}, id="somebody's files"),
        pytest.param({"instance.json": "not json"}, id="garbage"),
        pytest.param({"instance.json": "[]"}, id="a list"),
        pytest.param({"instance.json": "{}"}, id="empty"),
        pytest.param({"instance.json": '{"version": 1, "id": "i-0abc", "port": 22}'}, id="another program's record"),
        pytest.param({"instance.json": '{"version": 1, "id": "abcdef", "state": "/elsewhere"}'}, id="another path"),
    ],
)
def test_a_folder_of_somebody_else_is_refused_and_left_as_it_is(tmp_path: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    for use in (Instance.load, Instance.create):
        with pytest.raises(ForeignState, match=re.escape(str(tmp_path))):
            use(tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == files


def test_a_file_is_no_state_directory(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("text")
    for use in (Instance.load, Instance.create):
        with pytest.raises(ForeignState, match="not a folder"):
            use(path)
    assert path.read_text() == "text"


def test_a_link_stands_for_the_folder_that_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert Instance.create(tmp_path / "link") == Instance.load(tmp_path / "real")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "other").symlink_to(tmp_path / "full")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name in ("other", "loop"):
        with pytest.raises(CloudError, match=name if name == "loop" else "full"):
            Instance.create(tmp_path / name)


def test_a_record_that_was_written_by_half_does_not_make_the_folder_foreign(tmp_path: Path) -> None:
    (tmp_path / "instance.json.draft").write_text("{")
    assert Instance.create(tmp_path) == Instance.load(tmp_path)


@pytest.mark.parametrize(("field", "value"), [("version", 99), ("colour", "blue")], ids=["version", "unknown field"])
def test_a_state_of_another_version_is_named_with_its_remedy(tmp_path: Path, field: str, value: object) -> None:
    Instance.create(tmp_path)
    change(tmp_path, **{field: value})
    for use in (Instance.load, Instance.create):
        with pytest.raises(
            StaleState, match=rf"instance\.json.*{value if field == 'version' else field}.*localcloud reset"
        ):
            use(tmp_path)


def test_a_copied_state_directory_is_refused(tmp_path: Path) -> None:
    Instance.create(tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "instance.json").write_text((tmp_path / "a" / "instance.json").read_text())
    for use in (Instance.load, Instance.create):
        with pytest.raises(ForeignState, match="copied"):
            use(tmp_path / "b")


def test_the_operators_key_is_random_private_and_kept(tmp_path: Path) -> None:
    first, second = Instance.create(tmp_path / "a"), Instance.create(tmp_path / "b")
    credentials = first.credentials()
    assert re.fullmatch("AKIA[A-Z2-7]{16}", credentials.access_key)
    assert len(credentials.secret_key) == 40
    assert credentials.secret_key not in repr(credentials)
    assert first.credentials_file.stat().st_mode & 0o777 == 0o600
    assert Instance.create(tmp_path / "a").credentials() == credentials
    assert second.credentials() != credentials


def test_unreadable_credentials_are_named_with_their_remedy(tmp_path: Path) -> None:
    instance = Instance.create(tmp_path)
    instance.credentials_file.write_text("{}")
    with pytest.raises(StaleState, match=r"operator\.json.*delete it.*localcloud start"):
        instance.credentials()
