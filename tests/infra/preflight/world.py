"""A region with AWS's own zones, offerings and instance types, and an account with the quotas of a test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import settings
from infra.preflight import quotas
from infra.preflight.login import Login
from infra.preflight.region import Region
from tests import facts, graph

ENOUGH = 10_000.0


def stack(**changes: Any) -> settings.Settings:
    """Return the settings of a stack that sets only `changes`, before anybody asked AWS."""
    return settings.parse({**graph.defaults(), **changes}, stack="dev")


def region(wanted: settings.Settings, limits: Mapping[str, float] | None = None) -> Region:
    """Return what AWS says of the stack's region; quotas that are not in `limits` are enough."""
    names = {name for types in wanted.instance_types.values() for name in types}
    offered = frozenset(facts.offered(wanted.region, *(f"{name.partition('.')[0]}.*" for name in names)))
    there = {name for name, _ in offered}
    return Region(
        name=wanted.region,
        zones=tuple(f"{wanted.region}{letter}" for letter in "abcd"),
        offered=offered,
        types={name: facts.instance_type(name) for name in names & there},
        login=Login(graph.ACCOUNT, aws=graph.ACCOUNT),
        quotas=dict.fromkeys(quotas.codes(wanted), ENOUGH) | dict(limits or {}),
        exists=True,
    )
