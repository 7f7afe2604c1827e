"""An application as an ElasticJob, read by the contract's own reader."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torchx
import yaml
from tidewater_torchx import workspace
from tidewater_torchx.errors import Refused
from tidewater_torchx.submit.appdef import decoded
from tidewater_torchx.submit.job import (
    ANNOTATION_APP,
    FETCH_IMAGE,
    Submission,
    archive_keys,
    elastic_job,
    needs_rendezvous,
    worker,
)
from tidewater_torchx.submit.options import Options
from torchx.components import dist, utils
from torchx.specs import AppDef, macros

from packages.torchx.tests.doubles import FACTS, app, role
from tidewater.elasticjob import codec, model, names
from tidewater.elasticjob.model import Launcher, SuccessPolicy

ROOT = Path(__file__).resolve().parents[4]
KEY = "code/0123.tar"


def submission(**fields: Any) -> Submission:
    return Submission(**{"unique": "kx3p", "namespace": "training", "options": Options(), **fields})


def made(given: AppDef, **fields: Any) -> model.ElasticJob:
    """Return the job as the controller reads it."""
    return codec.job_of(elastic_job(given, submission(**fields)))


def container(given: AppDef, type: str = names.WORKER, **fields: Any) -> dict[str, Any]:
    template = elastic_job(given, submission(**fields))["spec"]["replicaSpecs"][type]["template"]
    found: dict[str, Any] = template["spec"]["containers"][0]
    return found


def variables(found: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each.get("value", "") for each in found["env"]}


def test_one_role_is_the_worker() -> None:
    job = made(app(role(num_replicas=3)))
    assert (job.name, job.namespace, list(job.spec.replica_specs)) == ("app-kx3p", "training", [names.WORKER])
    assert job.bounds(names.WORKER) == (3, 3)
    assert job.launcher is Launcher.NONE
    assert job.spec.success_policy is SuccessPolicy.ALL_PODS


def test_each_pod_has_the_number_of_its_replica_as_a_label() -> None:
    job = made(app(role(), role("ps")))
    assert {each.index_label for each in job.spec.replica_specs.values()} == {"torchx.pytorch.org/replica-id"}


def test_labels_are_torchxs() -> None:
    manifest = elastic_job(app(role(), role("a/b"), name="foo+bar"), submission())
    own = {
        "torchx.pytorch.org/version": torchx.__version__.replace("+", "."),
        "torchx.pytorch.org/app-name": "foo.bar",
        "app.kubernetes.io/name": "foo.bar",
        "app.kubernetes.io/managed-by": "torchx.pytorch.org",
        "app.kubernetes.io/instance": "foobar-kx3p",
    }
    assert manifest["metadata"]["labels"] == own
    assert manifest["spec"]["replicaSpecs"]["ab"]["template"]["metadata"]["labels"] == {
        **own,
        "torchx.pytorch.org/role-index": "1",
        "torchx.pytorch.org/role-name": "a.b",
    }


def test_the_elastic_role_is_the_worker_wherever_it_is() -> None:
    roles = [role("reader"), role("trainer", num_replicas=4, min_replicas=2)]
    assert worker(roles) == 1
    job = made(app(*roles))
    assert list(job.spec.replica_specs) == ["reader", names.WORKER]
    assert job.bounds(names.WORKER) == (2, 4)


def test_a_second_elastic_role_has_its_own_bounds() -> None:
    job = made(app(role(num_replicas=2, min_replicas=1), role("reader", num_replicas=5, min_replicas=3)))
    assert (job.bounds(names.WORKER), job.bounds("reader")) == ((1, 2), (3, 5))


def test_several_roles_start_together_in_a_queue_of_their_own() -> None:
    job = made(app(role(), role("ps")))
    assert job.spec.scheduling_policy.queue == job.name
    assert made(app(role())).spec.scheduling_policy.queue is None


def test_the_queue_of_the_option_is_the_queue() -> None:
    assert made(app(role(), role("ps")), options=Options(queue="team")).spec.scheduling_policy.queue == "team"
    assert made(app(role()), options=Options(queue="team")).spec.scheduling_policy.queue == "team"


def test_every_replica_finds_replica_0_of_the_first_role() -> None:
    given = app(role("reader", args=[macros.rank0_env]), role("trainer", num_replicas=4, min_replicas=2))
    for type_ in ("reader", names.WORKER):
        assert variables(container(given, type_))["TORCHX_RANK0_HOST"] == "app-kx3p-reader-0"
    assert container(given, "reader")["command"] == ["train", "TORCHX_RANK0_HOST"]


def test_the_application_is_kept_as_it_was_submitted() -> None:
    given = dist.ddp(script="train.py", j="1:3x1", image="img")
    manifest = elastic_job(given, submission(facts=FACTS))
    assert decoded(manifest["metadata"]["annotations"][ANNOTATION_APP]) == given


def test_an_application_that_does_not_fit_is_refused() -> None:
    with pytest.raises(Refused, match="at most 262144 fit: put long arguments"):
        elastic_job(app(role(args=["ä" * 131072])), submission())


def test_an_elastic_torchrun_meets_in_the_stacks_etcd() -> None:
    given = dist.ddp(script="train.py", j="1:3x1", image="img")
    command = container(given, facts=FACTS)["command"][2]
    own = made(given).name
    assert f"--rdzv_backend etcd-v3 --rdzv_endpoint {FACTS.etcd} --rdzv_id '{own}'" in command
    assert "--nnodes 1:3 " in command


def test_the_etcd_of_the_option_comes_before_the_stacks() -> None:
    given = dist.ddp(script="train.py", j="1:3x1", image="img")
    job = made(given, facts=FACTS, options=Options(etcd="mine:2379"))
    assert job.spec.rdzv_endpoint == "mine:2379"
    assert (
        "--rdzv_endpoint mine:2379 " in container(given, facts=FACTS, options=Options(etcd="mine:2379"))["command"][2]
    )


@pytest.mark.parametrize("j", ["1:3x1", "3x1", "1x1"])
def test_whoever_names_this_rendezvous_meets_in_the_etcd_that_is_known(j: str) -> None:
    given = dist.ddp(script="train.py", j=j, image="img", rdzv_backend="etcd-v3")
    found = container(given, facts=FACTS, rendezvous=KEY)
    assert f"--rdzv_backend etcd-v3 --rdzv_endpoint {FACTS.etcd} " in found["command"][2]
    assert variables(found)["PYTHONPATH"] == workspace.PACKAGES
    assert ("PET_MAX_RESTARTS" in variables(found)) is (j == "1:3x1")
    with pytest.raises(Refused, match=r"role train: no etcd is known.*etcd=…"):
        elastic_job(given, submission())


def test_an_etcd_that_a_command_line_names_is_kept() -> None:
    given = app(role(entrypoint="torchrun", args=["--rdzv-backend=etcd-v3", "--rdzv-endpoint=e:2379", "t.py"]))
    assert container(given, facts=FACTS)["command"][2] == "--rdzv-endpoint=e:2379"
    assert not needs_rendezvous(given, submission())


@pytest.mark.parametrize(
    ("given", "facts"),
    [
        pytest.param(dist.ddp(script="train.py", j="2x1", image="img"), FACTS, id="fixed-size"),
        pytest.param(dist.ddp(script="train.py", j="1:3x1", image="img"), None, id="no-etcd"),
    ],
)
def test_other_torchruns_meet_at_replica_0(given: AppDef, facts: Any) -> None:
    command = container(given, facts=facts)["command"][2]
    assert "--rdzv_backend c10d --rdzv_endpoint ${TORCHX_RANK0_HOST:=localhost}:29500" in command


def test_the_first_agent_of_an_elastic_torchrun_that_has_finished_says_so_for_all() -> None:
    elastic = dist.ddp(script="train.py", j="1:3x1", image="img")
    assert made(elastic).spec.success_policy is SuccessPolicy.ANY_WORKER
    assert made(dist.ddp(script="train.py", j="3x1", image="img")).spec.success_policy is SuccessPolicy.ALL_PODS
    assert made(app(role(num_replicas=3, min_replicas=1))).spec.success_policy is SuccessPolicy.ALL_PODS
    assert made(app(*elastic.roles, role("reader"))).spec.success_policy is SuccessPolicy.ALL_PODS


def with_workspace(given: AppDef) -> AppDef:
    given.roles[0].metadata[workspace.METADATA] = KEY
    return given


def test_all_containers_find_the_proxy_of_the_stack_unless_a_role_names_another() -> None:
    facts = replace(FACTS, http_proxy="http://proxy:3128", no_proxy=".svc")
    given = with_workspace(app(role(env={"https_proxy": "http://own:1"})))
    pod = elastic_job(given, submission(facts=facts))["spec"]["replicaSpecs"][names.WORKER]["template"]["spec"]
    assert variables(pod["initContainers"][0]).items() >= facts.variables.items()
    assert variables(pod["containers"][0]).items() >= {**facts.variables, "https_proxy": "http://own:1"}.items()


def test_a_workspace_is_the_working_directory() -> None:
    given = with_workspace(utils.python(m="x", image="img"))
    manifest = elastic_job(given, submission(facts=FACTS))
    spec = manifest["spec"]["replicaSpecs"][names.WORKER]["template"]["spec"]
    fetch, unpack = spec["initContainers"]
    assert f"s3://{FACTS.bucket}/{KEY}" in fetch["command"]
    assert (fetch["image"], unpack["image"]) == (FACTS.fetch_image, "img")
    assert spec["containers"][0]["workingDir"] == workspace.WORKING_DIRECTORY
    assert "PYTHONPATH" not in variables(spec["containers"][0])
    assert archive_keys(given) == [KEY]


def test_a_workspace_without_a_bucket_is_refused() -> None:
    with pytest.raises(Refused, match="namespace training has no ConfigMap"):
        elastic_job(with_workspace(app(role())), submission())


def test_a_bucket_is_enough_for_a_workspace_where_there_is_no_stack() -> None:
    manifest = elastic_job(with_workspace(app(role())), submission(options=Options(bucket="mine")))
    fetch = manifest["spec"]["replicaSpecs"][names.WORKER]["template"]["spec"]["initContainers"][0]
    assert fetch["image"] == FETCH_IMAGE
    assert f"s3://mine/{KEY}" in fetch["command"]


def test_the_image_with_the_aws_command_line_is_the_stacks_default() -> None:
    keys = yaml.safe_load((ROOT / "Pulumi.yaml").read_text())["config"]
    assert keys["fetchImage"]["default"] == FETCH_IMAGE


def test_the_rendezvous_comes_with_the_workspace() -> None:
    given = with_workspace(dist.ddp(script="train.py", j="1:3x1", image="img", env={"PYTHONPATH": "/own"}))
    assert variables(container(given, facts=FACTS))["PYTHONPATH"] == f"{workspace.PACKAGES}:/own"
    assert not needs_rendezvous(given, submission(facts=FACTS))


def test_the_rendezvous_comes_alone_where_there_is_no_workspace() -> None:
    given = dist.ddp(script="train.py", j="1:3x1", image="img")
    assert needs_rendezvous(given, submission(facts=FACTS))
    found = container(given, facts=FACTS, rendezvous=KEY)
    assert variables(found)["PYTHONPATH"] == workspace.PACKAGES
    assert "workingDir" not in found


def test_an_etcd_without_a_bucket_for_the_rendezvous_is_refused() -> None:
    given = dist.ddp(script="train.py", j="1:3x1", image="img")
    alone = submission(options=Options(etcd="e:2379"))
    with pytest.raises(Refused, match=r"etcd=e:2379: .*role train.* add bucket=…, or leave etcd out"):
        needs_rendezvous(given, alone)
    assert needs_rendezvous(given, submission(options=Options(etcd="e:2379", bucket="mine")))
    assert not needs_rendezvous(dist.ddp(script="train.py", j="3x1", image="img"), alone)
    # A user who names the rendezvous may have an image that contains it.
    assert not needs_rendezvous(dist.ddp(script="t.py", j="1:3x1", image="img", rdzv_backend="etcd-v3"), alone)


def test_an_application_that_needs_no_rendezvous_gets_none() -> None:
    given = utils.echo(image="img")
    assert not needs_rendezvous(given, submission(facts=FACTS))
    manifest = elastic_job(given, submission(facts=FACTS, rendezvous=KEY))
    assert "initContainers" not in manifest["spec"]["replicaSpecs"][names.WORKER]["template"]["spec"]


def test_the_job_is_the_same_for_the_same_input() -> None:
    given = dist.ddp(script="train.py", j="1:3x1", image="img")
    assert elastic_job(given, submission(facts=FACTS)) == elastic_job(given, submission(facts=FACTS))
