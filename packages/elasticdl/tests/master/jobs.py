"""Small jobs for the tests of the master: a zoo, data, and a worker that only speaks the protocol."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
from elasticdl.job import JobArgs, Strategy
from elasticdl.rpc import channels
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.rpc.elasticdl_pb2_grpc import MasterStub

ZOO = """
import torch

from elasticdl.zoo.metrics import Accuracy
from elasticdl.zoo.optimizers import SGD


def custom_model():
    return torch.nn.Linear(2, 2)


def loss(labels, predictions):
    return torch.nn.functional.cross_entropy(predictions, labels)


def optimizer():
    return SGD(lr=0.1)


def feed(records, mode, metadata):
    values = torch.tensor([[float(value) for value in record] for record in records])
    return values[:, :2], values[:, 2].long()


def eval_metrics_fn():
    return {"accuracy": Accuracy()}
"""
RECORDS = 100
VALIDATION_RECORDS = 25
RECORDS_PER_TASK = 10


def write_job(folder: Path, **changes: Any) -> JobArgs:
    """Write a zoo and data into a folder; return a job of 10 training tasks in each epoch, 3 in an evaluation."""
    (folder / "zoo").mkdir(exist_ok=True)
    (folder / "zoo" / "small.py").write_text(ZOO)
    for name, count in (("train.csv", RECORDS), ("test.csv", VALIDATION_RECORDS)):
        lines = "".join(f"{index}.0,1.0,{index % 2}\n" for index in range(count))
        (folder / name).write_text(f"a,b,label\n{lines}")
    fields: dict[str, Any] = {
        "job_name": "small",
        "model_zoo": str(folder / "zoo"),
        "model_def": "small.custom_model",
        "training_data": str(folder / "train.csv"),
        "minibatch_size": 5,
        "num_minibatches_per_task": RECORDS_PER_TASK // 5,
        "distribution_strategy": Strategy.ALLREDUCE,
        "num_ps_pods": 0,
    }
    return JobArgs(**{**fields, **changes})


def metrics(right: int, count: int) -> dict[str, bytes]:
    """Return what a worker sends for an evaluation task of the zoo above."""
    return {"metrics": f'{{"accuracy": {{"right": {right}, "count": {count}}}}}'.encode()}


class PlainWorker:
    """A worker without a model: it takes tasks and reports them."""

    def __init__(self, address: str, name: str) -> None:
        self.name, self.process = name, f"process-{name}"
        self._channel = channels.connect(address)
        self.stub = MasterStub(self._channel)
        self.told_to_stop = threading.Event()
        self.holding: list[int] = []
        """Tasks that are named when the stream is opened."""
        self._said: queue.SimpleQueue[pb.Presence | None] = queue.SimpleQueue()

    def attend(self, *, again: bool = False) -> None:
        """Open the stream; open it again when it breaks, if that is wanted."""
        self._said = queue.SimpleQueue()
        self._said.put(pb.Presence(worker=self.name, process=self.process, tasks=self.holding))
        stream = self.stub.Attend(iter(self._said.get, None), wait_for_ready=True)
        threading.Thread(target=self._listen, args=(stream, again), daemon=True).start()

    def lose_the_stream(self) -> None:
        """End the stream, and keep the connection."""
        self._said.put(None)

    def leave(self) -> None:
        """Say that the worker leaves."""
        self._said.put(pb.Presence(worker=self.name, process=self.process, leaving=True))

    def close(self) -> None:
        """End the stream and the connection."""
        self.lose_the_stream()
        self._channel.close()

    def task(self, holding: list[int] | None = None) -> pb.Task:
        """Ask once for a task."""
        request = pb.GetTaskRequest(worker=self.name, process=self.process, holding=holding or [])
        task: pb.Task = self.stub.GetTask(request, wait_for_ready=True, timeout=60)
        return task

    def next_task(self) -> pb.Task:
        """Ask until there is a task or the job has ended."""
        while (task := self.task()).type == pb.WAIT:
            self.told_to_stop.wait(min(task.wait_seconds, 0.02))
        return task

    def report(self, task: int, **fields: Any) -> bool:
        """Report a task; return whether it was counted."""
        message = pb.TaskReport(task=task, worker=self.name, process=self.process, **fields)
        reply: pb.TaskReply = self.stub.ReportTask(message, wait_for_ready=True, timeout=60)
        return reply.counted

    def work(self) -> list[pb.Task]:
        """Do everything until the end; return the tasks that were counted as this worker's, and STOP."""
        done = []
        while (task := self.next_task()).type != pb.STOP:
            states = metrics(3, task.end - task.start) if task.type == pb.EVALUATION else {}
            if self.report(task.id, records=task.end - task.start, metric_states=states):
                done.append(task)
        return [*done, task]

    def _listen(self, stream: Any, again: bool) -> None:
        try:
            for notice in stream:
                if notice.stop:
                    self.told_to_stop.set()
        except grpc.RpcError:
            if again:
                with contextlib.suppress(ValueError):  # the channel is closed
                    self.attend(again=True)


@contextmanager
def worker(address: str, name: str) -> Iterator[PlainWorker]:
    """Return a worker that attends."""
    one = PlainWorker(address, name)
    one.attend()
    try:
        yield one
    finally:
        one.close()
