"""What a worker is told: command-line flags, and the environment for those that a manifest sets.

    config = Config.parse(argv, os.environ)

A flag wins over its environment variable. Everything wrong is reported at once, in one ConfigError.
"""

from __future__ import annotations

import argparse
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from contract import env
from trainer.errors import ConfigError

_LAST_PORT = 65535


@dataclass(frozen=True)
class Config:
    """One worker's settings, validated."""

    job: str
    etcd: tuple[str, ...]
    worker: str
    host: str
    min_workers: int
    max_workers: int
    data: Path
    checkpoints: Path
    epochs: int
    batch_size: int
    lr: float
    seed: int
    report_every: int
    checkpoint_every: int
    min_step_seconds: float
    lease_seconds: int
    peer_timeout_seconds: float
    group_timeout_seconds: float
    threads: int
    metrics_port: int
    debug: bool

    @classmethod
    def parse(cls, argv: Sequence[str], environ: Mapping[str, str]) -> Config:
        """Raises ConfigError with one line for every setting that is wrong."""
        given = vars(parser(environ).parse_args(argv))
        given["etcd"] = tuple(url.strip() for url in given["etcd"].split(",") if url.strip())
        given["data"], given["checkpoints"] = Path(given["data"]), Path(given["checkpoints"])
        config = cls(**given)
        problems = config.problems()
        if problems:
            raise ConfigError("; ".join(problems))
        return config

    def problems(self) -> list[str]:
        """What is wrong with these settings, one sentence each."""
        required = {
            f"--job (or {env.JOB})": self.job,
            f"--etcd (or {env.ETCD})": self.etcd,
            f"--data (or {env.DATA})": str(self.data) != ".",
            f"--checkpoints (or {env.CHECKPOINTS})": str(self.checkpoints) != ".",
        }
        at_least = {
            "--min-workers": (self.min_workers, 1),
            "--epochs": (self.epochs, 1),
            "--batch-size": (self.batch_size, 1),
            "--report-every": (self.report_every, 1),
            "--checkpoint-every": (self.checkpoint_every, 1),
            "--min-step-seconds": (self.min_step_seconds, 0),
            "--lease-seconds": (self.lease_seconds, 2),
            "--peer-timeout-seconds": (self.peer_timeout_seconds, 0.1),
            "--group-timeout-seconds": (self.group_timeout_seconds, 1),
            "--threads": (self.threads, 1),
            "--metrics-port": (self.metrics_port, 0),
        }
        problems = [f"{name} is required" for name, value in required.items() if not value]
        problems += [
            f"{name} is {value:g}, the least is {least:g}" for name, (value, least) in at_least.items() if value < least
        ]
        if self.max_workers < self.min_workers:
            problems.append(f"--max-workers is {self.max_workers}, less than --min-workers, {self.min_workers}")
        if self.metrics_port > _LAST_PORT:
            problems.append(f"--metrics-port is {self.metrics_port}, the last port is {_LAST_PORT}")
        if not self.lr > 0:
            problems.append(f"--lr is {self.lr:g}, it must be greater than 0")
        if "/" in self.job:
            problems.append(f"--job is {self.job!r}, it must not contain a slash")
        return problems


def parser(environ: Mapping[str, str]) -> argparse.ArgumentParser:
    """The flags of ``train``; their defaults come from ``environ`` where a manifest sets them."""
    top = argparse.ArgumentParser(
        prog="trainer train",
        description="Train as one of several workers that may come and go. Start as many as you like with the same "
        "--job: they find each other through etcd, share every batch, and go on when one of them is lost.",
        epilog="SIGTERM: leave at the next step boundary, exit code 143. Exit code 0: the job has finished. "
        "The effective batch size and learning rate do not depend on the number of workers.",
    )
    where = top.add_argument_group("where (each has an environment variable)")
    for flag, name, fallback, text in (
        ("--job", env.JOB, "", "name of the job"),
        ("--etcd", env.ETCD, "", "etcd's URLs, comma-separated"),
        ("--worker", env.WORKER, socket.gethostname(), "this worker's name in the log"),
        ("--host", env.HOST, "", "address at which others reach this worker (default: by the route to etcd)"),
        ("--data", env.DATA, "", "dataset in ImageFolder layout: train/<class>/*.png and val/<class>/*.png"),
        ("--checkpoints", env.CHECKPOINTS, "", "directory for checkpoints, shared by all workers"),
        ("--min-workers", env.MIN_WORKERS, "1", "training waits below this number"),
        ("--max-workers", env.MAX_WORKERS, "8", "workers beyond this number wait in line"),
        ("--metrics-port", env.METRICS_PORT, "0", "port on which Prometheus finds this worker's metrics (0: none)"),
    ):
        kind = int if flag.endswith(("workers", "port")) else str
        where.add_argument(flag, type=kind, default=environ.get(name, fallback), help=f"{text} [{name}]")
    how = top.add_argument_group("how to train")
    how.add_argument("--epochs", type=int, default=30, help="default %(default)s")
    how.add_argument("--batch-size", type=int, default=64, help="of all workers together (default %(default)s)")
    how.add_argument("--lr", type=float, default=2e-3, help="AdamW's, falls along a cosine (default %(default)s)")
    how.add_argument("--seed", type=int, default=0, help="default %(default)s")
    how.add_argument(
        "--min-step-seconds",
        type=float,
        default=0.0,
        help="slow training down to this much per step, for a demonstration (default: as fast as it goes)",
    )
    how.add_argument("--threads", type=int, default=1, help="torch's threads on the CPU (default %(default)s)")
    _add_operation(top.add_argument_group("reports and faults"))
    return top


def _add_operation(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--report-every", type=int, default=10, metavar="STEPS", help="default %(default)s")
    group.add_argument("--checkpoint-every", type=int, default=200, metavar="STEPS", help="default %(default)s")
    group.add_argument(
        "--lease-seconds",
        type=int,
        default=10,
        help="a worker that etcd has not heard of for so long is out (default %(default)s)",
    )
    group.add_argument(
        "--peer-timeout-seconds",
        type=float,
        default=3.0,
        help="how long survivors of a failure wait for a peer that says nothing (default %(default)s)",
    )
    group.add_argument(
        "--group-timeout-seconds",
        type=float,
        default=30.0,
        help="longest wait for a peer within a step (default %(default)s)",
    )
    group.add_argument("--debug", action="store_true", help="more events in the log")
