"""Small scripts as people write them keep every promise, in all of their state: rehearsed by `tidewater rehearse`.

`make test` has four of them, `make soak` all.
"""

from __future__ import annotations

import pytest

from tests.scripts_of_people import data, methods, models
from tests.scripts_of_people.conftest import Rehearse
from tidewater.cli.rehearse.promises import table

pytestmark = pytest.mark.e2e

SCRIPTS = {**models.SCRIPTS, **methods.SCRIPTS, **data.SCRIPTS}
ALWAYS = ("gpt", "dino", "curriculum", "freezes_later")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ALWAYS else pytest.mark.soak) for name in SCRIPTS]
)
def test_every_promise_holds(rehearse: Rehearse, name: str) -> None:
    outcome = rehearse(SCRIPTS[name])
    assert outcome.held, "\n".join(text for text, _ in table(outcome))
    assert all(steps == 36 for steps in outcome.steps.values())
