"""The script's side of the protocol with the master: several shards at a time.

with ScriptMaster(address, Identity("elasticdl-mnist-worker-0", process), Ending(), log.info, 300) as master:
    job = master.job(pb.JobRequest(records=60000))
    task = master.task()                 # TRAINING, WAIT or STOP
    master.done(task.id, records=4096, version=17)
"""

from __future__ import annotations

import grpc

from elasticdl.errors import InputError
from elasticdl.rpc import channels
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.worker.master import Master


class ScriptMaster(Master):
    """The master of a script's job."""

    def job(self, request: pb.JobRequest) -> pb.Job:
        """Say what the script's data is, and learn about the job. Raise InputError if others have said otherwise."""
        try:
            job: pb.Job = self._patiently(lambda: self._stub.GetJob(request, timeout=channels.CALL_SECONDS))
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
                raise InputError(str(error.details())) from error
            raise
        return job

    def done(self, task: int, records: int, version: int) -> bool:
        """Report a task as done, with the update of the model; return whether it was counted as this worker's."""
        return self.report(pb.TaskReport(task=task, records=records, version=version))

    def ended(self, *, everyone: bool) -> None:
        """Say that this worker's loop has ended before the job, and whether the training is to end for all workers."""
        if self._ending.stopped:  # the job has ended, and the master ends soon
            return
        report = pb.EndReport(worker=self._identity.worker, process=self._identity.process, everyone=everyone)
        self._patiently(lambda: self._stub.ReportEnd(report, timeout=channels.CALL_SECONDS))

    def give_back(self) -> None:
        """Give all tasks that are held to others."""
        for task in self.held:
            self.report(pb.TaskReport(task=task, given_back=True))
