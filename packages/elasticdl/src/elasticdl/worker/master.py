"""The worker's side of the protocol with the master: tasks are taken and reported, and the worker is known to live.

    with Master(address, Identity("elasticdl-mnist-worker-0", process), ending, log.info, 300) as master:
        task = master.task()
        counted = master.report(pb.TaskReport(task=task.id, records=4096))

A master that can't be reached is waited for: it may be restarted, and it remembers what is done. The loop takes tasks
from any `Tasks`; `elasticdl.local` has one without a master.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

import grpc

from elasticdl.rpc import channels
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.rpc.elasticdl_pb2_grpc import MasterStub
from elasticdl.worker.ending import Ending

T = TypeVar("T")

log = logging.getLogger(__name__)

RECONNECT_SECONDS = 0.2
"""Between two attempts to attend: much less than a master needs to start."""
CLOSE_SECONDS = 5.0
"""For the master to take what was said last."""


class Tasks(Protocol):
    """Where a worker gets its tasks from."""

    def task(self) -> pb.Task:
        """Return the next task; its type may be WAIT or STOP."""
        ...

    def report(self, report: pb.TaskReport) -> bool:
        """Say how a task has ended; return whether it was counted as this worker's."""
        ...


@dataclass(frozen=True)
class Identity:
    """Who this worker is."""

    worker: str
    """The name of its pod, which no other pod of the job gets."""
    process: str
    """A random id of the process."""


class Master:
    """The master of the job, over the network. One thread uses it.

    Another thread keeps a stream open, which shows the master that this worker lives. A stream that breaks is opened
    again.
    """

    def __init__(
        self, address: str, identity: Identity, ending: Ending, say: Callable[[str], None], patience_seconds: float
    ) -> None:
        self._identity, self._ending, self._say = identity, ending, say
        self._patience_seconds = patience_seconds
        self._channel = channels.connect(address)
        self._stub = MasterStub(self._channel)
        self.held: tuple[int, ...] = ()
        """Tasks that were taken and are neither done nor given back: a master that is restarted learns of them."""
        self._said: queue.SimpleQueue[pb.Presence | None] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._leaving = False
        self._thread = threading.Thread(target=self._attend, name="attendance", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End the stream after what was said: the master gives what is still held to others."""
        self._closed.set()
        self._said.put(None)
        self._thread.join(CLOSE_SECONDS)
        self._channel.close()

    def task(self) -> pb.Task:
        """Return the next task. Raise Leaving while the master is waited for, ElasticDLError if it stays away."""
        me = self._identity
        request = pb.GetTaskRequest(worker=me.worker, process=me.process, holding=self.held)
        task: pb.Task = self._patiently(lambda: self._stub.GetTask(request, timeout=channels.CALL_SECONDS))
        if task.id:
            self.held = (*self.held, task.id)
        return task

    def report(self, report: pb.TaskReport) -> bool:
        """Say how a task has ended; return whether it was counted. The master may be asked twice with one result."""
        message = pb.TaskReport()
        message.CopyFrom(report)
        message.worker, message.process = self._identity.worker, self._identity.process
        reply: pb.TaskReply = self._patiently(lambda: self._stub.ReportTask(message, timeout=channels.CALL_SECONDS))
        self.held = tuple(task for task in self.held if task != report.task)
        if reply.counted:
            log.debug("task %d is counted", report.task)
        else:
            log.info("task %d was given to another worker meanwhile, and is not counted here", report.task)
        return reply.counted

    def leave(self) -> None:
        """Tell the master that this worker leaves and wants no more tasks."""
        self._leaving = True
        self._said.put(self._presence())

    def _patiently(self, call: Callable[[], T]) -> T:
        def unless_leaving() -> T:
            try:
                return call()
            except grpc.RpcError:
                if self._ending.leaving:  # no time to wait for a master: it sees that the stream has ended
                    self._ending.check()
                raise

        return channels.patiently(unless_leaving, "the master", seconds=self._patience_seconds, say=self._say)

    def _attend(self) -> None:
        while not self._closed.is_set():
            # A queue of its own for each stream: the thread of a broken one may still wait at the old one.
            said: queue.SimpleQueue[pb.Presence | None] = queue.SimpleQueue()
            self._said = said
            said.put(self._presence())
            if self._closed.is_set():
                return
            try:
                for notice in self._stub.Attend(iter(said.get, None)):
                    if notice.stop:
                        self._ending.stop()
            except grpc.RpcError:
                said.put(None)
            self._closed.wait(RECONNECT_SECONDS)

    def _presence(self) -> pb.Presence:
        me = self._identity
        return pb.Presence(worker=me.worker, process=me.process, tasks=self.held, leaving=self._leaving)
