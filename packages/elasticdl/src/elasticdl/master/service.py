"""The master's gRPC service: messages in, calls of the coordinator, messages out.

server = serve(MasterService(coordinator, about, servers), "0.0.0.0:50001", workers=4)
server.stop(grace=1)
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Iterator
from concurrent import futures

import grpc

from elasticdl.errors import ElasticDLError, InputError
from elasticdl.job import JobArgs, JobMode
from elasticdl.master.coordinator import Assignment, Coordinator
from elasticdl.master.servers import Servers
from elasticdl.master.store import Interrupted
from elasticdl.master.tasks import transitions
from elasticdl.master.tasks.state import Script
from elasticdl.master.tasks.task_queue import Owner
from elasticdl.master.tasks.transitions import EVALUATION, EXPORT, Outcome
from elasticdl.rpc import channels
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.rpc import elasticdl_pb2_grpc as services

log = logging.getLogger(__name__)

CALL_THREADS = 32
_ALONE = ("grpc.so_reuseport", 0)
"""Two masters on one port would each get some of the calls."""
THREADS_OF_A_WORKER = 3
"""An open stream takes one thread; a worker that is replaced may leave one behind for some seconds."""


@contextlib.contextmanager
def _told(context: grpc.ServicerContext) -> Iterator[None]:
    """Answer a call that this master can't take any more in the way that makes the worker look for the next master."""
    try:
        yield
    except InputError as error:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
    except (ElasticDLError, Interrupted) as error:
        context.abort(grpc.StatusCode.UNAVAILABLE, f"this master ends: {error}")


class MasterService(services.MasterServicer):
    """One method for each call of the protocol."""

    def __init__(self, coordinator: Coordinator, args: JobArgs, servers: Servers | None) -> None:
        self._coordinator, self._args, self._servers = coordinator, args, servers
        self._bells: set[queue.SimpleQueue[bool]] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def Attend(  # noqa: N802 # the protocol's names
        self, request_iterator: Iterator[pb.Presence], context: grpc.ServicerContext
    ) -> Iterator[pb.Notice]:
        """Hold a worker's stream open; tell it when the job has ended."""
        first = next(request_iterator, None)
        if first is None:
            return
        owner, stream = _owner(first), object()
        bell: queue.SimpleQueue[bool] = queue.SimpleQueue()
        with _told(context):
            self._coordinator.attend(owner, list(first.tasks), stream)
        # Both ring: the end of the stream from either side, and the end of the job.
        if not context.add_callback(lambda: bell.put(False)):
            bell.put(False)
        listener = threading.Thread(target=self._listen, args=(request_iterator, owner, bell), daemon=True)
        listener.start()
        try:
            if first.leaving:
                self._coordinator.leave(owner)
            self._hang(bell)
            while bell.get():
                yield pb.Notice(stop=True)
        finally:
            with self._lock:
                self._bells.discard(bell)
            with contextlib.suppress(ElasticDLError, Interrupted):  # this master ends, and the next one sees it
                self._coordinator.gone(owner, stream)

    def GetTask(self, request: pb.GetTaskRequest, context: grpc.ServicerContext) -> pb.Task:  # noqa: N802
        """Return a task, or what to do without one."""
        with _told(context):
            return task_message(self._coordinator.hand_out(_owner(request), set(request.holding)), self._args.mode)

    def ReportTask(self, request: pb.TaskReport, context: grpc.ServicerContext) -> pb.TaskReply:  # noqa: N802
        """Take in how a task has ended."""
        outcome = Outcome(
            task=request.task,
            owner=_owner(request),
            records=request.records,
            version=request.version,
            error=request.error,
            given_back=request.given_back,
        )
        with _told(context):
            if outcome.error and transitions.kind_of(outcome.task) == EVALUATION and self._snapshot_is_lost():
                log.warning("a parameter server has lost the snapshot; the evaluation begins anew")
                self._coordinator.apply(transitions.evaluation_begun_anew)
                return pb.TaskReply(counted=False)
            return pb.TaskReply(counted=self._coordinator.report(outcome, dict(request.metric_states)))

    def ReportVersion(self, request: pb.VersionReport, context: grpc.ServicerContext) -> pb.Nothing:  # noqa: N802
        """Take in the version of the model, which is that of server 0."""
        with _told(context):
            if request.server == 0:
                self._coordinator.reached(request.version)
            return pb.Nothing()

    def GetJob(self, request: pb.JobRequest, context: grpc.ServicerContext) -> pb.Job:  # noqa: N802
        """Tell a script about the job; take in what it says about its data."""
        with _told(context):
            plan = self._coordinator.describe(self._script(request))
            if request.HasField("version"):
                self._coordinator.begun_from(request.version, request.generation)
        state = self._coordinator.state
        script, tasks = state.script, len(plan.tasks) if plan else 0
        return pb.Job(
            name=self._args.job_name,
            epochs=script.epochs if script else self._args.num_epochs,
            records=plan.records if plan else 0,
            minibatch_size=script.minibatch_size if script else self._args.minibatch_size,
            tasks=tasks,
            ended=tasks - state.work.todo - len(state.work.doing) if plan else 0,
            version=state.version,
            generation=state.generation,
        )

    def ReportEnd(self, request: pb.EndReport, context: grpc.ServicerContext) -> pb.Nothing:  # noqa: N802
        """Take in that the loop of a script has ended before the job has."""
        with _told(context):
            self._coordinator.ended(_owner(request), everyone=request.everyone)
            return pb.Nothing()

    def stop(self) -> None:
        """Tell all workers, those that come later too, that the job has ended."""
        with self._lock:
            self._stopped = True
            for bell in self._bells:
                bell.put(True)

    def _hang(self, bell: queue.SimpleQueue[bool]) -> None:
        with self._lock:
            self._bells.add(bell)
            if self._stopped:
                bell.put(True)

    def _listen(self, messages: Iterator[pb.Presence], owner: Owner, bell: queue.SimpleQueue[bool]) -> None:
        """Take in the later messages of a stream, until it ends."""
        try:
            for message in messages:
                if message.leaving:
                    self._coordinator.leave(owner)
        except grpc.RpcError:
            log.debug("the stream of %s broke", owner.worker)
        except Exception:  # grpc raises a bare Exception when the call was cancelled while its messages were read
            log.debug("the stream of %s was cancelled", owner.worker)
        bell.put(False)

    def _snapshot_is_lost(self) -> bool:
        """Return whether a server is another process than the one that took the snapshot, or doesn't answer now."""
        evaluation = self._coordinator.state.evaluation
        if self._servers is None or evaluation is None or not evaluation.ready:
            return False
        return self._servers.processes() != evaluation.servers

    def _script(self, request: pb.JobRequest) -> Script | None:
        if not request.records:
            return None
        return Script(
            request.records,
            request.epochs or self._args.num_epochs,
            request.minibatch_size or self._args.minibatch_size,
            request.minibatches_per_task or self._args.num_minibatches_per_task,
            request.shuffle_records,
        )


def task_message(assignment: Assignment, mode: str) -> pb.Task:
    """Return what a worker of a job of this mode gets."""
    if assignment.replace:
        return pb.Task(type=pb.REPLACE, reason=assignment.reason)
    if assignment.stop:
        return pb.Task(type=pb.STOP, reason=assignment.reason)
    if not assignment.task:
        return pb.Task(type=pb.WAIT, wait_seconds=assignment.wait_seconds)
    if assignment.kind == EXPORT or assignment.piece is None:
        return pb.Task(id=assignment.task, type=pb.EXPORT)
    piece, work = assignment.piece, pb.PREDICTION if mode == JobMode.PREDICT else pb.TRAINING
    return pb.Task(
        id=assignment.task,
        type=pb.EVALUATION if assignment.kind == EVALUATION else work,
        shard=piece.shard,
        start=piece.start,
        end=piece.end,
        indices=piece.indices,
        model_version=assignment.snapshot,
        epoch=piece.epoch,
    )


def serve(service: MasterService, address: str, *, workers: int) -> grpc.Server:
    """Return a server that is listening.

    Args:
        service: What answers.
        address: `host:port`.
        workers: How many workers the job has.

    Raises:
        ElasticDLError: the address can't be used.
    """
    threads = futures.ThreadPoolExecutor(CALL_THREADS + THREADS_OF_A_WORKER * workers, thread_name_prefix="call")
    server = grpc.server(threads, options=(*channels.OPTIONS, _ALONE))
    services.add_MasterServicer_to_server(service, server)
    try:
        bound = server.add_insecure_port(address)
    except RuntimeError:
        bound = 0
    if not bound:
        raise ElasticDLError(f"the master can't listen on {address}", "Give a --port that is free.")
    server.start()
    return server


def _owner(message: pb.Presence | pb.GetTaskRequest | pb.TaskReport | pb.EndReport) -> Owner:
    return Owner(message.worker, message.process)
