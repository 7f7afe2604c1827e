"""What a real API server says of the jobs: the namespace is that of a stack. There is no controller, and no node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tidewater_torchx.errors import Refused
from tidewater_torchx.scheduler import TidewaterScheduler, create_scheduler
from torchx.components import dist, utils
from torchx.specs import AppDef, AppState, BindMount, DeviceMount, Resource, RetryPolicy, VolumeMount, macros

from packages.torchx.tests.doubles import FACTS, app, complete, role
from tests.control_plane import OPEN, running, within
from tidewater.elasticjob import names
from tidewater.elasticjob.names import JOBS
from tidewater.kube.server import Server

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """An API server with the definition, and a namespace like a stack's."""
    with running(tmp_path_factory.mktemp("api-server")) as plane:
        plane.define_jobs()
        plane.furnish(FACTS, "data")
        yield plane.server()


@pytest.fixture
def scheduler(server: Server) -> TidewaterScheduler:
    return create_scheduler("session", client=server)


EVERYTHING = app(
    role(
        "Trainer_of.Everything",
        num_replicas=5000,
        min_replicas=1,
        max_retries=7,
        retry_policy=RetryPolicy.REPLICA,
        args=[macros.replica_id, "$(HOME) $$"],
        env={"NODE": "[FIELD_PATH]spec.nodeName"},
        port_map={"tensorboard": 6006},
        mounts=[VolumeMount("data", "/data", read_only=True)],
        resource=Resource(cpu=4, gpu=2, memMB=9000, devices={"vpc.amazonaws.com/efa": 4}),
        metadata={"kubernetes": {"spec": {"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a"]}]}}},
    ),
    role("r" * 40, num_replicas=3),
    role("worker", min_replicas=1, num_replicas=2),
    name="A very long name, of which not everything fits into the names of pods",
)


@pytest.mark.parametrize(
    ("given", "cfg"),
    [
        pytest.param(utils.echo(image="img"), {}, id="echo"),
        pytest.param(utils.sh("ls", image="img"), {"queue": "team"}, id="queue"),
        pytest.param(dist.ddp(script="t.py", j="1:3x2", image="img"), {}, id="elastic"),
        pytest.param(dist.ddp(script="t.py", j="4x2", image="img", max_retries=3), {}, id="fixed"),
        pytest.param(dist.spmd(script="t.py", j="2x1", image="img", h="aws_p4d.24xlarge"), {}, id="spmd"),
        pytest.param(EVERYTHING, {"efa_device_count": 2}, id="everything"),
        pytest.param(complete(), {"namespace": OPEN}, id="bind-mount-without-a-stack"),
    ],
)
def test_the_api_server_accepts_the_job_and_its_pods_and_keeps_them(
    scheduler: TidewaterScheduler, server: Server, given: AppDef, cfg: dict[str, Any]
) -> None:
    info = scheduler.submit_dryrun(given, cfg)
    info.request.archives.clear()  # there is no bucket
    app_id = scheduler.schedule(info)
    namespace, _, name = app_id.partition(":")
    assert within(info.request.resource, server.get(JOBS, name, namespace))
    found = scheduler.describe(app_id)
    assert found is not None
    assert (found.state, found.roles) == (AppState.SUBMITTED, given.roles)
    scheduler.delete(app_id)
    assert scheduler.describe(app_id) is None


@pytest.mark.parametrize(
    ("given", "cfg", "told"),
    [
        pytest.param(
            app(role(mounts=[BindMount("/", "/host")])), {}, 'role trainer: .*PodSecurity "restricted', id="bind-mount"
        ),
        pytest.param(
            app(role(), role("ps", mounts=[DeviceMount("/dev/x", "/dev/x")])), {}, "role ps: .*privileged", id="device"
        ),
        pytest.param(app(role(mounts=[VolumeMount("no", "/d")])), {}, "role trainer: mount no: namespace", id="claim"),
        pytest.param(app(), {"priority_class": "huge"}, "option priority_class=huge: the cluster", id="priority"),
        pytest.param(app(), {"service_account": "who"}, "option service_account=who: namespace", id="account"),
        pytest.param(app(role(image="img ")), {}, "role trainer: image 'img '", id="image"),
        pytest.param(
            app(role(env={"A": "[FIELD_PATH]status.nothing"})), {}, "role trainer: .*status.nothing", id="field"
        ),
        pytest.param(
            app(role(metadata={"kubernetes": {"spec": {"nodeSelectr": {}}}})), {}, "nodeSelectr", id="overlay"
        ),
    ],
)
def test_what_no_pod_may_be_is_named_and_nothing_is_made(
    scheduler: TidewaterScheduler, server: Server, given: AppDef, cfg: dict[str, Any], told: str
) -> None:
    with pytest.raises(Refused, match=told):
        scheduler.submit(given, cfg)
    assert server.list(JOBS).items == []


def test_a_namespace_that_does_not_exist_is_named(scheduler: TidewaterScheduler) -> None:
    with pytest.raises(Refused, match="option namespace=nowhere: the cluster has no such namespace"):
        scheduler.submit(app(), {"namespace": "nowhere"})


def test_a_cancelled_application_is_suspended_and_listed(scheduler: TidewaterScheduler, server: Server) -> None:
    app_id: str = scheduler.submit(app(), {})
    name = app_id.partition(":")[2]
    server.patch(JOBS, name, {"status": {"state": "Running", "observedGeneration": 1}}, subresource="status")
    scheduler.cancel(app_id)
    job = server.get(JOBS, name)
    assert job["spec"]["suspend"] is True
    assert [each.state for each in scheduler.list() if each.app_id == app_id] == [AppState.RUNNING]
    status = {"state": "Suspended", "observedGeneration": job["metadata"]["generation"]}
    server.patch(JOBS, name, {"status": status}, subresource="status")
    assert [each.state for each in scheduler.list() if each.app_id == app_id] == [AppState.CANCELLED]
    for suspend in (False, True):  # by another client
        server.patch(JOBS, name, {"spec": {"suspend": suspend}})
    assert [each.state for each in scheduler.list() if each.app_id == app_id] == [AppState.PENDING]
    scheduler.delete(app_id)


def test_an_application_that_tidewater_resizes_keeps_its_description(
    scheduler: TidewaterScheduler, server: Server
) -> None:
    given = app(role(num_replicas=3, min_replicas=1))
    app_id: str = scheduler.submit(given, {})
    name = app_id.partition(":")[2]
    server.patch(JOBS, name, {"spec": {"replicas": 2}}, subresource="scale")
    assert server.get(JOBS, name)["spec"]["replicaSpecs"][names.WORKER]["replicas"] == 2
    assert scheduler.app(app_id) == given
    scheduler.delete(app_id)
