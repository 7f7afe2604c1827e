"""What the scheduler submits when TorchX asks it to, and what it refuses.

TorchX's tests of its own Kubernetes scheduler patch the Kubernetes client and compare calls. Their promises are checked
here, and in `test_scheduler_after`, by what the cluster has afterwards; packages/torchx/docs/torchx.md has the table.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tidewater_torchx import workspace
from tidewater_torchx.errors import Refused
from tidewater_torchx.scheduler import TidewaterScheduler, create_scheduler
from tidewater_torchx.submit.options import Options
from torchx.components import dist, utils
from torchx.runner import Runner
from torchx.schedulers.api import Scheduler
from torchx.specs import AppDef, VolumeMount
from torchx.specs.api import InvalidRunConfigException

from packages.torchx.tests.doubles import Images, KubernetesInMemory, app, complete, role
from tidewater.contract import code
from tidewater.elasticjob import names
from tidewater.elasticjob.names import JOBS
from tidewater.kube.errors import ClusterError


def submitted(scheduler: TidewaterScheduler, **cfg: Any) -> str:
    app_id: str = scheduler.submit(complete(), cfg)
    return app_id


def test_create_scheduler_makes_a_scheduler_that_connects_only_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere/config")
    made = create_scheduler("session", image_type="ignored")
    assert isinstance(made, Scheduler)
    assert (made.backend, made.session_name) == ("tidewater", "session")
    assert set(dict(made.run_opts())) == set(Options.__dataclass_fields__)
    with pytest.raises(ClusterError, match="KUBECONFIG is /nowhere/config"):
        made.list()


def test_without_a_kubeconfig_what_would_be_sent_can_be_shown_if_nobody_shall_be_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere/config")
    made = create_scheduler("session")
    info = made.submit_dryrun(complete(), {"validate_spec": False})
    assert info.request.resource["metadata"]["namespace"] == "default"
    with pytest.raises(ClusterError, match="KUBECONFIG is /nowhere/config"):
        made.schedule(info)


def test_a_missing_kubeconfig_names_no_flag_that_torchx_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere/config")
    with pytest.raises(ClusterError, match="-cfg validate_spec=false") as error:
        create_scheduler("session").submit_dryrun(complete(), {})
    assert "--kubeconfig" not in str(error.value)


@pytest.mark.parametrize(("level", "logged"), [(logging.INFO, False), (logging.DEBUG, True)])
def test_requests_are_logged_only_for_whoever_wants_details(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, level: int, logged: bool
) -> None:
    caplog.set_level(level)
    caplog.set_level(logging.NOTSET, "httpx2")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path))
    with pytest.raises(ClusterError):
        create_scheduler("session").list()
    assert logging.getLogger("httpx2").isEnabledFor(logging.INFO) is logged


def test_it_needs_no_client_library_of_kubernetes() -> None:
    assert "kubernetes" not in sys.modules


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
    assert cluster.job(app_id)["kind"] == names.KIND


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
    docker = Images()
    pushing = create_scheduler("session", client=cluster, docker_client=docker)
    given = app(role(image="sha256:0123"))
    info = pushing.submit_dryrun(given, {"image_repo": "example.com/some/repo"})
    assert info.request.images_to_push == {"sha256:0123": ("example.com/some/repo", "0123")}
    assert docker.pushed == []
    pushing.schedule(info)
    assert docker.pushed == ["sha256:0123 as example.com/some/repo:0123"]
    (job,) = cluster.list(JOBS).items
    container = job["spec"]["replicaSpecs"][names.WORKER]["template"]["spec"]["containers"][0]
    assert container["image"] == "example.com/some/repo:0123"


def test_a_workspace_that_was_packed_here_is_uploaded_before_the_job_is_made(
    scheduler: TidewaterScheduler, cluster: KubernetesInMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.put_facts()
    (tmp_path / "train.py").write_text("print()")
    stored_keys: list[tuple[str, str]] = []

    def upload(archive: code.Archive, bucket: str) -> bool:
        assert cluster.list(JOBS).items == []
        stored_keys.append((archive.key, bucket))
        return True

    monkeypatch.setattr(workspace, "upload", upload)
    runner = Runner("session", {"tidewater": lambda name, **_: scheduler})
    other = Runner("session", {"tidewater": lambda name, **_: create_scheduler(name, client=cluster)})
    for sender in (runner, other):
        info = runner.dryrun(utils.python(m="train", image="img"), "tidewater", {}, workspace=f"file://{tmp_path}")
        assert stored_keys == []
        sender.schedule(info)
        assert stored_keys == [(info.request.archives[0].key, "stack-bucket")]
        assert stored_keys.pop()[0] in str(info)
        cluster.delete(JOBS, info.request.resource["metadata"]["name"])


def test_a_workspace_that_no_scheduler_has_uploaded_is_refused(
    scheduler: TidewaterScheduler, cluster: KubernetesInMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.put_facts()
    stored: set[tuple[str, str]] = set()

    def check_stored(key: str, bucket: str) -> None:
        if (key, bucket) not in stored:
            raise Refused(f"{bucket}/{key} isn't there")

    monkeypatch.setattr(workspace, "check_stored", check_stored)
    given = utils.python(m="train", image="img")
    Runner("session", {"tidewater": lambda name, **_: scheduler}).dryrun(
        given, "tidewater", {}, workspace=f"file://{tmp_path}"
    )
    other = Runner("session", {"tidewater": lambda name, **_: create_scheduler(name, client=cluster)})
    with pytest.raises(Refused, match="isn't there"):
        other.run(given, "tidewater", {})
    assert cluster.list(JOBS).items == []
    stored.add((given.roles[0].metadata[workspace.METADATA], "stack-bucket"))
    other.run(given, "tidewater", {})
    assert len(cluster.list(JOBS).items) == 1


def test_the_rendezvous_goes_along_where_there_is_no_workspace(
    scheduler: TidewaterScheduler, cluster: KubernetesInMemory
) -> None:
    cluster.put_facts()
    request = scheduler.submit_dryrun(dist.ddp(script="t.py", j="1:3x1", image="img"), {}).request
    (archive,) = request.archives
    assert archive.key in str(request)
    assert scheduler.submit_dryrun(dist.ddp(script="t.py", j="2x1", image="img"), {}).request.archives == []


# What is wrong is named before anything is made.


@pytest.mark.parametrize(
    ("given", "cfg", "told"),
    [
        pytest.param(app(), {"qeue": "x"}, "Unknown run option: qeue", id="unknown-option"),
        pytest.param(app(role(image="")), {}, "role trainer: its image is missing", id="image-missing"),
        pytest.param(app(role(), role("r" * 41)), {}, f"role {'r' * 41}: its name is part", id="role-name-too-long"),
        pytest.param(
            app(role(mounts=[VolumeMount("gone", "/d")])), {}, "role trainer: mount gone: namespace", id="no-such-claim"
        ),
        pytest.param(app(role(image="bad:1")), {}, "role trainer: the API server refuses its pods", id="refused-pod"),
        pytest.param(
            app(role(metadata={"kubernetes": 123})), {}, "role trainer: metadata kubernetes", id="overlay-of-a-number"
        ),
        pytest.param(
            app(role(metadata={workspace.METADATA: "code/1.tar"})), {}, "namespace training has no", id="no-bucket"
        ),
        pytest.param(
            dist.ddp(script="t.py", j="1:3x1", image="img"), {"etcd": "e:2379"}, "option etcd=e:2379", id="only-etcd"
        ),
        pytest.param(app(role(image="sha256:01")), {}, "role trainer: image sha256:01 is only on", id="no-repository"),
    ],
)
def test_bad_input_is_named_and_nothing_is_made(
    scheduler: TidewaterScheduler, cluster: KubernetesInMemory, given: AppDef, cfg: dict[str, Any], told: str
) -> None:
    cluster.refused_pods["bad:1"] = "violates PodSecurity"
    with pytest.raises((Refused, InvalidRunConfigException)) as error:
        scheduler.submit(given, cfg)
    assert told in str(error.value)
    assert cluster.list(JOBS).items == []


def test_torchx_validates_before_it_asks_for_a_dry_run(scheduler: TidewaterScheduler) -> None:
    with pytest.raises(ValueError, match="its image is missing"):
        scheduler._validate(app(role(image="")), "tidewater")


def test_without_validation_the_api_server_is_not_asked(
    scheduler: TidewaterScheduler, cluster: KubernetesInMemory
) -> None:
    scheduler.submit_dryrun(app(role(mounts=[VolumeMount("gone", "/d")])), {"validate_spec": False})
    assert cluster.sent == []
