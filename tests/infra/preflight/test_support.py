"""A Kubernetes version that EKS is about to leave, or has left, is named before anything is made."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any

import pytest

import settings
from infra import preflight
from infra.account import connect
from infra.preflight import support
from infra.preflight.support import Support
from tests import graph

TODAY = date(2026, 10, 3)
VERSIONS = "aws:eks/getClusterVersions:getClusterVersions"


@pytest.mark.parametrize(("days", "warned"), [(61, False), (60, True), (0, True)])
def test_two_months_before_the_end_there_is_a_warning(days: int, warned: bool) -> None:
    found = Support("STANDARD_SUPPORT", TODAY + timedelta(days))
    assert support.mistakes("1.34", found, "1.35") == []
    said = support.warnings("1.34", found, "1.35", TODAY)
    assert bool(said) is warned
    assert all(f"ends on {found.until}, in {days} days" in each and "go on to 1.35" in each for each in said)


@pytest.mark.parametrize("status", ["EXTENDED_SUPPORT", "UNSUPPORTED"])
def test_after_the_end_it_is_refused_also_for_a_stack_that_exists(status: str) -> None:
    found = Support(status, TODAY)
    (mistake,) = support.mistakes("1.34", found, "1.35")
    assert mistake.startswith("kubernetesVersion = 1.34: its standard support has ended on 2026-10-03")
    assert support.warnings("1.34", found, "1.35", TODAY) == []


def test_the_newest_version_of_an_old_program_has_another_remedy() -> None:
    (mistake,) = support.mistakes("1.35", Support("UNSUPPORTED", TODAY), "1.35")
    assert "take a version of this program that has a later one" in mistake


def checked(answer: Any) -> None:
    """Run the check with EKS's answer about versions, or its error."""

    def ask(token: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if token != VERSIONS:
            return graph.answer(token, arguments)
        if isinstance(answer, Exception):
            raise answer
        return {"clusterVersions": answer}

    def program() -> None:
        wanted = settings.load()
        preflight.check(wanted, connect(wanted), graph.aws)

    graph.run(program, {**graph.defaults(), "publicAccessCidrs": [graph.ADDRESS]}, ask=ask)


def test_eks_is_asked_and_not_a_table() -> None:
    ended = {"clusterVersion": "1.35", "versionStatus": "EXTENDED_SUPPORT"}
    with pytest.raises(settings.ConfigurationError, match="its standard support has ended on 2026-10-03"):
        checked([{**ended, "endOfStandardSupportDate": "2026-10-03T00:00:00Z"}])


@pytest.mark.parametrize("answer", [[], graph.Refused("AccessDeniedException")], ids=["not-listed", "denied"])
def test_without_an_answer_nothing_is_refused(answer: Any) -> None:
    checked(answer)
