"""The runtime's flags are taken out of a script's command line."""

from __future__ import annotations

import pytest
from tidewater_accelerate.arguments import refused, split

RUNTIME = {"--min-workers": True, "--debug": False, "--seed": True}


@pytest.mark.parametrize(
    ("argv", "ours", "rest"),
    [
        ("--lr 0.1 --min-workers 2", "--min-workers 2", "--lr 0.1"),
        ("--min-workers=2 --lr=0.1", "--min-workers=2", "--lr=0.1"),
        ("--debug data", "--debug", "data"),
        ("--seed 3 --min 1", "--seed 3", "--seed 3 --min 1"),
        ("--min-workers", "--min-workers", ""),
    ],
)
def test_a_flag_goes_to_whom_it_belongs(argv: str, ours: str, rest: str) -> None:
    assert split(argv.split(), RUNTIME, {"--seed", "--lr"}) == (ours.split(), rest.split())


def test_a_flag_that_the_script_decides_is_refused_unless_it_is_its_own() -> None:
    assert [each.partition(":")[0] for each in refused(["--epochs=3", "--job", "j"])] == ["--epochs"]
    assert refused(["--epochs=3"], {"--epochs"}) == []
