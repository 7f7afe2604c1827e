"""The scheduler as TorchX calls it, against a cluster in memory: what TorchX's own Kubernetes scheduler promises.

TorchX's tests of its scheduler patch the Kubernetes client and compare calls. Their promises are checked here by what
the cluster has afterwards; docs/torchx.md has the table.
"""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from torchx.components import dist, utils
from torchx.runner import Runner
from torchx.schedulers.api import ListAppResponse, Scheduler, Stream
from torchx.specs import AppDef, AppState, BindMount, VolumeMount, macros
from torchx.specs.api import InvalidRunConfigException

from cli.access.answers import refused
from cli.errors import Answer, ClusterError, Unreachable
from cli.kube import JOBS, PODS, Object
from contract.elasticjob import names
from integrations.torchx import workspace
from integrations.torchx.errors import Refused
from integrations.torchx.scheduler import TidewaterScheduler, create_scheduler
from integrations.torchx.submit.options import Options
from tests.integrations.torchx.doubles import KubernetesInMemory, app, ended, pod, role


@pytest.fixture
def cluster() -> KubernetesInMemory:
    return KubernetesInMemory()


@pytest.fixture
def scheduler(cluster: KubernetesInMemory) -> TidewaterScheduler:
    return create_scheduler("session", client=cluster)


def complete() -> AppDef:
    """Return an application with everything in it that TorchX's own test has."""
    return app(
        role(
            "trainer_foo",
            entrypoint="main",
            args=["--out", macros.img_root, "--app-id", macros.app_id, "--rank0-env", macros.rank0_env],
            env={"FOO": "bar", "IP": "[FIELD_PATH]status.podIP"},
            port_map={"foo": 1234},
            max_retries=3,
            mounts=[BindMount(src_path="/src", dst_path="/dst", read_only=True)],
        ),
        name="test",
    )


def submitted(scheduler: TidewaterScheduler, given: AppDef | None = None, **cfg: Any) -> str:
    app_id: str = scheduler.submit(given or complete(), cfg)
    return app_id


def stored(cluster: KubernetesInMemory, app_id: str) -> Object:
    namespace, _, name = app_id.partition(":")
    return cluster.get(JOBS, name, namespace)


def finish(cluster: KubernetesInMemory, app_id: str, state: str, *pods: Object) -> None:
    """Let the controller and the kubelets write what became of a job."""
    namespace, _, name = app_id.partition(":")
    for each in pods:
        each["metadata"]["namespace"] = namespace
        cluster.put(PODS, each)
    job = cluster.get(JOBS, name, namespace)
    cluster.put(JOBS, {**job, "status": {"observedGeneration": 9, "state": state}})


def test_create_scheduler_makes_a_scheduler_that_connects_only_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere/config")
    made = create_scheduler("session", image_type="ignored")
    assert isinstance(made, Scheduler)
    assert (made.backend, made.session_name) == ("tidewater", "session")
    assert set(dict(made.run_opts())) == set(Options.__dataclass_fields__)
    with pytest.raises(ClusterError, match="KUBECONFIG is /nowhere/config"):
        made.list()


def test_it_needs_no_client_library_of_kubernetes() -> None:
    assert "kubernetes" not in sys.modules


def test_macros_are_resolved(scheduler: TidewaterScheduler) -> None:
    job = scheduler.submit_dryrun(complete(), {}).request.resource
    name = job["metadata"]["name"]
    command = job["spec"]["replicaSpecs"][names.WORKER]["template"]["spec"]["containers"][0]["command"]
    assert command == ["main", "--out", "", "--app-id", name, "--rank0-env", "TORCHX_RANK0_HOST"]


def test_a_dry_run_prints_exactly_what_is_sent_and_makes_nothing(
    scheduler: TidewaterScheduler, cluster: KubernetesInMemory
) -> None:
    cluster.put_facts()
    info = scheduler.submit_dryrun(dist.ddp(script="t.py", j="1:3x1", image="img"), {"validate_spec": False})
    assert cluster.sent == []
    printed = repr(info)
    assert "&id" not in printed
    info.request.archives.clear()  # there is no bucket in this test
    scheduler.schedule(info)
    assert cluster.created() == [yaml.safe_load(printed)]


def test_each_submission_has_a_name_of_its_own(scheduler: TidewaterScheduler, cluster: KubernetesInMemory) -> None:
    assert submitted(scheduler) != submitted(scheduler)
    assert len(cluster.list(JOBS).items) == 2


def test_submit_returns_namespace_and_name(scheduler: TidewaterScheduler, cluster: KubernetesInMemory) -> None:
    app_id = submitted(scheduler, namespace="testnamespace")
    assert app_id.startswith("testnamespace:test-")
    assert stored(cluster, app_id)["kind"] == names.KIND


def test_the_default_namespace_is_the_kubeconfigs(scheduler: TidewaterScheduler) -> None:
    assert submitted(scheduler).startswith("training:")


def test_a_name_that_is_taken_is_a_value_error(cluster: KubernetesInMemory) -> None:
    same = TidewaterScheduler("session", lambda: cluster, unique=lambda: "kx3p")
    first, second = same.submit_dryrun(complete(), {}), same.submit_dryrun(complete(), {})
    same.schedule(first)
    with pytest.raises(ValueError, match="Job test-kx3p already exists"):
        same.schedule(second)


@pytest.mark.parametrize(
    ("option", "path"),
    [
        ({"queue": "team"}, ("schedulingPolicy", "queue")),
        ({"service_account": "sa"}, ("replicaSpecs", "Worker", "template", "spec", "serviceAccountName")),
        ({"priority_class": "high"}, ("replicaSpecs", "Worker", "template", "spec", "priorityClassName")),
    ],
)
def test_an_option_is_in_the_job_only_if_it_is_given(
    scheduler: TidewaterScheduler, option: dict[str, str], path: tuple[str, ...]
) -> None:
    def value(cfg: dict[str, Any]) -> Any:
        found = scheduler.submit_dryrun(complete(), {"validate_spec": False, **cfg}).request.resource["spec"]
        for key in path:
            found = found.get(key, {})
        return found

    assert value(option) in option.values()
    assert value({}) == {}


def test_an_image_that_was_built_here_is_pushed_to_the_repository(cluster: KubernetesInMemory) -> None:
    docker = Docker()
    pushing = create_scheduler("session", client=cluster, docker_client=docker)  # type: ignore[arg-type]
    given = app(role(image="sha256:0123"))
    info = pushing.submit_dryrun(given, {"image_repo": "example.com/some/repo"})
    assert info.request.images_to_push == {"sha256:0123": ("example.com/some/repo", "0123")}
    assert docker.pushed == []
    pushing.schedule(info)
    assert docker.pushed == ["sha256:0123 as example.com/some/repo:0123"]
    (job,) = cluster.list(JOBS).items
    container = job["spec"]["replicaSpecs"][names.WORKER]["template"]["spec"]["containers"][0]
    assert container["image"] == "example.com/some/repo:0123"


class Docker:
    """A Docker daemon that notes what is pushed."""

    def __init__(self) -> None:
        self.pushed: list[str] = []
        self.images = self

    def get(self, image: str) -> Docker:
        self.image = image
        return self

    def tag(self, repo: str, tag: str) -> None:
        self.tagged = f"{repo}:{tag}"

    def push(self, repo: str, tag: str, **_: object) -> list[dict[str, str]]:
        assert self.tagged == f"{repo}:{tag}"
        self.pushed.append(f"{self.image} as {repo}:{tag}")
        return []


def test_a_workspace_that_was_packed_here_is_uploaded_before_the_job_is_made(
    scheduler: TidewaterScheduler, cluster: KubernetesInMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.put_facts()
    (tmp_path / "train.py").write_text("print()")
    stored_keys: list[tuple[str, str]] = []

    def upload(archive: workspace.Archive, bucket: str) -> bool:
        assert cluster.list(JOBS).items == []
        stored_keys.append((archive.key, bucket))
        return True

    monkeypatch.setattr(workspace, "upload", upload)
    runner = Runner("session", {"tidewater": lambda name, **_: scheduler})
    info = runner.dryrun(utils.python(m="train", image="img"), "tidewater", {}, workspace=f"file://{tmp_path}")
    assert stored_keys == []
    runner.schedule(info)
    assert stored_keys == [(info.request.archives[0], "stack-bucket")]


def test_the_rendezvous_goes_along_where_there_is_no_workspace(
    scheduler: TidewaterScheduler, cluster: KubernetesInMemory
) -> None:
    cluster.put_facts()
    request = scheduler.submit_dryrun(dist.ddp(script="t.py", j="1:3x1", image="img"), {}).request
    assert [each.key for each in scheduler.kept(request.archives)] == request.archives
    assert len(request.archives) == 1
    assert scheduler.submit_dryrun(dist.ddp(script="t.py", j="2x1", image="img"), {}).request.archives == []


# What is wrong is named before anything is made.


@pytest.mark.parametrize(
    ("given", "cfg", "told"),
    [
        pytest.param(app(), {"qeue": "x"}, "Unknown run option: qeue", id="unknown-option"),
        pytest.param(app(), {"queue": 1}, "queue, must be of type: str", id="wrong-type"),
        pytest.param(app(role(image="")), {}, "role trainer: its image is missing", id="image-missing"),
        pytest.param(app(role(), role("r" * 41)), {}, f"role {'r' * 41}: its name is part", id="role-name-too-long"),
        pytest.param(
            app(role(mounts=[VolumeMount("gone", "/d")])), {}, "role trainer: mount gone: namespace", id="no-such-claim"
        ),
        pytest.param(
            app(role(min_replicas=3, num_replicas=2)), {}, "role trainer: min_replicas=3 must not", id="min-above-max"
        ),
        pytest.param(app(), {"service_account": "no"}, "option service_account=no: ", id="no-such-account"),
        pytest.param(app(role(image="bad:1")), {}, "role trainer: the API server refuses its pods", id="refused-pod"),
        pytest.param(
            app(role(metadata={"kubernetes": 123})), {}, "role trainer: metadata kubernetes", id="overlay-of-a-number"
        ),
        pytest.param(
            app(role(metadata={workspace.METADATA: "code/1.tar"})), {}, "namespace training has no", id="no-bucket"
        ),
        pytest.param(app(role(image="sha256:01")), {}, "must specify the image repository", id="no-repository"),
    ],
)
def test_bad_input_is_named_and_nothing_is_made(
    scheduler: TidewaterScheduler, cluster: KubernetesInMemory, given: AppDef, cfg: dict[str, Any], told: str
) -> None:
    cluster.refused_pods["bad:1"] = "violates PodSecurity"
    with pytest.raises((ValueError, KeyError, InvalidRunConfigException)) as error:
        scheduler.submit(given, cfg)
    assert told in str(error.value)
    assert cluster.list(JOBS).items == []


def test_torchx_validates_before_it_asks_for_a_dry_run(scheduler: TidewaterScheduler) -> None:
    with pytest.raises(ValueError, match="its image is missing"):
        scheduler._validate(app(role(image="")), "tidewater")


def test_a_job_that_the_api_server_refuses_is_no_valid_spec(
    scheduler: TidewaterScheduler, cluster: KubernetesInMemory
) -> None:
    cluster.failures["create", names.KIND] = refused(Answer(422, "Invalid", "metadata.name: too long"))
    with pytest.raises(ValueError, match=r"Invalid job spec: metadata\.name: too long"):
        scheduler.submit_dryrun(complete(), {"validate_spec": True})


def test_without_validation_the_api_server_is_not_asked(
    scheduler: TidewaterScheduler, cluster: KubernetesInMemory
) -> None:
    scheduler.submit_dryrun(app(role(mounts=[VolumeMount("gone", "/d")])), {"validate_spec": False})
    assert cluster.sent == []


# What became of it.


def test_describe_returns_the_application_and_its_replicas(
    scheduler: TidewaterScheduler, cluster: KubernetesInMemory
) -> None:
    given = complete()
    app_id = submitted(scheduler, given)
    name = app_id.partition(":")[2]
    finish(cluster, app_id, "Succeeded", pod(name, 0, **ended(0)))
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


def test_a_replica_without_an_address_has_no_host(scheduler: TidewaterScheduler, cluster: KubernetesInMemory) -> None:
    app_id = submitted(scheduler)
    finish(cluster, app_id, "Created", pod(app_id.partition(":")[2], 0, phase="Pending", podIP=None))
    found = scheduler.describe(app_id)
    assert found is not None
    assert found.roles_statuses[0].replicas[0].hostname == ""


def test_a_replica_whose_pod_is_gone_has_no_host(scheduler: TidewaterScheduler, cluster: KubernetesInMemory) -> None:
    app_id = submitted(scheduler)
    finish(cluster, app_id, "Running")
    found = scheduler.describe(app_id)
    assert found is not None
    assert found.state is AppState.RUNNING
    assert [each.hostname for each in found.roles_statuses[0].replicas] == [""]


def test_an_application_that_nobody_has_seen_is_submitted(scheduler: TidewaterScheduler) -> None:
    found = scheduler.describe(submitted(scheduler))
    assert found is not None
    assert found.state is AppState.SUBMITTED


def test_an_application_that_does_not_exist_is_none(scheduler: TidewaterScheduler) -> None:
    assert scheduler.describe("training:none") is None
    assert not scheduler.exists("training:none")


def test_any_other_answer_is_an_error(scheduler: TidewaterScheduler, cluster: KubernetesInMemory) -> None:
    cluster.failures["get", names.KIND] = refused(Answer(500, "InternalError", "etcdserver: timeout"))
    with pytest.raises(ClusterError, match="etcdserver: timeout"):
        scheduler.describe("training:app")


@pytest.mark.parametrize("app_id", ["app", "", "a:b:c", "training:", ":app", "Training:app", "a/b:c"])
def test_what_is_no_id_is_named(scheduler: TidewaterScheduler, app_id: str) -> None:
    with pytest.raises(Refused, match="is no application of this scheduler"):
        scheduler.describe(app_id)


def test_a_failed_application_shows_the_last_lines_of_the_replica_that_failed(
    scheduler: TidewaterScheduler, cluster: KubernetesInMemory
) -> None:
    app_id = submitted(scheduler)
    name = app_id.partition(":")[2]
    cluster.write(f"{name}-worker-0", "Traceback", "KeyError: 'x'")
    finish(cluster, app_id, "Failed", pod(name, 0, **ended(3)))
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
    job = stored(cluster, first)
    cluster.put(JOBS, {**job, "metadata": {"name": "digits", "labels": {}}})
    finish(cluster, first, "Succeeded")
    finish(cluster, second, "Failed")
    assert set(scheduler.list()) == {
        ListAppResponse(app_id=first, state=AppState.SUCCEEDED),
        ListAppResponse(app_id=second, state=AppState.FAILED),
    }


def test_a_job_that_cannot_be_read_is_listed_as_unknown(
    scheduler: TidewaterScheduler, cluster: KubernetesInMemory
) -> None:
    app_id = submitted(scheduler)
    job = stored(cluster, app_id)
    job["spec"].pop("rdzvEndpoint")
    cluster.put(JOBS, job)
    assert scheduler.list() == [ListAppResponse(app_id=app_id, state=AppState.UNKNOWN)]


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
    finish(cluster, app_id, "Running", *pods)
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


def test_a_log_is_followed_until_the_application_ends(
    scheduler: TidewaterScheduler, cluster: KubernetesInMemory
) -> None:
    app_id = running(scheduler, cluster)
    name = app_id.partition(":")[2]
    lines = iter(scheduler.log_iter(app_id, "role_blah", 0, regex="bar", should_tail=True))
    assert next(lines) == "bar reg\n"
    cluster.close(f"{name}-worker-0")
    finish(cluster, app_id, "Succeeded", pod(name, 0, **ended(0)))
    assert list(lines) == []


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


def test_the_combined_stream_is_the_log(scheduler: TidewaterScheduler, cluster: KubernetesInMemory) -> None:
    app_id = running(scheduler, cluster)
    assert len(list(scheduler.log_iter(app_id, "reader", streams=Stream.COMBINED))) == 3


# How it ends.


def test_a_cancelled_application_ends_and_is_still_described(
    scheduler: TidewaterScheduler, cluster: KubernetesInMemory
) -> None:
    given = complete()
    app_id = submitted(scheduler, given)
    finish(cluster, app_id, "Running", pod(app_id.partition(":")[2]))
    scheduler.cancel(app_id)
    assert stored(cluster, app_id)["spec"]["suspend"] is True
    finish(cluster, app_id, "Suspended")
    found = scheduler.describe(app_id)
    assert found is not None
    assert (found.state, found.roles) == (AppState.CANCELLED, given.roles)
    assert found.msg == "The application was cancelled; torchx delete removes it."


def test_what_does_not_exist_is_cancelled_and_deleted_without_an_error(scheduler: TidewaterScheduler) -> None:
    scheduler.cancel("training:none")
    scheduler.delete("training:none")


def test_a_deleted_application_is_gone(scheduler: TidewaterScheduler, cluster: KubernetesInMemory) -> None:
    app_id = submitted(scheduler, namespace="testnamespace")
    scheduler.delete(app_id)
    assert scheduler.describe(app_id) is None


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
    finish(cluster, app_id, "Succeeded", pod(name, 0, **ended(0)))
    status = runner.wait(handle)
    assert status is not None
    assert status.state is AppState.SUCCEEDED
    assert list(runner.log_lines(handle, "echo")) == ["hello\n"]
