"""The command line: ``train`` (the default), ``dataset`` and ``report``.

python -m trainer [train] --job digits --etcd http://127.0.0.1:2379 --data DIR --checkpoints DIR
python -m trainer dataset --name digits --out DIR
python -m trainer report FILE… [--out report.png]
"""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from contract import exit_codes
from trainer.addresses import route_to
from trainer.config import Config
from trainer.errors import ConfigError, RecordError, TrainerError
from trainer.log import Log
from trainer.metrics import Metrics, open_metrics

if TYPE_CHECKING:
    from trainer.coordinator import Coordinator
    from trainer.loop import Loop

_FIRST_VIEW_SECONDS = 5.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run one sub-command; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    command = arguments.pop(0) if arguments and not arguments[0].startswith("-") else "train"
    try:
        if command == "train":
            return _train(Config.parse(arguments, os.environ))
        if command == "dataset":
            return _dataset(arguments)
        if command == "report":
            return _report(arguments)
        raise ConfigError(f"{command!r} is not a sub-command: use train, dataset or report")
    except (ConfigError, RecordError) as error:
        print(f"trainer: {error}", file=sys.stderr)
        return exit_codes.USAGE
    except TrainerError as error:
        print(f"trainer: {error}", file=sys.stderr)
        return exit_codes.FAILED


def _dataset(arguments: list[str]) -> int:
    from trainer import dataset

    parser = argparse.ArgumentParser(prog="trainer dataset", description=dataset.__doc__)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--name", help="a dataset that is known here: digits")
    source.add_argument("--uri", help="a zip or tar archive of an ImageFolder: s3://, https:// or file://")
    parser.add_argument("--out", type=Path, required=True, help="directory to make")
    given = parser.parse_args(arguments)
    dataset.prepare(dataset.Source(given.name, given.uri), given.out, Log(socket.gethostname()))
    return exit_codes.FINISHED


def _report(arguments: list[str]) -> int:
    from trainer import chart, report

    parser = argparse.ArgumentParser(
        prog="trainer report",
        description="Summarise the workers' logs, and draw world size, loss and throughput over time.",
        epilog="On a cluster: kubectl logs -n training -l SELECTOR --prefix --tail=-1 > job.log",
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="log of one worker or of several")
    parser.add_argument(
        "--out", type=Path, default=Path("report.png"), help="picture: .png, .svg or .pdf (default %(default)s)"
    )
    parser.add_argument("--no-picture", action="store_true", help="only the summary")
    given = parser.parse_args(arguments)
    seen = report.read(given.files)
    print(report.table(seen), end="")
    if not given.no_picture:
        chart.draw(seen, given.out)
        print(f"\npicture: {given.out}")
    return exit_codes.FINISHED


def _train(config: Config) -> int:
    metrics = open_metrics(config.metrics_port, job=config.job, worker=config.worker)
    log = Log(config.worker, debug=config.debug, listener=metrics.event)
    log.event("started", job=config.job, pid=os.getpid(), etcd=",".join(config.etcd))
    asked_to_leave = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked_to_leave.set())
    worker = _Worker(config, log, metrics)
    if worker.is_finished():
        log.event("finished", reason="the job had finished before this worker started")
        return exit_codes.FINISHED
    loop = worker.prepare()
    if asked_to_leave.is_set():
        log.event("left", reason="asked to leave before it had joined")
        return exit_codes.LEFT

    def leave_when_asked() -> None:
        asked_to_leave.wait()
        loop.leave()

    # Not in the signal handler: leaving writes to etcd and takes locks that the interrupted code may hold.
    threading.Thread(target=leave_when_asked, name="leave", daemon=True).start()
    try:
        return loop.run()
    finally:
        worker.coordinator.stop()


class _Worker:
    """Puts one worker together, in the order that lets people see life first and disturbs others last."""

    def __init__(self, config: Config, log: Log, metrics: Metrics) -> None:
        from trainer.store import EtcdStore

        self._config, self._log, self._metrics = config, log, metrics
        self._started = time.monotonic()
        self._host = config.host or route_to(config.etcd[0])
        self._store = EtcdStore(config.etcd)
        self.coordinator: Coordinator

    def is_finished(self) -> bool:
        """Whether the job is done, by the volume or by etcd (which is asked only if it answers soon)."""
        from contract import keys
        from trainer.checkpoint import Checkpoints
        from trainer.errors import StoreError

        self._checkpoints = Checkpoints(self._config.checkpoints, self._log)
        if self._checkpoints.finished():
            return True
        try:
            return bool(self._store.read(keys.finished(self._config.job)).entries)
        except StoreError as error:
            self._log.event("etcd_unreachable", error=str(error))
            return False

    def prepare(self) -> Loop:
        """Import torch, load the data, build and warm up the model, and only then announce this worker."""
        import torch  # the slowest import by far: the log has begun, and a wrong --data is found without it

        from trainer import state as states
        from trainer.coordinator import Coordinator
        from trainer.data import ImageFolder
        from trainer.group import open_group
        from trainer.loop import Loop
        from trainer.membership import Limits, Member
        from trainer.model import SmallCNN
        from trainer.parts import Parts
        from trainer.sync import PeerServer

        # A kernel of one input channel has two equal descriptions of its strides; DDP warns about that, to no effect.
        warnings.filterwarnings("ignore", message="Grad strides do not match bucket view strides")
        config = self._config
        torch.set_num_threads(config.threads)
        torch.manual_seed(config.seed)
        device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
        train, val = ImageFolder(config.data / "train"), ImageFolder(config.data / "val")
        model = SmallCNN(train.channels, len(train.classes)).to(device)
        signature = states.signature(model, data=train.digest, seed=config.seed, batch_size=config.batch_size)
        group, server = open_group(self._host, device, config.group_timeout_seconds), PeerServer()
        server.start()
        member_id = f"{config.worker}-{secrets.token_hex(4)}"
        me = Member(member_id, config.worker, self._host, server.port, group.store_port, signature, ready_after=0)
        limits = Limits(config.min_workers, config.max_workers, config.peer_timeout_seconds)
        self.coordinator = Coordinator(
            self._store, config.job, me, limits=limits, lease_seconds=config.lease_seconds, log=self._log
        )
        state = states.State(model, lr=config.lr, signature=signature)
        parts = Parts(self.coordinator, group, server, self._checkpoints, state, train, val, member_id, self._metrics)
        loop = Loop(config, parts, self._log)
        loop.warm_up()
        seconds = time.monotonic() - self._started
        self._log.event("prepared", seconds=seconds, device=str(device), train_images=len(train), val_images=len(val))
        self._announce(loop, signature)
        return loop

    def _announce(self, loop: Loop, signature: str) -> None:
        from trainer.coordinator import Hooks
        from trainer.sync import is_gone

        self.coordinator.start(Hooks(loop.membership_changed, lambda member: is_gone((member.host, member.peer_port))))
        self.coordinator.wait(lambda view: True, time.monotonic() + _FIRST_VIEW_SECONDS)
        self.coordinator.announce(signature)
