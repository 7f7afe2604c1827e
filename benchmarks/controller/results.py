"""The benchmark's systems and measures, by their names in the records, in the tables' order.

named(1000, RATE)       # "1000 jobs: jobs a second, until all pods exist"
unit(named(1000, RATE)) # "jobs/s"
"""

from __future__ import annotations

TIDEWATER = "tidewater"
TUNED = "training-operator tuned"
DEFAULTS = "training-operator"
SYSTEMS = (TIDEWATER, TUNED, DEFAULTS)

RATE = "jobs a second, until all pods exist"
CREATED = "from the first job's submission until all pods exist"
SUBMITTED = "of that, until all jobs are submitted"
CPU = "CPU of the controller for each job"
PLANE_CPU = "CPU of etcd and the API server for each job"
CALLS = "API calls for each job"
RSS = "memory, RSS"
PSS = "memory, PSS"
RESIZE_P50 = "a resize, until the new pod exists, p50"
RESIZE_P99 = "a resize, until the new pod exists, p99"
REST_CALLS = "API calls a second at rest, without watches and the Lease"
REST_LEASE = "API calls a second at rest, for the Lease"
REST_WATCHES = "watches opened a second at rest"
REST_CPU = "CPU of the controller at rest, of a core"

UNITS = {
    RATE: "jobs/s",
    CREATED: "s",
    SUBMITTED: "s",
    CPU: "ms",
    PLANE_CPU: "ms",
    CALLS: "calls",
    RSS: "MiB",
    PSS: "MiB",
    RESIZE_P50: "ms",
    RESIZE_P99: "ms",
    REST_CALLS: "calls/s",
    REST_LEASE: "calls/s",
    REST_WATCHES: "calls/s",
    REST_CPU: "%",
}
"""Of each measure, in the tables' order."""

STATUS = "the job's status"
POD_CPU = "CPU of the controller for each pod"
POD_PLANE_CPU = "CPU of etcd and the API server for each pod"
POD_CALLS = "API calls for each pod"
ALL_CREATED = "from the job's submission until all pods exist"
ALL_RUN = "from the job's submission until its status says that all run"
SAID = "of that, after the last pod runs"
GROWN_CREATED = "a resize by half as many, until all pods exist"
GROWN = "a resize by half as many, until the status says that all run"
SHRUNK = "the same resize back, until the status says so and the pods are gone"

LARGE_UNITS = {
    ALL_CREATED: "s",
    ALL_RUN: "s",
    SAID: "s",
    GROWN_CREATED: "s",
    GROWN: "s",
    SHRUNK: "s",
    POD_CALLS: "calls",
    POD_CPU: "ms",
    POD_PLANE_CPU: "ms",
    STATUS: "bytes",
}
"""Of each measure of one job with many pods, in the table's order."""

_CALL = f"{CALLS}: "
_POD_CALL = f"{POD_CALLS}: "
_LARGE = "one job of "


def named(jobs: int, measure: str) -> str:
    """Return the name of a measure in the records, for a number of jobs."""
    return f"{jobs} jobs: {measure}"


def large(pods: int, measure: str) -> str:
    """Return the name of a measure in the records, for one job with a number of pods."""
    return f"{_LARGE}{pods} pods: {measure}"


def pods_of(name: str) -> tuple[int, str]:
    """Return the number of pods and the measure of a name in the records; no pods for many small jobs."""
    if not name.startswith(_LARGE):
        return 0, name
    pods, _, measure = name.removeprefix(_LARGE).partition(" pods: ")
    return int(pods), measure


def pod_call(what: str) -> str:
    """Return the measure of one kind of API calls for each pod."""
    return f"{_POD_CALL}{what}"


def pod_call_of(measure: str) -> str | None:
    """Return the kind of API calls for each pod that a measure counts; None for other measures."""
    return measure.removeprefix(_POD_CALL) if measure.startswith(_POD_CALL) else None


def split(name: str) -> tuple[int, str]:
    """Return the number of jobs and the measure of a name in the records."""
    jobs, _, measure = name.partition(" jobs: ")
    return int(jobs), measure


def call(what: str) -> str:
    """Return the measure of one kind of API calls, such as `create pods`."""
    return f"{_CALL}{what}"


def call_of(measure: str) -> str | None:
    """Return the kind of API calls that a measure counts; None for other measures."""
    return measure.removeprefix(_CALL) if measure.startswith(_CALL) else None


def unit(name: str) -> str:
    """Return the unit of a name in the records."""
    pods, measure = pods_of(name)
    if pods:
        return LARGE_UNITS[POD_CALLS if pod_call_of(measure) else measure]
    measure = split(name)[1]
    return UNITS[CALLS if call_of(measure) else measure]
