"""What a rehearsal names for each kind of mistake."""

from __future__ import annotations

import pytest

from tests.scripts_of_people.conftest import Rehearse
from tests.scripts_of_people.faulty import FAULTS
from tidewater.cli.rehearse.promises import table

pytestmark = [pytest.mark.e2e, pytest.mark.soak]


@pytest.mark.parametrize("name", FAULTS)
def test_the_mistake_is_named_with_its_remedy(rehearse: Rehearse, name: str) -> None:
    fault = FAULTS[name]
    outcome = rehearse(fault.script)
    broken = [each for each in outcome.of(fault.promise) if not each.note]
    assert any(each.piece.startswith(fault.piece) and fault.remedy in each.remedy for each in broken), "\n".join(
        text for text, _ in table(outcome)
    )
