"""A monitor of the engine that makes whatever a chart registers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from localcloud.standins.algebra import NULL
from localcloud.standins.monitor import Registration, Resource
from localcloud.standins.serve import PluginError
from pulumi.provider.experimental.property_value import PropertyValue


@dataclass
class FakeMonitor:
    """Remembers registrations, and which of them were done when another began."""

    preview: bool = False
    registrations: list[Registration] = field(default_factory=list)
    done: set[str] = field(default_factory=set)
    early: list[str] = field(default_factory=list)
    refuses: str = ""
    """The kind that can't be made."""

    async def register(self, registration: Registration) -> Resource:
        self.registrations.append(registration)
        self.early += registration.depends_on - self.done
        if self.refuses and registration.type.endswith(f":{self.refuses}"):
            raise PluginError(f"no {self.refuses}")
        for _ in range(20):  # others begin, and may fail, meanwhile
            await asyncio.sleep(0)
        urn = f"urn:pulumi:s::p::{registration.type}::{registration.name}"
        self.done.add(urn)
        known = PropertyValue.computed() if self.preview else PropertyValue(registration.name)
        return Resource(urn, known if registration.custom else NULL)

    async def register_outputs(self, urn: str, outputs: Mapping[str, PropertyValue]) -> None:
        raise AssertionError("the official plug-in registers no outputs")

    async def invoke(self, token: str, arguments: Mapping[str, PropertyValue], provider: str, version: str) -> Any:
        raise AssertionError("a chart invokes no functions")

    async def read_back(self, urn: str) -> Resource:
        raise AssertionError("a chart reads nothing back")
