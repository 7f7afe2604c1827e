"""The component `helm.v4.Chart`: registers itself, and each object that helm renders as a child.

    made = await construct(monitor, request, host)

Names, parents, dependencies and outputs are those of the official plug-in (`provider/pkg/provider/helm/v4/chart.go` and
`yaml/v2/yaml.go`), so that a stack moves from one to the other. Two consequences: the component has no inputs in the
state, and the children have no aliases.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.runtime.proto import provider_pb2

from localcloud.standins.components import Constructed, Options, component, inputs_of
from localcloud.standins.kubernetes.helm.arguments import ChartArguments, read
from localcloud.standins.kubernetes.helm.command import Rendered
from localcloud.standins.kubernetes.helm.manifests import normalized, parsed
from localcloud.standins.kubernetes.helm.order import Identity, identity, ordered
from localcloud.standins.kubernetes.metadata import Object, annotation, object_id
from localcloud.standins.monitor import Monitor, Registration, Resource
from localcloud.standins.serve import PluginError, package_version
from localcloud.standins.values import has_unknown, to_plain, wrap

TYPE: Final = "kubernetes:helm.sh/v4:Chart"
RESOURCE_POLICY: Final = "helm.sh/resource-policy"
_SECRET_FIELDS: Final = ("data", "stringData")


class Host(Protocol):
    """What the provider knows and does for a chart."""

    def render(self, chart: ChartArguments) -> Rendered:
        """Run helm for the provider's cluster."""

    def default_namespace(self) -> str:
        """Return the namespace of objects that name none."""

    def namespaced(self, obj: Object, others: Sequence[Object]) -> bool:
        """Return whether an object lives in a namespace."""

    def warn(self, urn: str, message: str) -> None:
        """Show a warning next to a resource."""


async def construct(monitor: Monitor, request: provider_pb2.ConstructRequest, host: Host) -> Constructed:
    """Register a chart and its objects.

    Raises:
        PluginError: The type isn't covered, or the chart can't be rendered.
        InputPropertyError: An input is wrong.
        ClusterError: The cluster can't be asked what it serves.
    """
    if request.type != TYPE:
        raise PluginError(f'resource type "{request.type}" is not covered by the stand-in of the kubernetes provider')
    inputs = inputs_of(request.inputs, request.inputDependencies)
    registered = await monitor.register(component(request, request.parent))
    if has_unknown(to_plain(inputs)):
        host.warn(registered.urn, "Input properties have unknown values. Preview is incomplete.")
        return Constructed(registered.urn, {"resources": PropertyValue.computed()})
    chart = read(inputs, request.name)
    objects = await asyncio.to_thread(_objects, chart, registered.urn, host)
    children = _Children(monitor, host, registered.urn, Options.of(request), chart)
    made = await children.register(objects)
    return Constructed(registered.urn, {"resources": PropertyValue([resource.reference for resource in made])})


def _objects(chart: ChartArguments, urn: str, host: Host) -> list[Object]:
    rendered = host.render(chart)
    if rendered.deprecated:
        host.warn(urn, f"Using a deprecated Helm chart ({chart.chart})")
    return normalized(parsed(rendered.manifest), chart.namespace or host.default_namespace(), host.namespaced)


@dataclass(frozen=True)
class _Children:
    """Registers a chart's objects, several at once, each after what it depends on."""

    monitor: Monitor
    host: Host
    parent: str
    options: Options
    chart: ChartArguments

    async def register(self, objects: Sequence[Object]) -> list[Resource]:
        """Return the resources in the order of `ordered`. All have ended before the error of one is raised."""
        tasks: dict[Identity, asyncio.Task[Resource]] = {}
        for obj, dependencies in ordered(objects):
            awaited = [tasks[each] for each in dependencies]
            tasks[identity(obj)] = asyncio.create_task(self._register(obj, awaited))
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        return [task.result() for task in tasks.values()]

    async def _register(self, obj: Object, awaited: Sequence[asyncio.Task[Resource]]) -> Resource:
        depends_on = frozenset([(await task).urn for task in awaited])
        options = self.options
        return await self.monitor.register(
            Registration(
                type=_token(obj),
                name=f"{self.chart.prefix}:{object_id(obj)}",
                parent=self.parent,
                custom=True,
                inputs=_inputs(obj),
                depends_on=depends_on,
                provider=options.providers.get("kubernetes", ""),
                version=package_version("pulumi-kubernetes"),
                protect=options.protect,
                retain_on_delete=self._kept(obj) or options.retain_on_delete,
                deleted_with=options.deleted_with,
            )
        )

    def _kept(self, obj: Mapping[str, Any]) -> bool | None:
        """Return True for an object that the chart wants to outlive the release."""
        policy = annotation(obj, RESOURCE_POLICY)
        if policy and policy != "keep":
            self.host.warn(self.parent, f'Unsupported Helm resource policy "{policy}"')
        return True if policy == "keep" else None


def _token(obj: Mapping[str, Any]) -> str:
    api_version = str(obj["apiVersion"])
    return f"kubernetes:{api_version if '/' in api_version else f'core/{api_version}'}:{obj['kind']}"


def _inputs(obj: Mapping[str, Any]) -> dict[str, PropertyValue]:
    secret = _SECRET_FIELDS if (obj["apiVersion"], obj["kind"]) == ("v1", "Secret") else ()
    return {key: wrap(value).with_secret(key in secret) for key, value in obj.items()}
