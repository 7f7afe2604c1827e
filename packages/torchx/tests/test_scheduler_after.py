"""What became of an application, how it is read, and how it ends, as TorchX asks for it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from tidewater_torchx.errors import Refused
from tidewater_torchx.scheduler import TidewaterScheduler
from tidewater_torchx.submit.job import ANNOTATION_APP
from torchx.runner import Runner
from torchx.schedulers.api import ListAppResponse, Stream
from torchx.specs import AppDef, AppState

from packages.torchx.tests.doubles import KubernetesInMemory, app, complete, ended, pod, role
from tidewater.elasticjob import names
from tidewater.elasticjob.names import JOBS
from tidewater.kube.errors import ClusterError, Unreachable, error_of


def submitted(scheduler: TidewaterScheduler, given: AppDef | None = None, **cfg: Any) -> str:
    app_id: str = scheduler.submit(given or complete(), cfg)
    return app_id


def unreadable(scheduler: TidewaterScheduler, cluster: KubernetesInMemory) -> str:
    """Submit an application, and take a field from its job without which it can't be read; return its id."""
    app_id = submitted(scheduler)
    job = cluster.job(app_id)
    job["spec"].pop("rdzvEndpoint")
    cluster.put(JOBS, job)
    return app_id


def test_describe_returns_the_application_and_its_replicas(
    scheduler: TidewaterScheduler, cluster: KubernetesInMemory
) -> None:
    given = complete()
    app_id = submitted(scheduler, given)
    name = app_id.partition(":")[2]
    cluster.become(app_id, "Succeeded", pod(name, 0, **ended(0)))
    found = scheduler.describe(app_id)
    assert found is not None
    assert (found.app_id, found.state, found.roles) == (app_id, AppState.SUCCEEDED, given.roles)
    (replica,) = found.roles_statuses[0].replicas
    assert (replica.id, replica.role, replica.state) == (0, "trainer_foo", AppState.SUCCEEDED)
    assert replica.hostname == f"{name}-worker-0.{name}.training.svc"


def test_the_whole_application_comes_back_by_its_name_and_metadata(scheduler: TidewaterScheduler) -> None:
    given = complete()
    given.metadata["team"] = "x"
    assert scheduler.app(submitted(scheduler, given)) == given
    assert scheduler.app("training:none") is None


def test_an_application_that_does_not_exist_is_none(scheduler: TidewaterScheduler) -> None:
    for app_id in ("training:none", "Training:app", "training:No_Name", "training:ä"):
        assert scheduler.describe(app_id) is None
        assert not scheduler.exists(app_id)


def test_any_other_answer_is_an_error(scheduler: TidewaterScheduler, cluster: KubernetesInMemory) -> None:
    cluster.failures["get", names.KIND] = error_of(500, "InternalError", "etcdserver: timeout")
    with pytest.raises(ClusterError, match="etcdserver: timeout"):
        scheduler.describe("training:app")


@pytest.mark.parametrize("app_id", ["app", "", "a:b:c", "training:", ":app", "a/b:c"])
def test_what_is_no_id_is_named(scheduler: TidewaterScheduler, app_id: str) -> None:
    with pytest.raises(Refused, match="is no application of this scheduler"):
        scheduler.describe(app_id)


def test_a_failed_application_shows_the_last_lines_of_the_replica_that_failed(
    scheduler: TidewaterScheduler, cluster: KubernetesInMemory
) -> None:
    app_id = submitted(scheduler)
    name = app_id.partition(":")[2]
    cluster.write(f"{name}-worker-0", "Traceback", "KeyError: 'x'")
    cluster.become(app_id, "Failed", pod(name, 0, **ended(3)))
    runner = Runner("session", {"tidewater": lambda session, **_: scheduler})
    status = runner.status(f"tidewater://session/{app_id}")
    assert status is not None
    shown = status.format()
    assert "State: FAILED" in shown
    assert "*trainer_foo[0]:FAILED (exitcode: 3)" in shown
    assert "| KeyError: 'x'" in shown
    assert "KeyError" in repr(status)  # reads the structured message as JSON


def test_list_returns_torchxs_applications_of_the_contexts_namespace(
    scheduler: TidewaterScheduler, cluster: KubernetesInMemory
) -> None:
    first, second = submitted(scheduler), submitted(scheduler)
    submitted(scheduler, namespace="other")
    job = cluster.job(first)
    cluster.put(JOBS, {**job, "metadata": {"name": "digits", "labels": {}}})
    cluster.become(first, "Succeeded")
    cluster.become(second, "Failed")
    assert set(scheduler.list()) == {
        ListAppResponse(app_id=first, state=AppState.SUCCEEDED),
        ListAppResponse(app_id=second, state=AppState.FAILED),
    }


def test_a_cluster_that_cannot_be_listed_is_an_error(
    scheduler: TidewaterScheduler, cluster: KubernetesInMemory
) -> None:
    cluster.failures["list", names.KIND] = Unreachable("gone")
    with pytest.raises(Unreachable):
        scheduler.list()


# Logs.


def running(scheduler: TidewaterScheduler, cluster: KubernetesInMemory) -> str:
    """Return the id of an application with two roles that have written."""
    app_id = submitted(scheduler, app(role("role_blah", num_replicas=2), role("reader")))
    name = app_id.partition(":")[2]
    pods = [pod(name, 0), pod(name, 1), pod(name, 0, type="reader")]
    cluster.become(app_id, "Running", *pods)
    for each in pods:
        own = each["metadata"]["name"]
        cluster.write(
            own, f"2026-03-01T12:00:01Z foo reg {own}", "2026-03-01T12:00:02Z foo", "2026-03-01T12:00:03Z bar reg"
        )
    return app_id


def test_log_lines_of_a_replica_are_those_that_match(
    scheduler: TidewaterScheduler, cluster: KubernetesInMemory
) -> None:
    app_id = running(scheduler, cluster)
    own = f"{app_id.partition(':')[2]}-worker-1"
    assert list(scheduler.log_iter(app_id, "role_blah", 1, regex="reg")) == [f"foo reg {own}\n", "bar reg\n"]
    assert len(list(scheduler.log_iter(app_id, "reader"))) == 3


def test_log_lines_begin_at_a_time(scheduler: TidewaterScheduler, cluster: KubernetesInMemory) -> None:
    app_id = running(scheduler, cluster)
    since = datetime.fromisoformat("2026-03-01T12:00:02+00:00")
    assert list(scheduler.log_iter(app_id, "reader", since=since)) == ["foo\n", "bar reg\n"]
    local = since.astimezone().replace(tzinfo=None)
    assert list(scheduler.log_iter(app_id, "reader", since=local)) == ["foo\n", "bar reg\n"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"until": datetime(2026, 1, 1)}, "until: Kubernetes has no logs up to a time"),
        ({"streams": Stream.STDOUT}, "streams=stdout: Kubernetes has only the combined log"),
        ({"streams": Stream.STDERR}, "streams=stderr: "),
        ({"regex": "("}, "regex='\\(' is no regular expression"),
        ({"role_name": "none"}, "role 'none': .* has no such role; it has role_blah, reader"),
        ({"k": 2}, "replica 2: role role_blah has replicas 0 to 1"),
        ({"app_id": "training:none"}, "training:none: there is no such application"),
    ],
)
def test_a_log_that_does_not_exist_is_a_value_error(
    scheduler: TidewaterScheduler, cluster: KubernetesInMemory, arguments: dict[str, Any], told: str
) -> None:
    app_id = running(scheduler, cluster)
    with pytest.raises(ValueError, match=told):
        scheduler.log_iter(**{"app_id": app_id, "role_name": "role_blah", **arguments})


# How it ends.


def test_a_cancelled_application_ends_and_is_still_described(
    scheduler: TidewaterScheduler, cluster: KubernetesInMemory
) -> None:
    given = complete()
    app_id = submitted(scheduler, given)
    cluster.become(app_id, "Running", pod(app_id.partition(":")[2]))
    scheduler.cancel(app_id)
    assert cluster.job(app_id)["spec"]["suspend"] is True
    cluster.become(app_id, "Suspended")
    found = scheduler.describe(app_id)
    assert found is not None
    assert (found.state, found.roles) == (AppState.CANCELLED, given.roles)
    assert found.msg == "The application was cancelled; torchx delete removes it."


def suspended(cluster: KubernetesInMemory, app_id: str, *steps: bool) -> None:
    """Suspend or resume an application as another client, once per step."""
    namespace, _, name = app_id.partition(":")
    for suspend in steps:
        cluster.patch(JOBS, name, {"spec": {"suspend": suspend}}, namespace=namespace)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param([], [], AppState.CANCELLED, id="cancelled"),
        pytest.param([True], [], AppState.CANCELLED, id="suspended-before"),
        pytest.param([True, False], [], AppState.CANCELLED, id="resumed-before"),
        pytest.param([], [True], AppState.CANCELLED, id="suspended-while-it-is"),
        pytest.param([], [False, True], AppState.PENDING, id="resumed-and-suspended"),
    ],
)
@pytest.mark.parametrize("times", [1, 2])
def test_an_application_is_cancelled_until_somebody_resumes_it(
    scheduler: TidewaterScheduler,
    cluster: KubernetesInMemory,
    before: list[bool],
    after: list[bool],
    expected: AppState,
    times: int,
) -> None:
    app_id = submitted(scheduler)
    for _ in range(times):
        suspended(cluster, app_id, *before)
        scheduler.cancel(app_id)
        suspended(cluster, app_id, *after)
    cluster.become(app_id, "Suspended")
    found = scheduler.describe(app_id)
    assert found is not None
    assert found.state is expected
    assert ("cancelled" in found.msg) is (expected is AppState.CANCELLED)
    suspended(cluster, app_id, False)
    cluster.become(app_id, "Running")
    assert scheduler.list()[0].state is AppState.RUNNING


def test_what_another_version_submitted_is_described_by_its_spec_cancelled_and_deleted(
    scheduler: TidewaterScheduler, cluster: KubernetesInMemory
) -> None:
    app_id = submitted(scheduler)
    job = cluster.job(app_id)
    job["metadata"]["annotations"][ANNOTATION_APP] = '{"version":2}'
    cluster.put(JOBS, job)
    runner = Runner("session", {"tidewater": lambda session, **_: scheduler})
    handle = f"tidewater://session/{app_id}"
    status = runner.status(handle)
    assert status is not None
    assert (status.state, status.msg.count("another version of this scheduler (format 2)")) == (AppState.SUBMITTED, 1)
    described = runner.describe(handle)
    assert described is not None
    assert [each.image for each in described.roles] == [complete().roles[0].image]
    with pytest.raises(Refused, match="another version"):
        scheduler.app(app_id)
    runner.cancel(handle)
    assert cluster.job(app_id)["spec"]["suspend"] is True
    scheduler.delete(app_id)
    assert not scheduler.exists(app_id)


def test_a_job_that_cannot_be_read_is_unknown_says_why_and_can_be_cancelled_and_deleted(
    scheduler: TidewaterScheduler, cluster: KubernetesInMemory
) -> None:
    app_id = unreadable(scheduler, cluster)
    runner = Runner("session", {"tidewater": lambda session, **_: scheduler})
    handle = f"tidewater://session/{app_id}"
    status = runner.status(handle)
    assert status is not None
    assert status.state is AppState.UNKNOWN
    assert "rdzvEndpoint" in status.msg
    assert scheduler.list() == [ListAppResponse(app_id=app_id, state=AppState.UNKNOWN)]
    for ask in (scheduler.app, lambda each: scheduler.log_iter(each, "trainer_foo")):
        with pytest.raises(Refused, match="rdzvEndpoint"):
            ask(app_id)
    runner.cancel(handle)
    assert cluster.job(app_id)["spec"]["suspend"] is True
    scheduler.delete(app_id)
    assert not scheduler.exists(app_id)


def test_deleting_needs_no_right_to_read(scheduler: TidewaterScheduler, cluster: KubernetesInMemory) -> None:
    app_id = submitted(scheduler)
    cluster.failures["list", "Pod"] = error_of(403, "Forbidden", 'cannot list resource "pods"')
    scheduler.delete(app_id)
    assert cluster.list(JOBS).items == []


def test_what_does_not_exist_is_cancelled_and_deleted_without_an_error(scheduler: TidewaterScheduler) -> None:
    scheduler.cancel("training:none")
    scheduler.delete("training:none")


def test_what_is_deleted_while_it_is_cancelled_is_no_error(
    scheduler: TidewaterScheduler, cluster: KubernetesInMemory
) -> None:
    app_id = submitted(scheduler)
    cluster.failures["patch", names.KIND] = error_of(404, "NotFound", "not found")
    scheduler.cancel(app_id)


def test_a_scheduler_can_be_closed_more_than_once(scheduler: TidewaterScheduler) -> None:
    scheduler.close()
    scheduler.close()


def test_torchxs_runner_carries_an_application_from_beginning_to_end(
    scheduler: TidewaterScheduler, cluster: KubernetesInMemory
) -> None:
    runner = Runner("session", {"tidewater": lambda session, **_: scheduler})
    handle = runner.run_component("utils.echo", ["--msg", "hello", "--image", "img"], "tidewater", {"queue": "q"})
    app_id = handle.removeprefix("tidewater://session/")
    name = app_id.partition(":")[2]
    assert [each.app_handle for each in runner.list("tidewater")] == [handle]
    cluster.write(f"{name}-worker-0", "2026-03-01T12:00:01Z hello")
    cluster.become(app_id, "Succeeded", pod(name, 0, **ended(0)))
    status = runner.wait(handle)
    assert status is not None
    assert status.state is AppState.SUCCEEDED
    assert list(runner.log_lines(handle, "echo")) == ["hello\n"]
