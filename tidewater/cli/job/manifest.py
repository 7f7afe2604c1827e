"""Flags become the ElasticJob that is sent. Pure.

    from_flags("digits", Flags(image="my/image", workers=2), ["train.py"])

`job submit --dry-run` prints what these functions return, and `job submit` sends it unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from tidewater.cli import project
from tidewater.cli.errors import UsageError
from tidewater.cli.job import shipping
from tidewater.contract import env as variables
from tidewater.contract import labels, metrics, stack
from tidewater.elasticjob import names
from tidewater.elasticjob.choices import Launcher
from tidewater.kube.cluster import Object

GPU = "nvidia.com/gpu"
RENDEZVOUS_PORT = 29400
"""torchrun's own default."""

_SIZE, _POD, _OTHER = "How many workers", "What each worker runs", "How it is run"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?([EPTGMk]i?|m|Ki)?")
_PREPENDING = (Launcher.TORCHRUN, Launcher.TORCHELASTIC)


@dataclass(frozen=True)
class Flags:
    """The flags of `job submit` that describe a job."""

    workers: Annotated[
        int | None, typer.Option(min=1, help="Number of workers. Default: 1.", rich_help_panel=_SIZE)
    ] = None
    min: Annotated[
        int | None,
        typer.Option("--min", min=1, help="Fewest workers to train with. Default: --workers.", rich_help_panel=_SIZE),
    ] = None
    max: Annotated[
        int | None,
        typer.Option("--max", min=1, help="Most workers. Default: --workers.", rich_help_panel=_SIZE),
    ] = None
    autoscale: Annotated[
        bool, typer.Option("--autoscale", help="Grow to --max while the cluster has room.", rich_help_panel=_SIZE)
    ] = False
    workers_per_replica: Annotated[
        int,
        typer.Option(
            min=1,
            help="Pods that divide one model among them; all numbers of workers then count such groups.",
            rich_help_panel=_SIZE,
        ),
    ] = 1
    topology_key: Annotated[
        str,
        typer.Option(
            metavar="LABEL",
            help="Keep the pods of a replica on nodes with the same value of this label, if they find room there.",
            rich_help_panel=_SIZE,
            show_default=False,
        ),
    ] = ""
    topology_required: Annotated[
        bool, typer.Option("--topology-required", help="Let them wait for room there.", rich_help_panel=_SIZE)
    ] = False
    image: Annotated[
        str, typer.Option(help="Container image of the workers. Required.", rich_help_panel=_POD, show_default=False)
    ] = ""
    script: Annotated[
        str,
        typer.Option(
            help="Python program in the image, or in --code, or '-m MODULE'; what follows -- are its arguments.",
            rich_help_panel=_POD,
            show_default=False,
        ),
    ] = ""
    code: Annotated[
        str,
        typer.Option(metavar="FOLDER", help="Folder with the script.", rich_help_panel=_POD, show_default=False),
    ] = ""
    requirements: Annotated[
        str,
        typer.Option(
            metavar="LOCK",
            help="Packages that the image lacks: a .txt file with hashes.",
            rich_help_panel=_POD,
            show_default=False,
        ),
    ] = ""
    claim: Annotated[
        str,
        typer.Option(
            help="PersistentVolumeClaim on which the packages are installed once. Default: in each pod.",
            rich_help_panel=_POD,
            show_default=False,
        ),
    ] = ""
    gpus: Annotated[int, typer.Option(min=0, help="GPUs of each worker.", rich_help_panel=_POD)] = 0
    cpu: Annotated[
        str, typer.Option(help="CPUs that each worker requests: 2, 500m.", rich_help_panel=_POD, show_default=False)
    ] = ""
    memory: Annotated[
        str, typer.Option(help="Memory of each worker: 8Gi.", rich_help_panel=_POD, show_default=False)
    ] = ""
    pool: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Pool of the stack on which the workers run. Default: the stack's own worker nodes.",
            rich_help_panel=_POD,
            show_default=False,
        ),
    ] = ""
    env: Annotated[
        list[str],
        typer.Option("--env", "-e", metavar="NAME=VALUE", help="Environment, repeatable.", rich_help_panel=_POD),
    ] = field(default_factory=list)
    launcher: Annotated[
        Launcher | None,
        typer.Option(help="How a worker learns of its job. Default: torchrun.", rich_help_panel=_OTHER),
    ] = None
    rdzv_endpoint: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="Where the workers meet. Default for torchrun: the first worker.",
            rich_help_panel=_OTHER,
            show_default=False,
        ),
    ] = ""
    rdzv_backend: Annotated[
        str,
        typer.Option(help="Rendezvous backend of torchrun. Default: c10d.", rich_help_panel=_OTHER, show_default=False),
    ] = ""
    queue: Annotated[
        str,
        typer.Option(help="Queue in which the job waits for room.", rich_help_panel=_OTHER, show_default=False),
    ] = ""
    priority: Annotated[
        int | None, typer.Option(help="Order within the queue; higher first.", rich_help_panel=_OTHER)
    ] = None


def given(flags: Flags) -> list[str]:
    """Return the names of the flags that were used."""
    defaults = Flags()
    return [f"--{name.replace('_', '-')}" for name, value in vars(flags).items() if value != getattr(defaults, name)]


def from_flags(name: str, flags: Flags, command: Sequence[str], namespace: str = "") -> Object:
    """Return the job that the flags describe; `command` is what follows `--`.

    Raises:
        UsageError: a flag is missing, wrong, or does not fit another one; the text names it and the remedy.
    """
    low, wanted, high = sizes(flags)
    check_name(name, high * flags.workers_per_replica)
    if not flags.image:
        raise UsageError("--image is missing", "Name the container image that the workers run, or a file with -f FILE.")
    launcher = flags.launcher or Launcher.TORCHRUN
    spec: dict[str, Any] = {
        "rdzvEndpoint": endpoint(name, flags, launcher),
        "launcher": launcher.value,
        "minReplicas": low,
        "maxReplicas": high,
    }
    if flags.rdzv_backend:
        if launcher is not Launcher.TORCHRUN:
            raise UsageError(f"--rdzv-backend does not fit --launcher {launcher.value}", "Only torchrun has backends.")
        spec["rdzvBackend"] = flags.rdzv_backend
    spec |= replica(flags, launcher)
    if flags.autoscale:
        spec["autoscale"] = True
    if scheduling := scheduling_policy(flags):
        spec["schedulingPolicy"] = scheduling
    placed = {"nodeSelector": {labels.POOL: flags.pool}, "tolerations": stack.tolerations()} if flags.pool else {}
    template = {"spec": {**placed, "containers": [container(flags, launcher, command)]}}
    spec["replicaSpecs"] = {names.WORKER: {"replicas": wanted, "template": template}}
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": metadata, "spec": spec}


def shipment_of(name: str, flags: Flags) -> shipping.Shipment | None:
    """Return the folder and the packages that go to the workers of a job; None if no flag names any.

    Raises:
        UsageError: they have mistakes, are too large, or don't fit another flag.
    """
    if flags.claim and not flags.requirements:
        raise UsageError("--claim is for packages, and there is no --requirements", "Leave it out.")
    if flags.code and not flags.script:
        raise UsageError("--script is missing", "Name a .py file by its path in --code, or '-m MODULE'.")
    if not flags.code and not flags.requirements:
        return None
    code = project.code_at(flags.code, flags.script) if flags.code else None
    packages = project.packages_at(flags.requirements) if flags.requirements else None
    return shipping.packed(code, packages, job=name, has_runtime=flags.launcher is Launcher.TIDEWATER)


def sizes(flags: Flags) -> tuple[int, int, int]:
    """Return the fewest, the wanted and the most workers.

    Raises:
        UsageError: they are not in order.
    """
    wanted = flags.workers or flags.min or 1
    remedy = "Choose --min ≤ --workers ≤ --max."
    if flags.min and flags.max and flags.min > flags.max:
        raise UsageError(f"--min {flags.min} is more than --max {flags.max}", remedy)
    if flags.min and wanted < flags.min:
        raise UsageError(f"--workers {wanted} is fewer than --min {flags.min}", remedy)
    if flags.max and wanted > flags.max:
        raise UsageError(f"--workers {wanted} is more than --max {flags.max}", remedy)
    low, high = flags.min or wanted, flags.max or wanted
    if flags.autoscale and wanted == high:
        raise UsageError("--autoscale has no room to grow", f"Give it some with --max, more than {wanted}.")
    return low, wanted, high


def replica(flags: Flags, launcher: Launcher) -> dict[str, Any]:
    """Return how several pods make a replica; empty if each pod is one.

    Raises:
        UsageError: the launcher knows no such replicas, or a flag is about them and there are none.
    """
    each, key = flags.workers_per_replica, flags.topology_key
    if each > 1 and launcher is not Launcher.TIDEWATER:
        raise UsageError(
            f"--workers-per-replica {each} does not fit --launcher {launcher.value}",
            f"Only --launcher {Launcher.TIDEWATER.value} divides a model among pods.",
        )
    if key and each == 1:
        raise UsageError("--topology-key is about the pods of a replica", "Say how many: --workers-per-replica 2.")
    if flags.topology_required and not key:
        raise UsageError("--topology-required is about --topology-key", "Name a label of the nodes with it.")
    if each == 1:
        return {}
    near = {"topologyKey": key, **({"topologyRequired": True} if flags.topology_required else {})} if key else {}
    return {"workersPerReplica": each, **near}


def check_name(name: str, workers: int) -> None:
    """Raise UsageError if the job's name can't be part of its pods' names."""
    if not re.fullmatch(names.DNS_LABEL, name):
        raise UsageError(
            f"NAME {name!r} is not a name for a job",
            "Use lower-case letters, digits and '-', with a letter or digit first and last: imagenet-2.",
        )
    longest = names.pod_name(name, names.WORKER, workers - 1)
    if len(longest) > names.LONGEST_NAME:
        raise UsageError(
            f"NAME {name!r} is too long: its pod {longest} would have {len(longest)} characters",
            f"A pod's name may have {names.LONGEST_NAME}; take {len(longest) - names.LONGEST_NAME} off the job's name.",
        )


def endpoint(name: str, flags: Flags, launcher: Launcher) -> str:
    """Return where the workers meet.

    Raises:
        UsageError: it has no default with this launcher.
    """
    if flags.rdzv_endpoint:
        return flags.rdzv_endpoint
    if launcher in (Launcher.TORCHELASTIC, Launcher.TIDEWATER):
        raise UsageError(
            f"--rdzv-endpoint is missing, which --launcher {launcher.value} needs",
            "Name the etcd in which the workers meet: --rdzv-endpoint etcd.training.svc:2379",
        )
    return f"{names.pod_name(name, names.WORKER, 0)}:{RENDEZVOUS_PORT}"


def scheduling_policy(flags: Flags) -> dict[str, Any]:
    """Return how the job shares the cluster; empty if no flag says so.

    Raises:
        UsageError: a priority without a queue.
    """
    if flags.priority is not None and not flags.queue:
        raise UsageError("--priority is the order within a queue, and there is no --queue", "Name one: --queue NAME.")
    if not flags.queue:
        return {}
    return {"queue": flags.queue, **({} if flags.priority is None else {"priority": flags.priority})}


def container(flags: Flags, launcher: Launcher, command: Sequence[str]) -> dict[str, Any]:
    """Return the container of a worker."""
    result: dict[str, Any] = {"name": names.WORKER_CONTAINER, "image": flags.image}
    words, arguments = command_line(flags, launcher, command)
    if words:
        result["command"] = words
    if arguments:
        result["args"] = arguments
    environment = environment_of(flags.env)
    if launcher is Launcher.TIDEWATER:
        if flags.gpus > 1:
            environment.setdefault(variables.PROCESSES, str(flags.gpus))
        if variables.METRICS_PORT not in environment:
            environment[variables.METRICS_PORT] = str(metrics.FIRST_PORT)
            result["ports"] = metrics.ports(max(1, flags.gpus))
    if environment:
        result["env"] = [{"name": key, "value": value} for key, value in environment.items()]
    if resources := resources_of(flags):
        result["resources"] = resources
    return result


def command_line(flags: Flags, launcher: Launcher, command: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return `command` and `args` of the container.

    The controller puts the flags of torchrun and of the old launcher before `args`. With neither a script nor a
    command, the image's own entry point is used.

    Raises:
        UsageError: the launcher's flags would not reach the launcher.
    """
    processes = max(1, flags.gpus)
    if flags.script:
        program = [*flags.script.split(maxsplit=1 if flags.script.startswith("-m ") else 0), *command]
        if launcher is Launcher.TORCHRUN:
            return ["torchrun"], [f"--nproc-per-node={processes}", *program]
        if launcher is Launcher.TORCHELASTIC:
            return ["python3", "-m", "torchelastic.distributed.launch"], [f"--nproc_per_node={processes}", *program]
        if launcher is Launcher.TIDEWATER and flags.code:
            return ["python3"], ["-P", "-m", shipping.RUNNER, shipping.PROJECT, flags.script, *command]
        return ["python3"], program
    if command and launcher in _PREPENDING and re.fullmatch(r"(.*/)?(python[0-9.]*|(ba|da|z)?sh)", command[0]):
        raise UsageError(
            f"{command[0]} after -- does not take the flags of --launcher {launcher.value}",
            f"Name the program with --script, or begin with the launcher itself: -- {launcher.value} …, or choose "
            "--launcher none.",
        )
    return list(command[:1]), list(command[1:])


def environment_of(pairs: Sequence[str]) -> dict[str, str]:
    """Return NAME=VALUE pairs as a mapping; the last of a name wins.

    Raises:
        UsageError: one is no such pair.
    """
    found = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not _VARIABLE.fullmatch(name):
            raise UsageError(f"--env {pair!r} is not NAME=VALUE", "For example: --env NCCL_DEBUG=INFO")
        found[name] = value
    return found


def resources_of(flags: Flags) -> dict[str, Any]:
    """Return what each worker requests, and its limits: memory and GPUs are both, CPUs are only requested.

    Raises:
        UsageError: an amount that Kubernetes does not understand.
    """
    for flag, amount in (("--cpu", flags.cpu), ("--memory", flags.memory)):
        if amount and not _QUANTITY.fullmatch(amount):
            raise UsageError(f"{flag} {amount!r} is not an amount", "Write CPUs as 2 or 500m, memory as 8Gi or 512Mi.")
    limits = {"memory": flags.memory} if flags.memory else {}
    if flags.gpus:
        limits[GPU] = str(flags.gpus)
    requests = {**({"cpu": flags.cpu} if flags.cpu else {}), **limits}
    return {"requests": requests, **({"limits": limits} if limits else {})} if requests else {}
