"""The order of lines, and lines that come again."""

from __future__ import annotations

import pytest

from tidewater.cli.job.lines import Position, line_of, merged


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        pytest.param("2026-03-01T12:00:00.1Z a", "2026-03-01T12:00:00.10000001Z b", id="cut-zeros"),
        pytest.param("2026-03-01T12:00:00.999999999Z a", "2026-03-01T12:00:01Z b", id="no-fraction"),
        pytest.param("2026-03-01T14:00:00+02:00 a", "2026-03-01T12:00:01Z b", id="another-zone"),
        pytest.param("the kubelet's own message", "2026-03-01T12:00:00Z b", id="no-time"),
    ],
)
def test_times_are_compared_as_times(earlier: str, later: str) -> None:
    assert line_of("p", earlier) < line_of("p", later)


def test_the_text_of_a_line_is_kept_as_it_is() -> None:
    assert line_of("p", "2026-03-01T12:00:00Z   two  spaces ").text == "  two  spaces "


def test_an_empty_line_stays_a_line() -> None:
    assert line_of("p", "2026-03-01T12:00:00.5Z").text == ""


def test_a_line_without_a_time_stays_behind_the_line_before_it() -> None:
    first = [line_of("a", "2026-03-01T12:00:02Z 2"), line_of("a", "without")]
    second = [line_of("b", "2026-03-01T12:00:01Z 1"), line_of("b", "2026-03-01T12:00:03Z 3")]
    assert [line.text for line in merged([first, second])] == ["1", "2", "without", "3"]


def test_a_stream_that_begins_again_repeats_nothing() -> None:
    lines = [line_of("p", f"2026-03-01T12:00:0{second}.{part}Z same") for second in (1, 2) for part in (1, 1, 2)]
    position = Position()
    assert [position.admits(line) for line in lines] == [True] * 6
    assert position.since == "2026-03-01T12:00:02Z"
    position.again()
    more = line_of("p", "2026-03-01T12:00:02.2Z same")
    assert [position.admits(line) for line in [*lines[3:], more]] == [False, False, False, True]


def test_lines_that_tail_left_out_do_not_come_after_a_new_beginning() -> None:
    position = Position()
    position.admits(line_of("p", "2026-03-01T12:00:02.5Z last"))
    position.again()
    assert not position.admits(line_of("p", "2026-03-01T12:00:02.1Z left out"))


def test_nothing_is_known_before_the_first_line() -> None:
    assert Position().since == ""
