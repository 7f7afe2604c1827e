"""The examples of stacks on AWS, with what one machine needs changed in them.

config("Pulumi.aws.yaml.example")     # {"tidewater:region": "us-west-2", …}
"""

from __future__ import annotations

from typing import Any

import yaml

from tests.e2e.checkout import ROOT

ON_ONE_MACHINE = (
    "publicAccessCidrs",
    "image",
    "fetchImage",
    "etcdImage",
    "controllerImage",
    "devicePluginImage",
    "karpenterCharts",
    "karpenterImage",
)
"""Keys in which an example for AWS can't run on one machine, which has these addresses and images only."""


def config(file: str) -> dict[str, Any]:
    """Return the keys of an example for AWS, with those of the one-machine cloud that it needs here."""
    local = _keys("Pulumi.local.yaml")
    return {**_keys(file), **{key: local[key] for key in (f"tidewater:{name}" for name in ON_ONE_MACHINE)}}


def _keys(file: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / file).read_text())["config"]
    return found
