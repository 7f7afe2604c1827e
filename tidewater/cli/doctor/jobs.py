"""Checks of the jobs that are there: whether they reach their etcd, and which pods wait, and why."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from tidewater.cli.doctor.place import Place
from tidewater.cli.doctor.results import Outcome, Result, fine, skipped
from tidewater.cli.job.waiting import ENDED, condition, invalid, state_of, told
from tidewater.cli.show import moment, plural
from tidewater.cli.top.samples import is_core, pod_state
from tidewater.contract import labels
from tidewater.elasticjob import names
from tidewater.elasticjob.model import Launcher, State
from tidewater.elasticjob.names import JOBS
from tidewater.kube.cluster import Object, Selection
from tidewater.kube.errors import Forbidden, NotFound
from tidewater.kube.kinds import PODS, SERVICES, Kind

SLICES = Kind("discovery.k8s.io/v1", "EndpointSlice", "endpointslices")
STATEFUL_SETS = Kind("apps/v1", "StatefulSet", "statefulsets")
_SLICES_OF = "kubernetes.io/service-name"
_ADDRESS = re.compile(r"(?:\w+://)?(?P<host>\[[^\]]+\]|[^:/,]+)(?::\d+)?/?")

PATIENCE = timedelta(minutes=1)
"""A pod may wait this long before it is worth a word: images are pulled, nodes start."""

_QUOTA = "Ask AWS for a higher quota of vCPUs (docs/deploy-aws.md names the quotas), or for fewer workers."
_CAPACITY = (
    "Wait: Karpenter tries again every few minutes. With more instance types or zones (`surgeInstanceTypes`, "
    "`availabilityZones`) this is rarer."
)
_SET_UP = "The job isn't the cause, but Karpenter's set-up: see `kubectl describe nodeclaims,nodepools,ec2nodeclasses`."
_IMAGE = "Correct the image's name in the job's template, or give its pods the right to pull it (imagePullSecrets)."
_REMEDIES = {
    "Unschedulable": "Add nodes, or ask for fewer workers or less per worker: `tidewater job scale {job} N -n "
    "{namespace}`. The message says what the nodes lack.",
    "InsufficientInstanceCapacity": _CAPACITY,
    "UnfulfillableCapacity": _CAPACITY,
    "VcpuLimitExceeded": _QUOTA,
    "MaxSpotInstanceCountExceeded": _QUOTA,
    "VCPULimitExceeded": _QUOTA,
    "SpotQuotaExceeded": _QUOTA,
    "FailedScheduling": "Allow Karpenter instance types that fit the worker (in the stack: `surgeInstanceTypes`), or "
    "ask for less per worker.",
    names.NODE_STARTING: "Wait: a node takes a minute or two. If none comes, `kubectl describe nodeclaims` says why.",
    "NodePoolLimits": "Raise the NodePool's limit (in the stack: `maxWorkers`; of a pool: its `maxNodes`), or ask for "
    "fewer workers.",
    "ErrImagePull": _IMAGE,
    "ImagePullBackOff": _IMAGE,
    "InvalidImageName": _IMAGE,
    "CrashLoopBackOff": "`tidewater job logs {job} -n {namespace}` says why the container ends.",
}
_REFUSED = (
    "Correct what the message names: a quota (`kubectl describe quota -n {namespace}`), an admission policy, or a "
    "webhook that doesn't answer. The controller tries again within a minute."
)
_BAD_NODE = (
    "`kubectl cordon NODE` keeps new pods away, and `kubectl drain NODE` moves what runs there; then replace the node. "
    "With `tidewater install --taint-bad-nodes` the controller keeps new pods away by itself."
)
_REMEDY = "`kubectl describe pod {pod} -n {namespace}` says what it waits for."


@dataclass(frozen=True)
class Finding:
    """Something about one job."""

    outcome: Outcome
    text: str
    remedy: str


def summed(findings: Sequence[Finding], all_is_well: str) -> Result:
    """Return several findings as one result: as bad as the worst, each remedy once."""
    if not findings:
        return fine(all_is_well)
    worst = Outcome.FIX if any(each.outcome is Outcome.FIX for each in findings) else Outcome.NOTE
    remedies = dict.fromkeys(each.remedy for each in findings)
    return Result(worst, "\n".join(each.text for each in findings), "\n".join(remedies))


def etcd(place: Place) -> Result:
    """Check that the etcd of every job that has not ended is a Service with ready pods."""
    jobs = [job for job in place.everywhere(JOBS) if state_of(job) not in ENDED and rendezvous_is_etcd(job)]
    services = {
        (job["metadata"]["namespace"], host): job["metadata"]["name"]
        for job in jobs
        for host in hosts(str(job["spec"].get("rdzvEndpoint", "")))
    }
    if not services:
        own = place.everywhere(SERVICES, labels.selector({labels.COMPONENT: labels.COMPONENT_ETCD}))
        services = {(each["metadata"]["namespace"], each["metadata"]["name"]): "" for each in own}
    if not services:
        return skipped("no job needs one")
    found = [each for key, job in sorted(services.items()) if (each := _etcd_service(place, *key, job=job))]
    if not found:
        return skipped("the jobs' etcd is outside the cluster")
    wrong = [each for each in found if each.outcome is not Outcome.FINE]
    return summed(wrong, "; ".join(each.text for each in found))


def _etcd_service(place: Place, namespace: str, host: str, *, job: str) -> Finding | None:
    """Return what is found behind a host name; None if it belongs to no Service of the cluster."""
    where = service_of(host, namespace)
    if where is None:
        return None
    owner, name = where
    of_job = f"job {namespace}/{job}: " if job else ""
    try:
        service = place.cluster.get(SERVICES, name, owner)
    except NotFound:
        if "." in host and not is_cluster_name(host):
            return None
        return Finding(
            Outcome.FIX,
            f"{of_job}its etcd {host} does not exist: there is no Service {owner}/{name}",
            "Start an etcd as a Service of that name; the stack does it with `pulumi up`. Or delete the job and submit "
            "it with another rdzvEndpoint.",
        )
    slices = place.cluster.list(SLICES, Selection(owner, labels=f"{_SLICES_OF}={name}")).items
    endpoints = [endpoint for each in slices for endpoint in each.get("endpoints") or []]
    ready, wanted = sum(map(is_ready, endpoints)), max(len(endpoints), _members(place, owner, service))
    if ready == wanted > 0:
        return Finding(Outcome.FINE, f"{owner}/{name}: {plural(ready, 'ready endpoint')}", "")
    remedy = (
        f"`kubectl get pods -n {owner}` shows its pods, `kubectl describe pod` why they are not ready. In a pod of the "
        "stack's etcd that shows Init, `kubectl logs POD -c member` says what it waits for."
    )
    if ready == 0:
        text = "has no ready pod: training goes on, but no worker can join"
    elif ready <= wanted // 2:
        text = f"has {ready} of {wanted} members ready, which is no majority: training goes on, but no worker can join"
    else:
        text = f"has {ready} of {wanted} members ready: after the loss of {ready - wanted // 2} more no worker can join"
    return Finding(Outcome.FIX, f"{of_job}its etcd {owner}/{name} {text}", remedy)


def _members(place: Place, namespace: str, service: Object) -> int:
    """Return how many pods a Service's StatefulSets want: one without an address is in no EndpointSlice."""
    selector = service["spec"].get("selector") or {}
    try:
        sets = place.cluster.list(STATEFUL_SETS, Selection(namespace)).items
    except Forbidden:
        return 0
    spec = [each["spec"] for each in sets]
    own = [each for each in spec if selector and selector.items() <= each["template"]["metadata"]["labels"].items()]
    return sum(int(each.get("replicas", 1)) for each in own)


def is_ready(endpoint: Object) -> bool:
    """Return whether an endpoint of an EndpointSlice is ready; by its API, unknown counts as ready."""
    return (endpoint.get("conditions") or {}).get("ready") is not False


def rendezvous_is_etcd(job: Object) -> bool:
    """Return whether the workers of a job meet in etcd."""
    spec, annotations = job["spec"], job["metadata"].get("annotations") or {}
    launcher = spec.get("launcher") or annotations.get(names.ANNOTATION_LAUNCHER) or Launcher.TORCHELASTIC
    if launcher == Launcher.TORCHRUN:
        return str(spec.get("rdzvBackend", "")).startswith("etcd")
    return bool(launcher != Launcher.NONE)


def hosts(endpoint: str) -> list[str]:
    """Return the host names of an rdzvEndpoint: one or several, as URLs or as HOST:PORT."""
    found = (_ADDRESS.fullmatch(part.strip()) for part in endpoint.split(","))
    return [each["host"] for each in found if each]


def is_cluster_name(host: str) -> bool:
    """Return whether a host name with dots can only be that of a Service."""
    return host.split(".")[2:3] == ["svc"]


def service_of(host: str, namespace: str) -> tuple[str, str] | None:
    """Return namespace and name of the Service that a host name may stand for; None if it is an address."""
    if host.startswith("[") or re.fullmatch(r"[\d.]+", host):
        return None
    name, *rest = host.split(".")
    return (rest[0], name) if rest else (namespace, name)


def waiting(place: Place) -> Result:
    """Check that no job and no pod waits for something that does not come."""
    jobs = {_key(job): job for job in place.everywhere(JOBS)}
    by_job: dict[tuple[str, str], list[Object]] = defaultdict(list)
    for pod in place.everywhere(PODS, labels.selector({names.LABEL_GROUP_NAME: names.GROUP})):
        by_job[pod["metadata"]["namespace"], pod["metadata"]["labels"].get(names.LABEL_JOB_NAME, "")].append(pod)
    live = [job for job in jobs.values() if state_of(job) not in ENDED]
    now = place.clock.now()
    findings = [found for job in live for found in job_findings(job, by_job[_key(job)], now)]
    return summed(findings, f"{plural(len(live), 'job')} in progress, no pod waits" if live else "no job in progress")


def job_findings(job: Object, pods: Iterable[Object], now: datetime) -> list[Finding]:
    """Return why a job waits, or pods of it."""
    namespace, name = _key(job)
    found = []
    if invalid(job):
        remedy = f"Correct the job: `kubectl edit ej {name} -n {namespace}`."
        found.append(Finding(Outcome.FIX, f"job {namespace}/{name}: {told(job)}", remedy))
    elif state_of(job) == State.QUEUED:
        text = f"job {namespace}/{name} waits in its queue: {told(job)}"
        found.append(Finding(Outcome.NOTE, text, "It starts when all of its minimum fits: add nodes, or wait."))
    elif (job.get("status") or {}).get("waiting") == names.Reason.FAILED_CREATE_POD:
        outcome = Outcome.NOTE if state_of(job) == State.RUNNING else Outcome.FIX
        found.append(Finding(outcome, f"job {namespace}/{name}: {told(job)}", _REFUSED.format(namespace=namespace)))
    failing = condition(job, names.ConditionType.DEVICE_FAILING)
    if failing.get("status") == "True":
        found.append(Finding(Outcome.FIX, f"job {namespace}/{name}: {failing['message']}", _BAD_NODE))
    cause = _no_node(job)
    for (reason, message, core), names_of in sorted(_pending(job["spec"], pods, now).items()):
        other = _REMEDY
        if reason == names.Reason.UNSCHEDULABLE and cause is not None:
            (reason, message), other = cause, _SET_UP
        text = f"job {namespace}/{name}: {', '.join(names_of)} {reason}" + (f": {message}" if message else "")
        remedy = _REMEDIES.get(reason, other).format(job=name, namespace=namespace, pod=names_of[0])
        stops = core and reason != names.NODE_STARTING
        found.append(Finding(Outcome.FIX if stops else Outcome.NOTE, text, remedy))
    return found


def _no_node(job: Object) -> tuple[str, str] | None:
    """Return why no node is there for the job's pods, in one word and in Karpenter's; None if it doesn't say so."""
    if (job.get("status") or {}).get("waiting") == names.NODE_STARTING:
        return names.NODE_STARTING, ""
    before, quotes, words = told(job).partition(" Karpenter: ")
    reason = re.search(r"found no room \((\w+)\)", before)
    return (reason[1], f"Karpenter: {words}") if quotes and reason else None


def _pending(spec: Object, pods: Iterable[Object], now: datetime) -> dict[tuple[str, str, bool], list[str]]:
    """Return the names of pods that have waited for long, by reason, message, and whether the job needs them."""
    found = defaultdict(list)
    for pod in pods:
        meta, state = pod["metadata"], pod_state(pod)
        stuck = state in _REMEDIES or (pod.get("status") or {}).get("phase") == "Pending"
        if state == "Ending" or not stuck or now - moment(meta["creationTimestamp"]) < PATIENCE:
            continue
        found[state, _message(pod), is_core(spec, meta["labels"])].append(meta["name"])
    return {key: sorted(each) for key, each in found.items()}


def _message(pod: Object) -> str:
    """Return what the scheduler or the kubelet says about a pod that waits."""
    status = pod.get("status") or {}
    for container in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        message = container.get("state", {}).get("waiting", {}).get("message")
        if message:
            return str(message)
    conditions = {each["type"]: each for each in status.get("conditions") or []}
    return str(conditions.get("PodScheduled", {}).get("message", ""))


def _key(job: Object) -> tuple[str, str]:
    return job["metadata"]["namespace"], job["metadata"]["name"]
