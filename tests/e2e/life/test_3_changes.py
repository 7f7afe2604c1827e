"""What a user changes on a stack, and what it survives: another size, lost nodes and workers, drift.

Each test uses the stack as the one before left it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.checkout import LONG_TRAINING, STACK, UP, Checkout, wait_until
from tests.e2e.elasticjob import make_stack
from tests.e2e.nodes import instance_of, terminate
from tests.e2e.training import (
    assert_committed_once,
    assert_steps_only_grow,
    count,
    identities,
    latest_generation,
    latest_step,
    node_of,
    running_workers,
    wait_for_world,
)
from tests.elastic.packages.wheels import wheel
from tests.infra.preflight.refusals import ON_A_STACK, REFUSED

BUCKETED = f"{LONG_TRAINING} --heartbeat-seconds 10 --peer-timeout-seconds 15"
"""Arguments of a job that must discard no step when one of its workers is asked to leave. The workers wait longer for a
peer than by default (1.5 s and 3 s): a busy machine can hold one up for seconds. No test freezes a worker.
"""

PACKED = """\
import alpha, beta, tidewater, torch

print(f"event=imported alpha={alpha.VERSION} beta={beta.VERSION} at={alpha.__file__}", flush=True)


def training(config: tidewater.Config) -> tidewater.Training:
    numbers = torch.utils.data.TensorDataset(torch.rand(512, 4), torch.rand(512, 1))
    model = torch.nn.Linear(4, 1)
    loss = lambda model, batch: torch.nn.functional.mse_loss(model(batch[0]), batch[1])
    sgd = torch.optim.SGD(model.parameters(), lr=0.01)
    return tidewater.Training(model=model, optimizer=sgd, dataset=numbers, loss=loss)


raise SystemExit(tidewater.run(training))
"""
"""A script that imports two packages that the image lacks."""

pytestmark = [pytest.mark.e2e, pytest.mark.incremental, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module", autouse=True)
def stack(checkout: Checkout) -> None:
    """Have a stack with two workers that train."""
    make_stack(checkout, {"workers": "2"})
    wait_for_world(checkout, 2)


def test_resize_to_three_keeps_the_first_two_processes(checkout: Checkout) -> None:
    before = identities(checkout)
    step = latest_step(checkout)
    checkout.run("pulumi config set workers 3 && pulumi up --yes")
    wait_for_world(checkout, 3)
    after = identities(checkout)
    assert before.items() <= after.items()
    assert len(after) == 3
    assert latest_step(checkout) > step
    assert_steps_only_grow(checkout)


def test_a_size_set_by_kubectl_holds_until_pulumi_writes_the_job(checkout: Checkout) -> None:
    job = f"-n {checkout.namespace} elasticjob/{checkout.outputs['jobName']}"
    before = identities(checkout)
    checkout.run(f"kubectl scale {job} --replicas=2")
    wait_for_world(checkout, 2)
    checkout.run(f"{UP} --expect-no-changes")
    assert checkout.json(f"kubectl get {job} -o json")["spec"]["replicaSpecs"]["Worker"]["replicas"] == 2
    assert identities(checkout).items() <= before.items()
    checkout.run(f"{UP} --refresh")
    wait_for_world(checkout, 3)
    assert_steps_only_grow(checkout)


def test_a_terminated_node_is_replaced_while_training_continues(checkout: Checkout) -> None:
    lost = running_workers(checkout)[0]
    survivors = {name: who for name, who in identities(checkout).items() if name != lost}
    generation, step = latest_generation(checkout), latest_step(checkout)
    terminate(checkout, instance_of(checkout, lost))
    wait_for_world(checkout, 3, of=survivors, after=generation, seconds=300)
    assert survivors.items() <= identities(checkout).items()
    assert latest_step(checkout) > step
    assert_steps_only_grow(checkout)


def test_a_job_with_checkpoints_in_s3_may_access_only_its_own_checkpoints(checkout: Checkout) -> None:
    checkout.run(
        "pulumi config set jobName bucketed && pulumi config set checkpoints s3 && "
        f"pulumi config set trainerArgs -- '{BUCKETED}' && {UP}"
    )
    checkout.forget_outputs()
    wait_for_world(checkout, 3)
    wait_until("two checkpoints in the bucket", lambda: len(_checkpoints_in_s3(checkout)) >= 2)
    inside = f"kubectl exec -n {checkout.namespace} {running_workers(checkout)[0]} -- python3 -m awscli s3"
    bucket = checkout.outputs["bucket"]
    checkout.run(f"{inside} ls s3://{bucket}/checkpoints/bucketed/")
    assert "AccessDenied" in checkout.fails(f"{inside} ls s3://{bucket}/checkpoints/digits/").text
    assert "AccessDenied" in checkout.fails(f"{inside} cp /etc/hostname s3://{bucket}/checkpoints/digits/x").text


def _checkpoints_in_s3(checkout: Checkout) -> list[int]:
    """Return the steps of the job's complete checkpoints in the bucket, in order."""
    place = {"Bucket": checkout.outputs["bucket"], "Prefix": "checkpoints/bucketed/step-"}
    pages = checkout.client("s3").get_paginator("list_objects_v2").paginate(**place)
    keys = [each["Key"] for page in pages for each in page.get("Contents", ())]
    return sorted(int(key.split("/")[2].split("-")[1]) for key in keys if key.endswith("/manifest.json"))


def test_training_continues_after_a_worker_is_deleted_by_force(checkout: Checkout) -> None:
    lost = running_workers(checkout)[-1]
    survivors = {name: who for name, who in identities(checkout).items() if name != lost}
    generation, step = latest_generation(checkout), latest_step(checkout)
    with checkout.followed([lost]) as printed:
        checkout.run(f"kubectl delete pod -n {checkout.namespace} {lost} --grace-period=0 --force")
        wait_for_world(checkout, 3, of=survivors, after=generation)
        assert survivors.items() <= identities(checkout).items()
        assert latest_step(checkout) > step
        assert_committed_once([printed(lost), *map(checkout.logs, running_workers(checkout))])


def test_a_worker_leaves_a_drained_node_without_a_failure_and_comes_back_on_another(checkout: Checkout) -> None:
    leaver = running_workers(checkout)[0]  # below the minimum: its replacement must not displace another worker
    node = node_of(checkout, leaver)
    survivors = {name: who for name, who in identities(checkout).items() if name != leaver}
    discarded = {name: count(checkout.logs(name), "step_discarded") for name in survivors}
    generation, step = latest_generation(checkout), latest_step(checkout)
    with checkout.followed([leaver]) as printed:
        checkout.run(f"kubectl drain {node} --ignore-daemonsets --delete-emptydir-data --timeout=300s")
        wait_until("the leaver's last words", lambda: count(printed(leaver), "left"))  # kubectl may print them late
        assert count(printed(leaver), "left") == 1
        wait_for_world(checkout, 3, of=survivors, after=generation, seconds=300)
        assert {name: count(checkout.logs(name), "step_discarded") for name in survivors} == discarded
        assert survivors.items() <= identities(checkout).items()
        assert latest_step(checkout) > step
        assert node not in {node_of(checkout, pod) for pod in running_workers(checkout)}
        assert_committed_once([printed(leaver), *map(checkout.logs, running_workers(checkout))])
    checkout.run(f"kubectl uncordon {node}", expect=None)  # Karpenter has ended it, if it was one of its own


def test_training_resumes_from_s3_after_all_workers_are_lost(checkout: Checkout) -> None:
    before = identities(checkout)
    step, saved = latest_step(checkout), _checkpoints_in_s3(checkout)[-1]
    checkout.run(
        f"kubectl delete pods -n {checkout.namespace} -l '{checkout.outputs['workerSelector']}' "
        "--grace-period=0 --force"
    )
    wait_until("the old workers to go", lambda: not before.items() & identities(checkout).items())
    wait_for_world(checkout, 3)
    logs = [checkout.logs(pod) for pod in running_workers(checkout)]
    events = [line for log in logs for line in log if "event" in line]
    loaded = next((line for line in events if line["event"] == "checkpoint_loaded"), None)
    assert loaded, events
    assert loaded["path"].startswith("s3://")
    assert saved <= int(loaded["step"])
    assert min(int(line["step"]) for log in logs for line in log if "loss" in line) == int(loaded["step"]) + 1
    wait_until("more steps than ever", lambda: latest_step(checkout) > step)
    assert_committed_once(logs)


def test_refresh_detects_drift_and_up_repairs_it(checkout: Checkout) -> None:
    ec2, efs = checkout.client("ec2"), checkout.client("efs")
    vpc = ec2.describe_vpcs(Filters=[{"Name": "tag-key", "Values": ["Project"]}])["Vpcs"][0]["VpcId"]
    subnets = ec2.describe_subnets(Filters=[{"Name": "vpc-id", "Values": [vpc]}])
    interfaces = ec2.describe_network_interfaces()["NetworkInterfaces"]
    nats = ec2.describe_nat_gateways()["NatGateways"]
    busy = {i["SubnetId"] for i in interfaces} | {n["SubnetId"] for n in nats}
    idle = [s["SubnetId"] for s in subnets["Subnets"] if s["SubnetId"] not in busy]
    ec2.create_tags(Resources=[vpc], Tags=[{"Key": "Project", "Value": "changed"}])
    checkout.run(f"kubectl scale -n {checkout.namespace} statefulset/etcd --replicas=2")
    (point,) = efs.describe_access_points()["AccessPoints"]
    efs.delete_access_point(AccessPointId=point["AccessPointId"])
    step = latest_step(checkout)
    if idle:
        ec2.delete_subnet(SubnetId=idle[0])
    refreshed = checkout.run("pulumi refresh --yes --skip-preview --diff").text
    assert "changed" in refreshed
    assert "replicas" in refreshed
    if idle:
        assert "deleted" in refreshed
    checkout.run(UP)
    checkout.run("pulumi preview --expect-no-changes")
    repaired = ec2.describe_vpcs(VpcIds=[vpc])["Vpcs"][0]
    assert {"Key": "Project", "Value": "changed"} not in repaired["Tags"]
    etcd = checkout.json(f"kubectl get statefulset etcd -n {checkout.namespace} -o json")
    assert etcd["spec"]["replicas"] == 1
    # The volume names the new access point, so all that mounts it was made again.
    wait_for_world(checkout, 3)
    wait_until("more steps than ever", lambda: latest_step(checkout) > step)


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        pytest.param("instanceTypes[0]", "z9.huge", "z9.huge", id="no such instance type"),
        *(pytest.param(*REFUSED[name], id=name) for name in ON_A_STACK),
    ],
)
def test_an_invalid_config_is_refused_before_anything_changes(
    checkout: Checkout, key: str, value: str, named: str
) -> None:
    before, state = identities(checkout), _state(checkout)
    with checkout.config(key, value):
        refused = checkout.fails("pulumi up --yes")
    assert re.split(r"[\[.]", key)[0] in refused.text
    assert named in refused.text
    assert "Traceback" not in refused.text
    assert _state(checkout) == state
    assert identities(checkout) == before


def _state(checkout: Checkout) -> dict[str, Any]:
    """Return the stack's state without its manifest, which has the time."""
    deployment = checkout.json("pulumi stack export")["deployment"]
    return {key: value for key, value in deployment.items() if key != "manifest"}


def test_after_a_change_of_address_eks_gets_it_first_and_the_state_follows(checkout: Checkout) -> None:
    command = f"python -m scripts.address --stack {STACK}"
    with checkout.config("publicAccessCidrs[0]", "8.8.4.4/32"):
        checkout.run(command)
        described = checkout.client("eks").describe_cluster(name=checkout.outputs["clusterName"])["cluster"]
        access = described["resourcesVpcConfig"]
        assert access["publicAccessCidrs"] == ["8.8.4.4/32"]
        checkout.run("pulumi preview --expect-no-changes")
    checkout.run(command)


def test_another_number_of_etcds_members_is_previewed_as_a_replacement_of_etcd(checkout: Checkout) -> None:
    with checkout.config("systemNodes", "3"), checkout.config("etcdMembers", "3"):
        plan = checkout.run("pulumi preview").text
    assert "eksCluster" not in plan, "the address is that of before"
    assert "+- kubernetes:apps/v1:StatefulSet statefulset-etcd replace" in plan
    assert "+-1 to replace" in plan


@pytest.mark.soak
def test_resize_to_one_leaves_one_worker_training(checkout: Checkout) -> None:
    before, step = identities(checkout), latest_step(checkout)
    checkout.run(f"pulumi config set workers 1 && {UP}")
    wait_for_world(checkout, 1)
    wait_until("one worker pod", lambda: len(checkout.worker_pods()) == 1)
    assert identities(checkout).items() <= before.items()
    wait_until("the step count to grow", lambda: latest_step(checkout) > step)
    assert_steps_only_grow(checkout)


def _locked(checkout: Checkout, version: str, *metadata: str) -> None:
    """Write a lock of two packages in a folder of wheels, as `uv pip compile` and `pip wheel` do."""
    folder = checkout.path / "wheels"
    lines = [wheel(folder, "alpha", version, metadata=("Requires-Dist: beta", *metadata)), wheel(folder, "beta")]
    (checkout.path / "requirements.txt").write_text("\n".join(["--no-index", "--find-links wheels", *lines, ""]))


def _imported(checkout: Checkout) -> list[dict[str, str]]:
    return [line for pod in running_workers(checkout) for line in checkout.logs(pod) if line.get("event") == "imported"]


def _installer(checkout: Checkout) -> str:
    """Return the log of the job that installs packages."""
    return checkout.run(f"kubectl logs -n {checkout.namespace} -l app.kubernetes.io/component=packages --tail=-1").text


def test_the_packages_of_a_lock_are_installed_once_and_workers_only_read_them(checkout: Checkout) -> None:
    _locked(checkout, "1.0")
    (checkout.path / "packed.py").write_text(PACKED)
    checkout.run(
        "pulumi config set workers 1 && pulumi config set jobName packed && "
        f"pulumi config set trainingScript packed.py && pulumi config set trainerArgs -- '{LONG_TRAINING}' && "
        f"pulumi config set trainingPackages requirements.txt && {UP}"
    )
    checkout.forget_outputs()
    wait_for_world(checkout, 1)
    (line,) = _imported(checkout)
    assert (line["alpha"], line["beta"]) == ("1.0", "1.0")
    assert line["at"].startswith("/packages/cpython-")
    assert "event=packages_writing" in _installer(checkout)
    inside = f"kubectl exec -n {checkout.namespace} {running_workers(checkout)[0]} --"
    assert "Read-only file system" in checkout.fails(f"{inside} touch /packages/x").text
    assert "No module named pip" in checkout.fails(f"{inside} python3 -m pip --version").text
    before = identities(checkout)
    checkout.run(f"kubectl delete jobs -n {checkout.namespace} -l app.kubernetes.io/component=packages")
    checkout.run(f"{UP} --refresh")
    said = _installer(checkout)
    assert "event=packages_ready" in said
    assert "event=packages_writing" not in said
    assert identities(checkout) == before


def test_a_package_for_another_torch_fails_the_update_with_a_sentence_and_training_goes_on(checkout: Checkout) -> None:
    before = identities(checkout)
    _locked(checkout, "1.2", "Requires-Dist: torch==1.13.1")
    refused = checkout.fails(UP)
    assert "alpha 1.2 needs torch==1.13.1, and the image has torch 2." in refused.text
    assert "Traceback" not in refused.text
    assert identities(checkout) == before


def test_a_repaired_lock_restarts_the_workers_from_their_checkpoint(checkout: Checkout) -> None:
    step = wait_until("a checkpoint", lambda: latest_step(checkout) > 20 and latest_step(checkout))
    _locked(checkout, "1.1")
    checkout.run(UP)
    wait_for_world(checkout, 1)
    (line,) = _imported(checkout)
    assert line["alpha"] == "1.1"
    events = [line for line in checkout.logs(running_workers(checkout)[0]) if "event" in line]
    loaded = next(line for line in events if line["event"] == "checkpoint_loaded")
    assert int(loaded["step"]) >= step - 10


@pytest.fixture
def lock(checkout: Checkout) -> str:
    """Return the lock of Hugging Face's Trainer, with its wheels: the nodes of the one-machine cloud reach no index."""
    shutil.copytree(Path(__file__).with_name("project"), checkout.path / "project")
    folder = checkout.path / "locked"
    given = checkout.path / "packages" / "transformers" / "requirements.txt"
    # Not in the shell of the checkout: the proxy there reaches nothing.
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    subprocess.run([*pip, "--only-binary", ":all:", "--dest", folder / "wheels", "-r", given], check=True)
    (folder / "requirements.txt").write_text(f"--no-index\n--find-links wheels\n{given.read_text()}")
    return f"{folder.name}/requirements.txt"


def test_a_project_with_a_librarys_trainer_survives_a_node_and_its_packages_are_installed_once(
    checkout: Checkout, lock: str
) -> None:
    output = "/data/words"
    checkout.run(
        "pulumi config set jobName words && pulumi config set workers 2 && pulumi config set trainingCode project && "
        f"pulumi config set trainingScript train.py && pulumi config set trainingPackages {lock} && "
        f"pulumi config set trainerArgs -- '--output {output} --min-step-seconds 0.1 --report-every 1' && {UP}"
    )
    checkout.forget_outputs()
    wait_for_world(checkout, 2)
    assert "event=packages_writing" in _installer(checkout)
    installed = _installers(checkout)
    lost, survivor = running_workers(checkout)[-1], running_workers(checkout)[0]
    before = identities(checkout)[survivor]
    generation, step = latest_generation(checkout), latest_step(checkout)
    terminate(checkout, instance_of(checkout, lost))
    wait_for_world(checkout, 2, after=generation, seconds=300)
    assert identities(checkout)[survivor] == before
    assert latest_step(checkout) > step
    assert_committed_once(list(map(checkout.logs, running_workers(checkout))))
    assert _installers(checkout) == installed
    checkout.run(f"kubectl exec -n {checkout.namespace} {survivor} -- touch {output}/enough")
    job = f"elasticjob/words -n {checkout.namespace}"
    checkout.run(f"kubectl wait {job} --for=condition=Succeeded --timeout=300s")
    logs = [checkout.logs(pod["metadata"]["name"]) for pod in checkout.worker_pods()]
    (saved,) = [line for log in logs for line in log if line.get("event") == "model_saved"]
    assert int(saved["parameters"]) > 20_000


def _installers(checkout: Checkout) -> list[str]:
    """Return the uids of the pods that have installed packages."""
    listed = f"kubectl get pods -n {checkout.namespace} -l app.kubernetes.io/component=packages -o json"
    return [pod["metadata"]["uid"] for pod in checkout.json(listed)["items"]]
