"""`tidewater job logs` of pods that are gone: what the stack has kept, printed by a pod."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.fake import START, FakeClock, FakeCluster, job, pod, running
from tidewater.elasticjob.names import JOBS
from tidewater.kube.cluster import Object
from tidewater.kube.errors import error_of
from tidewater.kube.kinds import DEPLOYMENTS, PODS, Kind

LINES = (
    "digits-worker-0 2026-03-01T12:00:01.000000000Z a",
    "digits-worker-10 2026-03-01T12:00:02.000000000Z b",
    "digits-worker-0 the kubelet's own words",
)


def deployment() -> Object:
    """Return the Deployment that keeps logs, as the API server has it."""
    container = {
        "name": "logs",
        "image": "python",
        "command": ["python3", "/program/keep.py"],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    spec = {"serviceAccountName": "logs", "serviceAccount": "logs", "containers": [container], "volumes": volumes}
    return {"metadata": {"name": "logs"}, "spec": {"template": {"spec": spec}}}


class Keeping(FakeCluster):
    """A cluster with that Deployment, and a kubelet that runs the pod that is made of it."""

    def __init__(self, *lines: str, left_out: int = 0, files: int = 2, starts: bool = True) -> None:
        super().__init__(FakeClock())
        self.put(DEPLOYMENTS, deployment())
        self.header = {"files": files, "lines": len(lines), "left_out": left_out}
        self.lines, self.starts = lines, starts

    def create(self, kind: Kind, object: Object, *, dry_run: bool = False) -> Object:
        made = super().create(kind, object, dry_run=dry_run)
        if kind is PODS and self.starts:
            name = made["metadata"]["name"]
            self.write(name, json.dumps(self.header), *self.lines)
            ended = [{"name": "logs", "restartCount": 0, "state": {"terminated": {"exitCode": 0}}}]
            self.change(PODS, name, status={"phase": "Succeeded", "containerStatuses": ended})
        return made


def words(cluster: FakeCluster) -> list[str]:
    """Return the arguments of the pod that was made."""
    (made,) = [sent for verb, sent in cluster.sent if verb == "create"]
    command: list[str] = made["spec"]["containers"][0]["command"]
    return command[3:]


def test_the_logs_of_a_job_that_is_deleted_are_those_that_were_kept(run: Run) -> None:
    cluster = Keeping(*LINES)
    result = run("job", "logs", "digits", on=cluster)
    assert result.stdout.splitlines() == ["worker-0  | a", "worker-10 | b", "worker-0  | the kubelet's own words"]
    assert "reading the kept logs of digits in pod tidewater-logs-" in result.stderr
    assert words(cluster) == ["--job=digits"]


def test_the_pod_mounts_the_files_read_only_has_no_token_and_is_deleted(run: Run) -> None:
    cluster = Keeping(*LINES)
    run("job", "logs", "digits", on=cluster)
    ((_, made),) = cluster.sent
    assert made["spec"]["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in made["spec"]
    assert made["spec"]["restartPolicy"] == "Never"
    assert made["spec"]["containers"][0]["volumeMounts"] == [{"name": "data", "mountPath": "/data", "readOnly": True}]
    assert cluster.list(PODS).items == []


def test_a_job_without_pods_shows_its_own_kept_logs_and_no_earlier_ones_of_its_name(run: Run) -> None:
    cluster = Keeping(*LINES)
    uid = cluster.put(JOBS, job())["metadata"]["uid"]
    assert run("job", "logs", "digits", on=cluster).stdout.startswith("worker-0  | a\n")
    assert words(cluster) == ["--job=digits", f"--uid={uid}"]


def test_a_job_with_pods_shows_their_logs_unless_the_kept_ones_are_asked_for(run: Run) -> None:
    cluster = Keeping(*LINES)
    cluster.put(JOBS, job(**running()))
    cluster.put(PODS, pod(0))
    cluster.write("digits-worker-0", "2026-03-01T12:00:05Z now")
    assert run("job", "logs", "digits", on=cluster).stdout == "worker-0 | now\n"
    assert run("job", "logs", "digits", "--kept", on=cluster).stdout.startswith("worker-0  | a\n")


def test_the_pod_gets_what_the_flags_choose(run: Run) -> None:
    cluster = Keeping(*LINES)
    run("job", "logs", "digits", "--worker", "0", "--tail", "5", "--since", "10m", on=cluster)
    since = f"{START:%Y-%m-%dT}11:50:00"
    pods = ["--pod=0", "--pod=digits-0", "--pod=digits-worker-0"]
    assert words(cluster) == ["--job=digits", *pods, "--tail=5", f"--since={since}"]


def test_lines_that_were_left_out_are_counted_with_the_place_that_has_them(run: Run) -> None:
    result = run("job", "logs", "digits", on=Keeping(*LINES, left_out=7))
    assert "7 lines before these are left out: pods that mount the shared files have /data/logs/digits" in result.stderr


def test_a_log_that_breaks_off_is_an_error(run: Run) -> None:
    cluster = Keeping(*LINES)
    cluster.header["lines"] = 5
    result = run("job", "logs", "digits", on=cluster)
    assert result.exit_code == 1
    assert "broke off after 3 of 5 lines" in result.stderr
    assert cluster.list(PODS).items == []


def test_a_pod_that_ends_with_an_error_is_reported_in_its_words(run: Run) -> None:
    cluster = Keeping(*LINES)
    cluster.header = "PermissionError"  # type: ignore[assignment] # what it prints instead
    result = run("job", "logs", "digits", on=cluster)
    assert result.exit_code == 1
    assert 'could not read the kept logs: "PermissionError"' in result.stderr


def test_a_pod_that_does_not_start_is_given_up_and_deleted(run: Run) -> None:
    cluster = Keeping(*LINES, starts=False)
    result = run("job", "logs", "digits", on=cluster)
    assert result.exit_code == 1
    assert "has not started after 120 s" in result.stderr
    assert cluster.list(PODS).items == []


def test_a_wrong_name_is_not_found_as_without_kept_logs(run: Run) -> None:
    cluster = Keeping(files=0)
    cluster.put(JOBS, job())
    result = run("job", "logs", "digit", on=cluster)
    assert result.exit_code == 1
    assert "Did you mean digits?" in result.stderr


def test_a_job_of_which_nothing_is_kept_says_so(run: Run) -> None:
    cluster = Keeping(files=0)
    cluster.put(JOBS, job(state="Succeeded"))
    assert "nothing is kept of digits" in run("job", "logs", "digits", "--kept", on=cluster).stderr
    assert "digits has no pods" in run("job", "logs", "digits", on=cluster).stderr


def test_a_namespace_that_keeps_no_logs_is_an_error_only_if_they_are_asked_for(run: Run, cluster: FakeCluster) -> None:
    cluster.put(JOBS, job(state="Succeeded"))
    result = run("job", "logs", "digits", "--kept")
    assert result.exit_code == 1
    assert "namespace training keeps no logs of jobs" in result.stderr
    assert "pulumi config set jobLogDays" in result.stderr
    assert "digits has no pods" in run("job", "logs", "digits").stderr


@pytest.mark.parametrize("flag", [[], ["--kept"]])
def test_who_may_not_run_pods_sees_the_refusal_if_the_kept_logs_were_asked_for(run: Run, flag: list[str]) -> None:
    cluster = Keeping(*LINES)
    cluster.failures[("create", "Pod")] = error_of(403, "Forbidden", 'cannot create resource "pods"')
    result = run("job", "logs", "digits", *flag, on=cluster)
    assert result.exit_code == 1
    assert ('cannot create resource "pods"' in result.stderr) is bool(flag)
    assert ('"digits" not found' in result.stderr) is not bool(flag)


@pytest.mark.parametrize("other", ["--follow", "--previous"])
def test_kept_logs_are_neither_followed_nor_those_before(run: Run, other: str) -> None:
    result: Any = run("job", "logs", "digits", "--kept", other, on=Keeping())
    assert result.exit_code == 2
    assert f"--kept can't be used with {other}" in result.stderr
