"""The script's side of the protocol with the master: several shards at a time.

with Master(address, Identity("elasticdl-mnist-worker-0", process), patience_seconds=300, say=log.info) as master:
    job = master.job(pb.JobRequest(records=60000))
    task = master.task()                 # TRAINING, WAIT or STOP
    master.done(task.id, records=4096, version=17)
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

import grpc

from elasticdl.errors import InputError
from elasticdl.rpc import channels
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.rpc.elasticdl_pb2_grpc import MasterStub
from elasticdl.worker.master import CLOSE_SECONDS, RECONNECT_SECONDS, Identity

T = TypeVar("T")


class Master:
    """The master of the job. One thread uses it. Another thread keeps a stream open, which shows the master that this
    worker lives."""

    def __init__(self, address: str, me: Identity, *, patience_seconds: float, say: Callable[[str], None]) -> None:
        self._me, self._patience, self._say = me, patience_seconds, say
        self._channel = channels.connect(address)
        self._stub = MasterStub(self._channel)
        self.held: tuple[int, ...] = ()
        """Tasks that were taken and are neither done nor given back."""
        self.job_has_ended = False
        """Whether the master has said so; it ends soon after that."""
        self._said: queue.SimpleQueue[pb.Presence | None] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._attend, name="attendance", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the stream: the master gives what is still held to others."""
        self._closed.set()
        self._said.put(None)
        self._thread.join(CLOSE_SECONDS)
        self._channel.close()

    def job(self, request: pb.JobRequest) -> pb.Job:
        """Say what the script's data is, and learn about the job. Raise InputError if others have said otherwise."""
        try:
            job: pb.Job = self._patiently(lambda: self._stub.GetJob(request, timeout=channels.CALL_SECONDS))
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
                raise InputError(str(error.details())) from error
            raise
        return job

    def task(self) -> pb.Task:
        """Return another task, or what to do without one."""
        request = pb.GetTaskRequest(worker=self._me.worker, process=self._me.process, holding=self.held)
        task: pb.Task = self._patiently(lambda: self._stub.GetTask(request, timeout=channels.CALL_SECONDS))
        if task.id:
            self.held = (*self.held, task.id)
        return task

    def done(self, task: int, records: int, version: int) -> bool:
        """Report a task as done, with the update of the model; return whether it was counted as this worker's."""
        return self._report(pb.TaskReport(task=task, records=records, version=version))

    def ended(self, *, everyone: bool) -> None:
        """Say that this worker's loop has ended before the job, and whether the training is to end for all workers."""
        if self.job_has_ended:
            return
        report = pb.EndReport(worker=self._me.worker, process=self._me.process, everyone=everyone)
        self._patiently(lambda: self._stub.ReportEnd(report, timeout=channels.CALL_SECONDS))

    def give_back(self) -> None:
        """Give all tasks that are held to others."""
        for task in self.held:
            self._report(pb.TaskReport(task=task, given_back=True))

    def _report(self, report: pb.TaskReport) -> bool:
        report.worker, report.process = self._me.worker, self._me.process
        reply: pb.TaskReply = self._patiently(lambda: self._stub.ReportTask(report, timeout=channels.CALL_SECONDS))
        self.held = tuple(task for task in self.held if task != report.task)
        return reply.counted

    def _patiently(self, call: Callable[[], T]) -> T:
        return channels.patiently(call, "the master", seconds=self._patience, say=self._say)

    def _attend(self) -> None:
        while not self._closed.is_set():
            # A queue of its own for each stream: the thread of a broken one may still wait at the old one.
            said: queue.SimpleQueue[pb.Presence | None] = queue.SimpleQueue()
            self._said = said
            said.put(pb.Presence(worker=self._me.worker, process=self._me.process, tasks=self.held))
            if self._closed.is_set():
                return
            try:
                for notice in self._stub.Attend(iter(said.get, None)):
                    self.job_has_ended = self.job_has_ended or notice.stop
            except grpc.RpcError:
                said.put(None)
            self._closed.wait(RECONNECT_SECONDS)
