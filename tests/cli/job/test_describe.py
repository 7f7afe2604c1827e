"""`job describe` of a job with a thousand pods shows those that need attention, and the others by their indexes."""

from __future__ import annotations

from datetime import UTC, datetime

from tests.cli.fake import crashing, job, pod, running
from tidewater.cli.job.describe import MOST_PODS, MOST_ROWS, View, described
from tidewater.kube.cluster import Object

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def pods_block(pods: list[Object]) -> list[str]:
    """Return the lines of the pods."""
    lines = described(View(job("digits", **running()), pods, []), NOW).plain.splitlines()
    return lines[lines.index("Pods:") + 1 : lines.index("Pods' Events: <none>")]


def unready(index: int) -> Object:
    found = pod(index)
    found["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    return found


def test_a_thousand_pods_that_are_ready_are_two_lines() -> None:
    assert pods_block([pod(index) for index in range(1000)]) == [
        "  1000 pods: 1000 Running",
        "  1000 Running: digits-worker-[0-999]",
    ]


def test_pods_that_fail_have_rows_before_the_many_that_wait() -> None:
    waiting = [pod(index, state="waiting") for index in range(900, 996)]
    lines = pods_block(
        [*(pod(index) for index in range(900)), *waiting, crashing(996), unready(997), pod(998, state="terminated")]
    )
    assert lines[0] == "  999 pods: 900 Running, 96 Pending, 1 CrashLoopBackOff, 1 Not ready, 1 Succeeded"
    rows = [line.split() for line in lines[2 : 2 + MOST_ROWS]]
    assert [row[0] for row in rows[:3]] == ["digits-worker-996", "digits-worker-997", "digits-worker-900"]
    assert lines[2 + MOST_ROWS :] == [
        "  78 more Pending: digits-worker-[918-995]",
        "  900 Running: digits-worker-[0-899]",
        "  1 Succeeded: digits-worker-998",
    ]


def test_a_job_with_replicas_of_several_pods_counts_replicas() -> None:
    made = job("digits", replicas=2, low=1, high=3, **running())
    made["spec"]["workersPerReplica"] = 2
    shown = described(View(made, [pod(index) for index in range(4)], []), NOW).plain
    assert "Replicas:         2 active, 2 aimed for, from 1 to 3, of 2 pods each" in shown
    rows = [line.split() for line in shown.splitlines() if line.startswith("  digits-worker-")]
    assert [row[1] for row in rows] == ["core", "core", "surge", "surge"]


def test_indexes_with_many_gaps_stay_short() -> None:
    lines = pods_block([pod(index, state="running" if index % 2 else "terminated") for index in range(1000)])
    assert len(lines) == 3
    assert all(len(line) < 450 for line in lines)


def test_few_pods_have_a_row_each() -> None:
    few = [pod(index) for index in range(MOST_PODS)]
    assert len(pods_block(few)) == 1 + MOST_PODS
    assert len(pods_block([*few, pod(MOST_PODS)])) == 2
