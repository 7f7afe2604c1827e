"""A recording can be read without the cluster: as text, in asciinema, as a picture."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.text import Text

from tidewater.cli.errors import UsageError
from tidewater.cli.top.recording import recorder

BEGAN = datetime(2026, 11, 23, 10, 0, tzinfo=UTC)
FRAMES = ((0, "two workers", True), (2, "step 20", False), (4, "one worker", True), (6, "step 30", False))


def recorded(file: Path) -> str:
    """Record four frames; the first and the third show a change."""
    with recorder(file, BEGAN) as recording:
        for seconds, text, changed in FRAMES:
            recording.add(Text(text, style="green"), BEGAN + timedelta(seconds=seconds), changed=changed)
    return file.read_text()


def test_text_has_the_frames_in_which_something_happened_and_the_last_one(tmp_path: Path) -> None:
    assert recorded(tmp_path / "top.txt") == ("--- 0 s\ntwo workers\n\n--- 4 s\none worker\n\n--- 6 s\nstep 30\n\n")


def test_a_cast_has_every_frame_with_its_time_and_colours(tmp_path: Path) -> None:
    header, *frames = (json.loads(line) for line in recorded(tmp_path / "top.cast").splitlines())
    assert header["version"] == 2
    assert [(seconds, kind) for seconds, kind, _ in frames] == [(0, "o"), (2, "o"), (4, "o"), (6, "o")]
    assert "\x1b[32mone worker" in frames[2][2]


def test_a_picture_shows_the_last_frame(tmp_path: Path) -> None:
    picture = "".join(ElementTree.fromstring(recorded(tmp_path / "top.svg")).itertext()).replace("\xa0", " ")
    assert "step 30" in picture
    assert "one worker" not in picture


def test_what_was_recorded_is_in_the_file_before_the_end(tmp_path: Path) -> None:
    file = tmp_path / "top.txt"
    with recorder(file, BEGAN) as recording:
        recording.add(Text("two workers"), BEGAN, changed=True)
        assert "two workers" in file.read_text()


def test_an_unknown_suffix_and_a_file_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"top\.gif: .*\.txt, \.cast, \.svg"):
        recorder(tmp_path / "top.gif", BEGAN)
    with pytest.raises(UsageError, match=r"absent/top\.txt: No such file"):
        recorder(tmp_path / "absent" / "top.txt", BEGAN)
