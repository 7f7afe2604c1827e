"""The chart and its children as they are registered, with an engine's monitor and a helm that keep state."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from localcloud.standins.components import Constructed
from localcloud.standins.kubernetes.cluster.scopes import Scopes
from localcloud.standins.kubernetes.helm.arguments import ChartArguments
from localcloud.standins.kubernetes.helm.chart import TYPE, construct
from localcloud.standins.kubernetes.helm.command import Rendered
from localcloud.standins.kubernetes.metadata import Object
from localcloud.standins.monitor import Registration, register_request
from localcloud.standins.serve import PluginError, package_version
from localcloud.standins.values import UNKNOWN, repair_property_value, to_plain, wrap
from pulumi.provider.experimental.property_value import Computed, PropertyValue, ResourceReference
from pulumi.runtime.proto import provider_pb2

from packages.localcloud.tests.standins.kubernetes.fake_monitor import FakeMonitor

repair_property_value()
PROVIDER = "urn:pulumi:s::p::pulumi:providers:kubernetes::cluster::1"
MANIFEST = """
apiVersion: example.test/v1
kind: Toy
metadata: {name: toy}
spec: {size: 3}
---
apiVersion: v1
kind: Secret
metadata: {name: key, annotations: {helm.sh/resource-policy: keep}}
stringData: {k: hunter2}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: toys.example.test}
spec: {group: example.test, scope: Cluster, names: {kind: Toy}}
"""


@dataclass
class FakeHost:
    """A helm that renders one manifest."""

    manifest: str = MANIFEST
    deprecated: bool = False
    warnings: list[str] = field(default_factory=list)
    rendered: list[ChartArguments] = field(default_factory=list)

    def render(self, chart: ChartArguments) -> Rendered:
        self.rendered.append(chart)
        return Rendered(self.manifest, self.deprecated)

    def default_namespace(self) -> str:
        return "home"

    def namespaced(self, obj: Object, others: Sequence[Object]) -> bool:
        known = Scopes().namespaced(obj, others)
        assert known is not None
        return known

    def warn(self, urn: str, message: str) -> None:
        self.warnings.append(message)


def made(
    monitor: FakeMonitor, host: FakeHost | None = None, inputs: Mapping[str, Any] | None = None, **options: Any
) -> Constructed:
    request = provider_pb2.ConstructRequest(
        **{"type": TYPE, "name": "demo", "parent": "urn:parent", "providers": {"kubernetes": PROVIDER}, **options},
        inputs=PropertyValue.marshal_map({key: wrap(value) for key, value in {"chart": "c", **(inputs or {})}.items()}),
        dryRun=monitor.preview,
    )
    return asyncio.run(construct(monitor, request, host or FakeHost()))


def references(outcome: Constructed) -> list[Any]:
    """Return the references in the output `resources`."""
    values: Any = outcome.outputs["resources"].value
    return [each.value for each in values]


def children(monitor: FakeMonitor) -> dict[str, Registration]:
    return {each.name: each for each in monitor.registrations if each.custom}


def test_the_component_has_the_request_s_options_and_no_inputs() -> None:
    monitor = FakeMonitor()
    made(monitor, dependencies=["urn:before"])
    chart = monitor.registrations[0]
    assert (chart.type, chart.name, chart.parent, chart.custom) == (TYPE, "demo", "urn:parent", False)
    assert (chart.inputs, chart.depends_on) == ({}, frozenset({"urn:before"}))


def test_each_object_is_a_child_with_the_official_name_and_type() -> None:
    monitor = FakeMonitor()
    urn = made(monitor).urn
    assert [(each.type, each.name) for each in monitor.registrations[1:]] == [
        ("kubernetes:apiextensions.k8s.io/v1:CustomResourceDefinition", "demo:toys.example.test"),
        ("kubernetes:rbac.authorization.k8s.io/v1:ClusterRole", "demo:reader"),
        ("kubernetes:core/v1:Secret", "demo:home/key"),
        ("kubernetes:example.test/v1:Toy", "demo:toy"),
    ]
    assert {(each.parent, each.provider, each.version, each.aliases) for each in children(monitor).values()} == {
        (urn, PROVIDER, package_version("pulumi-kubernetes"), ())
    }
    assert to_plain(children(monitor)["demo:toy"].inputs) == {
        "apiVersion": "example.test/v1",
        "kind": "Toy",
        "metadata": {"name": "toy"},
        "spec": {"size": 3},
    }


def test_a_custom_resource_is_registered_when_its_definition_is_there() -> None:
    monitor = FakeMonitor()
    made(monitor)
    definition = "urn:pulumi:s::p::kubernetes:apiextensions.k8s.io/v1:CustomResourceDefinition::demo:toys.example.test"
    assert children(monitor)["demo:toy"].depends_on == frozenset({definition})
    assert monitor.early == []


def test_an_object_that_fails_stops_only_those_that_depend_on_it() -> None:
    monitor = FakeMonitor(refuses="CustomResourceDefinition")
    with pytest.raises(PluginError, match="no CustomResourceDefinition"):
        made(monitor)
    assert set(children(monitor)) == {"demo:toys.example.test", "demo:reader", "demo:home/key"}
    assert {urn.rpartition("::")[2] for urn in monitor.done} == {"demo", "demo:reader", "demo:home/key"}


def test_the_namespace_is_part_of_the_name() -> None:
    monitor = FakeMonitor()
    made(monitor, inputs={"namespace": "n"})
    assert "demo:n/key" in children(monitor)


def test_the_data_of_a_secret_is_secret() -> None:
    monitor = FakeMonitor()
    made(monitor)
    secret = children(monitor)["demo:home/key"].inputs
    assert {key for key, value in secret.items() if value.is_secret} == {"stringData"}


def test_what_the_chart_wants_to_keep_is_kept() -> None:
    monitor = FakeMonitor()
    made(monitor)
    kept = {name: each.retain_on_delete for name, each in children(monitor).items()}
    assert kept == {"demo:home/key": True, "demo:toy": None, "demo:reader": None, "demo:toys.example.test": None}


def test_an_unknown_policy_is_a_warning() -> None:
    host = FakeHost(MANIFEST.replace("policy: keep", "policy: burn"))
    made(FakeMonitor(), host)
    assert host.warnings == ['Unsupported Helm resource policy "burn"']


def test_the_output_refers_to_every_child_and_depends_on_it() -> None:
    monitor = FakeMonitor()
    outcome = made(monitor)
    found = references(outcome)
    assert all(isinstance(each, ResourceReference) for each in found)
    registered = [f"urn:pulumi:s::p::{each.type}::{each.name}" for each in monitor.registrations[1:]]
    assert [each.urn for each in found] == registered
    assert set(outcome.outputs["resources"].all_dependencies()) == set(registered)


def test_with_unknown_inputs_a_preview_is_incomplete_and_says_so() -> None:
    monitor, host = FakeMonitor(preview=True), FakeHost()
    outputs = made(monitor, host, {"values": {"a": {"b": UNKNOWN}}}).outputs
    assert isinstance(outputs["resources"].value, Computed)
    assert host.warnings == ["Input properties have unknown values. Preview is incomplete."]
    assert (host.rendered, children(monitor)) == ([], {})


def test_in_a_preview_the_ids_are_unknown() -> None:
    found = references(made(FakeMonitor(preview=True)))
    assert all(isinstance(each.resource_id.value, Computed) for each in found)


def test_a_deprecated_chart_is_a_warning() -> None:
    host = FakeHost(deprecated=True)
    made(FakeMonitor(), host)
    assert host.warnings == ["Using a deprecated Helm chart (c)"]


def test_a_chart_without_objects_has_none() -> None:
    assert references(made(FakeMonitor(), FakeHost(""))) == []


def test_without_a_provider_the_children_have_the_default_one_of_the_installed_sdk() -> None:
    monitor = FakeMonitor()
    made(monitor, providers={})
    assert register_request(children(monitor)["demo:toy"]).version == package_version("pulumi-kubernetes")


def test_the_options_of_the_component_hold_for_the_children() -> None:
    monitor = FakeMonitor()
    made(monitor, protect=True, retainOnDelete=False, deletedWith="urn:cluster")
    toy = children(monitor)["demo:toy"]
    assert (toy.protect, toy.retain_on_delete, toy.deleted_with) == (True, False, "urn:cluster")


def test_other_components_are_refused_by_name() -> None:
    with pytest.raises(PluginError, match=r"kubernetes:yaml/v2:ConfigGroup.* is not covered"):
        made(FakeMonitor(), type="kubernetes:yaml/v2:ConfigGroup")
