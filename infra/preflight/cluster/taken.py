"""Whether the names of the stack's objects are free on its cluster. Pure.

On a cluster of the stack's own, `pulumi up` takes over an object that has the name of one of the stack's: a killed one
may have made it. So it would take over a namespace that people have made, and delete it with the team. On a cluster of
others such an object ends the update in the middle. A name may be taken at any update: that of a team that is added, or
of Prometheus that is turned on.

Namespaces and definitions hold what people make, and a job trains with what is in it. The stack's other objects without
a namespace have names that begin with its own, with that of its namespace, or with `tidewater`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import settings
from infra.preflight.cluster.objects import KARPENTER, OWN_LABELS, Objects

DEFINITION, NAMESPACE, JOB = "CustomResourceDefinition", "Namespace", "ElasticJob"


@dataclass(frozen=True)
class Inside:
    """What is on the cluster, the stack's own or an existing one, and who is let in.

    Attributes:
        unread: why `objects` could not be read; empty if they could.
        entries: the groups of Kubernetes in the access entries of teams' people, administrators and given roles of
            nodes, by their ARNs.
        foreign: those of them with an entry that the stack has not made, by its tags.
    """

    objects: Objects = field(default_factory=Objects)
    unread: str = ""
    entries: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    foreign: frozenset[str] = frozenset()


def known(stack: settings.Settings, inside: Inside | None) -> settings.Settings:
    """Return the settings with what the cluster says of priorities."""
    default = inside.objects.default_priority if inside else ""
    return replace(stack, cluster=replace(stack.cluster, default_priority=default))


def mistakes(stack: settings.Settings, inside: Inside | None, *, new: bool) -> list[str]:
    """Return which names are taken.

    Args:
        inside: None while there is no cluster.
        new: whether the stack has made nothing yet, so that even an object of a stack is not this one's.
    """
    if inside is None:
        return []
    if inside.unread and stack.teams and not stack.cluster.existing:
        return [
            f"teams: whether people have namespaces of their names on the cluster {stack.cluster_name} could not be "
            f"checked: {inside.unread} Run this where the API is reached and lets you in; `python -m scripts.address` "
            "opens it for the addresses of publicAccessCidrs"
        ]
    taken = {each for each, own in inside.objects.found.items() if new or not own}
    name, training = stack.cluster_name, stack.training.namespace
    where = f"clusterName = {name}:" if stack.cluster.existing else f"the cluster {name}"
    other = ", or name another cluster" if new else ""

    def labelled(kind: str, each: str) -> str:
        wanted = " ".join(f"{key}={value}" for key, value in OWN_LABELS.items())
        return "" if new else f". If the stack has made it: kubectl label {kind.lower()} {each} {wanted}"

    found = [
        f"{where} has the {kind} {each} already, of another stack for example, and a destroy would delete it; remove "
        f"it{other}{labelled(kind, each)}"
        for kind, each in stack.names_on_cluster
        if (kind, each) in taken
    ]
    if (NAMESPACE, training) in taken:
        remedy = "choose another name" if new else "remove it"
        found.append(
            f"namespace = {training}: the cluster {name} has one of this name already, and a destroy would delete it; "
            f"{remedy}{labelled(NAMESPACE, training)}"
        )
    found += [
        f"teams = {team.name}: the cluster {name} has a namespace of this name already, and it would be deleted with "
        f"the team; give the team another name{labelled(NAMESPACE, team.name)}"
        for team in stack.teams
        if (NAMESPACE, team.name) in taken
    ]
    if (JOB, f"{training}/{stack.training.job}") in taken:
        found.append(
            f"jobName = {stack.training.job}: the namespace {training} has an ElasticJob of this name already, which "
            "would be changed into the stack's; choose another name, or delete that job"
        )
    karpenter = [each for each in KARPENTER if (DEFINITION, each) in taken]
    if stack.surge and karpenter:
        found.append(
            f"surgeNodes = karpenter: the cluster {name} has a Karpenter already, and there can be only one; set it to "
            f"nodegroup{labelled(DEFINITION, ' '.join(karpenter))}"
        )
    return found


def warnings(stack: settings.Settings, inside: Inside | None) -> list[str]:
    """Return why names could not be checked on the stack's own cluster.

    Then `pulumi up` makes no object either, unless it first lets in the one who deploys: so it is no mistake. With
    teams, or on a cluster of others, it is one: people make namespaces there.
    """
    if inside is None or not inside.unread or stack.cluster.existing or stack.teams:
        return []
    return [
        f"the cluster {stack.cluster_name}: whether the names of the stack's namespaces are free could not be checked: "
        f"{inside.unread}"
    ]
