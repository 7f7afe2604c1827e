"""The controller's command line and process: probes and metrics, the election, and the controller while it leads.

    python -m tidewater.controller --workers 16 --metrics-port 8080

It uses the pod's service account, else KUBECONFIG, else ~/.kube/config. Every replica runs this; the one that holds the
Lease acts, the others wait. SIGTERM and SIGINT stop it: it gives the Lease back, so that another takes over at once.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import os
import re
import signal
import socket
import sys
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lightkube.core.exceptions import ConfigError

from tidewater.contract.controller_program import Quota, quotas_of, size_of
from tidewater.controller import objects
from tidewater.controller.cluster.client import Cluster
from tidewater.controller.cluster.fence import Fence, Fenced, uptime
from tidewater.controller.cluster.http import ApiServer, connect
from tidewater.controller.cluster.lease import Election, LeaseName
from tidewater.controller.loop import Controller
from tidewater.controller.observe import log as logs
from tidewater.controller.observe import probes
from tidewater.controller.observe.events import Recorder
from tidewater.controller.observe.log import Log
from tidewater.controller.observe.metrics import Metrics
from tidewater.controller.options import Options
from tidewater.controller.room.requests import amounts
from tidewater.elasticjob import names
from tidewater.kube.errors import Conflict, Exists
from tidewater.kube.kinds import DNS_LABEL

METRICS_PORT = 8080
POD_NAME = "POD_NAME"
POD_NAMESPACE = "POD_NAMESPACE"

_USAGE = 2
_ACCOUNT_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True)
class Flags:
    """The command line."""

    options: Options
    lease: LeaseName
    metrics_port: int
    log_level: str


def flags_of(arguments: Sequence[str], own_namespace: str) -> Flags:
    """Return the command line as a value; exit with a message if it is wrong.

    Args:
        arguments: Without the program's name.
        own_namespace: Where the Lease is unless the command line says otherwise.
    """
    parser = argparse.ArgumentParser(
        prog="python -m tidewater.controller", description="Run the controller of ElasticJobs."
    )
    defaults = Options()
    parser.add_argument(
        "--namespaces",
        type=_namespaces,
        default=(),
        help="look after the jobs of these namespaces only, with commas between them (default: all namespaces)",
    )
    parser.add_argument(
        "--workers", type=_positive, default=defaults.workers, help="jobs reconciled at a time (default: %(default)s)"
    )
    parser.add_argument(
        "--cluster-domain", default=objects.CLUSTER_DOMAIN, help="the cluster's DNS domain (default: %(default)s)"
    )
    parser.add_argument(
        "--fixed-nodes",
        action="store_true",
        help="no nodes come for pods that wait: jobs of a queue get no pods until there is room for them",
    )
    parser.add_argument(
        "--taint-bad-nodes",
        action="store_true",
        help="taint nodes on which workers end again and again by an error of a device, such as a GPU",
    )
    _add_quotas(parser)
    parser.add_argument("--lease-namespace", default=own_namespace, help="of the Lease (default: %(default)s)")
    parser.add_argument("--lease-name", default=names.FIELD_MANAGER, help="of the Lease (default: %(default)s)")
    parser.add_argument(
        "--metrics-port",
        type=int,
        default=METRICS_PORT,
        help="port of /metrics, /healthz and /readyz; 0: any free one (default: %(default)s)",
    )
    parser.add_argument("--log-level", choices=logs.LEVELS, default="info", help="(default: %(default)s)")
    given = parser.parse_args(arguments)
    for each in given.quotas.keys() - (given.namespaces or given.quotas):
        parser.error(f"--quotas names {each}, which is not in --namespaces")
    return Flags(
        options=Options(
            given.namespaces,
            given.workers,
            given.cluster_domain,
            given.fixed_nodes,
            given.taint_bad_nodes,
            given.quotas,
            given.worker_size,
        ),
        lease=LeaseName(given.lease_namespace, given.lease_name),
        metrics_port=given.metrics_port,
        log_level=given.log_level,
    )


def _add_quotas(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--quotas",
        type=_quotas,
        default={},
        help="workers that the jobs of a namespace may always have, and those that they may have while the other "
        "namespaces that are named here leave them: vision=2:4,speech=2:4",
    )
    parser.add_argument(
        "--worker-size",
        type=_size,
        default={},
        help="what counts as one worker in a quota: cpu=3500m,memory=12Gi (default: each worker counts once)",
    )


class Process:
    """One replica of the controller.

    Args:
        cluster: The API server.
        flags: The command line.
        identity: Differs between all processes that ever take part in the election.
        metrics: The metrics, which the cluster may already count requests with.
        log: The log.
        clock: Returns seconds that never go back.
    """

    def __init__(
        self,
        cluster: Cluster,
        flags: Flags,
        identity: str,
        metrics: Metrics,
        log: Log,
        *,
        clock: Callable[[], float] = uptime,
    ) -> None:
        self._flags = flags
        self._metrics = metrics
        self._log = log
        self._fence = Fence(clock)
        self._election = Election(cluster, flags.lease, identity, fence=self._fence, report=self._report)
        self._cluster = Fenced(cluster, self._fence)
        self._recorder = Recorder(self._cluster, identity, dropped=metrics.event_dropped)
        self._controller: Controller | None = None
        metrics.watch(self._states, self._depth)

    async def run(self) -> None:
        """Wait to be the leader, act while this is so, and again, until cancelled; then give the Lease back."""
        while True:
            await self._election.acquire()
            self._log.info("leading", lease=f"{self._flags.lease.namespace}/{self._flags.lease.name}")
            try:
                with self._metrics.leading():
                    await self._term()
            finally:
                await self._election.release()
                self._log.info("not_leading")

    @property
    def pages(self) -> probes.Pages:
        """The HTTP endpoints."""
        return {
            "/healthz": lambda: probes.Page(b"ok\n"),
            "/readyz": self._ready,
            "/metrics": lambda: probes.Page(self._metrics.exposition(), content_type=probes.METRICS_TEXT),
        }

    async def _term(self) -> None:
        """Run a controller until the Lease can't be renewed. An error is a defect: it ends the process."""
        self._controller = Controller(
            self._cluster, self._flags.options, recorder=self._recorder, log=self._log, metrics=self._metrics
        )
        acting = asyncio.create_task(self._controller.run())
        holding = asyncio.create_task(self._election.hold())
        try:
            done, _ = await asyncio.wait((acting, holding), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            # First what acts, while the Lease is still renewed.
            for task in (acting, holding):
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            self._controller = None

    def _ready(self) -> probes.Page:
        """Return whether this replica does its part: it leads and knows all objects, or it knows the leader."""
        if self._controller is not None:
            ready, what = self._controller.store.synced, "leads, and has not listed all objects yet"
        else:
            ready, what = bool(self._election.holder), "has not read the Lease yet"
        return probes.Page(b"ok\n") if ready else probes.Page(f"{what}\n".encode(), 503)

    def _states(self) -> dict[str, int]:
        return dict(self._controller.store.states()) if self._controller else {}

    def _depth(self) -> int:
        return len(self._controller.work) if self._controller else 0

    def _report(self, error: Exception) -> None:
        """Log what kept this process from the Lease. That another one was faster is no news."""
        write = self._log.debug if isinstance(error, Conflict | Exists) else self._log.warning
        write("lease_failed", reason=f"{type(error).__name__}: {error}")


async def serve(flags: Flags, identity: str, log: Log) -> None:
    """Run one replica until SIGTERM or SIGINT."""
    metrics = Metrics()
    server = ApiServer(connect(), observe=metrics.request)
    process = Process(server, flags, identity, metrics, log)
    running = asyncio.create_task(process.run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, running.cancel)
    try:
        async with probes.serve(flags.metrics_port, process.pages) as port:
            log.info(
                "started",
                port=port,
                namespaces=",".join(flags.options.namespaces) or "(all)",
                workers=flags.options.workers,
            )
            await asyncio.wait((running,))
        if not running.cancelled():
            running.result()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await server.close()
    log.info("stopped")


def main() -> None:
    """Run the command line."""
    flags = flags_of(sys.argv[1:], own_namespace())
    identity = f"{os.environ.get(POD_NAME) or socket.gethostname()}_{uuid.uuid4().hex[:8]}"
    log = Log(identity, level=flags.log_level)
    try:
        asyncio.run(serve(flags, identity, log))
    except ConfigError as error:
        log.error("no_cluster", reason=str(error), remedy="run it in a pod with a service account, or set KUBECONFIG")
        sys.exit(_USAGE)
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        log.error("no_port", port=flags.metrics_port, reason=str(error), remedy="choose another --metrics-port")
        sys.exit(_USAGE)


def own_namespace() -> str:
    """Return the namespace of this pod; `default` outside a cluster."""
    if found := os.environ.get(POD_NAMESPACE):
        return found
    return _ACCOUNT_NAMESPACE.read_text().strip() if _ACCOUNT_NAMESPACE.exists() else "default"


def _namespaces(text: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(text.split(",")))
    for each in found:
        if not re.fullmatch(DNS_LABEL, each):
            raise argparse.ArgumentTypeError(f"{each!r} in {text!r} is no name of a namespace")
    return found


def _quotas(text: str) -> dict[str, Quota]:
    try:
        found = quotas_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    _namespaces(",".join(found))
    return found


def _size(text: str) -> dict[str, str]:
    try:
        found = size_of(text)
        amounts(found)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return found


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} must be at least 1")
    return number
