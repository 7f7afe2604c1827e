"""Parameters as ElasticDL's flags take them, without evaluating anything."""

from __future__ import annotations

from typing import Any

import pytest
from elasticdl.data.params import parse_params
from elasticdl.errors import InputError


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        (" ; ", {}),
        ("a=1", {"a": 1}),
        ("a=1; b=2.5 ;", {"a": 1, "b": 2.5}),
        ("sep=';';columns=[\"a\", 'b;c']", {"sep": ";", "columns": ["a", "b;c"]}),
        ("name=word", {"name": "word"}),
        ("path=/data/x=y", {"path": "/data/x=y"}),
        ("flag=True;none=None", {"flag": True, "none": None}),
        ("pair=(1, {'k': [2, 3]}); a=';'", {"pair": (1, {"k": [2, 3]}), "a": ";"}),
        ("a=1;;b=2", {"a": 1, "b": 2}),
        (r"quoted='it\'s; fine'", {"quoted": "it's; fine"}),
    ],
)
def test_parameters_are_read(text: str, found: dict[str, Any]) -> None:
    assert parse_params("--model_params", text) == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a", "'a' is not name=value"),
        ("1a=1", "'1a=1' is not name=value"),
        ("a=1;a=2", "a is given twice"),
        ("a='1", ".*ends inside quotes"),
        ("a=[1", ".*ends inside brackets"),
        ("a=", "the value of a, '', is no literal"),
        ("a=[f()]", r"the value of a, '\[f\(\)\]', is no literal"),
    ],
)
def test_a_mistake_is_named_with_the_flag(text: str, said: str) -> None:
    with pytest.raises(InputError, match=f"--model_params: {said}"):
        parse_params("--model_params", text)


def test_code_is_not_run() -> None:
    assert parse_params("--model_params", "a=__import__('os').getpid()") == {"a": "__import__('os').getpid()"}
