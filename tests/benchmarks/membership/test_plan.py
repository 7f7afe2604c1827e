"""The sizes that the command line may choose."""

from __future__ import annotations

import pytest

from benchmarks.harness.command import parse
from benchmarks.membership.__main__ import SIZES, Membership


def labels(*arguments: str) -> list[str]:
    benchmark = Membership()
    return [series.label for (series,) in benchmark.blocks(parse(benchmark, arguments))]


def test_each_size_has_turns_of_its_own() -> None:
    assert labels() == [f"{size} members" for size in SIZES]
    assert labels("--members", "16,1024") == ["16 members", "1024 members"]


@pytest.mark.parametrize("wrong", ["1", "16,1", "many", ""])
def test_a_size_without_two_members_is_refused(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        labels("--members", wrong)
    assert "--members" in capsys.readouterr().err
