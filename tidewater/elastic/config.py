"""The settings of a worker: command-line flags, and environment variables for those that a manifest sets.

    config = Config.parse(argv, os.environ, flags=add_own_flags)

A flag takes precedence over its environment variable. One ConfigError reports everything that is wrong.
"""

from __future__ import annotations

import argparse
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidewater.contract import env, rehearsal
from tidewater.elastic import flags as common
from tidewater.elastic.addresses import bare, route_to
from tidewater.elastic.errors import ConfigError
from tidewater.elastic.etcd.access import Access
from tidewater.elastic.group.mesh import mesh_of

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

_LAST_PORT = 65535
_LEAST_SECRET = 32
_OPEN = Access()
UNTIL_FINISHED = 2**31
"""The number of epochs of a job that its script ends."""

AddFlags = Callable[[argparse._ArgumentGroup], None]


def no_flags(group: argparse._ArgumentGroup) -> None:
    """Add no flags: the training script has none of its own."""


@dataclass(frozen=True)
class Config:
    """One worker's settings, validated."""

    job: str
    etcd: tuple[str, ...]
    worker: str
    host: str
    min_workers: int
    max_workers: int
    processes: str
    shard: int
    """Number of processes that divide one model among them, and are one worker."""
    shard_nodes: int
    """Number of machines over which these are spread, with a launcher on each."""
    shard_node: int
    """Number of this machine among them."""
    replica: str
    """Name that these machines share, of the worker that they are for all others; empty: ``worker``."""
    data: Path
    checkpoints: str
    """Places, comma-separated; see ``checkpoints.places``."""
    epochs: int
    max_steps: int
    """Training ends after this number of steps at the latest; 0: after the epochs."""
    batch_size: int
    batch_policy: str
    micro_batch: int
    seed: int
    amp: str
    sum_dtype: str
    sync_every: int | None
    """Inner steps of a step; None: the gradients are summed in each step."""
    outer_lr: float | None
    outer_momentum: float | None
    fresh_optimizer: bool
    begin_again: bool
    data_workers: int
    prefetch: int
    bad_samples: str
    max_bad_samples: int
    evaluate_every: int
    threads: int
    min_step_seconds: float
    report_every: int
    checkpoint_minutes: float
    checkpoint_every: int
    keep_checkpoints: int
    lease_seconds: int
    heartbeat_seconds: float
    peer_timeout_seconds: float
    group_timeout_seconds: float
    data_timeout_seconds: float
    silent_seconds: float
    compare_every: int
    on_drift: str
    metrics_port: int
    debug: bool
    user: argparse.Namespace
    """The training script's own flags."""
    local_rank: int | None = None
    """Index of this process among the processes of its worker; None for a single process and for the launcher."""
    local_size: int = 1
    """Number of processes of its launcher."""
    machine: str = ""
    """The name of this machine in the log, if it is one of several of its worker."""
    meeting: str = field(default="", repr=False)
    """Where the processes that divide one model meet: a file, or an address as ``peer.keyvalue.Place`` writes it, with
    the job's secret, if they are on several machines. Empty if this process is no such one."""
    limit: Path | None = None
    """File with the number of samples that fit in the memory of these processes; see ``launch.limit``."""
    etcd_access: Access = _OPEN
    """How to authenticate to etcd."""
    rehearsal: Path | None = None
    """Folder of the rehearsal to which this worker belongs: see ``contract.rehearsal``."""
    secret: str = field(default="", repr=False)
    """The job's workers authenticate to each other with it; empty: use the one in etcd."""

    @classmethod
    def parse(cls, argv: Sequence[str], environ: Mapping[str, str], flags: AddFlags = no_flags) -> Config:
        """Return the settings. Raise ConfigError that names every setting that is wrong."""
        given = vars(_parsed(common.parser(environ, flags), argv))
        given["etcd"] = _parts(given["etcd"])
        secrets = {name: given.pop(f"etcd_{name}") for name in ("user", "cacert", "cert", "key")}
        given["etcd_access"] = Access.of(**secrets, password=environ.get(env.ETCD_PASSWORD, ""))
        given["secret"] = environ.get(env.SECRET, "")
        given["rehearsal"] = Path(environ[rehearsal.FOLDER]) if environ.get(rehearsal.FOLDER) else None
        given["host"] = bare(given["host"])
        given["data"] = Path(given["data"])
        known = {each.name for each in fields(cls)}
        own = {name: given.pop(name) for name in list(given) if name not in known}
        given |= _local(environ)
        given["meeting"] = environ.get(env.LOCAL_MEETING, "")
        given["limit"] = Path(environ[env.LOCAL_LIMIT]) if environ.get(env.LOCAL_LIMIT) else None
        given["shard"] = _shard(given)
        config = cls(**given, user=argparse.Namespace(**own))
        problems = config.problems()
        if problems:
            raise ConfigError("; ".join(problems))
        return config

    @property
    def least_members(self) -> int:
        """The number of members below which training waits: the least that `min_workers` workers can be.

        A member is a process, or the processes that divide one model. This does not require all members of these
        workers; otherwise the loss of one would stop all others of a job that is at its minimum.
        """
        return (self.min_workers - 1) * self.members + 1

    @property
    def most_members(self) -> int:
        """The number of members beyond which further members wait in line."""
        return self.max_workers * self.members

    @property
    def members(self) -> int:
        """The number of members that a worker is."""
        return self.local_size * self.shard_nodes // self.shard

    @property
    def index(self) -> int:
        """The number of this process among those that divide one model, from 0."""
        return (self.shard_node * self.local_size + (self.local_rank or 0)) % self.shard

    @functools.cached_property
    def address(self) -> str:
        """The address at which others reach this machine. Raise ConfigError if it has to be found, and can't be."""
        return self.host or route_to(self.etcd[0])

    @property
    def mesh(self) -> DeviceMesh:
        """The mesh for ``fully_shard(model, mesh=config.mesh)``: the processes that divide one model.

        The first use waits for the others. Raise ConfigError if the script has a default group of its own, and
        TrainerError if the others don't come.
        """
        host = self.address if self.shard_nodes > 1 else ""
        return mesh_of(self.meeting, (self.index, self.shard), self.worker, host)

    @property
    def process(self) -> str:
        """The name of this process in the log: that of the worker, and the index of a further process of it.

        On a further machine of the worker it begins with the name of that machine.
        """
        index = self.index - self.shard_node * self.local_size
        return f"{self.machine or self.worker}.{index}" if index else self.machine or self.worker

    def step_size(self, world_size: int) -> int:
        """Return the number of samples in one step of the optimizers, over all processes."""
        return self.batch_size * (world_size if self.batch_policy == "scale" else 1)

    def lr_factor(self, world_size: int) -> float:
        """Return the factor on the learning rate by the linear scaling rule (arXiv 1706.02677).

        With ``--sync-every`` a step of the optimizers has the samples of one process.
        """
        return float(world_size) if self.batch_policy == "scale" and not self.sync_every else 1.0

    @property
    def outer(self) -> tuple[float, float] | None:
        """Return learning rate and momentum of the outer optimizer; None without ``--sync-every``."""
        if not self.sync_every:
            return None
        lr = common.OUTER_LR if self.outer_lr is None else self.outer_lr
        return lr, common.OUTER_MOMENTUM if self.outer_momentum is None else self.outer_momentum

    def steps(self, samples: int) -> int:
        """Return the number of the optimizers' steps of a job with ``samples`` in an epoch, for a schedule.

        With ``--sync-every`` these are the inner steps. Raise ConfigError under ``--batch-policy scale`` without
        ``--max-steps``: then the number of workers decides.
        """
        if self.batch_policy == "scale" and not self.max_steps:
            raise ConfigError(
                "the number of steps depends on the number of workers with --batch-policy scale, and the training's "
                "schedule needs it: give --max-steps, or use --batch-policy keep or a schedule by progress"
            )
        every, steps = self.sync_every or 1, math.ceil(samples / self.batch_size)
        if self.batch_policy == "scale":
            return self.max_steps * every
        if not self.max_steps:
            return self.epochs * steps
        epochs, rest = divmod(self.max_steps, math.ceil(steps / every))
        return min(self.epochs * steps, epochs * steps + rest * every)

    def reported_steps(self, samples: int) -> int:
        """Return the number of steps that the job reports, under ``--batch-policy keep``."""
        steps = self.epochs * math.ceil(math.ceil(samples / self.batch_size) / (self.sync_every or 1))
        return min(steps, self.max_steps) if self.max_steps else steps

    def problems(self) -> list[str]:
        """Return what is wrong with these settings, one sentence each."""
        required = {
            f"--job (or {env.JOB})": self.job,
            f"--etcd (or {env.ETCD})": self.etcd,
            f"--checkpoints (or {env.CHECKPOINTS})": self.checkpoints,
        }
        at_least: dict[str, tuple[float, float]] = {
            "--min-workers": (self.min_workers, 1),
            "--epochs": (self.epochs, 1),
            "--max-steps": (self.max_steps, 0),
            "--batch-size": (self.batch_size, 1),
            "--micro-batch": (self.micro_batch, 0),
            "--data-workers": (self.data_workers, 0),
            "--prefetch": (self.prefetch, 1),
            "--max-bad-samples": (self.max_bad_samples, 1),
            "--evaluate-every": (self.evaluate_every, 0),
            "--report-every": (self.report_every, 1),
            "--checkpoint-minutes": (self.checkpoint_minutes, 0),
            "--checkpoint-every": (self.checkpoint_every, 0),
            "--keep-checkpoints": (self.keep_checkpoints, 1),
            "--min-step-seconds": (self.min_step_seconds, 0),
            "--lease-seconds": (self.lease_seconds, 2),
            "--heartbeat-seconds": (self.heartbeat_seconds, 0.2),
            "--peer-timeout-seconds": (self.peer_timeout_seconds, 0.1),
            "--group-timeout-seconds": (self.group_timeout_seconds, 1),
            "--data-timeout-seconds": (self.data_timeout_seconds, 0),
            "--silent-seconds": (self.silent_seconds, 0),
            "--compare-every": (self.compare_every, 0),
            "--threads": (self.threads, 1),
            "--metrics-port": (self.metrics_port, 0),
            "--shard": (self.shard, 1),
            "--shard-nodes": (self.shard_nodes, 1),
            "--shard-node": (self.shard_node, 0),
        }
        problems = [f"{name} is required" for name, value in required.items() if not value]
        problems += [
            f"{name} is {value:g}, the least is {least:g}" for name, (value, least) in at_least.items() if value < least
        ]
        if self.max_workers < self.min_workers:
            problems.append(f"--max-workers is {self.max_workers}, less than --min-workers, {self.min_workers}")
        problems += self._problems_of_sync_every()
        problems += self._problems_of_shard()
        problems += self._problems_of_shard_nodes()
        if self.metrics_port > _LAST_PORT:
            problems.append(f"--metrics-port is {self.metrics_port}, the last port is {_LAST_PORT}")
        if 0 < len(self.secret) < _LEAST_SECRET:
            problems.append(
                f"{env.SECRET} has {len(self.secret)} characters, the least is {_LEAST_SECRET}: openssl rand -hex 32"
            )
        if "/" in self.job:
            problems.append(f"--job is {self.job!r}, it must not contain a slash")
        return problems

    def _problems_of_sync_every(self) -> list[str]:
        outer = {"--outer-lr": self.outer_lr, "--outer-momentum": self.outer_momentum}
        given = {name: value for name, value in outer.items() if value is not None}
        if self.sync_every is None:
            remedy = "and there is no outer optimizer: give --sync-every"
            return [f"{name} is {value:g}, {remedy}" for name, value in given.items()]
        problems = []
        if self.sync_every < 1:
            problems.append(
                f"--sync-every is {self.sync_every}, the least is 1: leave it out to sum the gradients in each step"
            )
        if self.amp == "fp16":
            problems.append(
                "--sync-every is given with --amp fp16, which has a scaler for the gradients of all workers: use "
                "--amp bf16"
            )
        if self.sum_dtype == "fp16":
            problems.append(
                "--sync-every is given with --sum-dtype fp16, in which small differences of parameters are 0: use "
                "--sum-dtype bf16"
            )
        if not 0 < given.get("--outer-lr", 1) < math.inf:
            problems.append(f"--outer-lr is {self.outer_lr:g}, it must be a number above 0")
        if not 0 <= given.get("--outer-momentum", 0) < 1:
            problems.append(f"--outer-momentum is {self.outer_momentum:g}, it must be at least 0 and below 1")
        if self.rehearsal is not None:
            problems.append(
                "--sync-every is given in a rehearsal, which compares the workers' optimizers, and these differ then: "
                "rehearse the script without it"
            )
        return problems

    def _problems_of_shard(self) -> list[str]:
        if self.shard <= 1:
            return []
        refused = {
            "--sync-every": (self.sync_every is not None, "leave it out"),
            "--amp fp16": (self.amp == "fp16", "use --amp bf16, or MixedPrecisionPolicy of fully_shard"),
            "--bad-samples skip": (self.bad_samples == "skip", "use --bad-samples stop"),
        }
        given = f"is given with --shard {self.shard}, which doesn't support it yet"
        problems = [f"{name} {given}: {remedy}" for name, (is_given, remedy) in refused.items() if is_given]
        processes = self.local_size * self.shard_nodes
        if self.local_rank is not None and (processes % self.shard or not self.meeting):
            problems.append(
                f"--shard is {self.shard}, and this process has {env.LOCAL_SIZE}={self.local_size} and "
                f"{'a' if self.meeting else 'no'} {env.LOCAL_MEETING}: they are the launcher's; unset them and "
                f"{env.LOCAL_RANK}"
            )
        return problems

    def _problems_of_shard_nodes(self) -> list[str]:
        nodes, given = self.shard_nodes, f"--shard-nodes is {self.shard_nodes}"
        if nodes < 1 or self.shard < 1:
            return []
        problems = []
        if self.shard_node >= nodes:
            problems.append(f"--shard-node is {self.shard_node}, and {given}: the last machine has number {nodes - 1}")
        if nodes == 1 and self.replica:
            problems.append(
                f"--replica is {self.replica!r}, and {given}: it is the name that several machines share; give "
                "--shard-nodes, or leave it out"
            )
        if nodes > 1 and not self.replica:
            problems.append(f"{given}, and --replica is missing: give all machines of a worker the same name")
        if self.shard % nodes:
            problems.append(f"{given}, which doesn't divide --shard, {self.shard}")
        elif nodes > 1 and self.processes not in ("1", "auto", str(self.shard // nodes)):
            problems.append(
                f"--shard is {self.shard} over {nodes} machines, which makes {self.shard // nodes} processes on each, "
                f"and --processes is {self.processes}: leave it out"
            )
        if nodes > 1 and self.rehearsal is not None:
            problems.append(f"{given} in a rehearsal, which is made on one machine: leave it out")
        return problems


def _shard(given: Mapping[str, Any]) -> int:
    """Return the number of processes that divide one model. By default they are those of all its machines."""
    nodes, shard = int(given["shard_nodes"]), int(given["shard"])
    if nodes < 2 or shard != 1:
        return shard
    processes = str(given["processes"])
    return nodes * int(given.get("local_size") or (processes if processes.isdecimal() else 1))


def _parsed(parser: argparse.ArgumentParser, argv: Sequence[str]) -> argparse.Namespace:
    """Return the values of the flags. Raise ConfigError for an option that the outer optimizer doesn't have."""
    given, unknown = parser.parse_known_args(argv)
    for name in (each.partition("=")[0] for each in unknown if each.startswith("--outer")):
        raise ConfigError(
            f"{name} is no option of the outer optimizer, which is SGD with Nesterov momentum: it has --outer-lr and "
            "--outer-momentum"
        )
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    return given


def _local(environ: Mapping[str, str]) -> dict[str, int]:
    """Return the settings that the launcher gives to a process that it starts."""
    rank, size = environ.get(env.LOCAL_RANK), environ.get(env.LOCAL_SIZE)
    if rank is None and size is None:
        return {}
    if not (rank and size and rank.isdecimal() and size.isdecimal() and int(rank) < int(size)):
        raise ConfigError(
            f"{env.LOCAL_RANK} is {rank!r} and {env.LOCAL_SIZE} is {size!r}: they are the launcher's; unset them both"
        )
    return {"local_rank": int(rank), "local_size": int(size)}


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
