"""How each system is started: its services, and the command of one node.

    system = SYSTEMS["torchft"]
    system.service(site, port)       # lighthouse, etcd or store
    system.node(site, port, 0)

A node is what is lost with a machine: for torchrun the agent with its worker, otherwise only the worker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.elastic.workers import names
from tidewater.elastic import flags
from tidewater.elastic.config import no_flags

ROOT = Path(__file__).resolve().parents[2]
CODE = ("benchmarks", "packages/transformers/src", "tidewater", "trainer")
"""What the workers import of ours."""
RESTARTED = "with_tidewater_restarted.py"
"""The trainer as on a torch before 2.14, where a group can't be given new peers: see `tidewater.elastic.group`."""
RESTARTS = "1000"
"""More than any run here needs; torchrun's default is not to restart at all."""


@dataclass(frozen=True)
class Site:
    """Where a job's processes run, and their settings."""

    python: Path
    """Of the environment with torchft, in addition to the torch that all have."""
    etcd: Path
    data: Path
    code: Path
    """A copy of CODE, so that later starts use the same code although files are edited in the meantime."""
    folder: Path
    """The job's own."""
    nodes: int
    checkpoint_every: int
    device_seconds: float = 0.0
    """See `goodput`."""
    width: int = 32
    """Of the small network."""
    model: str = names.SMALL
    steady_steps: int = 20
    """Consecutive steps of all workers after which training counts as steady."""
    gate_steps: int = 12
    """Distance of the gate from the fastest worker, so that all see the gate before they reach it."""
    plain_port: int | None = None
    """Port for plain training in the workers' processes, in turns with theirs."""
    attempt: int = 1
    """Number of the start of the whole job."""

    def environment(self, node: int) -> dict[str, str]:
        """Return the environment of every worker, with one thread of computation for each.

        glibc returns free memory at the end of the heap to the kernel, and the next step gets it again page by page.
        Whether that happens depends on the layout of the heap. So all measured processes keep their memory.
        """
        plain = {} if self.plain_port is None else {names.PLAIN_PORT: f"{self.plain_port},{self.nodes}"}
        return {
            **plain,
            "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
            "MALLOC_MMAP_THRESHOLD_": str(1 << 25),
            "PYTHONPATH": str(self.code),
            "PYTHONHASHSEED": "0",
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            names.OUT: str(self.folder / "steps"),
            names.PAIRS: str(self.folder / "pairs"),
            names.NODE: str(node),
            names.DATA: str(self.data),
            names.GATE: str(self.folder / "gate"),
            names.CHECKPOINTS: str(self.folder / "checkpoints"),
            names.CHECKPOINT_EVERY: str(self.checkpoint_every),
            names.WIDTH: str(self.width),
            names.MODEL: self.model,
            names.DEVICE_SECONDS: str(self.device_seconds),
        }

    def script(self, name: str) -> str:
        """Path of one of the workers' scripts."""
        return str(self.code / "benchmarks" / "elastic" / "workers" / name)


@dataclass(frozen=True)
class System:
    """One way to train elastically; `port` is its service's."""

    name: str
    node: Callable[[Site, int, int], list[str]]
    service: Callable[[Site, int], list[str]] | None = None
    environment: Callable[[Site, int, int], dict[str, str]] = field(default=lambda site, port, node: {})
    timeouts: Mapping[str, str] = field(default_factory=dict)
    """What a failure waits for, with the values that are used here: for the table."""
    over: str | None = None
    """Text in the log of a node that was refused because the job has ended for all; only a new attempt helps."""


_TUNED = {"keep_alive_interval": 1, "keep_alive_max_attempt": 3, "heartbeat_timeout": 1, "last_call_timeout": 1}
"""A node is given up after interval x attempts, in whole seconds; fewer attempts than the default and a busy machine
loses nodes that live."""
_DEFAULT = {"keep_alive_interval": 5, "keep_alive_max_attempt": 3, "last_call_timeout": 30}
"""Of torch 2.15 (c10d_rendezvous_backend.py, dynamic_rendezvous.py); not passed on."""


def _torchrun_timeouts(options: Mapping[str, int]) -> dict[str, str]:
    return {
        "heartbeat": f"{options['keep_alive_interval']} s, {options['keep_alive_max_attempt']} times",
        "last call": f"{options['last_call_timeout']} s",
        "gloo": "30 min",
    }


def _torchft_timeouts(heartbeat_ms: int) -> dict[str, str]:
    return {
        "heartbeat": f"{heartbeat_ms / 1000:g} s",
        "quorum": f"{names.TORCHFT_QUORUM_SECONDS} s",
        "gloo": f"{names.TORCHFT_GROUP_SECONDS} s",
    }


def _tidewater_timeouts() -> dict[str, str]:
    """Return the trainer's defaults, which the benchmark doesn't change."""
    defaults = vars(flags.parser({}, no_flags).parse_args([]))
    return {
        name: f"{defaults[flag]:g} s"
        for name, flag in (
            ("heartbeat", "heartbeat_seconds"),
            ("lease", "lease_seconds"),
            ("silent peer", "peer_timeout_seconds"),
            ("gloo", "group_timeout_seconds"),
        )
    }


def _torchrun(options: str) -> Callable[[Site, int, int], list[str]]:
    def node(site: Site, port: int, number: int) -> list[str]:
        conf = ",".join(filter(None, ["is_host=false", options]))
        return [
            *(str(site.python), "-m", "torch.distributed.run", f"--nnodes=1:{site.nodes}", "--nproc-per-node=1"),
            *(f"--max-restarts={RESTARTS}", "--rdzv-backend=c10d", f"--rdzv-endpoint={names.HOST}:{port}"),
            *(f"--rdzv-id=bench-{site.attempt}", f"--rdzv-conf={conf}", f"--local-addr={names.HOST}"),
            site.script("with_torchrun.py"),
        ]

    return node


def torchrun_of_one(site: Site, script: str, processes: int) -> list[str]:
    """Return the command of a node with so many processes, and a rendezvous of its own."""
    return [
        *(str(site.python), "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"),
        site.script(script),
    ]


def _torchrun_environment(site: Site, port: int, number: int) -> dict[str, str]:
    # Otherwise, after the loss of rank 0's node, torch 2.15's other agents look for its store for half an hour, the
    # time-out of init_process_group.
    return {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


# An agent of torch 2.15 that ends with an error closes the rendezvous for good (launch_agent in launcher/api.py). So do
# all that wait for one that was lost after it had joined: a minute for what it says of itself before ranks are assigned
# (_assign_worker_ranks in agent/server/api.py).
_CLOSED = "RendezvousClosedError"


def _store(site: Site, port: int) -> list[str]:
    return [str(site.python), site.script("store.py"), str(port)]


def _lighthouse(heartbeat_timeout_ms: int) -> Callable[[Site, int], list[str]]:
    def service(site: Site, port: int) -> list[str]:
        flags = ["--min_replicas", "1", "--heartbeat_timeout_ms", str(heartbeat_timeout_ms)]
        return [str(site.python.with_name("torchft_lighthouse")), "--bind", f"{names.HOST}:{port}", *flags]

    return service


def _torchft(site: Site, port: int, number: int) -> list[str]:
    return [str(site.python), site.script("with_torchft.py")]


def _torchft_environment(site: Site, port: int, number: int) -> dict[str, str]:
    return {
        "TORCHFT_LIGHTHOUSE": f"http://{names.HOST}:{port}",
        "REPLICA_GROUP_ID": str(number),
        "NUM_REPLICA_GROUPS": str(site.nodes),
    }


def etcd(site: Site, port: int) -> list[str]:
    """Return the command of an etcd with one member."""
    url, peer = f"http://{names.HOST}:{port}", f"http://{names.HOST}:0"
    flags = ["--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", peer]
    return [str(site.etcd), "--data-dir", str(site.folder / "etcd"), *flags]


def trainer_node(script: str, *more: str) -> Callable[[Site, int, int], list[str]]:
    """Return the command of a node that runs a script of the trainer: a path, or the name of one of the workers'."""

    def node(site: Site, port: int, number: int) -> list[str]:
        return [
            *(str(site.python), site.script(script), "--job", "bench", "--etcd", f"http://{names.HOST}:{port}"),
            *("--worker", f"node-{number}", "--host", names.HOST, "--checkpoints", str(site.folder / "checkpoints")),
            *("--checkpoint-minutes", "0", "--checkpoint-every", str(site.checkpoint_every)),
            *("--batch-size", str(names.GLOBAL_BATCH), "--epochs", "1000000"),
            *("--max-workers", str(site.nodes), "--report-every", "100", *more),
        ]

    return node


SYSTEMS = {
    system.name: system
    for system in (
        System("tidewater", trainer_node("with_tidewater.py"), etcd, timeouts=_tidewater_timeouts()),
        System("tidewater restarted", trainer_node(RESTARTED), etcd, timeouts=_tidewater_timeouts()),
        System("torchft", _torchft, _lighthouse(5000), _torchft_environment, _torchft_timeouts(5000)),
        System("torchft 1 s", _torchft, _lighthouse(1000), _torchft_environment, _torchft_timeouts(1000)),
        System(
            "torchrun tuned",
            _torchrun(",".join(f"{name}={value}" for name, value in _TUNED.items())),
            _store,
            _torchrun_environment,
            _torchrun_timeouts(_TUNED),
            _CLOSED,
        ),
        System("torchrun", _torchrun(""), _store, _torchrun_environment, _torchrun_timeouts(_DEFAULT), _CLOSED),
    )
}
"""By name, in the table's order. torchft's heartbeat time-out is 5 s unless set."""
