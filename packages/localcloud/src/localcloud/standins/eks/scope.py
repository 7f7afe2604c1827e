"""One component that is being expanded: the parent and the providers of its children, and the options they inherit.

scope = await Scope.open(monitor, request)
role = await scope.aws("iam/role:Role", "c-eksRole-role", record({...}))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pulumi.provider.experimental.property_value import PropertyValue, ResourceReference

from localcloud.standins.algebra import depending, is_unknown
from localcloud.standins.components import Options
from localcloud.standins.monitor import Monitor, Registration, Resource
from localcloud.standins.serve import PluginError, package_version
from localcloud.standins.values import has_unknown, plain


@dataclass(frozen=True)
class Scope:
    """The scope in which the children of one component are registered."""

    monitor: Monitor
    urn: str
    options: Options
    preview: bool

    async def aws(
        self,
        token: str,
        name: str,
        inputs: PropertyValue,
        *,
        depends_on: frozenset[str] = frozenset(),
        ignore_changes: tuple[str, ...] = (),
        parent: str | None = None,
    ) -> Resource:
        """Register an AWS resource, `token` without the package (`eks/cluster:Cluster`)."""
        registration = Registration(
            type=f"aws:{token}",
            name=name,
            parent=parent or self.urn,
            custom=True,
            inputs=members(inputs),
            depends_on=depends_on,
            provider=self._provider("aws"),
            version=package_version("pulumi-aws"),
            ignore_changes=ignore_changes,
            **self._inherited(),
        )
        return await self.monitor.register(registration)

    async def provider(self, package: str, name: str, inputs: PropertyValue) -> Resource:
        """Register a provider of `package` as a child."""
        registration = Registration(
            type=f"pulumi:providers:{package}",
            name=name,
            parent=self.urn,
            custom=True,
            inputs=members(inputs),
            version=package_version(f"pulumi-{package}"),
            **self._inherited(),
        )
        return await self.monitor.register(registration)

    async def component(
        self,
        token: str,
        name: str,
        *,
        depends_on: frozenset[str] = frozenset(),
        providers: Mapping[str, str] | None = None,
    ) -> Scope:
        """Register a component as a child, `token` without the package (`ServiceRole`), and opens it."""
        inner = replace(
            self.options, providers={**self.options.providers, **(providers or {})}, secret_outputs=frozenset()
        )
        registration = Registration(
            type=f"eks:index:{token}",
            name=name,
            parent=self.urn,
            custom=False,
            depends_on=depends_on,
            providers=inner.providers,
            **self._inherited(),
        )
        resource = await self.monitor.register(registration)
        return replace(self, urn=resource.urn, options=inner)

    async def close(self, outputs: Mapping[str, PropertyValue]) -> dict[str, PropertyValue]:
        """Set the component's outputs; nothing may be registered in it afterwards.

        Returns:
            The outputs, those marked secret that are to be secret.
        """
        marked = {
            key: value.with_secret(value.is_secret or key in self.options.secret_outputs)
            for key, value in outputs.items()
        }
        await self.monitor.register_outputs(self.urn, marked)
        return marked

    async def invoke(self, token: str, arguments: PropertyValue) -> PropertyValue:
        """Call a function of the AWS provider; unknown arguments give an unknown result."""
        if has_unknown(plain(arguments)):
            return depending(PropertyValue.computed(), arguments.all_dependencies())
        answer = await self.monitor.invoke(
            f"aws:{token}", members(arguments), self._provider("aws"), package_version("pulumi-aws")
        )
        return depending(PropertyValue(answer), arguments.all_dependencies())

    async def resource(self, value: PropertyValue, argument: str) -> Resource:
        """The resource that the input `argument` refers to; one that isn't known yet has unknown outputs.

        Raises:
            PluginError: the input is no reference to a resource.
        """
        origins = value.all_dependencies()
        if is_unknown(value):
            return Resource("", PropertyValue.computed(), passed_through=frozenset(origins))
        if not isinstance(value.value, ResourceReference):
            raise PluginError(f"{argument}: must be a resource, not {plain(value)!r}")
        resource = await self.monitor.read_back(value.value.urn)
        return replace(resource, package_version=value.value.package_version, passed_through=frozenset(origins))

    def _provider(self, package: str) -> str:
        return self.options.providers.get(package, "")

    def _inherited(self) -> dict[str, Any]:
        options = self.options
        return {
            "protect": options.protect,
            "retain_on_delete": options.retain_on_delete,
            "deleted_with": options.deleted_with,
        }


def members(value: PropertyValue) -> dict[str, PropertyValue]:
    """The members of a map, each depending on what the map depends on."""
    inner = value.value
    if not isinstance(inner, Mapping):
        raise PluginError(f"expected a map, not {plain(value)!r}")
    return {key: depending(item, value.dependencies) for key, item in inner.items()}


_UNKNOWN_ID = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""The protocol's text for an id that isn't known yet."""


def provider_reference(provider: Resource) -> str:
    """Return the reference to a provider, as a resource gives it."""
    known = provider.id.value
    return f"{provider.urn}::{known if isinstance(known, str) else _UNKNOWN_ID}"
