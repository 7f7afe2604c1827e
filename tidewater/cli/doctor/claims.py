"""Checks of PersistentVolumeClaims that wait for a volume which was reserved for them.

A volume that is kept stays reserved for the uid of its deleted claim. A new claim of that name waits for ever.
https://kubernetes.io/docs/concepts/storage/persistent-volumes/#retain
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidewater.cli.doctor.cluster import VOLUMES
from tidewater.cli.doctor.jobs import Finding, summed
from tidewater.cli.doctor.place import Place
from tidewater.cli.doctor.results import Outcome, Result, skipped
from tidewater.cli.show import plural
from tidewater.kube.cluster import Object
from tidewater.kube.kinds import CLAIMS


def claims(place: Place) -> Result:
    """Check that no claim waits for a volume that is reserved for a deleted claim of its name."""
    found = place.everywhere(CLAIMS)
    if not found:
        return skipped("there is no claim for a volume")
    waiting = [each for each in found if (each.get("status") or {}).get("phase") != "Bound"]
    wrong = list(_findings(waiting, place.cluster.list(VOLUMES).items)) if waiting else []
    return summed(wrong, f"{plural(len(found), 'claim')}, none waits for a volume of a deleted claim")


def _findings(waiting: Sequence[Object], volumes: Sequence[Object]) -> Iterator[Finding]:
    uids = {(each["metadata"]["namespace"], each["metadata"]["name"]): each["metadata"]["uid"] for each in waiting}
    for volume in volumes:
        name, reserved = volume["metadata"]["name"], volume["spec"].get("claimRef") or {}
        claim = (reserved.get("namespace"), reserved.get("name"))
        if claim in uids and reserved.get("uid", uids[claim]) != uids[claim]:
            yield Finding(
                Outcome.FIX,
                f"claim {claim[0]}/{claim[1]} waits: volume {name} is still reserved for the deleted claim of that "
                "name",
                "Release the volume; its data stays: "
                f'`kubectl patch pv {name} --type=json -p \'[{{"op": "remove", "path": "/spec/claimRef/uid"}}]\'`',
            )
