"""Take over what a killed `pulumi up` was making of EKS, before the next `pulumi up`.

    python -m scripts.adopt [--stack NAME]

Pulumi records that it creates a resource before it asks AWS to. If it is killed then, its state doesn't say whether the
resource exists, and the next `pulumi up` makes it again: a cluster of the same name is refused, and a node group gets
another name, while the first one costs money and keeps the cluster from being deleted. It is for the person to say what
became of each:
https://www.pulumi.com/docs/iac/operations/troubleshooting/interrupted-updates/

The IDs of clusters, node groups and addons follow from their inputs. So this asks EKS, and takes over what exists, or
removes it if it has failed or if there is another one in its place. It writes what exists into the state, by `pulumi
stack import`, since Pulumi 3.250 forgets what `pulumi refresh --import-pending-creates` names.
"""

from __future__ import annotations

import argparse
import enum
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.session import Session, UpError, aws_options

Resource = Mapping[str, Any]


@dataclass(frozen=True)
class Kind:
    """How EKS names one kind of its resources.

    Attributes:
        noun: in the commands of the AWS CLI.
        names: options of these commands, and the inputs that they take; the inputs make the ID.
    """

    noun: str
    names: Mapping[str, str]

    def id(self, inputs: Mapping[str, Any]) -> str:
        """Return the ID: https://www.pulumi.com/registry/packages/aws/api-docs/eks/nodegroup/#import."""
        return ":".join(str(inputs[key]) for key in self.names.values())

    def options(self, inputs: Mapping[str, Any]) -> list[str]:
        """Return the options that name it."""
        return [text for option, key in self.names.items() for text in (option, str(inputs[key]))]


KINDS = {
    "aws:eks/cluster:Cluster": Kind("cluster", {"--name": "name"}),
    "aws:eks/nodeGroup:NodeGroup": Kind(
        "nodegroup", {"--cluster-name": "clusterName", "--nodegroup-name": "nodeGroupName"}
    ),
    "aws:eks/addon:Addon": Kind("addon", {"--cluster-name": "clusterName", "--addon-name": "addonName"}),
}
FAILED = ("FAILED", "CREATE_FAILED")


class Action(enum.Enum):
    """What to do about a resource whose creation was interrupted."""

    ADOPT = "taken over"
    REMOVE = "removed"
    FORGET = "not made, or in the state already"


def decide(status: str | None, own_id: str, recorded_id: str | None) -> Action:
    """Return what to do.

    Args:
        status: EKS's word for the resource; None if it has no such resource.
        own_id: the ID of the resource that was being created.
        recorded_id: the ID of the resource that the state has in its place, if any.
    """
    if status is None or recorded_id == own_id:
        return Action.FORGET
    if recorded_id is not None or status in FAILED:
        return Action.REMOVE
    return Action.ADOPT


def main() -> int:
    """Take over what there is of the selected stack, or of the named one; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m scripts.adopt", description=__doc__.partition("\n")[0])
    parser.add_argument("-s", "--stack", help="the stack; without it, the selected one")
    given = parser.parse_args()
    try:
        adopt(Session(Path(), os.environ), ["--stack", given.stack] if given.stack else [])
    except UpError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def adopt(session: Session, stack: Sequence[str]) -> None:
    """Resolve the creations that were interrupted, as far as EKS can tell what became of them.

    Raises:
        UpError: a command failed.
    """
    exported = session.exported(stack)
    deployment = exported["deployment"]
    resources: list[Resource] = deployment.get("resources") or []
    pending: list[Resource] = [
        each["resource"] for each in deployment.get("pending_operations") or [] if each["type"] == "creating"
    ]
    known = [each for each in pending if _named(each)]
    if not known:
        return
    taken = [found for each in known if (found := _resolved(session, each, resources)) is not None]
    _write(session, stack, {**exported, "deployment": {**deployment, "resources": [*resources, *taken]}})
    if taken:
        targets = [text for each in taken for text in ("--target", str(each["urn"]))]
        session.ask("pulumi", "refresh", "--yes", "--skip-preview", *stack, *targets)
    for each in pending:
        if each not in known:
            print(
                "nobody can tell whether it was made; look for it in AWS (`python -m scripts.sweep` helps) and take it "
                f"over with `pulumi import`: {each['urn']}",
                flush=True,
            )


def _write(session: Session, stack: Sequence[str], exported: Mapping[str, Any]) -> None:
    """Replace the stack's state. Pulumi leaves out the pending operations."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(exported, file)
        file.flush()
        session.ask("pulumi", "stack", "import", *stack, "--file", file.name)


def _named(resource: Resource) -> bool:
    kind = KINDS.get(str(resource["type"]))
    return kind is not None and all(isinstance(resource["inputs"].get(key), str) for key in kind.names.values())


def _resolved(session: Session, resource: Resource, resources: Sequence[Resource]) -> Resource | None:
    """Carry out what is to be done about one resource; return it as the state has it if it is taken over."""
    kind, inputs = KINDS[str(resource["type"])], resource["inputs"]
    where = [*kind.options(inputs), *aws_options(resource, resources)]
    recorded = next((str(each.get("id")) for each in resources if each["urn"] == resource["urn"]), None)
    action = decide(_status(session, kind, where), kind.id(inputs), recorded)
    print(f"{kind.noun} {kind.id(inputs)}, which a killed `pulumi up` was making: {action.value}", flush=True)
    if action is Action.REMOVE:
        session.ask("aws", "eks", f"delete-{kind.noun}", *where)
        session.ask("aws", "eks", "wait", f"{kind.noun}-deleted", *where)
    return {**resource, "id": kind.id(inputs), "outputs": {}} if action is Action.ADOPT else None


def _status(session: Session, kind: Kind, where: Sequence[str]) -> str | None:
    """Return the status once nothing is in progress; None if there is no such resource."""

    def ask() -> str | None:
        try:
            query = ("--query", f"{kind.noun}.status", "--output", "text")
            return session.ask("aws", "eks", f"describe-{kind.noun}", *where, *query).strip()
        except UpError as error:
            if "ResourceNotFoundException" in str(error):
                return None
            raise

    status = ask()
    if status != "CREATING":
        return status
    try:
        session.ask("aws", "eks", "wait", f"{kind.noun}-active", *where)
    except UpError as error:
        if (status := ask()) not in FAILED:
            raise UpError(f"{kind.noun} {' '.join(where)} is {status} and doesn't become active: {error}") from error
        return status
    return ask()


if __name__ == "__main__":
    sys.exit(main())
