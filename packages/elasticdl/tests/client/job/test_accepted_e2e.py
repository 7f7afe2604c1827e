"""What a real API server says of the jobs, in a namespace like a stack's. There is no controller, and no node."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from elasticdl.client.flags.mistakes import WrongCommand
from elasticdl.client.job.submit import Steps, submit

from packages.elasticdl.tests.client import seed
from tests.cli.api_server import NAMESPACE, started
from tidewater.contract.pod_defaults import RESTRICTED_NAMESPACE
from tidewater.contract.stack import CONFIG_MAP
from tidewater.elasticjob import crd
from tidewater.elasticjob.names import JOBS
from tidewater.kube.cluster import Object
from tidewater.kube.errors import MissingKind
from tidewater.kube.kinds import CLAIMS, CONFIG_MAPS, DEFINITIONS, NAMESPACES, PRIORITY_CLASSES, SERVICE_ACCOUNTS, Kind
from tidewater.kube.server import Server

pytestmark = pytest.mark.e2e

CLAIM = "claim_name=fileserver-claim"
OPEN = "default"
"""A namespace without a stack, which accepts any pod."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Yield an API server with the definition, and a namespace like a stack's."""
    with started(tmp_path_factory.mktemp("api-server")) as plane:
        found = plane.server()
        found.create(DEFINITIONS, dict(crd.definition()))
        found.patch(NAMESPACES, NAMESPACE, {"metadata": {"labels": dict(RESTRICTED_NAMESPACE)}})
        found.create(CONFIG_MAPS, named(CONFIG_MAP, CONFIG_MAPS, data=seed.FACTS.data))
        found.create(SERVICE_ACCOUNTS, named(seed.FACTS.service_account, SERVICE_ACCOUNTS))
        found.create(SERVICE_ACCOUNTS, named("default", SERVICE_ACCOUNTS, OPEN))
        claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
        for namespace in (NAMESPACE, OPEN):
            found.create(CLAIMS, named("fileserver-claim", CLAIMS, namespace, spec=claim))
        for name, value in (("high", 1_000_000), ("low", 1000)):
            found.create(PRIORITY_CLASSES, {**named(name, PRIORITY_CLASSES), "value": value})
        _await_jobs(found)
        yield found


def _await_jobs(server: Server) -> None:
    """Return when the API server serves jobs, which is a moment after it has accepted their definition."""
    deadline = time.monotonic() + 30
    while True:
        try:
            server.list(JOBS)
            return
        except MissingKind:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def named(name: str, kind: Kind, namespace: str = NAMESPACE, **parts: Any) -> Object:
    metadata = {"name": name, **({"namespace": namespace} if kind.namespaced else {})}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **parts}


def within(part: Any, whole: Any) -> bool:
    """Return whether everything in `part` is in `whole`, to which the API server may have added defaults."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(within(value, whole.get(key)) for key, value in part.items())
    if isinstance(part, list):
        return isinstance(whole, list) and len(part) == len(whole) and all(map(within, part, whole))
    return bool(part == whole)


def sent(server: Server, folder: Path, without: tuple[str, ...] = (), /, **changed: str) -> Object:
    """Submit the tutorial's command with some flags changed; return the job."""
    steps = Steps(lambda text: None, lambda archive, bucket: None, lambda: "a1")
    return submit(seed.asked(without, model_zoo=seed.zoo(folder), **changed), server, steps)


@pytest.mark.parametrize(
    ("without", "changed"),
    [
        pytest.param((), {}, id="tutorial"),
        pytest.param((), {"worker_pod_priority": "high=0.5", "max_workers": "100"}, id="half-high"),
        pytest.param((), {"restart_policy": "OnFailure", "relaunch_on_worker_failure": "0"}, id="restarts"),
        pytest.param(("num_ps_pods",), {"distribution_strategy": "AllreduceStrategy"}, id="allreduce"),
        pytest.param(
            (), {"worker_resource_request": "cpu=2,gpu=1", "worker_resource_limit": "cpu=3,gpu=1,disk=1Gi"}, id="gpus"
        ),
        pytest.param(
            ("evaluation_steps",), {"job_command": "python3 a.py '$(HOME)'", "envs": "A=$(B),B=1"}, id="script"
        ),
        pytest.param(
            (),
            {"volume": f"{CLAIM},mount_path=/a,sub_path=b;{CLAIM},mount_path=/c"},
            id="volumes",
        ),
        pytest.param(
            (),
            {"cluster_spec_json": '{"pod_spec": {"tolerations": [{"operator": "Exists"}], "labels": {"a": "b"}}}'},
            id="additions",
        ),
        pytest.param((), {"job_name": "a" * 38}, id="longest-name"),
        pytest.param((), {"namespace": OPEN, "image_name": "zoo:1"}, id="without-a-stack"),
        pytest.param(
            (), {"namespace": OPEN, "image_name": "z:1", "volume": "host_path=/d,mount_path=/d"}, id="path-of-the-host"
        ),
    ],
)
def test_the_api_server_accepts_the_job_and_its_pods_and_keeps_them(
    server: Server, tmp_path: Path, without: tuple[str, ...], changed: dict[str, str]
) -> None:
    made = sent(server, tmp_path, without, **changed)
    name, namespace = made["metadata"]["name"], made["metadata"]["namespace"]
    assert within(made["spec"], server.get(JOBS, name, namespace)["spec"])
    server.delete(JOBS, name, namespace)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        pytest.param(
            {"cluster_spec_json": '{"pod_spec": {"labels": {"a b": "c"}}}'}, r"Pod .*-master-0: .*labels", id="label"
        ),
        pytest.param(
            {"cluster_spec_json": '{"worker_spec": {"tolerations": [{"operator": "Perhaps"}]}}'},
            "Pod .*-worker-0: .*tolerations",
            id="toleration",
        ),
        pytest.param({"volume": "claim_name=none,mount_path=/a"}, "there is no claim none", id="claim"),
        pytest.param({"namespace": "nowhere", "image_name": "a:1"}, "there is no claim", id="namespace"),
    ],
)
def test_what_the_api_server_would_refuse_is_named_and_nothing_is_made(
    server: Server, tmp_path: Path, changed: dict[str, str], said: str
) -> None:
    with pytest.raises(WrongCommand, match=said):
        sent(server, tmp_path, (), **changed)
    assert server.list(JOBS).items == []
