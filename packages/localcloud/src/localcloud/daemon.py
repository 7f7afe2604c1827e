"""The daemon: one process that serves the AWS endpoint and owns everything the cloud runs.

moto keeps the account in memory, so a killed daemon loses its account. `incarnation`, in
`state/daemon.json` and in the status, is new at every start, so that callers can tell. The daemon and all that it
runs are in a PID namespace of their own (see `namespace`), which ends with it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import queue
import shutil
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from localcloud import cleanup, contexts, control
from localcloud.errors import CloudError, PortInUse
from localcloud.instance import Instance
from localcloud.supervise import Supervisor

log = logging.getLogger(__name__)

STATUS_PATH = "/_localcloud/status"
# For moto: managed policies for roles, errors for unknown instance types, and no images but those of `eks_images`: its
# own, of other times and purposes, take a second at the first call of EC2 in each region.
MOTO_SETTINGS = {
    "MOTO_IAM_LOAD_MANAGED_POLICIES": "true",
    "MOTO_EC2_ENABLE_INSTANCE_TYPE_VALIDATION": "true",
    "MOTO_EC2_LOAD_DEFAULT_AMIS": "false",
}

# What launches, ends or changes instances at once. What else does, such as Auto Scaling, is seen some seconds later.
INSTANCE_CALLS = tuple(
    f"ec2:{name}"
    for name in (
        "RunInstances",
        "CreateFleet",
        "DeleteFleets",
        "RequestSpotInstances",
        "TerminateInstances",
        "StopInstances",
        "StartInstances",
        "RebootInstances",
        "AssociateIamInstanceProfile",
        "ModifyInstanceAttribute",
    )
)


def serve(instance: Instance, pid: int) -> None:
    """Run until SIGTERM or SIGINT; leaves nothing behind.

    Args:
        instance: The cloud that this daemon serves.
        pid: The process that users signal: the one outside of the daemon's PID namespace.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    os.environ.update(MOTO_SETTINGS)
    # Not an event: a signal handler that interrupts Event.wait would wait for its lock for ever.
    asked_to_end: queue.SimpleQueue[None] = queue.SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: asked_to_end.put(None))
    with _only_one(instance):
        supervisor = Supervisor(instance)
        try:
            cloud = _Cloud(instance, supervisor)
            with _recorded(instance, pid, cloud.incarnation):
                log.info("instance %s serves %s and %s", instance.id, instance.endpoint, instance.cloud_endpoint)
                asked_to_end.get()
                log.info("stopping")
                cloud.stop()
        finally:
            left = [*supervisor.stop_all(), *cleanup.sweep(instance)]
            log.info("stopped; removed %s", ", ".join(left) or "nothing")


class _Cloud:
    """The parts of a running daemon, wired together."""

    def __init__(self, instance: Instance, supervisor: Supervisor) -> None:
        from localcloud.aws import moto_rules, webhooks
        from localcloud.aws.ec2 import MotoEc2
        from localcloud.aws.eks.machine import KubeMachine, webhook
        from localcloud.aws.eks.state import Eks, Settings
        from localcloud.aws.principals import EFS_DRIVER_ACTIONS, MotoPrincipals
        from localcloud.kube.network import Network

        self.incarnation = str(uuid.uuid4())
        self._instance = instance
        self._publishing = threading.Lock()
        self._ending = threading.Event()
        self._network = Network(instance)
        self._network.create()
        moto_rules.install()
        account, region = instance.account, instance.region
        principals = MotoPrincipals(account, region)
        principals.create_operator(instance.credentials())
        context, authority = webhooks.server_tls(instance.cloud_address)

        def hook(kind: str, cluster: str) -> Any:
            return webhook(f"https://{instance.cloud_address}:{port}/{kind}/{cluster}", authority)

        contexts.publish(instance, {})  # those of a daemon that was killed
        settings = Settings(account, region, hook, self._publish)
        driver_key = principals.create_agent("efs-csi-driver", EFS_DRIVER_ACTIONS)
        machine = KubeMachine(instance, supervisor, driver_key)
        self.eks = Eks(settings, MotoEc2(account, region), principals, machine)
        hooks = webhooks.application(self.eks, instance.cloud_endpoint)
        listener = _server(self._network.listen, hooks, context)
        port = listener.port
        gateway = self._gateway(principals)
        self._servers = [
            listener,
            _server(lambda: socket.create_server(("127.0.0.1", instance.port)), gateway),
            _server(lambda: self._network.listen(instance.port), gateway),
        ]
        self._network.check((port, instance.port))  # the kernel accepts connections already; the status comes after it
        for server in self._servers:
            threading.Thread(target=server.serve_forever, daemon=True).start()
        self._guard = threading.Thread(target=self._network.guard, args=[self._ending], daemon=True)
        self._guard.start()

    def _gateway(self, principals: Any) -> Any:
        from localcloud.aws import commands
        from localcloud.aws.compute.pricing import PricingService
        from localcloud.aws.compute.quota_service import QuotaService
        from localcloud.aws.eks import service
        from localcloud.aws.gateway import Gateway, Service

        instance, account = self._instance, self._instance.account
        interruptions = _interruptions(instance, self.eks)
        own = control.application(principals, commands.commands(interruptions, account, instance.region))
        apps = [
            (_is_status, self._status),
            (service.is_auth_call, service.auth_app(self.eks)),
            (control.is_command, own),
        ]
        services: dict[str, Service] = {
            "eks": service.EksService(self.eks),
            "pricing": PricingService(),
            "servicequotas": QuotaService(account),
        }
        return Gateway(account, principals, services, apps, _followers(instance, self.eks))

    def stop(self) -> None:
        """End everything; connections are refused from the beginning."""
        from localcloud.aws.eks import reconcile

        for server in self._servers[1:]:
            server.shutdown()
            server.server_close()
        reconcile.shut_down(self.eks)
        self._servers[0].shutdown()
        self._ending.set()
        self._guard.join()
        self._network.destroy()
        contexts.publish(self._instance, {})

    def _publish(self, eks: Any) -> None:
        with self._publishing:
            contexts.publish(
                self._instance,
                {
                    state.cluster.name: contexts.Cluster(state.cluster.endpoint, state.cluster.ca_pem)
                    for state in list(eks.clusters.values())
                    if state.cluster.endpoint
                },
            )

    def _status(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        from werkzeug.wrappers import Response

        report = {"incarnation": self.incarnation, "id": self._instance.id, "clusters": _clusters(self.eks)}
        return Response(json.dumps(report), content_type="application/json")(environ, start_response)


def _clusters(eks: Any) -> list[dict[str, Any]]:
    return [
        {
            "name": state.cluster.name,
            "status": state.cluster.status,
            "endpoint": state.cluster.endpoint,
            "nodegroups": [
                {
                    "name": found.group.name,
                    "status": found.group.status,
                    "desired": found.group.desired,
                    "nodes": _nodes(found),
                }
                for found in list(state.groups.values())
            ],
            "selfManaged": _nodes(state.self_managed),
        }
        for state in list(eks.clusters.values())
    ]


def _nodes(found: Any) -> list[dict[str, Any]]:
    return [
        {
            "instance": worker.instance_id,
            "name": worker.node_name,
            "phase": worker.phase.value,
            "ready": worker.ready,
        }
        for worker in list(found.workers.values())
    ]


def _followers(instance: Instance, eks: Any) -> dict[str, Callable[[Any], None]]:
    """Return what to do outside moto after an operation of moto's, by operation."""
    from localcloud.aws.eks.nodes import self_managed
    from localcloud.aws.files import fsx_rules

    def instances_changed(_: Any) -> None:
        self_managed.look(eks)

    def file_system_deleted(call: Any) -> None:
        from moto.efs.models import efs_backends

        identity = str(call.operation.params.get("FileSystemId", ""))
        folder = instance.state / "efs" / identity
        gone = identity not in efs_backends[instance.account][instance.region].file_systems_by_id
        if identity and gone and folder.is_dir():
            shutil.rmtree(folder, ignore_errors=True)

    def lustre_changed(_: Any) -> None:
        fsx_rules.make_folders(instance.state / "lustre", instance.account, instance.region)

    return {
        **dict.fromkeys(INSTANCE_CALLS, instances_changed),
        **dict.fromkeys(("fsx:CreateFileSystem", "fsx:DeleteFileSystem"), lustre_changed),
        "elasticfilesystem:DeleteFileSystem": file_system_deleted,
    }


def _interruptions(instance: Instance, eks: Any) -> Any:
    """Return what interrupts instances; their nodes lose power at once, and EKS drains those of node groups before."""
    from localcloud.aws.eks import reconcile
    from localcloud.aws.eks.nodes import self_managed
    from localcloud.aws.events.interruptions import Interruptions

    return Interruptions(
        instance.account,
        instance.region,
        noticed=lambda identity: reconcile.interrupted(eks, identity),
        ended=lambda: self_managed.look(eks),
    )


def _is_status(method: str, path: str) -> bool:
    return method == "GET" and path == STATUS_PATH


def _server(listen: Callable[[], socket.socket], app: Any, context: Any = None) -> Any:
    """Return an HTTP server on the socket that `listen` opens."""
    from moto.moto_server.werkzeug_app import MotoRequestHandler
    from werkzeug.serving import make_server

    try:
        opened = listen()
    except OSError as error:
        raise PortInUse(
            f"a port of the cloud is in use by another process ({error}): stop it, or change the port in the state "
            "directory's instance.json"
        ) from error
    with opened:  # the server has a duplicate
        address, port = opened.getsockname()
        return make_server(
            address,
            port,
            app,
            threaded=True,
            request_handler=MotoRequestHandler,
            ssl_context=context,
            fd=opened.fileno(),
        )


@contextlib.contextmanager
def _only_one(instance: Instance) -> Iterator[None]:
    """Lock the state directory until the process exits, so that two daemons never share it."""
    with (instance.state / "daemon.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CloudError(f"a daemon runs already for {instance.state}: see `localcloud status`") from error
        yield


@contextlib.contextmanager
def _recorded(instance: Instance, pid: int, incarnation: str) -> Iterator[None]:
    path = record_path(instance)
    record = {"pid": pid, "incarnation": incarnation, "since": time.time()}
    path.write_text(json.dumps(record) + "\n")
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def record_path(instance: Instance) -> Path:
    """Return the file in which a running daemon records its process and its incarnation."""
    return instance.state / "daemon.json"
