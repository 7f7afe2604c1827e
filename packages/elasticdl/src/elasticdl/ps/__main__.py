"""One parameter server.

    python3 -m elasticdl.ps --job NAME --index I --servers N --port 2222 --master_addr HOST:PORT --job_args JSON

It goes on from the newest whole checkpoint of this run, if there is one in --checkpoint_dir. Otherwise it waits for a
worker's model. It runs until SIGTERM.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace

import grpc

from elasticdl.errors import ElasticDLError, InputError
from elasticdl.job import LOG_FORMAT, JobArgs, JobMode
from elasticdl.ps.checkpoint import Found, load_part, needed, newest
from elasticdl.ps.model.part import Contents
from elasticdl.ps.model.policy import Policy
from elasticdl.ps.service import Identity, ParameterServer, serve
from elasticdl.rpc import channels
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.rpc import elasticdl_pb2_grpc as services
from tidewater.contract.exit_codes import LEFT

LOG = logging.getLogger("elasticdl.ps")
GRACE_SECONDS = 2.0
"""For calls that are under way at SIGTERM."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 2.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run a parameter server until SIGTERM. Return the exit code."""
    options = _parser().parse_args(argv)
    logging.basicConfig(stream=sys.stdout, format=LOG_FORMAT)
    try:
        args = JobArgs.from_json(options.job_args)
        LOG.setLevel(args.log_level.upper())
        _run(options, args)
    except ElasticDLError as error:
        LOG.error("%s", error)
        return error.exit_code
    return LEFT


def _run(options: argparse.Namespace, args: JobArgs) -> None:
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    index = options.index
    if not 0 <= index < options.servers:
        raise InputError(f"--index is {index} with --servers={options.servers}", "Give one in [0, servers).")
    identity = Identity(index, options.servers)
    restored, init_from = beginning(args, (index, options.servers), LOG.info)
    with ExitStack() as stack:
        changed = _reporting(stack, options.master_addr, index)
        service = ParameterServer(
            identity,
            Policy(args.grads_to_wait, args.use_async, args.lr_staleness_modulation, args.sync_version_tolerance),
            restored=restored,
            init_from=init_from,
            changed=changed,
            say=LOG.info,
        )
        server, port = serve(service, f"{options.host}:{options.port}")
        stack.callback(lambda: server.stop(GRACE_SECONDS).wait())
        version = f"version {restored.version}" if restored else "no model yet"
        LOG.info("parameter server %d of %d listens on port %d; %s", index, options.servers, port, version)
        if restored:
            changed(restored.version)
        ended.wait()
        LOG.info("SIGTERM: leaving")


def beginning(
    args: JobArgs, place: tuple[int, int], say: Callable[[str], None]
) -> tuple[Contents | None, Found | None]:
    """Return a server's part of the checkpoint that it goes on from, or else the one that new models get values of.

    A model that is trained begins with version 0; one that is evaluated, or predicts, has the checkpoint's.

    Raises:
        BadCheckpoint: --checkpoint_dir_for_init is given, and has no whole checkpoint.
    """
    found = newest(args.checkpoint_dir, say=say, run=args.run) if args.checkpoint_dir else None
    if found:
        say(f"going on from checkpoint {found.address}")
        return load_part(found, place), None
    if not args.checkpoint_dir_for_init:
        return None, None
    found = needed(args.checkpoint_dir_for_init, say=say)
    return None, replace(found, version=0) if args.mode is JobMode.TRAIN else found


def _reporting(stack: ExitStack, master: str, index: int) -> Callable[[int], None]:
    """Return what tells the master new versions: on server 0 only."""
    if index or not master:
        return lambda version: None
    channel = stack.enter_context(channels.connect(master))
    stub = services.MasterStub(channel)
    reporter = Reporter(
        lambda version: stub.ReportVersion(
            pb.VersionReport(server=index, version=version), timeout=channels.CALL_SECONDS
        ),
        say=LOG.warning,
    )
    reporter.start()
    stack.callback(reporter.stop)
    return reporter.report


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="elasticdl.ps", description="One parameter server of a job.")
    parser.add_argument("--job", required=True, help="the job's name")
    parser.add_argument("--index", type=int, required=True, help="which server this is, from 0")
    parser.add_argument("--servers", type=int, required=True, help="how many there are")
    parser.add_argument("--host", default="[::]", help="address to listen on; default: all")
    parser.add_argument("--port", type=int, default=2222)
    parser.add_argument("--master_addr", default="", help="host:port of the master")
    parser.add_argument("--job_args", required=True, help="JSON of elasticdl.job.JobArgs")
    return parser


class Reporter:
    """Report the newest version in a thread, and repeat it until the master has answered: updates don't wait."""

    def __init__(self, tell: Callable[[int], object], *, say: Callable[[str], None]) -> None:
        self._tell, self._say = tell, say
        self._newest: int | None = None
        self._ending = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="report-version", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def report(self, version: int) -> None:
        """Have a version reported, unless a newer one is already waiting."""
        with self._changed:
            self._newest = version if self._newest is None else max(version, self._newest)
            self._changed.notify_all()

    def stop(self) -> None:
        """End the thread. It is safe to call this twice."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        away, pause = False, FIRST_PAUSE_SECONDS
        while (version := self._next()) is not None:
            try:
                self._tell(version)
            except grpc.RpcError as error:
                if not away:
                    self._say(f"the master can't be told version {version} ({error.code().name}); updates go on")
                away = True
                self._put_back(version, pause)
                pause = min(LONGEST_PAUSE_SECONDS, 2 * pause)
            else:
                if away:
                    self._say(f"the master is back; it knows version {version}")
                away, pause = False, FIRST_PAUSE_SECONDS

    def _next(self) -> int | None:
        """Wait for a version; return None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._ending or self._newest is not None)
            version, self._newest = self._newest, None
            return None if self._ending else version

    def _put_back(self, version: int, pause: float) -> None:
        with self._changed:
            self._newest = version if self._newest is None else max(version, self._newest)
            self._changed.wait_for(lambda: self._ending, timeout=pause)


if __name__ == "__main__":
    sys.exit(main())
