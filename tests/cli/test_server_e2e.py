"""The command line as a process of its own, on a real API server. The tests play the controller: there is none."""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import graph
from tests.control_plane import GROUP, NAMESPACE, Plane, PlaneError, eventually, named, running, within
from tests.infra.policies.test_teams import TEAMS
from tidewater.contract.pod_defaults import confined
from tidewater.contract.stack import non_root
from tidewater.controller import objects
from tidewater.controller.decide.actions import CreatePod
from tidewater.elasticjob import codec, names
from tidewater.elasticjob.install import access
from tidewater.elasticjob.names import JOBS
from tidewater.kube.cluster import Object
from tidewater.kube.errors import Exists
from tidewater.kube.kinds import CONFIG_MAPS, DEFINITIONS, DEPLOYMENTS, EVENTS, PODS, SERVICE_ACCOUNTS, Kind
from tidewater.kube.server import Server

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 60.0
Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    with running(tmp_path_factory.mktemp("api-server")) as found:
        yield found


def tidewater_as(plane: Plane, user: str, group: str = GROUP) -> Command:
    """Return a function that runs the command line as `user`."""
    kubeconfig = plane.kubeconfig(user, with_rights=user == "admin", namespace=NAMESPACE, group=group)
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}

    def run(*words: str, text: str = "", fails: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "tidewater.cli", *words],
            cwd=ROOT,
            env=environment,
            input=text,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == fails, done.stderr
        assert "Traceback" not in done.stderr
        return done

    return run


@pytest.fixture(scope="module")
def tidewater(plane: Plane) -> Command:
    """The command line, on a cluster with the CRD."""
    run, server = tidewater_as(plane, "admin"), plane.server()
    missing = run("job", "list", fails=1).stderr
    assert missing.splitlines() == [
        "error: this cluster has no ElasticJob: its CRD (elasticjobs.elastic.pytorch.org) is not installed",
        "Install it: tidewater install | kubectl apply -f -",
    ]
    server.create(DEFINITIONS, yaml.safe_load(run("install", "--crd-only").stdout))
    eventually(lambda: server.list(JOBS) is not None)
    return run


@pytest.fixture(scope="module")
def server(plane: Plane) -> Server:
    return plane.server()


def submit(tidewater: Command, name: str, *words: str) -> None:
    tidewater("job", "submit", name, "--image", "i", "--workers", "2", "--min", "1", "--max", "4", *words)


def report(server: Server, name: str, **status: Any) -> None:
    """Write a status as the controller would."""
    found = server.get(JOBS, name, "training")
    status = {"observedGeneration": found["metadata"]["generation"], **status}
    server.patch(JOBS, name, {"status": status}, subresource="status", namespace="training")


def test_what_a_dry_run_prints_is_what_the_server_gets(tidewater: Command, server: Server) -> None:
    printed = tidewater("job", "submit", "dry", "--image", "i", "--queue", "q", "--dry-run").stdout
    tidewater("job", "submit", "-f", "-", text=printed)
    spec = server.get(JOBS, "dry", "training")["spec"]
    assert within(yaml.safe_load(printed)["spec"], spec)


def test_an_unknown_field_is_refused_and_named(tidewater: Command) -> None:
    printed = yaml.safe_load(tidewater("job", "submit", "strict", "--image", "i", "--dry-run").stdout)
    printed["spec"]["maxReplica"] = 3
    result = tidewater("job", "submit", "-f", "-", text=yaml.safe_dump(printed), fails=1)
    assert "maxReplica" in result.stderr


def test_a_folder_of_the_largest_size_goes_with_its_job(tidewater: Command, server: Server, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import net\n")
    (tmp_path / "net.bin").write_bytes(random.Random(1).randbytes(890 << 10))
    owners = []
    for _ in range(2):  # there is no garbage collector here, so the second job finds the ConfigMap of the first
        submit(tidewater, "shipped", "--code", str(tmp_path), "--script", "train.py")
        (found,) = (each for each in server.list(CONFIG_MAPS).items if each["metadata"]["name"].startswith("shipped-"))
        (owner,) = found["metadata"]["ownerReferences"]
        assert owner["uid"] == server.get(JOBS, "shipped", "training")["metadata"]["uid"]
        owners.append(owner["uid"])
        tidewater("job", "delete", "shipped", "--timeout", "30s")
    assert len(set(owners)) == 2


def test_list_shows_the_printer_columns(tidewater: Command, server: Server) -> None:
    submit(tidewater, "listed")
    report(server, "listed", state="Running", desired=2, replicaStatuses={"Worker": {"active": 2}})
    lines = tidewater("job", "list").stdout.splitlines()
    assert lines[0].split() == ["NAME", "STATE", "DESIRED", "ACTIVE", "MIN", "MAX", "WAITING", "AGE"]
    (own,) = [line.split() for line in lines if line.startswith("listed ")]
    assert own[1:6] == ["Running", "2", "2", "1", "4"]


def test_a_size_in_bounds_is_set_and_one_outside_is_refused(tidewater: Command, server: Server) -> None:
    submit(tidewater, "scaled")
    tidewater("job", "scale", "scaled", "3")
    assert server.get(JOBS, "scaled", "training")["spec"]["replicaSpecs"]["Worker"]["replicas"] == 3
    refused = tidewater("job", "scale", "scaled", "9", fails=1).stderr
    assert "replicaSpecs.Worker.replicas (9) must not be above maxReplicas (4)." in refused
    assert server.get(JOBS, "scaled", "training")["spec"]["replicaSpecs"]["Worker"]["replicas"] == 3


def test_a_job_is_suspended_and_resumed(tidewater: Command, server: Server) -> None:
    submit(tidewater, "paused")
    tidewater("job", "suspend", "paused")
    assert server.get(JOBS, "paused", "training")["spec"]["suspend"] is True
    tidewater("job", "resume", "paused")
    assert not server.get(JOBS, "paused", "training")["spec"].get("suspend")


def test_wait_sees_what_the_controller_writes(tidewater: Command, plane: Plane, server: Server) -> None:
    submit(tidewater, "awaited")
    report(server, "awaited", state="Running", settledReplicas=1)
    words = [sys.executable, "-m", "tidewater.cli", "job", "wait", "awaited", "--for", "size", "--timeout", "50s"]
    environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig("admin", namespace=NAMESPACE))}
    with subprocess.Popen(
        words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr
        assert "does not have its size yet" in process.stderr.readline()
        report(server, "awaited", state="Running", settledReplicas=2)
        assert process.wait(SECONDS) == 0
    report(server, "awaited", state="Failed", conditions=[condition("Failed", "a worker exited with code 2")])
    assert "a worker exited with code 2" in tidewater("job", "wait", "awaited", fails=4).stderr


def condition(type: str, message: str) -> Object:
    return {"type": type, "status": "True", "reason": f"ElasticJob{type}", "message": message}


def test_wait_ends_at_its_timeout(tidewater: Command) -> None:
    submit(tidewater, "slow")
    assert (
        "slow is not running after 1s"
        in tidewater("job", "wait", "slow", "--for", "running", "--timeout", "1s", fails=3).stderr
    )


def test_describe_finds_the_jobs_own_events(tidewater: Command, server: Server) -> None:
    submit(tidewater, "described")
    report(server, "described", state="Running", conditions=[condition("Running", "ElasticJob described is running.")])
    made = server.get(JOBS, "described", "training")
    about = {"kind": names.KIND, "name": "described", "namespace": "training", "uid": made["metadata"]["uid"]}
    for uid in (about["uid"], "another"):
        server.create(
            EVENTS,
            {
                "metadata": {"generateName": "e-", "namespace": "training"},
                "involvedObject": {**about, "uid": uid},
                "type": "Normal",
                "reason": "SuccessfulCreatePod",
                "message": f"of {uid}",
            },
        )
    shown = tidewater("job", "describe", "described").stdout
    assert "ElasticJobRunning" in shown
    assert f"of {about['uid']}" in shown
    assert "of another" not in shown


def test_a_worker_without_a_node_is_told_beside_the_logs(tidewater: Command, server: Server) -> None:
    submit(tidewater, "logged")
    metadata = {
        "name": "logged-worker-0",
        "namespace": "training",
        "labels": dict(names.pod_labels("logged", names.WORKER, 0)),
    }
    container = {"name": names.WORKER_CONTAINER, "image": "i"}
    server.create(PODS, {"metadata": metadata, "spec": {"containers": [container]}})
    assert "logged-worker-0 has not started: Pending" in tidewater("job", "logs", "logged").stderr


def test_delete_returns_when_the_job_is_gone(tidewater: Command, server: Server) -> None:
    submit(tidewater, "deleted")
    assert tidewater("job", "delete", "deleted", "--timeout", "30s").stdout == "deleted deleted\n"
    assert "deleted" not in {each["metadata"]["name"] for each in server.list(JOBS).items}


def test_a_user_without_rights_reads_the_servers_sentence(tidewater: Command, plane: Plane) -> None:
    refused = tidewater_as(plane, "nobody")("job", "list", fails=1).stderr
    assert 'User "nobody" cannot list resource "elasticjobs"' in refused
    assert "Ask an administrator" in refused


def test_a_namespace_that_does_not_exist_is_named(tidewater: Command) -> None:
    refused = tidewater("job", "submit", "a", "--image", "i", "-n", "nowhere", fails=1).stderr
    assert 'namespaces "nowhere" not found' in refused
    assert "kubectl create namespace" in refused


TEAM_KINDS = (
    "Namespace",
    "RoleBinding",
    "ResourceQuota",
    "LimitRange",
    "NetworkPolicy",
    "ServiceAccount",
    "ConfigMap",
    "PriorityClass",
    "ClusterRole",
)

OF_VISION = ("--as=someone", "--as-group=tidewater:vision", "--as-group=system:authenticated")


def put_together(plane: Plane, role: Mapping[str, Any]) -> None:
    """Give a role the rules of the roles that it selects. No controller manager does it here."""
    rules = []
    for selector in role["aggregationRule"]["clusterRoleSelectors"]:
        words = [f"{key}={value}" for key, value in selector.get("matchLabels", {}).items()]
        for each in selector.get("matchExpressions", ()):
            words.append(f"{each['key']} in ({','.join(each['values'])})" if "values" in each else f"!{each['key']}")
        parts = json.loads(plane.kubectl("get", "clusterroles", "-l", ",".join(words), "-o=json"))["items"]
        rules += [rule for part in parts for rule in part["rules"]]
    about = {"apiVersion": f"{access.RBAC}/v1", "kind": "ClusterRole"}
    plane.apply({**about, "metadata": {"name": role["metadata"]["name"]}, "rules": rules})


@pytest.fixture(scope="module")
def people(plane: Plane, tidewater: Command) -> dict[str, Command]:
    """The command line as a person of each team, with the rights that the stack and `install` give."""
    made = graph.production(**TEAMS).resources
    found = [each.inputs for each in made if each.type.startswith("kubernetes:") and each.type.endswith(TEAM_KINDS)]
    plain = json.loads(json.dumps(found), parse_float=lambda text: int(float(text)))  # Pulumi has no whole numbers
    spaces = [each for each in plain if each["kind"] == "Namespace"]
    teams = {"vision", "speech", ""}
    plane.apply(*spaces, *(each for each in plain if each["metadata"].get("namespace", "") in teams))
    roles = [each for each in yaml.safe_load_all(tidewater("install").stdout) if each["kind"] == "ClusterRole"]
    plane.apply(*roles, *(named("default", SERVICE_ACCOUNTS, team) for team in teams - {""}))
    (role,) = (each for each in found if "aggregationRule" in each)
    put_together(plane, role)
    return {team: tidewater_as(plane, f"of-{team}", group=f"tidewater:{team}") for team in teams - {""}}


def test_a_person_of_a_team_runs_jobs_there_and_nowhere_else(
    people: dict[str, Command], plane: Plane, server: Server
) -> None:
    words = ("job", "submit", "own", "--image", "i")
    assert "own created in namespace vision" in people["vision"](*words, "-n", "vision").stdout
    made = objects.pod(codec.job_of(server.get(JOBS, "own", "vision")), CreatePod(names.WORKER, 0, core=True))
    plane.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(made))  # the namespace accepts the pod
    for elsewhere in ("speech", NAMESPACE, "default", "kube-system"):
        refused = people["vision"](*words, "-n", elsewhere, fails=1).stderr
        assert (
            f'cannot create resource "elasticjobs" in API group "{names.GROUP}" in the namespace "{elsewhere}"'
            in refused
        )
        assert "Ask an administrator" in refused
    people["vision"]("job", "scale", "own", "1", "-n", "vision")
    assert "cannot get resource" in people["speech"]("job", "describe", "own", "-n", "vision", fails=1).stderr
    assert "cannot" in people["speech"]("job", "delete", "own", "-n", "vision", "--timeout", "5s", fails=1).stderr
    people["vision"]("job", "delete", "own", "-n", "vision", "--timeout", "30s")


@pytest.mark.parametrize("kind", ["secrets", "configmaps", "pods", "services", "persistentvolumeclaims", "elasticjobs"])
def test_a_person_sees_nothing_of_another_team(people: dict[str, Command], plane: Plane, kind: str) -> None:
    def sees(*words: str) -> bool:
        try:
            plane.kubectl("get", kind, *words, *OF_VISION)
        except PlaneError as error:
            if "forbidden" not in str(error):
                raise
            return False
        return True

    assert sees("-n", "vision")
    assert not any(map(sees, ("--namespace=speech", "--namespace=training", "--all-namespaces")))


@pytest.mark.parametrize(
    ("verb", "what"),
    [
        ("patch", "resourcequotas"),
        ("delete", "limitranges"),
        ("create", "rolebindings"),
        ("create", "roles"),
        ("patch", "namespaces/vision"),
        ("create", "persistentvolumes"),
        ("create", "priorityclasses"),
        ("create", "namespaces"),
        ("get", "nodes/proxy"),
    ],
)
def test_a_person_cant_give_more_rights_nor_more_of_the_nodes(
    people: dict[str, Command], plane: Plane, verb: str, what: str
) -> None:
    with pytest.raises(PlaneError):  # kubectl ends with 1 if the answer is no
        plane.kubectl("auth", "can-i", verb, what, "-n", "vision", *OF_VISION)
    assert plane.kubectl("auth", "can-i", "create", "pods", "-n", "vision", *OF_VISION).strip() == "yes"


def test_a_teams_quota_refuses_priorities_and_workers_that_are_not_its_own(
    people: dict[str, Command], plane: Plane
) -> None:
    """The test writes what each quota is, and that nothing is used, as the controller manager does."""
    for each in json.loads(plane.kubectl("get", "resourcequotas", "-n", "vision", "-o", "json"))["items"]:
        status = {"hard": each["spec"]["hard"], "used": dict.fromkeys(each["spec"]["hard"], "0")}
        name = each["metadata"]["name"]
        plane.kubectl(
            *("patch", "resourcequota", name, "-n", "vision", "--subresource=status", "--type=merge"),
            f"--patch={json.dumps({'status': status})}",
        )

    def refusal(name: str, priority: str = "", gpus: int = 0) -> str:
        limits = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
        container = {"name": "c", "image": "i", "resources": limits, "securityContext": confined()}
        pod = {
            "containers": [container],
            "securityContext": non_root(1000),
            **({"priorityClassName": priority} if priority else {}),
        }
        made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "vision"}, "spec": pod}
        try:
            plane.apply(made)
        except PlaneError as error:
            return str(error)
        return ""

    assert "exceeded quota: other-classes" in refusal("a", "system-node-critical")
    assert "exceeded quota: other-classes" in refusal("a", "training-controller")
    assert refusal("first", "training-core-workers") == ""
    assert "exceeded quota: core-workers" in refusal("second", "training-core-workers")
    assert refusal("second", "training-surge-workers") == ""
    assert "exceeded quota: team" in refusal("gpus", gpus=1_000)


def test_the_server_accepts_everything_that_install_prints(tidewater: Command, server: Server) -> None:
    documents = list(yaml.safe_load_all(tidewater("install").stdout))
    for each in documents:
        plural = f"{each['kind'].lower()}s"
        kind = Kind(each["apiVersion"], each["kind"], plural, namespaced="namespace" in each["metadata"])
        with contextlib.suppress(Exists):
            server.create(kind, each)
    assert server.get(DEPLOYMENTS, "tidewater-controller", "tidewater-system")["spec"]["replicas"] == 2
