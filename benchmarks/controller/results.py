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

_CALL = f"{CALLS}: "


def named(jobs: int, measure: str) -> str:
    """Return the name of a measure in the records, for a number of jobs."""
    return f"{jobs} jobs: {measure}"


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
    measure = split(name)[1]
    return UNITS[CALLS if call_of(measure) else measure]
