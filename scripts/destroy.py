"""`pulumi destroy` of a stack, also after a killed `pulumi up`, and when its cluster was deleted without Pulumi.

    python -m scripts.destroy [--stack NAME] [arguments of `pulumi destroy`]

The Kubernetes plug-in refuses to delete the objects of a cluster that it can't reach, since they may still be there in
an outage (https://github.com/pulumi/pulumi-kubernetes/issues/1013). PULUMI_K8S_DELETE_UNREACHABLE=true lets it drop
them from the state (https://github.com/pulumi/pulumi-kubernetes/pull/2489). This sets the variable if, and only if, EKS
says that the cluster doesn't exist. If it exists, what a killed `pulumi up` was making is taken over first, and then
destroyed with the rest.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts.adopt import adopt
from scripts.session import RECORD, Session, UpError, aws_options, identifiers
from scripts.sweep.model import Stack
from scripts.sweep.network import strangers_among
from scripts.toolchain import paths

VARIABLE = "PULUMI_K8S_DELETE_UNREACHABLE"
CLUSTER = "aws:eks/cluster:Cluster"
NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
VPC = "aws:ec2/vpc:Vpc"

Resources = Sequence[Mapping[str, Any]]


def main() -> int:
    """Run `pulumi destroy`; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m scripts.destroy", description=__doc__.partition("\n")[0])
    parser.add_argument("-s", "--stack", help="the stack; without it, the selected one")
    given, others = parser.parse_known_args()
    stack = ["--stack", given.stack] if given.stack else []
    session = Session(Path(), os.environ)
    try:
        more = prepare(session, stack)
    except UpError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    command = ["pulumi", "destroy", *stack, *others]
    return subprocess.run(command, cwd=paths.CHECKOUT, env={**os.environ, **more}, check=False).returncode


def prepare(session: Session, stack: Sequence[str]) -> dict[str, str]:
    """Take over what a killed `up` was making; return the variables with which `pulumi destroy` ends.

    Raises:
        UpError: EKS doesn't answer, nodes have outlived the cluster, or a command failed.
    """
    resources = session.deployment(stack).get("resources") or []
    more = without_cluster(session, resources)
    warn_of_strangers(session, resources)
    if not more:
        warn_of_node_pools(session, stack, resources)
    adopt(session, stack, objects=not more)
    return more


def without_cluster(session: Session, resources: Resources) -> dict[str, str]:
    """Return the variables with which `pulumi destroy` ends: none, unless the stack's cluster doesn't exist.

    Raises:
        UpError: EKS doesn't answer, or nodes have outlived the cluster.
    """
    if not any(str(each.get("type")).startswith("kubernetes:") for each in resources):
        return {}
    cluster = next((each for each in resources if each.get("type") == CLUSTER), None)
    # All objects are deleted before the nodes, so a state that has objects has a node group too.
    group = next((each for each in resources if each.get("type") == NODE_GROUP), None)
    if cluster is None and group:  # the cluster is of others, or a refresh has dropped it from the state
        name, where = str(group["inputs"]["clusterName"]), aws_options(group, resources)
        if endpoint(session, name, where):
            return {}
        refuse_lonely_nodes(session, name, vpcs_of(resources), where)
    if cluster is not None:
        where = aws_options(cluster, resources)
        if exists(session, cluster, where):
            return {}
        refuse_lonely_nodes(session, str(cluster["id"]), vpcs_of(resources), where)
    print("EKS doesn't have the stack's cluster: its Kubernetes objects are dropped from the state", flush=True)
    return {VARIABLE: "true"}


def warn_of_strangers(session: Session, resources: Resources) -> None:
    """Name what others have in the stack's VPC: Pulumi would wait for half an hour without a word."""
    for vpc in (each for each in resources if each.get("type") == VPC and each.get("id")):
        head, project = str(vpc["urn"]).split("::")[:2]
        where = aws_options(vpc, resources)
        there = ("--filters", f"Name=vpc-id,Values={vpc['id']}", "--output", "json")
        groups = json.loads(session.ask("aws", "ec2", "describe-security-groups", *there, *where))["SecurityGroups"]
        endpoints = json.loads(session.ask("aws", "ec2", "describe-vpc-endpoints", *there, *where))["VpcEndpoints"]
        for each in strangers_among(groups, endpoints, Stack(project, head.rpartition(":")[2])):
            print(
                f"warning: the {each} is not the stack's, and AWS deletes no VPC with one in it. "
                f"To delete it: {' '.join([each.deletion, *where])}",
                flush=True,
            )


def warn_of_node_pools(session: Session, stack: Sequence[str], resources: Resources) -> None:
    """Name Karpenter's objects of others on the cluster: the stack's EC2NodeClass, or Karpenter itself, waits for them.

    The plug-in waits half an hour for the class without a word. Karpenter ends the nodes of a NodePool that is deleted.
    """
    own = {(str(each["type"]).rpartition(":")[2], str(each.get("id"))) for each in resources}
    if not any(kind == "EC2NodeClass" for kind, _ in own):
        return
    try:
        listed = _of_karpenter(session, stack)
    except UpError as error:
        print(f"warning: whether others have NodePools on the cluster was not checked: {error}", flush=True)
        return
    for each in listed:
        kind, name = str(each["kind"]), str(each["metadata"]["name"])
        if (kind, name) not in own:
            print(
                f"warning: the {kind} {name} is not the stack's, and the destroy waits until its nodes are gone. "
                f"To delete it, with its nodes: kubectl delete {kind.lower()} {name}",
                flush=True,
            )


def _of_karpenter(session: Session, stack: Sequence[str]) -> list[dict[str, Any]]:
    kubeconfig = session.ask("pulumi", "stack", "output", "kubeconfig", "--show-secrets", *stack)
    with tempfile.NamedTemporaryFile("w", prefix="kubeconfig-") as file:  # made for its owner alone
        file.write(kubeconfig)
        file.flush()
        there = ("--kubeconfig", file.name, "--request-timeout", "20s", "--output", "json")
        found = session.ask("kubectl", "get", "nodepools.karpenter.sh,ec2nodeclasses.karpenter.k8s.aws", *there)
    items: list[dict[str, Any]] = json.loads(found)["items"]
    return items


def exists(session: Session, cluster: Mapping[str, Any], where: Sequence[str]) -> bool:
    """Return whether EKS has the cluster that the state records; another one of its name has another endpoint."""
    there = endpoint(session, str(cluster["id"]), where)
    return bool(there) and there == (cluster.get("outputs") or {}).get("endpoint")


def endpoint(session: Session, name: str, where: Sequence[str]) -> str:
    """Return the endpoint of the cluster of this name; empty if EKS has none."""
    query = ("--name", name, "--query", "cluster.endpoint", "--output", "text")
    try:
        return session.ask("aws", "eks", "describe-cluster", *query, *where).strip()
    except UpError as error:
        if "ResourceNotFoundException" in str(error):
            return ""
        raise


def vpcs_of(resources: Resources) -> list[str]:
    """Return the ids of the stack's VPC: its own, or the existing one that it recorded at its first update."""
    records = [(each.get("outputs") or {}).get("output") for each in resources if each.get("type") == RECORD]
    recorded = [str(each["vpc"]) for each in records if isinstance(each, Mapping) and each.get("vpc")]
    return identifiers(resources, VPC) or recorded


def refuse_lonely_nodes(session: Session, name: str, vpcs: Sequence[str], where: Sequence[str]) -> None:
    """Refuse to go on while nodes of the cluster run: nothing ends them any more, and they keep a VPC of the stack's.

    Karpenter tags its instances like that: https://karpenter.sh/docs/concepts/nodeclasses/#spectags
    Those in another VPC are another cluster's of that name.

    Raises:
        UpError: there are such nodes; the message says how to end them.
    """
    if not vpcs:
        return
    filters = (
        f"Name=tag:kubernetes.io/cluster/{name},Values=owned",
        f"Name=vpc-id,Values={','.join(vpcs)}",
        "Name=instance-state-name,Values=pending,running",
    )
    query = ("--query", "Reservations[].Instances[].InstanceId", "--output", "text")
    found = session.ask("aws", "ec2", "describe-instances", "--filters", *filters, *query, *where).split()
    if found:
        instances = " ".join(found)
        command = f"aws ec2 terminate-instances --instance-ids {instances} {' '.join(where)}".rstrip()
        raise UpError(
            f"the cluster {name} is gone, and nodes that Karpenter made for it still run: {instances}. Nothing ends "
            f"them any more. End them, and run this again: {command}"
        )


if __name__ == "__main__":
    sys.exit(main())
