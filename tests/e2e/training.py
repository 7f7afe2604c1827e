"""What the end-to-end tests read from a running training job, from the API server only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.e2e.checkout import PATIENCE_SECONDS, Checkout, wait_until


def is_running(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod runs and is not being deleted."""
    return pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]


def running_workers(checkout: Checkout) -> list[str]:
    """Return the names of the running worker pods, oldest first."""
    return [pod["metadata"]["name"] for pod in checkout.worker_pods() if is_running(pod)]


def identities(checkout: Checkout) -> dict[str, tuple[str, int]]:
    """Map each pod's name to (uid, restarts of its containers). Equal pairs mean the same process."""
    return {
        pod["metadata"]["name"]: (
            pod["metadata"]["uid"],
            sum(status["restartCount"] for status in pod["status"]["containerStatuses"]),
        )
        for pod in checkout.worker_pods()
        if is_running(pod)
    }


def node_of(checkout: Checkout, pod: str) -> str:
    """Return the node that a worker pod runs on."""
    found = next(p for p in checkout.worker_pods() if p["metadata"]["name"] == pod)
    return str(found["spec"]["nodeName"])


def steps(checkout: Checkout, pod: str) -> list[dict[str, str]]:
    """Return the step reports of one worker in printed order."""
    return [line for line in checkout.logs(pod) if "step" in line and "event" not in line]


def progress(checkout: Checkout) -> dict[str, str]:
    """Return the newest step report of any running worker; {} if there is none yet."""
    last = [reports[-1] for pod in running_workers(checkout) if (reports := steps(checkout, pod))]
    return max(last, key=lambda report: int(report["step"]), default={})


def latest_step(checkout: Checkout) -> int:
    """Return the highest step that a running worker has reported; 0 before the first."""
    return int(progress(checkout).get("step", 0))


def assert_steps_only_grow(checkout: Checkout) -> None:
    """Assert that each worker's steps increase: no process returned to an earlier step."""
    for pod in running_workers(checkout):
        counted = [int(report["step"]) for report in steps(checkout, pod)]
        assert counted == sorted(set(counted)), f"{pod} went back: {counted}"


def assert_committed_once(logs: Sequence[list[dict[str, str]]]) -> None:
    """Assert from logs with every step that no step is missing or repeated, and that all reports of a step agree."""
    losses: dict[int, str] = {}
    for log in logs:
        reports = [line for line in log if "loss" in line]
        counted = [int(report["step"]) for report in reports]
        assert counted == sorted(set(counted)), f"a step came twice, or an earlier one: {counted}"
        for report in reports:
            agreed = losses.setdefault(int(report["step"]), report["loss"])
            assert agreed == report["loss"], f"two different steps: {report}, and a loss of {agreed}"
    missing = set(range(min(losses), max(losses))) - losses.keys()
    assert not missing, f"nobody has reported the steps {sorted(missing)}"


def wait_for_world(
    checkout: Checkout,
    size: int,
    *,
    of: Mapping[str, Any] | None = None,
    after: int = 0,
    seconds: float = PATIENCE_SECONDS,
) -> None:
    """Wait until every worker of `of` (default: all running) reports `world_size=size`.

    Reports of generation `after` and of earlier ones do not count.
    """

    def reached() -> bool:
        pods = list(of) if of is not None else running_workers(checkout)
        last = [reports[-1] for pod in pods if (reports := steps(checkout, pod))]
        there = [r for r in last if r["world_size"] == str(size) and int(r["generation"]) > after]
        return len(there) == len(pods) > 0

    wait_until(f"world_size={size}", reached, seconds=seconds)


def latest_generation(checkout: Checkout) -> int:
    """Return the generation number of the newest report."""
    return int(progress(checkout)["generation"])


def count(log: Sequence[Mapping[str, str]], event: str) -> int:
    """Return how often a worker has logged an event."""
    return sum(line.get("event") == event for line in log)
