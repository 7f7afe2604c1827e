"""Ages, tables and colours."""

from __future__ import annotations

import pytest

from tidewater.cli.show import Output, age, columns, dumped, listed, yaml_of


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0s"),
        (119, "119s"),
        (120, "2m"),
        (330, "5m30s"),
        (3600, "60m"),
        (3 * 3600 + 1200, "3h20m"),
        (26 * 3600, "26h"),
        (3 * 86400 + 4 * 3600, "3d4h"),
        (9 * 86400 + 3600, "9d"),
    ],
)
def test_ages_are_written_as_kubectl_does(seconds: int, text: str) -> None:
    assert age(seconds) == text


def test_columns_are_as_wide_as_their_content() -> None:
    found = columns(["Name", "State"], [["a-long-name", "Running"], ["b", ""]])
    assert found.plain.splitlines() == ["NAME          STATE", "a-long-name   Running", "b             "]


def test_states_are_coloured() -> None:
    found = columns(["State"], [["Failed"], ["other"]])
    assert [span.style for span in found.spans] == ["bold red"]


def test_managed_fields_are_left_out_of_objects_and_of_lists() -> None:
    found = {"metadata": {"name": "a", "managedFields": [{"manager": "m"}]}}
    assert "manage" not in dumped(found, Output.JSON)
    assert "manage" not in dumped(listed([found], "ElasticJob", "v1"), Output.YAML)


def test_yaml_quotes_the_strings_that_kubectl_would_read_as_numbers() -> None:
    assert yaml_of(["1e-3", "1E5", "y", "0o17", 5]) == "- '1e-3'\n- '1E5'\n- 'y'\n- '0o17'\n- 5"
