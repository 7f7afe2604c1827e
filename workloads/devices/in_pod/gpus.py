"""Waits until the worker nodes show their GPUs to Kubernetes; ends with a sentence if one does not.

    python3 gpus.py --resource nvidia.com/gpu --count 1 --node-labels tidewater.dev/node-role=worker \\
        --instance-types g5.xlarge,g4dn.xlarge --remedy "see kubectl logs …"

A node should have GPUs if it is of one of these types, or if Karpenter says that its type has some. Nodes of an earlier
configuration, which are about to go, are none of them. Nodes that are being drained or deleted don't count either.
"""

from __future__ import annotations

import argparse
import json
import ssl
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
API = "https://kubernetes.default.svc"
PATIENCE_SECONDS = 180.0
"""A Ready node without GPUs may still be pulling the plug-in's image, which takes less than a minute."""

PAUSE_SECONDS = 2.0
ANSWER_SECONDS = 10.0
SHOWN = 5
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
KARPENTER_GPUS = "karpenter.k8s.aws/instance-gpu-count"
"""Karpenter labels its nodes with what their types have. https://karpenter.sh/docs/concepts/scheduling/#labels"""

Node = Mapping[str, Any]


class Lacking(Exception):
    """Nodes have been Ready for long enough, and have no GPUs; the message says which."""


class Watched:
    """What has been seen of the nodes: since when each of them has been without its GPUs.

    Args:
        resource: The name of the resource.
        count: How many of it a worker needs.
        instance_types: The types of the worker node group.
        remedy: What to do about it.
    """

    def __init__(self, resource: str, count: int, instance_types: Sequence[str], remedy: str) -> None:
        self._resource, self._count, self._types, self._remedy = resource, count, instance_types, remedy
        self._since: dict[str, float] = {}

    def done(self, nodes: Iterable[Node], now: float) -> bool:
        """Return whether there are nodes, and all of them have their GPUs.

        Args:
            nodes: All worker nodes at this moment.
            now: In seconds, on a clock that only goes forward.

        Raises:
            Lacking: Some have been without for PATIENCE_SECONDS.
        """
        ready = [node for node in nodes if self._should_have(node) and is_ready(node)]
        lacking = {name_of(node): node for node in ready if self._shown(node) < self._count}
        self._since = {name: self._since.get(name, now) for name in lacking}
        if any(now - since >= PATIENCE_SECONDS for since in self._since.values()):
            raise Lacking(self._sentence(len(ready), lacking))
        return bool(ready) and not lacking

    def _should_have(self, node: Node) -> bool:
        labels = node["metadata"].get("labels") or {}
        return labels.get(INSTANCE_TYPE) in self._types or KARPENTER_GPUS in labels

    def _shown(self, node: Node) -> int:
        return int((node.get("status", {}).get("allocatable") or {}).get(self._resource, "0"))

    def _sentence(self, ready: int, lacking: Mapping[str, Node]) -> str:
        few = "no" if all(self._shown(node) == 0 for node in lacking.values()) else f"fewer than {self._count}"
        types = sorted({node["metadata"]["labels"].get(INSTANCE_TYPE, "?") for node in lacking.values()})
        names = sorted(lacking)
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        which = f"{', '.join(names[:SHOWN])}{more}; {', '.join(types)}"
        nodes = "1 worker node is" if len(lacking) == 1 else f"{len(lacking)} worker nodes are"
        shows = "shows" if len(lacking) == 1 else "show"
        return f"{nodes} Ready but {shows} {few} {self._resource} (of {ready}: {which}): {self._remedy}"


def is_ready(node: Node) -> bool:
    """Return whether pods may come to the node: it is Ready, and is neither drained nor deleted."""
    conditions = node.get("status", {}).get("conditions") or []
    leaving = node.get("spec", {}).get("unschedulable") or node["metadata"].get("deletionTimestamp")
    return not leaving and any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def name_of(node: Node) -> str:
    """Return the node's name."""
    return str(node["metadata"]["name"])


def listed(selector: str, account: Path = ACCOUNT, api: str = API) -> list[Node]:
    """Return the nodes with these labels, as the API server knows them now."""
    request = urllib.request.Request(
        f"{api}/api/v1/nodes?labelSelector={urllib.parse.quote(selector)}",
        headers={"Authorization": f"Bearer {(account / 'token').read_text()}"},
    )
    context = ssl.create_default_context(cafile=str(account / "ca.crt"))
    with urllib.request.urlopen(request, timeout=ANSWER_SECONDS, context=context) as answer:
        found: list[Node] = json.load(answer)["items"]
    return found


def wait(watched: Watched, look: Callable[[], Iterable[Node]]) -> None:
    """Look until the nodes have their GPUs. An API server that doesn't answer is asked again: the job has a deadline.

    Raises:
        Lacking: They don't get them.
    """
    while True:
        try:
            if watched.done(look(), time.monotonic()):
                return
        except (OSError, ValueError) as error:  # URLError is an OSError; a broken answer is a ValueError
            print(f"the API server does not answer: {error}", flush=True)
        time.sleep(PAUSE_SECONDS)


def main(arguments: Sequence[str]) -> int:
    """Check, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--resource", "--node-labels", "--instance-types", "--remedy"):
        parser.add_argument(name, required=True)
    parser.add_argument("--count", type=int, required=True)
    given = parser.parse_args(arguments)
    watched = Watched(given.resource, given.count, given.instance_types.split(","), given.remedy)
    try:
        wait(watched, lambda: listed(given.node_labels))
    except Lacking as lacking:
        print(lacking, file=sys.stderr, flush=True)
        return 1
    print(f"every worker node has {given.resource}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
