"""What a real API server says of the jobs, in a namespace like a stack's. There is no controller, and no node."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from elasticdl.client.flags.mistakes import WrongCommand
from elasticdl.client.job.submit import Steps, submit

from packages.elasticdl.tests.client import seed
from tests.control_plane import OPEN, named, running, within
from tidewater.elasticjob.names import JOBS
from tidewater.kube.cluster import Object
from tidewater.kube.kinds import PRIORITY_CLASSES
from tidewater.kube.server import Server

pytestmark = pytest.mark.e2e

CLAIM = "claim_name=fileserver-claim"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Yield an API server with the definition, and a namespace like a stack's."""
    with running(tmp_path_factory.mktemp("api-server")) as plane:
        plane.define_jobs()
        plane.furnish(seed.FACTS, "fileserver-claim")
        for name, value in (("high", 1_000_000), ("low", 1000)):
            plane.apply(named(name, PRIORITY_CLASSES, value=value))
        yield plane.server()


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
