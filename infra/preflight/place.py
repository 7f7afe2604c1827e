"""A stack stays where its first update put it: in its region, under its name, in its Kubernetes namespace.

    account = connect(wanted, place.keep(wanted))       # before the provider: a refused update leaves it as it is

Another region, cluster name or namespace would replace what holds the data, under the same resource names. Such an
update ends in the middle: two members of etcd use the same files, and a name in AWS is taken. When the setting is then
set back, Pulumi creates the old objects again, finds that they exist, and deletes them in the end, because the state
lists them as objects to delete.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pulumi

# See `lookup`: the program waits for the answer, since nothing may be registered before it.
from pulumi.runtime.sync_await import _sync_await

import settings


@dataclass(frozen=True)
class Place:
    """Where a stack is: the region, the stack's name, from which the cluster has its name, and the namespace."""

    region: str
    stack: str
    namespace: str


class KeptPlace(pulumi.ComponentResource):
    """The record of the place at the first update. Give it a name without a setting in it; delete it last."""

    recorded: pulumi.Output[Mapping[str, Any]]

    def __init__(self, name: str, place: Place, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("tidewater:infra:KeptPlace", name, None, opts)
        self.recorded = first_value(name, asdict(place), self)
        self.register_outputs({})


def first_value(name: str, value: Any, parent: pulumi.Resource) -> pulumi.Output[Any]:
    """Return the value at the stack's first update: it stays in the state, and a later one doesn't change it.

    https://www.pulumi.com/docs/iac/concepts/stash/
    """
    kept = pulumi.ResourceOptions(parent=parent, ignore_changes=["input"])
    return pulumi.Stash(name, input=value, opts=kept).output


def keep(wanted: settings.Settings) -> KeptPlace:
    """Record the stack's place, or compare it with the record.

    Raises:
        settings.ConfigurationError: an earlier update has recorded another place.
    """
    place = Place(wanted.region, wanted.stack, wanted.training.namespace)
    kept = KeptPlace("place", place)
    if found := mistakes(place, _sync_await(_known(kept.recorded))):
        raise settings.ConfigurationError(found)
    return kept


async def _known(recorded: pulumi.Output[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the record; nothing in a preview of the first update."""
    return await recorded.future() or {}


def mistakes(place: Place, recorded: Mapping[str, Any]) -> list[str]:
    """Return what the settings would move. A key that `recorded` lacks is not known, and so not compared."""
    where = Place(**{**asdict(place), **recorded})
    found = []
    if place.region != where.region:
        found.append(
            f"region = {place.region}: the stack is in {where.region}; set it back, or destroy the stack first "
            "(`pulumi destroy`), or make another stack for that region (`pulumi stack init`)"
        )
    if place.stack != where.stack:
        found.append(
            f"the stack's name {place.stack!r}: its cluster has its name from {where.stack!r}; name the stack so again "
            f"(`pulumi stack rename {where.stack}`), or destroy it first (`pulumi destroy`)"
        )
    if place.namespace != where.namespace:
        found.append(
            f"namespace = {place.namespace}: the stack's etcd, data and job are in {where.namespace}; set it back, or "
            "destroy the stack first (`pulumi destroy`)"
        )
    return found
