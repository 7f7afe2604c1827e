"""A controller in this process with a real API server, for `test_real_api_server`: it can be killed at every write.

async with cloud() as found, controller():
    await found.server.create(JOBS, jobs.manifest())
    await until(lambda: found.settled("imagenet", 2))
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from tests.control_plane import Plane
from tests.controller.fakes import jobs
from tests.controller.fakes.api import Killed
from tidewater.controller.act import stamp
from tidewater.controller.cluster.client import Cluster, Manifest, Page, Ref, Source, WatchEvent
from tidewater.controller.cluster.fence import Fence, Fenced
from tidewater.controller.cluster.http import ApiServer, connect
from tidewater.controller.loop import Controller
from tidewater.controller.observe.events import Recorder
from tidewater.controller.observe.log import Log
from tidewater.controller.observe.metrics import Metrics
from tidewater.controller.options import Options
from tidewater.elasticjob import names
from tidewater.elasticjob.install import access
from tidewater.elasticjob.names import JOBS
from tidewater.kube.errors import NotFound
from tidewater.kube.kinds import LEASES, PODS, Kind

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 60.0
POLL_SECONDS = 0.05


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

    async def names(self, kind: Kind, namespace: str = jobs.NAMESPACE) -> list[str]:
        """Return the names of the objects of a kind."""
        page = await self.server.list(Source(kind, namespace))
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

    async def delete(self, kind: Kind, namespace: str, name: str) -> None:
        """Delete an object."""
        ref = Ref(kind, namespace, name)
        await self.server.delete(ref, uid=(await self.server.get(ref))["metadata"]["uid"])

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
async def controller(
    number: int = 1_000_000, moment: str = "before", options: Options | None = None
) -> AsyncIterator[Faulty]:
    """Run a controller that leads, in this process."""
    server, fence = ApiServer(connect()), Fence()
    fence.open_until(float("inf"))
    cluster = Faulty(Fenced(server, fence), number, moment)
    log = Log("controller-0", level="error")
    made = Controller(
        cluster, options or Options(), recorder=Recorder(cluster, "controller-0"), log=log, metrics=Metrics()
    )
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
    command = [sys.executable, "-m", "tidewater.controller", "--metrics-port=0", f"--lease-namespace={jobs.NAMESPACE}"]
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


def interrupted() -> Manifest:
    """Return the change of a pod that was interrupted just now, as a kubelet makes it."""
    ended = {"exitCode": 130, "finishedAt": stamp(datetime.now(UTC))}
    image = {"image": "trainer:1", "imageID": ""}
    container = {"name": names.WORKER_CONTAINER, "state": {"terminated": ended}, "ready": False, "restartCount": 0}
    return {"status": {"phase": "Failed", "containerStatuses": [container | image]}}


def account(plane: Plane, name: str, rules: Sequence[Manifest]) -> str:
    """Return the kubeconfig of an account with these rights."""
    role = {"apiGroup": access.RBAC, "kind": "ClusterRole", "name": name}
    subjects = [{"apiGroup": access.RBAC, "kind": "User", "name": name}]
    shared = {"apiVersion": f"{access.RBAC}/v1", "metadata": {"name": name}}
    plane.apply(
        shared | {"kind": "ClusterRole", "rules": list(rules)},
        shared | {"kind": "ClusterRoleBinding", "roleRef": role, "subjects": subjects},
    )
    return str(plane.kubeconfig(name, with_rights=False))
