"""The command: find the resources that the state may lack, and take over or remove what is in their places."""

from __future__ import annotations

import argparse
import enum
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.adopt.kinds import KINDS, Kind, Place, Resource
from scripts.session import Session, UpError, aws_options

FAILED = ("FAILED", "CREATE_FAILED")
GONE = ("NotFound", "NoSuch", "InvalidPlacementGroup.Unknown")
"""What the codes of AWS's errors have in them that say that a thing, or what it would be in, doesn't exist."""
AUTONAMED = "pulumi.com/autonamed"
"""The Kubernetes plug-in's annotation of an object that has no name in the program."""
GROUP = "aws:eks/nodeGroup:NodeGroup"
"""A second one costs much, and AWS makes it without an error when `pulumi up` is run again."""


class Action(enum.Enum):
    """What to do about a resource in AWS that the state lacks."""

    ADOPT = "taken over"
    REMOVE = "removed"
    LEAVE = "left alone, since the state has another one in its stead; delete it in AWS"


def decide(status: str, has_status: bool, recorded: bool) -> Action:
    """Return what to do.

    Args:
        status: EKS's word for the resource; empty for kinds without a status.
        has_status: whether its kind has one: only what can be waited for is removed.
        recorded: whether the state has another one in its stead.
    """
    if not has_status:
        return Action.LEAVE if recorded else Action.ADOPT
    return Action.REMOVE if recorded or status in FAILED else Action.ADOPT


@dataclass(frozen=True)
class Lacking:
    """Something in AWS that the state lacks: what it is in Pulumi, its place, and what AWS's listing calls it."""

    resource: Resource
    kind: Kind
    place: Place
    found: str
    options: Sequence[str]
    """Those of the AWS CLI for the region and the profile."""

    def __str__(self) -> str:
        """Return what people call it."""
        return f"{self.kind.noun} {self.place.id(self.found)}"


def main() -> int:
    """Take over what there is of the selected stack, or of the named one; return the exit status."""
    about = "take over what a killed `pulumi up` was making in AWS, or one whose answers were lost"
    parser = argparse.ArgumentParser(prog="python -m scripts.adopt", description=about)
    parser.add_argument("-s", "--stack", help="the stack; without it, the selected one")
    given = parser.parse_args()
    try:
        adopt(Session(Path(), os.environ), ["--stack", given.stack] if given.stack else [], unanswered=True)
    except UpError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def adopt(session: Session, stack: Sequence[str], *, unanswered: bool = False, objects: bool = False) -> None:
    """Take over what AWS has in the places of resources that the state lacks.

    Args:
        session: the checkout and its environment.
        stack: the options that name the stack.
        unanswered: look not only for what a killed `up` was making, but for all that the next one would make.
        objects: take over Kubernetes objects too: a `destroy` follows. An `up` does that by itself, but on a cluster
            that was there before the stack: see `_upserts`.

    Raises:
        UpError: a command failed.
    """
    before: set[str] = set()
    while taken := _take_over(session, stack, unanswered=unanswered, objects=objects) - before:
        if not unanswered:
            break
        before |= taken


def _take_over(session: Session, stack: Sequence[str], *, unanswered: bool, objects: bool) -> set[str]:
    """Take over what needs nothing that the state lacks, since only then are all of its inputs known.

    Returns the URNs of what was taken over and is needed by something that was not: that one is next.
    """
    exported = session.exported(stack)
    deployment = exported["deployment"]
    resources: list[Resource] = deployment.get("resources") or []
    pending: list[Resource] = [
        each["resource"] for each in deployment.get("pending_operations") or [] if each["type"] == "creating"
    ]
    others = [each for each in _foreseen(session, stack) if not _drawn(each)] if unanswered else []
    if unanswered:
        others += [each for each in resources if each["type"] == GROUP]
    lacking = _one_each([*pending, *others])
    placed = [each for each in lacking if _place(each)]
    recorded = {str(each["urn"]) for each in resources}
    ready = [each for each in placed if _needs(each) <= recorded]  # without the others AWS can't have it
    made = _objects([each for each in pending if objects or not _upserts(each, resources)], resources)
    taken = [*_taken(session, ready, resources), *made]
    known = [each for each in pending if each in placed or each["urn"] in {other["urn"] for other in made}]
    if taken or known:
        _write(session, stack, {**exported, "deployment": {**deployment, "resources": [*resources, *taken]}})
    if taken:
        targets = [text for each in taken for text in ("--target", str(each["urn"]))]
        session.ask("pulumi", "refresh", "--yes", "--skip-preview", *stack, *targets)
    for each in pending:
        if each not in known:
            print(f"not recorded whether it was made: {each['urn']}; {advice(each)}", flush=True)
    needed = {urn for each in lacking if each not in ready for urn in _needs(each)}
    return needed & {str(each["urn"]) for each in taken}


def advice(resource: Resource) -> str:
    """Return what to do about a resource that `pulumi up` may have made before it was killed."""
    if not str(resource["type"]).startswith("kubernetes:"):
        return "look for it in AWS (`python -m scripts.sweep` helps) and take it over with `pulumi import`"
    metadata = resource["inputs"].get("metadata") or {}
    if (metadata.get("annotations") or {}).get(AUTONAMED) != "true":
        return "the next `pulumi up` takes the object over if it is in the cluster, so nothing is to be done"
    kind, name = str(resource["type"]).rpartition(":")[2], metadata.get("name")
    place = f" --namespace {metadata['namespace']}" if metadata.get("namespace") else ""
    return (
        f"the next `pulumi up` makes another object under another name: delete this one, if it is in the cluster, with "
        f"`kubectl delete {kind} {name}{place}`"
    )


def _upserts(resource: Resource, resources: Sequence[Resource]) -> bool:
    """Return whether an `up` takes over an object of the same name: `upsertExistingObjects` of the Kubernetes provider.

    On a cluster that was there before the stack it is off. There the plug-in refuses to create an object that exists,
    so what it was creating is the stack's.
    """
    urn = str(resource.get("provider", "")).rpartition("::")[0]
    inputs = next((each.get("inputs") or {} for each in resources if each["urn"] == urn), {})
    return str(inputs.get("upsertExistingObjects", "true")).lower() == "true"


def _objects(pending: Sequence[Resource], resources: Sequence[Resource]) -> list[Resource]:
    """Return the Kubernetes objects as the state has them; the refresh that follows removes those that don't exist."""
    found: list[Resource] = []
    recorded = {each["urn"] for each in resources}
    for each in _one_each(pending):
        metadata = each["inputs"].get("metadata") or {}
        if str(each["type"]).startswith("kubernetes:") and metadata.get("name") and each["urn"] not in recorded:
            place = [metadata["namespace"]] if metadata.get("namespace") else []
            found.append({**each, "id": "/".join([*place, metadata["name"]]), "outputs": {}})
    return found


def _foreseen(session: Session, stack: Sequence[str]) -> list[Resource]:
    """Return the resources that the next `up` would make, with the inputs that are known already."""
    print("looking at what the next `pulumi up` would make", flush=True)
    preview = json.loads(session.ask("pulumi", "preview", "--json", *stack))
    return [step["newState"] for step in preview.get("steps") or [] if step["op"] == "create"]


def _one_each(resources: Sequence[Resource]) -> list[Resource]:
    """Return the first of the resources with each URN."""
    first: dict[str, Resource] = {}
    for each in resources:
        first.setdefault(str(each["urn"]), each)
    return list(first.values())


def _drawn(resource: Resource) -> bool:
    """Return whether its name is one that Pulumi has just drawn, so that nothing can have it."""
    kind = KINDS.get(str(resource["type"]))
    return kind is not None and kind.pending


def _place(resource: Resource) -> Place | None:
    kind = KINDS.get(str(resource["type"]))
    return kind.place(resource) if kind else None


def _taken(session: Session, ready: Sequence[Resource], resources: Sequence[Resource]) -> Iterator[Resource]:
    """Carry out what is to be done about each place; yield the resources that are taken over, as the state has them."""
    recorded = {str(each["urn"]) for each in resources}
    for resource in ready:
        for lacking in _lacking(session, resource, resources):
            status = _status(session, lacking)
            if status is None:
                continue
            action = decide(status, bool(lacking.place.options), str(resource["urn"]) in recorded)
            print(f"{lacking}, which the state doesn't have: {action.value}", flush=True)
            if action is Action.REMOVE:
                _eks(session, lacking, f"delete-{lacking.kind.noun}")
                _eks(session, lacking, "wait", f"{lacking.kind.noun}-deleted")
            elif action is Action.ADOPT:
                recorded.add(str(resource["urn"]))
                yield {**resource, "id": lacking.place.id(lacking.found), "outputs": {}}


def _needs(resource: Resource) -> set[str]:
    """Return the URNs of what must be in the state before the resource."""
    return {str(urn) for urn in (resource.get("parent"), *(resource.get("dependencies") or [])) if urn}


def _lacking(session: Session, resource: Resource, resources: Sequence[Resource]) -> Iterator[Lacking]:
    """Yield what AWS has in the resource's place and the state doesn't have at all."""
    kind, place = KINDS[str(resource["type"])], _place(resource)
    assert place is not None
    options = aws_options(resource, resources)
    ids = {str(each.get("id")) for each in resources if each["type"] == resource["type"]}
    try:
        listed = json.loads(session.ask("aws", *place.listing, *options) or "null") or []
    except UpError as error:
        if any(code in str(error) for code in GONE):
            return
        raise
    for found in listed:
        if place.holds(found) and not {found, place.id(found)} & ids:
            yield Lacking(resource, kind, place, found, options)


def _write(session: Session, stack: Sequence[str], exported: Mapping[str, Any]) -> None:
    """Replace the stack's state. Pulumi leaves out the pending operations."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(exported, file)
        file.flush()
        session.ask("pulumi", "stack", "import", *stack, "--file", file.name)


def _eks(session: Session, lacking: Lacking, *command: str) -> str:
    return session.ask("aws", "eks", *command, *lacking.place.one(lacking.found), *lacking.options)


def _status(session: Session, lacking: Lacking) -> str | None:
    """Return the status once nothing is in progress: empty if the kind has none, None if the thing is gone by then."""
    noun = lacking.kind.noun

    def ask() -> str | None:
        try:
            query = ("--query", f"{noun}.status", "--output", "text")
            return _eks(session, lacking, f"describe-{noun}", *query).strip()
        except UpError as error:
            if "ResourceNotFoundException" in str(error):
                return None
            raise

    if not lacking.place.options:
        return ""
    status = ask()
    if status != "CREATING":
        return status
    print(f"{lacking} is still being made: waiting for it", flush=True)
    try:
        _eks(session, lacking, "wait", f"{noun}-active")
    except UpError as error:
        if (status := ask()) not in FAILED:
            raise UpError(f"{lacking} is {status} and doesn't become active: {error}") from error
        return status
    return ask()
