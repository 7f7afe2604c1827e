"""A claim that waits for the volume of its deleted predecessor is found, with the command that releases the volume."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.doctor.places import Surroundings
from tests.cli.top.fakes import forbidden
from tidewater.cli.doctor.claims import claims
from tidewater.cli.doctor.results import Outcome


def claim(phase: str, name: str = "data") -> dict[str, Any]:
    metadata = {"name": name, "namespace": "training", "uid": "new"}
    return {"metadata": metadata, "status": {"phase": phase}}


def volume(name: str = "data", **reserved: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "tidewater-dev-training"},
        "spec": {"claimRef": {"namespace": "training", "name": name, **reserved}},
    }


@pytest.mark.parametrize(
    ("found", "reserved", "outcome"),
    [
        pytest.param(claim("Pending"), volume(uid="old"), Outcome.FIX, id="of-a-deleted-claim"),
        pytest.param(claim("Lost"), volume(uid="old"), Outcome.FIX, id="of-a-deleted-claim-that-was-bound"),
        pytest.param(claim("Pending"), volume(uid="new"), Outcome.FINE, id="its-own"),
        pytest.param(claim("Pending"), volume(), Outcome.FINE, id="of-any-claim-of-that-name"),
        pytest.param(claim("Pending"), volume("other", uid="old"), Outcome.FINE, id="of-another-claim"),
        pytest.param(claim("Pending"), {"metadata": {"name": "v"}, "spec": {}}, Outcome.FINE, id="not-reserved"),
        pytest.param(claim("Bound"), volume(uid="old"), Outcome.FINE, id="bound-to-another-volume"),
    ],
)
def test_a_claim_waits_for_ever_only_if_its_volume_is_reserved_for_a_deleted_claim(
    here: Surroundings, found: dict[str, Any], reserved: dict[str, Any], outcome: Outcome
) -> None:
    here.cluster.objects |= {"persistentvolumeclaims": [found], "persistentvolumes": [reserved]}
    assert claims(here.place).outcome is outcome


def test_the_finding_names_both_and_the_command(here: Surroundings) -> None:
    here.cluster.objects |= {"persistentvolumeclaims": [claim("Pending")], "persistentvolumes": [volume(uid="old")]}
    found = claims(here.place)
    assert found.text.startswith("claim training/data waits: volume tidewater-dev-training is still reserved")
    patch = """--type=json -p '[{"op": "remove", "path": "/spec/claimRef/uid"}]'"""
    assert found.remedy.endswith(f"`kubectl patch pv tidewater-dev-training {patch}`")


def test_volumes_are_read_only_if_a_claim_waits(here: Surroundings) -> None:
    assert claims(here.place).outcome is Outcome.SKIPPED
    here.cluster.objects["persistentvolumeclaims"] = [claim("Bound")]
    here.cluster.refused["persistentvolumes"] = forbidden("persistentvolumes")
    assert claims(here.place).outcome is Outcome.FINE
