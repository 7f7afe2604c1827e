"""Merged logs, and logs that are followed while workers come and go."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from typer.testing import Result

from tests.cli.conftest import Run
from tests.cli.fake import PATIENCE_SECONDS, FakeCluster, crashing, job, pod, running
from tidewater.elasticjob import names
from tidewater.elasticjob.names import JOBS
from tidewater.kube.cluster import Change
from tidewater.kube.errors import Unreachable, error_of
from tidewater.kube.kinds import PODS, Kind


def at(second: int, text: str, fraction: str = "") -> str:
    """Return a line as the kubelet writes it."""
    return f"2026-03-01T12:00:{second:02}{fraction}Z {text}"


def test_logs_are_merged_in_the_order_of_their_times(run: Run, cluster: FakeCluster) -> None:
    cluster.put(JOBS, job(**running()))
    cluster.put(PODS, pod(0))
    cluster.put(PODS, pod(1))
    cluster.write("digits-worker-0", at(1, "a", ".5"), at(3, "c"))
    cluster.write("digits-worker-1", at(1, "b", ".50001"), at(4, "d"))
    assert run("job", "logs", "digits").stdout.splitlines() == [
        "worker-0 | a",
        "worker-1 | b",
        "worker-0 | c",
        "worker-1 | d",
    ]


def test_a_worker_that_has_not_started_is_told_beside_the_others(run: Run, cluster: FakeCluster) -> None:
    cluster.put(JOBS, job(**running()))
    cluster.put(PODS, pod(0))
    cluster.put(PODS, pod(1, state="waiting"))
    cluster.write("digits-worker-0", at(1, "a"))
    result = run("job", "logs", "digits")
    assert result.stdout == "worker-0 | a\n"
    assert "digits-worker-1 has not started: Pending" in result.stderr


def test_a_worker_that_waits_to_be_started_again_shows_its_last_run(run: Run, cluster: FakeCluster) -> None:
    cluster.put(JOBS, job(**running()))
    cluster.put(PODS, crashing(0))
    cluster.write("digits-worker-0", at(1, "Traceback"))
    result = run("job", "logs", "digits")
    assert (result.stdout, result.stderr) == ("worker-0 | Traceback\n", "")


def test_the_log_of_a_run_before_and_of_a_pod_that_was_replaced_is_printed(run: Run, cluster: FakeCluster) -> None:
    cluster.put(JOBS, job(**running(), lastFailure="Pod digits-worker-1 exited with code 1: Traceback\nKeyError: 'lr'"))
    restarted = pod(0)
    restarted["status"]["containerStatuses"][0]["restartCount"] = 1
    cluster.put(PODS, restarted)
    cluster.put(PODS, pod(1))
    cluster.write("digits-worker-0", at(2, "second run"))
    cluster.write("digits-worker-0 before", at(1, "first run"))
    result = run("job", "logs", "digits", "--previous")
    assert result.stdout == (
        "worker-0 | first run\nPod digits-worker-1 exited with code 1: Traceback\nKeyError: 'lr'\n"
    )
    assert run("job", "logs", "digits", "--previous", "-f").exit_code == 2


def test_without_a_failure_there_is_no_log_before(run: Run, cluster: FakeCluster) -> None:
    cluster.put(JOBS, job(**running()))
    cluster.put(PODS, pod(0))
    result = run("job", "logs", "digits", "--previous")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no pod of digits has failed" in result.stderr


def test_a_job_without_pods_says_why(run: Run, cluster: FakeCluster) -> None:
    waits = {"type": "Running", "status": "False", "message": "waits for its turn in queue q"}
    cluster.put(JOBS, job(state="Queued", conditions=[waits]))
    result = run("job", "logs", "digits")
    assert result.exit_code == 0
    assert "digits has no pods: Queued, 0 of 2 workers: waits for its turn in queue q" in result.stderr


@pytest.mark.parametrize("chosen", ["1", "worker-1", "digits-worker-1"])
def test_one_worker_can_be_chosen(run: Run, cluster: FakeCluster, chosen: str) -> None:
    cluster.put(JOBS, job(**running()))
    for index in range(2):
        cluster.put(PODS, pod(index))
        cluster.write(f"digits-worker-{index}", at(index, f"of {index}"))
    assert run("job", "logs", "digits", "--worker", chosen).stdout == "worker-1 | of 1\n"


@pytest.mark.parametrize("chosen", ["master", "digits-master", "master-0"])
def test_the_only_pod_of_a_type_can_be_chosen(run: Run, cluster: FakeCluster, chosen: str) -> None:
    cluster.put(JOBS, job(**running()))
    master = pod(0, type="Master")
    master["metadata"]["name"] = "digits-master"
    for each in (pod(0), master):
        cluster.put(PODS, each)
        cluster.write(each["metadata"]["name"], at(0, f"of {each['metadata']['name']}"))
    assert run("job", "logs", "digits", "--worker", chosen).stdout == "master   | of digits-master\n"


def test_a_worker_that_does_not_exist_names_those_that_do(run: Run, cluster: FakeCluster) -> None:
    cluster.put(JOBS, job(**running()))
    cluster.put(PODS, pod(0))
    result = run("job", "logs", "digits", "-w", "7")
    assert result.exit_code == 2
    assert "--worker 7: digits has no such worker\nIt has digits-worker-0." in result.stderr


def test_only_the_last_lines_of_each_worker_with_their_times(run: Run, cluster: FakeCluster) -> None:
    cluster.put(JOBS, job(**running()))
    for index in range(2):
        cluster.put(PODS, pod(index))
        cluster.write(f"digits-worker-{index}", at(1, "early"), at(2 + index, "late"))
    assert run("job", "logs", "digits", "--tail", "1", "--timestamps").stdout.splitlines() == [
        "worker-0 | 2026-03-01T12:00:02Z late",
        "worker-1 | 2026-03-01T12:00:03Z late",
    ]


def test_prefixes_can_be_left_out(run: Run, cluster: FakeCluster) -> None:
    cluster.put(JOBS, job(**running()))
    cluster.put(PODS, pod(0))
    cluster.write("digits-worker-0", at(1, "step=1"))
    assert run("job", "logs", "digits", "--no-prefix").stdout == "step=1\n"


def finish(cluster: FakeCluster, *indices: int) -> None:
    """Let workers end with 0, and then the job."""
    for index in indices:
        cluster.close(f"digits-worker-{index}")
        cluster.put(PODS, pod(index, state="terminated"))
    cluster.change(JOBS, "digits", status={"state": "Succeeded"})


@contextmanager
def meanwhile(act: Callable[[], None]) -> Iterator[None]:
    """Run `act` in a thread during the block; raise here what it raised."""
    failed: list[BaseException] = []

    def work() -> None:
        try:
            act()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    yield
    thread.join()
    if failed:
        raise failed[0]


@pytest.fixture
def live() -> FakeCluster:
    """A cluster in which other threads act while a command runs."""
    cluster = FakeCluster()
    cluster.put(JOBS, job(**running()))
    return cluster


def follow(run: Run, cluster: FakeCluster, act: Callable[[], None], *words: str) -> Result:
    """Follow the logs while `act` changes the cluster."""
    with meanwhile(act):
        return run("job", "logs", "digits", "-f", *words, on=cluster)


def test_following_ends_when_the_job_has_ended_and_everything_is_read(run: Run, live: FakeCluster) -> None:
    live.put(PODS, pod(0))

    def act() -> None:
        live.await_reader("digits-worker-0")
        live.write("digits-worker-0", at(1, "a"), at(2, "b"))
        finish(live, 0)

    result = follow(run, live, act)
    assert result.exit_code == 0
    assert result.stdout == "worker-0 | a\nworker-0 | b\n"
    assert "digits: Succeeded" in result.stderr


def test_following_reads_a_worker_that_comes_later_from_its_first_line(run: Run, live: FakeCluster) -> None:
    live.put(PODS, pod(0))

    def act() -> None:
        live.await_reader("digits-worker-0")
        live.write("digits-worker-1", *(at(1, f"line {number}") for number in range(30)))
        live.put(PODS, pod(1))
        live.await_reader("digits-worker-1")
        finish(live, 0, 1)

    result = follow(run, live, act)
    assert result.stdout.splitlines() == [f"worker-1 | line {number}" for number in range(30)]
    assert "digits-worker-1 has come" in result.stderr


def test_following_reads_the_pod_that_replaces_a_lost_one(run: Run, live: FakeCluster) -> None:
    live.put(PODS, pod(0))

    def act() -> None:
        live.await_reader("digits-worker-0")
        live.write("digits-worker-0", at(1, "first"))
        live.close("digits-worker-0")
        live.remove(PODS, "digits-worker-0")
        del live.logs["digits-worker-0"]
        live.put(PODS, pod(0))
        live.await_reader("digits-worker-0")
        live.write("digits-worker-0", at(2, "second"))
        finish(live, 0)

    result = follow(run, live, act)
    lines = result.stdout.splitlines()  # two logs, read at the same time
    assert sorted(lines) == ["worker-0 | first", "worker-0 | second"]
    assert "digits-worker-0 has left" in result.stderr


def test_a_log_that_is_read_on_is_not_that_of_the_pod_which_has_replaced_it(run: Run, live: FakeCluster) -> None:
    live.put(PODS, pod(0))
    whole_log, whole_list, whole_watch = live.log, live.list, live.watch
    replaced, tried = threading.Event(), threading.Event()

    def asked() -> None:
        if replaced.is_set():
            tried.set()

    def log(*given: Any) -> Iterator[str]:
        asked()
        return whole_log(*given)

    def list_(*given: Any) -> Any:
        found = whole_list(*given)
        asked()
        return found

    def watch(kind: Kind, *given: Any) -> Iterator[Change]:
        """Report that the pod is gone only when its log has been asked for again."""
        for change in whole_watch(kind, *given):
            if change.type == "DELETED":
                assert tried.wait(PATIENCE_SECONDS)
            yield change

    live.log, live.list, live.watch = log, list_, watch  # type: ignore[method-assign, assignment]

    def act() -> None:
        live.await_reader("digits-worker-0")
        first = live.logs.pop("digits-worker-0")
        live.write("digits-worker-0", at(2, "second"))
        live.remove(PODS, "digits-worker-0")
        live.put(PODS, pod(0))
        replaced.set()
        first.lines.append(at(1, "first"))
        first.closed = True
        live.write("digits-worker-0")
        live.await_reader("digits-worker-0")
        finish(live, 0)

    lines = follow(run, live, act).stdout.splitlines()
    assert sorted(lines) == ["worker-0 | first", "worker-0 | second"]


def test_following_reads_the_last_run_of_a_crashing_worker_once(run: Run, live: FakeCluster) -> None:
    live.put(PODS, crashing(0))
    live.write("digits-worker-0", at(1, "Traceback"))

    def act() -> None:
        live.await_reader("digits-worker-0")
        live.change(JOBS, "digits", status={"state": "Failed"})

    assert follow(run, live, act).stdout == "worker-0 | Traceback\n"
    assert live.logs["digits-worker-0"].readers == 1


def test_following_goes_on_with_the_next_run_of_a_crashing_worker(run: Run, live: FakeCluster) -> None:
    live.put(PODS, pod(0))

    def act() -> None:
        live.await_reader("digits-worker-0")
        live.write("digits-worker-0", at(1, "Traceback"))
        live.close("digits-worker-0")
        live.put(PODS, crashing(0))
        del live.logs["digits-worker-0"]
        again = pod(0)
        again["status"]["containerStatuses"][0]["restartCount"] = 1
        live.put(PODS, again)
        live.await_reader("digits-worker-0")
        live.write("digits-worker-0", at(2, "better"))
        finish(live, 0)

    assert follow(run, live, act).stdout == "worker-0 | Traceback\nworker-0 | better\n"


def test_following_begins_with_the_last_lines_of_those_that_run(run: Run, live: FakeCluster) -> None:
    live.put(PODS, pod(0))
    live.write("digits-worker-0", *(at(1, str(number), f".{number:02}") for number in range(30)))

    def act() -> None:
        live.await_reader("digits-worker-0")
        finish(live, 0)

    assert follow(run, live, act).stdout.splitlines() == [f"worker-0 | {number}" for number in range(20, 30)]


def test_a_connection_that_breaks_loses_and_repeats_no_line(run: Run, live: FakeCluster) -> None:
    live.put(PODS, pod(0))
    whole = live.log
    broken: list[str] = []

    def breaking(pod: str, *arguments: object) -> Iterator[str]:
        for number, line in enumerate(whole(pod, *arguments)):  # type: ignore[arg-type]
            yield line
            if number == 2 and not broken:
                broken.append(pod)
                raise Unreachable("connection reset")

    live.log = breaking  # type: ignore[method-assign, assignment]
    live.write("digits-worker-0", *(at(1, f"{number}", f".{number}") for number in range(5)))

    def act() -> None:
        live.await_reader("digits-worker-0")
        finish(live, 0)

    assert follow(run, live, act).stdout.splitlines() == [f"worker-0 | {number}" for number in range(5)]
    assert broken


def test_a_log_that_may_not_be_read_is_an_error(run: Run, live: FakeCluster) -> None:
    live.put(PODS, pod(0))
    live.failures["log", "Pod"] = error_of(403, "Forbidden", "pods/log is forbidden")
    result = run("job", "logs", "digits", "-f", on=live)
    assert result.exit_code == 1
    assert "pods/log is forbidden" in result.stderr


def test_following_ends_when_the_job_is_deleted(run: Run, live: FakeCluster) -> None:
    live.put(PODS, pod(0))

    def act() -> None:
        live.await_reader("digits-worker-0")
        live.remove(JOBS, "digits")
        live.close("digits-worker-0")
        live.remove(PODS, "digits-worker-0")

    result = follow(run, live, act)
    assert result.exit_code == 0
    assert "digits: the job has been deleted" in result.stderr


def test_other_types_are_merged_too(run: Run, cluster: FakeCluster) -> None:
    made = job(**running())
    made["spec"]["replicaSpecs"]["Master"] = {"replicas": 1}
    cluster.put(JOBS, made)
    cluster.put(PODS, pod(0))
    cluster.put(PODS, pod(0, type="Master"))
    cluster.write("digits-worker-0", at(1, "w"))
    cluster.write(names.pod_name("digits", "Master", 0), at(2, "m"))
    assert run("job", "logs", "digits").stdout == "worker-0 | w\nmaster-0 | m\n"
