"""Waits until the worker nodes show their GPUs to Kubernetes; ends with a sentence if one does not.

    python3 gpus.py --resource nvidia.com/gpu --count 1 --node-labels tidewater.dev/node-role=worker \\
        --instance-types g5.xlarge,g4dn.xlarge --remedy "see kubectl logs …" --job gpu-check --job-uid UID

A node should have GPUs if it is of one of these types, or if Karpenter says that its type has some. Nodes of an earlier
configuration, which are about to go, are none of them. Nodes that are being drained or deleted don't count either.

While no node is Ready it says what Karpenter says of that, in its log and in events about its job, which `pulumi up`
shows if they are warnings. If none came in NODE_SECONDS it ends without an error: EC2 may have no instance for hours,
and that is no fault of the GPUs.
"""

from __future__ import annotations

import argparse
import enum
import http.client
import json
import ssl
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
API = "https://kubernetes.default.svc"
PATIENCE_SECONDS = 180.0
"""A Ready node without GPUs may still be pulling the plug-in's image, which takes less than a minute."""

NODE_SECONDS = 900.0
"""So long it waits while no node is Ready. Karpenter, too, gives a node up that isn't there after 15 minutes."""

PAUSE_SECONDS = 2.0
ANSWER_SECONDS = 10.0
NO_KARPENTER = (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)
"""Answers where the stack has no Karpenter: the check has no right to look at NodeClaims, and nothing defines them."""
SHOWN = 5
LONGEST = 1000
"""So many characters an event may have."""

INSTANCE_TYPE = "node.kubernetes.io/instance-type"
KARPENTER_GPUS = "karpenter.k8s.aws/instance-gpu-count"
"""Karpenter labels its nodes with what their types have. https://karpenter.sh/docs/concepts/scheduling/#labels"""

NODE_CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
CLAIMS_NAMESPACE = "default"
"""Where Kubernetes keeps events about objects without a namespace, such as Karpenter's NodeClaims."""

KARPENTER = "karpenter"
"""The source of Karpenter's events."""

UNTRIED = "AwaitingReconciliation"
"""The reason of a condition that Karpenter has not looked at."""

SHORTAGE = timedelta(minutes=10)
"""For this long, a shortage says more than a later FailedScheduling: Karpenter doesn't try an offering again for three
minutes after a shortage, and meanwhile only says that there is no offering."""

STALE = timedelta(minutes=20)
"""Karpenter repeats itself every two to five minutes while nothing changes; what is older than this may be over."""

SAYS, SILENT = "Karpenter: ", "the API server does not answer: "
GIVEN_UP = (
    f"no worker node became Ready in {NODE_SECONDS / 60:.0f} minutes, so no GPU was checked; the training job is made "
    "now, and starts by itself when there are nodes. "
)
_LONG_AGO = datetime.min.replace(tzinfo=UTC)

Object = Mapping[str, Any]


class Lacking(Exception):
    """Nodes have been Ready for long enough, and have no GPUs; the message says which."""


class Seen(enum.Enum):
    """What a look at the nodes has shown."""

    NO_NODE = enum.auto()
    WITHOUT = enum.auto()
    """Some are Ready, and one of them has no GPUs yet."""
    DONE = enum.auto()


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

    def look(self, nodes: Iterable[Object], now: float) -> Seen:
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
        if not ready:
            return Seen.NO_NODE
        return Seen.WITHOUT if lacking else Seen.DONE

    def _should_have(self, node: Object) -> bool:
        labels = node["metadata"].get("labels") or {}
        return labels.get(INSTANCE_TYPE) in self._types or KARPENTER_GPUS in labels

    def _shown(self, node: Object) -> int:
        return int((node.get("status", {}).get("allocatable") or {}).get(self._resource, "0"))

    def _sentence(self, ready: int, lacking: Mapping[str, Object]) -> str:
        few = "no" if all(self._shown(node) == 0 for node in lacking.values()) else f"fewer than {self._count}"
        types = sorted({node["metadata"]["labels"].get(INSTANCE_TYPE, "?") for node in lacking.values()})
        names = sorted(lacking)
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        which = f"{', '.join(names[:SHOWN])}{more}; {', '.join(types)}"
        nodes = "1 worker node is" if len(lacking) == 1 else f"{len(lacking)} worker nodes are"
        shows = "shows" if len(lacking) == 1 else "show"
        return f"{nodes} Ready but {shows} {few} {self._resource} (of {ready}: {which}): {self._remedy}"


def is_ready(node: Object) -> bool:
    """Return whether pods may come to the node: it is Ready, and is neither drained nor deleted."""
    leaving = node.get("spec", {}).get("unschedulable") or node["metadata"].get("deletionTimestamp")
    return not leaving and condition(node, "Ready").get("status") == "True"


def name_of(node: Object) -> str:
    """Return the node's name."""
    return str(node["metadata"]["name"])


def condition(obj: Object, type_: str) -> Object:
    """Return an object's condition of a type; empty if it has none."""
    found = (obj.get("status") or {}).get("conditions") or ()
    return next((each for each in found if each["type"] == type_), {})


class Said(NamedTuple):
    """Why no node is Ready; `trouble`: whether that is more than waiting for its start."""

    text: str
    trouble: bool = False


def why_no_node(claims: Iterable[Object], events: Iterable[Object], now: datetime) -> Said:
    """Return what Karpenter says of the missing nodes.

    Args:
        claims: The NodeClaims of worker nodes.
        events: Karpenter's about NodeClaims, and about the pod that waits for a node.
        now: The time.
    """
    asked = [claim for claim in claims if not claim["metadata"].get("deletionTimestamp")]
    for claim in asked:
        if condition(claim, "Launched").get("status") == "True":
            kind = (claim["metadata"].get("labels") or {}).get(INSTANCE_TYPE, "?")
            started = f"NodeClaim {name_of(claim)} has an instance, of type {kind}, and its node is not Ready"
            return Said(f"{SAYS}{': '.join(filter(None, (started, _unfinished(claim))))}")
    for claim in asked:
        launch = condition(claim, "Launched")
        if launch.get("reason", UNTRIED) != UNTRIED:
            words = f"{launch['reason']}: {launch.get('message', '')}"
            return Said(f"{SAYS}NodeClaim {name_of(claim)}: {words}", trouble=True)
    if (event := _newest_trouble(events, now)) is not None:
        return Said(f"{SAYS}{event['reason']}: {_own_words(event)}", trouble=True)
    if asked:
        return Said(f"{SAYS}NodeClaim {name_of(asked[0])} waits for an instance")
    return Said("Karpenter has said nothing of it")


def _unfinished(claim: Object) -> str:
    """Return the first step that a NodeClaim with an instance has not done, in Karpenter's words if it says more."""
    for type_ in ("Registered", "Initialized"):
        found = condition(claim, type_)
        if found and found.get("status") != "True" and found.get("reason") != UNTRIED:
            return str(found.get("message") or found.get("reason", ""))
    return ""


def _newest_trouble(events: Iterable[Object], now: datetime) -> Object | None:
    """Return the newest warning; one about a NodeClaim, though, unless a warning about a pod is much newer."""
    recent = [each for each in events if each.get("type") == "Warning" and now - moment(each) < STALE]
    newest: dict[bool, Object] = {}
    for each in sorted(recent, key=moment):
        newest[each["involvedObject"].get("kind") == "NodeClaim"] = each
    shortage, failure = newest.get(True), newest.get(False)
    if shortage is None or failure is None:
        return shortage or failure
    return shortage if moment(failure) - moment(shortage) <= SHORTAGE else failure


def _own_words(event: Object) -> str:
    about = f"NodeClaim {event['involvedObject'].get('name', '')} event: "
    return str(event.get("message", "")).removeprefix(about).removeprefix("Failed to schedule pod, ")


def moment(event: Object) -> datetime:
    """Return when an event last happened."""
    series = event.get("series") or {}
    for text in (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime")):
        if text:
            return datetime.fromisoformat(text)
    return _LONG_AGO


@dataclass(frozen=True)
class Cluster:
    """The API server, with the rights of the pod's service account."""

    node_labels: str
    account: Path = ACCOUNT
    api: str = API

    @property
    def namespace(self) -> str:
        """The pod's namespace."""
        return (self.account / "namespace").read_text().strip()

    def nodes(self) -> list[Object]:
        """Return the worker nodes, as the API server knows them now."""
        return self._listed("/api/v1/nodes", labelSelector=self.node_labels)

    def why_no_node(self) -> Said:
        """Return what Karpenter says of the missing nodes; nothing in a cluster without Karpenter."""
        try:
            claims = self._listed(NODE_CLAIMS, labelSelector=self.node_labels)
        except urllib.error.HTTPError as error:
            if error.code in NO_KARPENTER:
                return Said("")
            raise
        where = [f"/api/v1/namespaces/{each}/events" for each in (CLAIMS_NAMESPACE, self.namespace)]
        events = [event for each in where for event in self._listed(each, fieldSelector=f"source={KARPENTER}")]
        return why_no_node(claims, events, datetime.now(UTC))

    def record(self, event: Object) -> None:
        """Make an event in the pod's namespace."""
        self.ask(f"/api/v1/namespaces/{self.namespace}/events", json.dumps(event).encode())

    def _listed(self, path: str, **query: str) -> list[Object]:
        found: list[Object] = self.ask(f"{path}?{urllib.parse.urlencode(query, quote_via=urllib.parse.quote)}")["items"]
        return found

    def ask(self, path: str, body: bytes | None = None) -> Any:
        """Send a GET request, or a POST request with a body; return the answer.

        Raises:
            OSError, ValueError: There is no answer, a refusal, or a broken answer.
        """
        headers = {
            "Authorization": f"Bearer {(self.account / 'token').read_text()}",
            "Content-Type": "application/json",
        }
        request = urllib.request.Request(f"{self.api}{path}", data=body, headers=headers)
        context = ssl.create_default_context(cafile=str(self.account / "ca.crt"))
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS, context=context) as answer:
                return json.load(answer)
        except http.client.HTTPException as error:  # an answer that is cut off, for example; it is no OSError
            raise OSError(f"broken answer: {error!r}") from error


@dataclass
class Speaker:
    """Says a sentence once, in the log and as an event about the job. An event that can't be made is only logged.

    Args:
        cluster: Where to make the events.
        job: The name of the job.
        uid: Its UID: Pulumi shows warnings about the object that it waits for.
    """

    cluster: Cluster
    job: str
    uid: str
    _last: str = ""

    def say(self, reason: str, said: Said) -> None:
        """Say it, unless it is what was said last."""
        if said.text == self._last:
            return
        self._last = said.text
        print(said.text, flush=True)
        try:
            self.cluster.record(self._event(reason, said, datetime.now(UTC)))
        except OSError as error:
            print(f"no event could be made: {error}", flush=True)

    def _event(self, reason: str, said: Said, now: datetime) -> Object:
        space, time_ = self.cluster.namespace, now.strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{self.job}.", "namespace": space},
            "involvedObject": {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "namespace": space,
                "name": self.job,
                "uid": self.uid,
            },
            "type": "Warning" if said.trouble else "Normal",
            "reason": reason,
            "message": said.text[:LONGEST],
            "source": {"component": self.job},
            "firstTimestamp": time_,
            "lastTimestamp": time_,
            "count": 1,
        }


def wait(watched: Watched, cluster: Cluster, say: Callable[[str, Said], None]) -> Seen:
    """Look until the nodes have their GPUs, or no node is there at the limit. Return what was seen last.

    Raises:
        Lacking: Nodes don't get them.
        OSError, ValueError: The API server does not answer, at the limit too; until then it is asked again.
    """
    limit = time.monotonic() + NODE_SECONDS
    until = f"{datetime.now(UTC) + timedelta(seconds=NODE_SECONDS):%H:%M} UTC"
    while True:
        try:
            seen = watched.look(cluster.nodes(), time.monotonic())
            if seen is Seen.DONE:
                return seen
            if seen is Seen.NO_NODE:
                why = cluster.why_no_node()
                if time.monotonic() >= limit:
                    say("NoNode", Said(f"{GIVEN_UP}{why.text}".rstrip(), trouble=True))
                    return seen
                waits = f"no worker node is Ready; the check of its GPUs waits for one until {until}. "
                say("WaitingForNode", why._replace(text=f"{waits}{why.text}".rstrip()))
        except (OSError, ValueError) as error:  # URLError is an OSError; a broken answer is a ValueError
            print(f"{SILENT}{error}", flush=True)
            if time.monotonic() >= limit:
                raise
        time.sleep(PAUSE_SECONDS)


def main(arguments: Sequence[str]) -> int:
    """Check, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--resource", "--node-labels", "--instance-types", "--remedy", "--job", "--job-uid"):
        parser.add_argument(name, required=True)
    parser.add_argument("--count", type=int, required=True)
    given = parser.parse_args(arguments)
    watched = Watched(given.resource, given.count, given.instance_types.split(","), given.remedy)
    cluster = Cluster(given.node_labels)
    try:
        seen = wait(watched, cluster, Speaker(cluster, given.job, given.job_uid).say)
    except Lacking as lacking:
        print(lacking, file=sys.stderr, flush=True)
        return 1
    except (OSError, ValueError) as error:
        print(f"{SILENT}{error}", file=sys.stderr, flush=True)
        return 1
    if seen is Seen.DONE:
        print(f"every worker node has {given.resource}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
