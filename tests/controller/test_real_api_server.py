"""The controller with a real API server: killed at every write, without an API server, frozen as the leader.

There is neither a scheduler nor a kubelet nor a garbage collector: pods stay Pending, and nobody but the controller
reacts to a job. `test_chaos` shows the same, for more that may happen to a job, with an API server in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import pytest

from benchmarks.controller.plane import NO_PROXY, Plane
from contract.elasticjob import crd, names
from contract.install import access
from controller.act import stamp
from controller.cluster.client import (
    EVENTS,
    JOBS,
    LEASES,
    NODE_CLASSES,
    NODE_POOLS,
    PODS,
    SERVICES,
    Cluster,
    Kind,
    Manifest,
    Page,
    Ref,
    Source,
    WatchEvent,
)
from controller.cluster.errors import NotFound
from controller.cluster.fence import Fence, Fenced
from controller.cluster.http import ApiServer, connect
from controller.loop import Controller, Options
from controller.observe.events import Recorder
from controller.observe.log import Log
from controller.observe.metrics import Metrics
from controller.store import SELECTOR
from scripts import toolchain
from tests.controller.fakes import jobs, karpenter

pytestmark = pytest.mark.e2e

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[2]
USER = "tidewater-controller"
PATIENCE_SECONDS = 60.0
POLL_SECONDS = 0.05


class Killed(BaseException):
    """The process is killed: no code of it runs any more."""


@dataclass
class Faulty:
    """A cluster in which the process is killed before or after its write of a number, counted from 0."""

    cluster: Cluster
    number: int = 1_000_000
    moment: str = "before"
    writes: int = 0
    dead: bool = False

    async def list(self, source: Source, token: str = "") -> Page:
        """See `Cluster.list`."""
        return await self.cluster.list(source, token)

    def watch(self, source: Source, version: str) -> AsyncGenerator[WatchEvent, None]:
        """See `Cluster.watch`."""
        return self.cluster.watch(source, version)

    async def get(self, ref: Ref) -> Manifest:
        """See `Cluster.get`."""
        return await self.cluster.get(ref)

    async def create(self, kind: Kind, manifest: Manifest) -> Manifest:
        """See `Cluster.create`."""
        return await self._write(lambda: self.cluster.create(kind, manifest))

    async def replace(self, kind: Kind, manifest: Manifest) -> Manifest:
        """See `Cluster.replace`."""
        return await self._write(lambda: self.cluster.replace(kind, manifest))

    async def patch(self, ref: Ref, change: Manifest, subresource: str | None = None) -> Manifest:
        """See `Cluster.patch`."""
        return await self._write(lambda: self.cluster.patch(ref, change, subresource))

    async def delete(self, ref: Ref, *, uid: str, grace: int | None = None) -> Manifest | None:
        """See `Cluster.delete`."""
        return await self._write(lambda: self.cluster.delete(ref, uid=uid, grace=grace))

    async def _write(self, send: Callable[[], Awaitable[T]]) -> T:
        number, self.writes = self.writes, self.writes + 1
        self._kill(number, "before")
        found = await send()
        self._kill(number, "after")
        return found

    def _kill(self, number: int, moment: str) -> None:
        self.dead = self.dead or (number == self.number and moment == self.moment)
        if self.dead:
            raise Killed


class Cloud:
    """What the tests see of the API server, and who acts on it."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server

    async def names(self, kind: Kind) -> list[str]:
        """Return the names of the objects of a kind."""
        page = await self.server.list(Source(kind, jobs.NAMESPACE))
        return sorted(item["metadata"]["name"] for item in page.items if "deletionTimestamp" not in item["metadata"])

    async def settled(self, job: str, size: int) -> bool:
        """Return whether a job has this many pods, and its status says so."""
        pods = [name for name in await self.names(PODS) if name.startswith(f"{job}-worker-")]
        status = (await self.server.get(Ref(JOBS, jobs.NAMESPACE, job))).get("status", {})
        return (len(pods), status.get("replicas"), status.get("desired")) == (size, size, size)

    async def waits(self, job: str, word: str) -> bool:
        """Return whether a job's status says that it waits for this."""
        status = (await self.server.get(Ref(JOBS, jobs.NAMESPACE, job))).get("status", {})
        return bool(status.get("waiting") == word)

    async def leader(self) -> str:
        """Return the name of the replica that holds the Lease; empty if none does."""
        try:
            lease = await self.server.get(Ref(LEASES, jobs.NAMESPACE, names.FIELD_MANAGER))
        except NotFound:
            return ""
        return str(lease["spec"]["holderIdentity"]).partition("_")[0]

    async def scale(self, job: str, size: int) -> None:
        """Change the number of workers that is wanted."""
        change = {"spec": {"replicaSpecs": {names.WORKER: {"replicas": size}}}}
        await self.server.patch(Ref(JOBS, jobs.NAMESPACE, job), change)


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something holds; raise TimeoutError if it does not in time."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await holds():
            await asyncio.sleep(POLL_SECONDS)


@contextlib.asynccontextmanager
async def cloud() -> AsyncIterator[Cloud]:
    server = ApiServer(connect())
    try:
        yield Cloud(server)
    finally:
        await server.close()


@contextlib.asynccontextmanager
async def controller(number: int = 1_000_000, moment: str = "before") -> AsyncIterator[Faulty]:
    """Run a controller that leads, in this process."""
    server, fence = ApiServer(connect()), Fence()
    fence.open_until(float("inf"))
    cluster = Faulty(Fenced(server, fence), number, moment)
    log = Log("controller-0", level="error")
    made = Controller(cluster, Options(), recorder=Recorder(cluster, "controller-0"), log=log, metrics=Metrics())
    task = asyncio.create_task(made.run())
    try:
        yield cluster
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await server.close()


@contextlib.contextmanager
def processes(*replicas: str, logs: Path) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Run replicas of the controller as processes with these names; the output of each goes to a file in `logs`."""
    command = [sys.executable, "-m", "controller", "--metrics-port=0", f"--lease-namespace={jobs.NAMESPACE}"]
    paths = os.pathsep.join([str(ROOT), *sys.path])
    with contextlib.ExitStack() as stack:
        running = {}
        for name in replicas:
            variables = {**os.environ, "POD_NAME": name, "PYTHONPATH": paths}
            output = stack.enter_context((logs / name).open("wb"))
            running[name] = subprocess.Popen(command, env=variables, cwd=ROOT, stdout=output, stderr=output)
            stack.callback(running[name].wait)
            stack.callback(running[name].kill)
        yield running


@pytest.fixture(scope="module")
def keeper() -> Iterator[ThreadPoolExecutor]:
    """Yield a thread that starts processes beside an event loop: a process ends with the thread that started it."""
    with ThreadPoolExecutor(1) as thread:
        yield thread


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory, keeper: ThreadPoolExecutor) -> Iterator[Plane]:
    made = Plane(tmp_path_factory.mktemp("plane"), [USER])
    try:
        keeper.submit(made.start).result()
        # Without a controller manager nobody else makes the account, without which no pod is admitted.
        account = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "default", "namespace": jobs.NAMESPACE},
        }
        made.apply(crd.definition(), account)
        made.kubectl("wait", "--for=condition=Established", f"crd/{names.CRD_NAME}", "--timeout=60s")
        yield made
    finally:
        made.end()


@pytest.fixture(autouse=True)
def environment(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Connect to the API server, and delete what a test has left."""
    monkeypatch.setenv("KUBECONFIG", str(plane.kubeconfig(USER)))
    for name, value in NO_PROXY.items():
        monkeypatch.setenv(name, value)
    yield
    plane.kubectl("delete", f"{names.PLURAL},leases", "--all", "-n", jobs.NAMESPACE)
    plane.kubectl("delete", "pods,services", "-l", SELECTOR, "-n", jobs.NAMESPACE, "--force", "--grace-period=0")


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_controller_that_is_killed_at_any_write_leaves_nothing_half_done(moment: str) -> None:
    async def attempt(number: int) -> bool:
        """Return whether the controller was killed."""
        name = f"{moment}-{number}"
        async with cloud() as found:
            async with controller(number, moment) as first:
                await found.server.create(JOBS, jobs.manifest(name))

                async def ended() -> bool:
                    return first.dead or await found.settled(name, 2)

                await until(ended)
                if not first.dead:
                    await found.scale(name, 3)

                    async def ended_again() -> bool:
                        return first.dead or await found.settled(name, 3)

                    await until(ended_again)
            await found.scale(name, 3)
            async with controller():
                await until(lambda: found.settled(name, 3))
            pods = [pod for pod in await found.names(PODS) if pod.startswith(name)]
            assert pods == [f"{name}-worker-{index}" for index in range(3)]
            assert name in await found.names(SERVICES)
            return first.dead

    for number in range(100):
        if not asyncio.run(attempt(number)):
            assert number >= 5
            return
    raise AssertionError("a hundred writes for one job")


def test_an_api_server_that_restarts_only_delays(plane: Plane, keeper: ThreadPoolExecutor) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with cloud() as found, controller():
            await found.server.create(JOBS, jobs.manifest())
            await until(lambda: found.settled("imagenet", 2))
            await loop.run_in_executor(keeper, plane.end)
            await loop.run_in_executor(keeper, plane.start)
            await found.scale("imagenet", 3)
            await until(lambda: found.settled("imagenet", 3))

    asyncio.run(main())


def test_what_karpenter_said_before_a_worker_was_seen_to_wait_reaches_the_jobs_status() -> None:
    async def main() -> None:
        async with cloud() as found, controller():
            await found.server.create(JOBS, jobs.manifest())
            await until(lambda: found.settled("imagenet", 2))
            ref = Ref(PODS, jobs.NAMESPACE, "imagenet-worker-1")
            pod = await found.server.get(ref)
            about = {"kind": "Pod", "namespace": ref.namespace, "name": ref.name, "uid": pod["metadata"]["uid"]}
            now = stamp(datetime.now(UTC))
            for source, message in (("default-scheduler", "0/0 nodes"), ("karpenter", "no instance type fits")):
                said = {"reason": "FailedScheduling", "message": message, "type": "Warning", "lastTimestamp": now}
                where = {"metadata": {"name": f"said-by-{source}", "namespace": ref.namespace}}
                await found.server.create(
                    EVENTS, where | said | {"involvedObject": about, "source": {"component": source}}
                )
            waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": now}
            await found.server.patch(ref, {"status": {"conditions": [waits]}}, "status")

            async def told() -> bool:
                status = (await found.server.get(Ref(JOBS, jobs.NAMESPACE, "imagenet"))).get("status", {})
                return "Karpenter: no instance type fits." in str(status) and status["waiting"] == "FailedScheduling"

            await until(told)

    asyncio.run(main())


@pytest.fixture
def definitions(plane: Plane) -> Iterator[None]:
    """Define Karpenter's kinds as its chart does."""
    command = [str(toolchain.binary("helm")), "template", "crd", str(toolchain.charts() / "karpenter-crd")]
    rendered = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    plane.kubectl("apply", "--server-side", "-f", "-", stdin=rendered)
    kinds = [f"crd/{kind}" for kind in ("nodeclaims.karpenter.sh", "nodepools.karpenter.sh")]
    plane.kubectl("wait", "--for=condition=Established", *kinds, "crd/ec2nodeclasses.karpenter.k8s.aws")
    yield
    plane.kubectl("delete", "-f", "-", stdin=rendered)


def test_with_its_own_rights_alone_it_reads_in_karpenters_objects_why_no_node_comes(
    plane: Plane, definitions: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    account, role = "least", {"apiGroup": access.RBAC, "kind": "ClusterRole", "name": "least"}
    subjects = [{"apiGroup": access.RBAC, "kind": "User", "name": account}]
    shared = {"apiVersion": f"{access.RBAC}/v1", "metadata": {"name": account}}
    plane.apply(
        shared | {"kind": "ClusterRole", "rules": list(access.CLUSTER_RULES)},
        shared | {"kind": "ClusterRoleBinding", "roleRef": role, "subjects": subjects},
    )

    async def main() -> None:
        async with cloud() as found:
            for kind, made in karpenter.broken():
                await found.server.create(kind, made)
                await found.server.patch(
                    Ref(kind, None, made["metadata"]["name"]), {"status": made["status"]}, "status"
                )
            monkeypatch.setenv("KUBECONFIG", str(plane.kubeconfig(account, with_rights=False)))
            async with controller():
                await found.server.create(JOBS, jobs.manifest())
                await until(lambda: found.settled("imagenet", 2))
                waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
                since = {"lastTransitionTime": stamp(datetime.now(UTC))}
                pod = Ref(PODS, jobs.NAMESPACE, "imagenet-worker-1")
                await found.server.patch(pod, {"status": {"conditions": [waits | since]}}, "status")
                await until(lambda: found.waits("imagenet", "SubnetsNotFound"))
                ready = {"status": {"conditions": [karpenter.READY]}}
                for kind in (NODE_CLASSES, NODE_POOLS):
                    await found.server.patch(Ref(kind, None, "workers"), ready, "status")
                await until(lambda: found.waits("imagenet", "Unschedulable"))

    asyncio.run(main())


def test_a_frozen_leader_is_replaced_and_changes_nothing_when_it_wakes_up(tmp_path: Path) -> None:
    async def main(replicas: Mapping[str, subprocess.Popen[bytes]]) -> None:
        async with cloud() as found:

            async def led() -> bool:
                return await found.leader() != ""

            await found.server.create(JOBS, jobs.manifest())
            await until(lambda: found.settled("imagenet", 2))
            await until(led)
            frozen = await found.leader()
            replicas[frozen].send_signal(signal.SIGSTOP)
            await found.scale("imagenet", 3)
            # `test_lease` shows in virtual time that it takes less than 15 s. Real time also measures the machine.
            await until(lambda: found.settled("imagenet", 3))
            assert await found.leader() != frozen
            replicas[frozen].send_signal(signal.SIGCONT)

            async def noticed() -> bool:
                return "event=not_leading" in (tmp_path / frozen).read_text()

            await until(noticed)
            assert await found.leader() != frozen
            assert await found.settled("imagenet", 3)

    with processes("a", "b", logs=tmp_path) as replicas:
        asyncio.run(main(replicas))
