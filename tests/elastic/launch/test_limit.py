"""What a process has learned of its memory is known to all that are started after it."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest

from tidewater.elastic.errors import ShortOfMemory
from tidewater.elastic.launch.limit import known, least, note, noting
from tidewater.elastic.observe.log import Log, parse


def test_the_smallest_number_is_known(tmp_path: Path) -> None:
    limit, stream = tmp_path / "limit", io.StringIO()
    assert known(limit) == known(None) == 0
    found = []
    for samples in (8, 3, 4):
        with contextlib.suppress(ShortOfMemory), noting(limit, Log("a.1", stream=stream)):
            raise ShortOfMemory("too little memory", samples)
        found.append(known(limit))
    assert found == [8, 3, 3]
    assert [each.name for each in tmp_path.iterdir()] == ["limit"]
    line = parse(stream.getvalue().splitlines()[0])
    assert (line["event"], line["micro_batch"], line["worker"]) == ("out_of_memory", "8", "a.1")


def test_the_error_goes_on_without_a_file_too() -> None:
    with pytest.raises(ShortOfMemory), noting(None, Log("a", stream=io.StringIO())):
        raise ShortOfMemory("too little memory", 1)


def test_the_least_number_of_several_machines_is_noted_and_one_that_is_smaller_stays(tmp_path: Path) -> None:
    limit = tmp_path / "limit"
    assert [least(each) for each in ([], [0, 0], [0, 8, 4])] == [0, 0, 4]
    found = []
    for samples in (8, 2, 4):
        note(limit, samples)
        found.append(known(limit))
    assert found == [8, 2, 2]
