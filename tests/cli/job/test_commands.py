"""The job commands, but for logs and wait."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from tests.cli.conftest import Run
from tests.cli.fake import START, FakeCluster, job, pod, running
from tidewater.elasticjob.names import JOBS
from tidewater.kube.errors import error_of
from tidewater.kube.kinds import EVENTS, PODS, missing

SUBMIT = ("job", "submit", "digits", "--image", "i", "--workers", "2", "--max", "4")


def test_submit_creates_the_job(run: Run, cluster: FakeCluster) -> None:
    result = run(*SUBMIT)
    assert result.exit_code == 0
    assert result.stdout == "digits created in namespace training\n"
    assert cluster.get(JOBS, "digits")["spec"]["maxReplicas"] == 4


def test_a_dry_run_prints_exactly_what_is_sent(run: Run, cluster: FakeCluster) -> None:
    flags = ("-n", "other", "-e", "A=1", "--", "torchrun", "train.py", "--x")
    printed = run(*SUBMIT, "--dry-run", *flags)
    assert cluster.sent == []
    run(*SUBMIT, *flags)
    assert cluster.sent == [("create", yaml.safe_load(printed.stdout))]


def test_what_a_dry_run_printed_can_be_submitted(run: Run, cluster: FakeCluster) -> None:
    printed = run(*SUBMIT, "--dry-run")
    assert run("job", "submit", "-f", "-", text=printed.stdout).exit_code == 0
    assert cluster.get(JOBS, "digits")


def test_a_name_that_is_taken_says_what_to_do(run: Run) -> None:
    run(*SUBMIT)
    result = run(*SUBMIT)
    assert result.exit_code == 1
    assert "already exists" in result.stderr
    assert "tidewater job delete digits" in result.stderr


def test_submit_wants_a_name_or_a_file(run: Run) -> None:
    result = run("job", "submit", "--image", "i")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: NAME is missing\n")


def test_flags_beside_a_file_are_named(run: Run, tmp_path: Path) -> None:
    result = run("job", "submit", "-f", str(tmp_path), "--image", "i", "--rdzv-endpoint", "e:1")
    assert result.exit_code == 2
    assert "--image, --rdzv-endpoint can't be used with -f" in result.stderr


def test_list_prints_the_servers_table(run: Run, cluster: FakeCluster) -> None:
    cluster.put(JOBS, job("digits", **running()))
    cluster.put(JOBS, job("imagenet-long"))
    assert run("job", "list").stdout.splitlines() == [
        "NAME            STATE     DESIRED   ACTIVE   AGE",
        "digits          Running   2         2        5m",
        "imagenet-long   <none>    0         0        5m",
    ]


def test_list_of_all_namespaces_says_which(run: Run, cluster: FakeCluster) -> None:
    other = job("digits")
    other["metadata"]["namespace"] = "other"
    cluster.put(JOBS, other)
    head, row = run("job", "list", "-A").stdout.splitlines()
    assert head.startswith("NAMESPACE   NAME")
    assert row.startswith("other       digits")


def test_list_as_json_has_the_objects(run: Run, cluster: FakeCluster) -> None:
    cluster.put(JOBS, job("digits"))
    found = json.loads(run("job", "list", "-o", "json").stdout)
    assert found["kind"] == "List"
    assert [each["metadata"]["name"] for each in found["items"]] == ["digits"]


def test_describe_shows_conditions_pods_and_events(run: Run, cluster: FakeCluster) -> None:
    made = cluster.put(JOBS, job("digits", **running()))
    cluster.put(PODS, pod(1))
    cluster.put(PODS, pod(0))
    about = {"kind": "ElasticJob", "uid": made["metadata"]["uid"]}
    event = {"involvedObject": about, "type": "Normal", "reason": "SuccessfulCreatePod", "message": "Created pod: a"}
    cluster.put(EVENTS, {"metadata": {"name": "e"}, "lastTimestamp": START.isoformat(), "count": 3, **event})
    shown = run("job", "describe", "digits").stdout
    assert "State:            Running\n" in shown
    assert "Workers:          2 active, 2 aimed for, from 1 to 4\n" in shown
    assert "  Running   True     0s      ElasticJobRunning   ElasticJob digits is running.\n" in shown
    assert "Replica Statuses:\n  Worker:\n    Active:    2\n" in shown
    assert "  digits-worker-0   core    Running   node-0   0          0s\n" in shown
    assert "  digits-worker-1   surge   Running   node-1   0          0s\n" in shown
    assert "  Normal   SuccessfulCreatePod   0s (x3)   Created pod: a\n" in shown


def test_describe_shows_what_has_happened_to_the_pods(run: Run, cluster: FakeCluster) -> None:
    cluster.put(JOBS, job("digits", **running()))
    mine, other = cluster.put(PODS, pod(0)), cluster.put(PODS, pod(0, owner="other"))
    for each in (mine, other):
        about = {"kind": "Pod", "name": each["metadata"]["name"], "uid": each["metadata"]["uid"]}
        event = {"involvedObject": about, "type": "Warning", "reason": "FailedMount", "message": 'no secret "s"'}
        cluster.put(EVENTS, {"metadata": {"name": about["name"]}, "lastTimestamp": START.isoformat(), **event})
    shown = run("job", "describe", "digits").stdout
    assert "Pods' Events:\n" in shown
    assert '  digits-worker-0   Warning   FailedMount   0s    no secret "s"\n' in shown
    assert "other-worker-0" not in shown


def test_describe_shows_the_tier_that_a_successor_has(run: Run, cluster: FakeCluster) -> None:
    cluster.put(JOBS, job(low=1, high=3))
    successor = pod(17)
    successor["metadata"]["labels"]["tidewater.dev/tier"] = "core"
    cluster.put(PODS, successor)
    (row,) = [line for line in run("job", "describe", "digits").stdout.splitlines() if "digits-worker-17" in line]
    assert row.split()[:2] == ["digits-worker-17", "core"]


def test_describe_says_what_the_job_waits_for(run: Run, cluster: FakeCluster) -> None:
    cluster.put(JOBS, job("digits", **running(), waiting="VcpuLimitExceeded"))
    assert "Waiting:          VcpuLimitExceeded\n" in run("job", "describe", "digits").stdout


def test_describe_says_that_a_job_is_queued_until_it_starts(run: Run, cluster: FakeCluster) -> None:
    since: dict[str, Any] = {"queuedSince": "2026-01-01T00:00:00Z"}
    for status, shown in ((since, True), ({**since, "wholeSince": "2026-01-02T00:00:00Z"}, False)):
        cluster.put(JOBS, job("digits", **status))
        assert ("Queued:" in run("job", "describe", "digits").stdout) is shown


def test_describe_says_which_part_may_not_be_read(run: Run, cluster: FakeCluster) -> None:
    cluster.put(JOBS, job("digits"))
    cluster.failures["list", "Event"] = error_of(403, "Forbidden", "events is forbidden: User u cannot list")
    result = run("job", "describe", "digits")
    assert result.exit_code == 0
    assert "Pods: <none>\n" in result.stdout
    assert "Events:\n  events is forbidden: User u cannot list\n" in result.stdout


def test_describe_as_yaml_is_the_object(run: Run, cluster: FakeCluster) -> None:
    cluster.put(JOBS, job("digits"))
    assert yaml.safe_load(run("job", "describe", "digits", "-o", "yaml").stdout) == cluster.get(JOBS, "digits")


def test_scale_uses_the_scale_subresource(run: Run, cluster: FakeCluster) -> None:
    cluster.put(JOBS, job("digits", replicas=2))
    assert run("job", "scale", "digits", "3").stdout == "digits scaled from 2 to 3\n"
    assert cluster.sent == [("patch scale", {"spec": {"replicas": 3}})]


def test_scale_waits_when_asked_to(run: Run, cluster: FakeCluster) -> None:
    cluster.put(JOBS, job("digits", **running()))
    status = {**running(3, 3), "observedGeneration": 2}
    cluster.steps = [lambda: cluster.change(JOBS, "digits", status=status)]
    assert run("job", "scale", "digits", "3", "--wait", "--timeout", "1m").exit_code == 0
    assert cluster.steps == []


def test_scale_does_not_wait_for_a_suspended_job(run: Run, cluster: FakeCluster) -> None:
    suspended = job("digits", state="Suspended")
    suspended["spec"]["suspend"] = True
    cluster.put(JOBS, suspended)
    cluster.steps = [lambda: None]
    result = run("job", "scale", "digits", "3", "--wait", "--timeout", "1m")
    assert (result.exit_code, len(cluster.steps)) == (1, 1)
    assert result.stdout == "digits scaled from 2 to 3\n", "it will have that size once it is resumed"
    assert "digits does not have its size and can't any more: the job is suspended" in result.stderr
    assert "Start it again: tidewater job resume digits" in result.stderr


def test_suspend_and_resume_change_one_field(run: Run, cluster: FakeCluster) -> None:
    cluster.put(JOBS, job("digits", **running()))
    assert run("job", "suspend", "digits").stdout == "digits suspended\n"
    assert run("job", "suspend", "digits").stdout == "digits is already suspended\n"
    assert run("job", "resume", "digits").stdout == "digits resumed\n"
    assert run("job", "resume", "digits").stdout == "digits is not suspended\n"
    assert cluster.sent == [("patch", {"spec": {"suspend": True}}), ("patch", {"spec": {"suspend": False}})]


def test_a_job_that_has_ended_can_not_be_suspended(run: Run, cluster: FakeCluster) -> None:
    cluster.put(JOBS, job("digits", state="Succeeded"))
    result = run("job", "suspend", "digits")
    assert result.exit_code == 1
    assert "digits has succeeded and can't be suspended" in result.stderr


def test_delete_waits_for_the_pods(run: Run, cluster: FakeCluster) -> None:
    cluster.put(JOBS, job("digits"))
    cluster.put(PODS, pod(0))
    cluster.put(PODS, pod(0, owner="other"))
    cluster.steps = [lambda: cluster.remove(PODS, "digits-worker-0")]
    result = run("job", "delete", "digits")
    assert (result.exit_code, result.stdout) == (0, "digits deleted\n")
    assert "waiting for 1 pod to leave" in result.stderr
    assert cluster.steps == []


def test_delete_can_return_at_once(run: Run, cluster: FakeCluster) -> None:
    cluster.put(JOBS, job("digits"))
    cluster.put(PODS, pod(0))
    assert run("job", "delete", "digits", "--no-wait").stdout == "digits deleted\n"


def test_delete_gives_up_with_an_exit_code_of_its_own(run: Run, cluster: FakeCluster) -> None:
    cluster.put(JOBS, job("digits"))
    cluster.put(PODS, pod(0))
    result = run("job", "delete", "digits", "--timeout", "90s")
    assert result.exit_code == 3
    assert "digits is not gone after 1m30s" in result.stderr


def test_delete_deletes_all_jobs_before_it_waits_for_one(run: Run, cluster: FakeCluster) -> None:
    for name in ("slow", "next"):
        cluster.put(JOBS, job(name))
        cluster.put(PODS, pod(0, owner=name))

    def after_all_are_deleted() -> None:
        assert cluster.list(JOBS).items == []
        cluster.remove(PODS, "slow-worker-0")
        cluster.remove(PODS, "next-worker-0")

    cluster.steps = [after_all_are_deleted]
    result = run("job", "delete", "slow", "next")
    assert (result.exit_code, result.stdout) == (0, "slow deleted\nnext deleted\n")


def test_delete_names_all_that_are_late_after_one_common_timeout(run: Run, cluster: FakeCluster) -> None:
    for name in ("a", "b", "c"):
        cluster.put(JOBS, job(name))
    cluster.put(PODS, pod(0, owner="a"))
    cluster.put(PODS, pod(0, owner="b"))
    result = run("job", "delete", "a", "b", "x", "c", "--timeout", "90s")
    assert result.exit_code == 3
    assert result.stdout == "c deleted\n"
    assert "a, b are not gone after 1m30s" in result.stderr
    assert '"x" not found' in result.stderr
    assert cluster.clock
    assert cluster.clock.elapsed == 90.0


def test_a_job_that_a_finalizer_keeps_is_not_deleted_although_it_has_no_pods(run: Run, cluster: FakeCluster) -> None:
    cluster.put(JOBS, job("a"))
    cluster.delete = lambda *_, **__: None  # type: ignore[method-assign]
    result = run("job", "delete", "a", "--timeout", "90s")
    assert (result.exit_code, result.stdout) == (3, "")


def test_delete_needs_no_right_to_list_pods(run: Run, cluster: FakeCluster) -> None:
    cluster.put(JOBS, job("a"))
    cluster.put(JOBS, job("b"))
    cluster.failures["list", "Pod"] = error_of(403, "Forbidden", "pods is forbidden")
    result = run("job", "delete", "a", "b")
    assert (result.exit_code, result.stdout) == (0, "a deleted\nb deleted\n")
    assert "a: whether its pods are gone is not known: pods is forbidden" in result.stderr


def test_delete_deletes_a_name_that_is_given_twice_once(run: Run, cluster: FakeCluster) -> None:
    cluster.put(JOBS, job("a"))
    assert run("job", "delete", "a", "a").stdout == "a deleted\n"


def test_delete_goes_on_after_a_name_that_does_not_exist(run: Run, cluster: FakeCluster) -> None:
    cluster.put(JOBS, job("digits"))
    cluster.put(JOBS, job("digits-2"))
    result = run("job", "delete", "digitz", "digits")
    assert result.exit_code == 1
    assert result.stdout == "digits deleted\n"
    assert '"digitz" not found' in result.stderr
    assert "Did you mean digits or digits-2?" in result.stderr


def test_a_wrong_name_names_close_ones(run: Run, cluster: FakeCluster) -> None:
    cluster.put(JOBS, job("imagenet"))
    result = run("job", "describe", "imagnet")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[1] == "Did you mean imagenet?"


def test_a_name_like_no_other_lists_what_there_is(run: Run, cluster: FakeCluster) -> None:
    cluster.put(JOBS, job("imagenet"))
    assert "There are in namespace training: imagenet" in run("job", "scale", "x", "2").stderr


def test_a_cluster_without_the_crd_says_how_to_install_it(run: Run, cluster: FakeCluster) -> None:
    cluster.failures["get", "ElasticJob"] = missing(JOBS)
    result = run("job", "logs", "digits")
    assert result.exit_code == 1
    assert "Install it: tidewater install | kubectl apply -f -" in result.stderr
