"""What depends on what among a chart's objects, and in which order they are registered.

    for obj, dependencies in ordered(objects): ...

A custom resource depends on its definition, an object on its namespace, and on what two annotations name. The rules and
the order are those of kubernetes-sigs/cli-utils (`pkg/object/graph`, `pkg/ordering`), which the official plug-in uses:
dependencies are part of a resource's state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import yaml

from localcloud.standins.kubernetes.cluster.kinds import group_of
from localcloud.standins.kubernetes.cluster.scopes import defined_kinds
from localcloud.standins.kubernetes.metadata import Object, annotation, name, namespace
from localcloud.standins.serve import PluginError

DEPENDS_ON: Final = "config.kubernetes.io/depends-on"
APPLY_TIME_MUTATION: Final = "config.kubernetes.io/apply-time-mutation"
_FIRST: Final = (
    ("", "Namespace"),
    ("", "ResourceQuota"),
    ("storage.k8s.io", "StorageClass"),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
    ("", "ServiceAccount"),
    ("extensions", "PodSecurityPolicy"),
    ("policy", "PodSecurityPolicy"),
    ("rbac.authorization.k8s.io", "Role"),
    ("rbac.authorization.k8s.io", "ClusterRole"),
    ("rbac.authorization.k8s.io", "RoleBinding"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
    ("", "ConfigMap"),
    ("", "Secret"),
    ("", "Service"),
    ("", "LimitRange"),
    ("scheduling.k8s.io", "PriorityClass"),
    ("extensions", "Deployment"),
    ("apps", "Deployment"),
    ("apps", "StatefulSet"),
    ("batch", "CronJob"),
    ("policy", "PodDisruptionBudget"),
)
_RANK: Final = {kind: index - len(_FIRST) for index, kind in enumerate(_FIRST)} | {
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): 1
}


class Identity(NamedTuple):
    """Which object it is, whatever the version of its API."""

    group: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        where = f"namespaces/{self.namespace}/" if self.namespace else ""
        return f"{self.group}/{where}{self.kind}/{self.name}"


def identity(obj: Mapping[str, Any]) -> Identity:
    """Return which object it is."""
    return Identity(group_of(str(obj.get("apiVersion"))), str(obj.get("kind")), namespace(obj), name(obj))


def ordered(objects: Iterable[Object]) -> list[tuple[Object, tuple[Identity, ...]]]:
    """Return the objects with what they depend on, each after its dependencies; of two with one identity the last.

    Raises:
        PluginError: An annotation can't be read or names no object of the chart, or objects depend on each other.
    """
    found = {identity(obj): obj for obj in objects}
    edges = {each: _dependencies(obj, found) for each, obj in found.items()}
    result: list[tuple[Object, tuple[Identity, ...]]] = []
    left = dict(edges)
    while left:
        ready = sorted((each for each, others in left.items() if not left.keys() & others), key=_sort_key)
        if not ready:
            names = ", ".join(str(each) for each in sorted(left, key=_sort_key))
            raise PluginError(f"the chart's objects depend on each other: {names}")
        for each in ready:
            result.append((found[each], edges[each]))
            del left[each]
    return result


def _sort_key(each: Identity) -> tuple[Any, ...]:
    return (_RANK.get((each.group, each.kind), 0), *each)


def _dependencies(obj: Object, found: Mapping[Identity, Object]) -> tuple[Identity, ...]:
    """Return an object's dependencies, each once, in the order of the rules."""
    kind = identity(obj)[:2]
    definitions = [each for each, other in found.items() if kind in defined_kinds([other])]
    spaces = [each for each in found if each[:2] == ("", "Namespace") and each.name == namespace(obj) != ""]
    explicit = [*_depends_on(obj), *_mutation_sources(obj)]
    for each in explicit:
        if each not in found:
            raise PluginError(f"{identity(obj)}: its annotation names {each}, which is not an object of the chart")
    return tuple(dict.fromkeys([*definitions, *spaces, *explicit]))


def _depends_on(obj: Object) -> list[Identity]:
    text = annotation(obj, DEPENDS_ON)
    return [_reference(part.strip(), obj) for part in text.split(",")] if text else []


def _reference(text: str, obj: Object) -> Identity:
    """Read GROUP/KIND/NAME or GROUP/namespaces/NAMESPACE/KIND/NAME."""
    fields = text.split("/")
    if len(fields) == 3:
        return Identity(fields[0], fields[1], "", fields[2])
    if len(fields) == 5 and fields[1] == "namespaces":
        return Identity(fields[0], fields[3], fields[2], fields[4])
    raise PluginError(
        f"{identity(obj)}: the annotation {DEPENDS_ON} has {text!r}: expected GROUP/KIND/NAME or "
        "GROUP/namespaces/NAMESPACE/KIND/NAME"
    )


def _mutation_sources(obj: Object) -> list[Identity]:
    text = annotation(obj, APPLY_TIME_MUTATION)
    if not text:
        return []
    try:
        sources = [dict(item["sourceRef"]) for item in yaml.safe_load(text)]
    except (yaml.YAMLError, TypeError, KeyError, ValueError) as error:
        raise PluginError(f"{identity(obj)}: the annotation {APPLY_TIME_MUTATION} can't be read: {error}") from error
    return [
        Identity(
            str(source.get("group") or group_of(str(source.get("apiVersion") or ""))),
            str(source.get("kind")),
            str(source.get("namespace") or ""),
            str(source.get("name")),
        )
        for source in sources
    ]
