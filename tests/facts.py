"""What AWS says of instance types and zones. moto has copies of AWS's own answers.

facts.instance_type("g5.xlarge").gpus        # 1
facts.offered("us-west-2", "g5.*")           # pairs of a type and a zone that has it
facts.parsed(config)                         # settings with the sizes of their types, as after the preflight
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES

import settings
from settings.hardware import InstanceType


@functools.cache
def instance_type(name: str) -> InstanceType:
    """Return the facts about a type."""
    found = INSTANCE_TYPES[name]
    gpus = found.get("GpuInfo", {}).get("Gpus", [])
    return InstanceType(
        name=name,
        vcpus=found["VCpuInfo"]["DefaultVCpus"],
        memory_mib=found["MemoryInfo"]["SizeInMiB"],
        gpus=sum(gpu["Count"] for gpu in gpus),
        gpu=gpus[0]["Name"] if gpus else "",
        efa=found["NetworkInfo"].get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
        network_cards=found["NetworkInfo"]["MaximumNetworkCards"],
        has_instance_store=found["InstanceStorageSupported"],
        interface_addresses=found["NetworkInfo"]["Ipv4AddressesPerInterface"],
        architectures=tuple(found["ProcessorInfo"]["SupportedArchitectures"]),
        usage_classes=tuple(found["SupportedUsageClasses"]),
    )


def offered(region: str, *patterns: str) -> list[tuple[str, str]]:
    """Return pairs of a type and a zone that has it."""
    return [
        (each["InstanceType"], each["Location"])
        for each in INSTANCE_TYPE_OFFERINGS["availability-zone"][region]
        if any(fnmatchcase(each["InstanceType"], pattern) for pattern in patterns)
    ]


def parsed(config: Mapping[str, Any], stack: str = "dev") -> settings.Settings:
    """Return the settings for a config, as the preflight returns them."""
    wanted = settings.parse(config, stack=stack)
    names = {name for types in wanted.instance_types.values() for name in types}
    return wanted.with_hardware({name: instance_type(name) for name in names})
