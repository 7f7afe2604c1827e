"""kubectl and PyYAML read the same from a file, and from what is printed."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tidewater.cli.kubeyaml import documents, written


@pytest.mark.parametrize(
    "text",
    ["1e-3", "1E5", "+1e5", ".5e3", "1_0e5", "08", "0o17", "+0o7", "0X1F", "0B11", "y", "Y", "n", "N", "yes", "5", "="],
)
def test_a_string_that_kubectl_would_not_read_as_one_is_quoted(text: str) -> None:
    assert written([text]) == f"- '{text}'"
    assert written({text: 1}) == f"'{text}': 1"


@pytest.mark.parametrize("value", [5, 1.5, -3, 1e20, True, None], ids=str)
def test_a_value_that_is_no_string_is_not_quoted(value: Any) -> None:
    assert "'" not in written([value])
    assert yaml.safe_load(written([value])) == [value]


@pytest.mark.parametrize("text", ["train.py", "--lr", "e5", "1e", "v1", "yy", "no-way", "10.0.0.1:80", "sha256:1e5"])
def test_other_strings_stay_plain(text: str) -> None:
    assert written([text]) == f"- {text}"


def test_a_long_string_stays_on_one_line() -> None:
    assert "\n" not in written([" ".join(["word"] * 1000)])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # As `kubectl patch --local` 1.32 reads them.
        pytest.param("2024-05-01", "2024-05-01", id="date"),
        pytest.param("2024-05-01T10:00:00Z", "2024-05-01T10:00:00Z", id="time"),
        pytest.param("12:30:45", "12:30:45", id="time-of-day"),
        pytest.param("1:30.5", "1:30.5", id="minutes"),
        pytest.param("=", "=", id="equals-sign"),
        pytest.param("y", True, id="y"),
        pytest.param("N", False, id="n"),
        pytest.param("yes", True, id="yes"),
        pytest.param("off", False, id="off"),
        pytest.param("0x1F", 31, id="hexadecimal"),
        pytest.param("-1_0", -10, id="integer"),
        pytest.param("1.5", 1.5, id="float"),
        pytest.param("-.inf", float("-inf"), id="infinity"),
    ],
)
def test_a_file_is_read_as_kubectl_reads_it(text: str, value: Any) -> None:
    assert documents(f"a: [{text}]") == [{"a": [value]}]


def test_pyyaml_itself_is_left_as_it_is() -> None:
    assert yaml.safe_load("y") == "y"
    assert yaml.safe_dump(["1e-3"]) == "- 1e-3\n"
