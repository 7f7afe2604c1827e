"""Everything the trainer raises on purpose.

TrainerError
├── ConfigError        the command line, the environment or the data is wrong: exit code 2, no retry helps
├── StoreError         etcd did not answer, or not as expected: the caller retries
│   ├── Refused        etcd was reached and refuses the request: user, certificate or address are wrong
│   └── Compacted      a watch asked for a revision that etcd has dropped: read everything again
├── RecordError        a record in etcd or a checkpoint is of a version or shape this code does not know
├── GroupBroken        a peer is lost, or the membership changed: the step in flight must be discarded
│   ├── OutOfMemory    this worker had too little memory: the step is repeated with smaller micro-batches
│   └── BadSamples     this worker could not read samples: the step is repeated without them
├── DeviceFailed       this process can't use its GPU any more: it ends at once with exit code 200
├── ShortOfMemory      this process, which divides a model with others, had too little memory: all of them start again
│                      with smaller micro-batches: exit code 1
├── Damaged            this process received a state only in part, and has nothing to continue from: exit code 1
├── DataStuck          a sample was not read within the limit: exit code 1
├── Drifted            the states of the workers differ: training stops, the checkpoints are kept: exit code 2
└── Diverged           the loss is not a number: training stops, the last checkpoint is kept: exit code 2

Stranger is an OSError, which code that opens a connection expects.
"""

from __future__ import annotations

from collections.abc import Mapping


class TrainerError(Exception):
    """Base of the trainer's own errors."""


class ConfigError(TrainerError):
    """The input is wrong; the message names it and the remedy. A retry does not help."""


class StoreError(TrainerError):
    """etcd could not be reached or refused the request."""


class Refused(StoreError):
    """etcd, or another server at its address, refuses the request and would do so again. At start this is a
    ConfigError."""


class Compacted(StoreError):
    """etcd no longer has the watched revision."""


class Missed(StoreError):
    """A change can't be applied to what is known: all must be read again."""


class RecordError(TrainerError):
    """A stored record cannot be read by this version of the code."""


class GroupBroken(TrainerError):
    """The process group is unusable until it is formed again; nothing of the current step may be kept."""


class OutOfMemory(GroupBroken):
    """This worker had too little memory for a micro-batch. It gave up the group, and has lowered their size."""


class BadSamples(GroupBroken):
    """This worker could not read some samples of its share, and leaves them out (``--bad-samples skip``)."""

    def __init__(self, errors: Mapping[int, str]) -> None:
        """``errors`` says for each sample what happened."""
        super().__init__(errors)
        self.errors = dict(errors)

    def __str__(self) -> str:
        return "; ".join(f"sample {sample} of the dataset: {error}" for sample, error in self.errors.items())


class DeviceFailed(TrainerError):
    """The GPU does not answer this process any more. torch's errors of the GPU itself are ``AcceleratorError``."""


class ShortOfMemory(TrainerError):
    """This process had too little memory for its part of a divided model's passes, which others wait for."""

    def __init__(self, message: str, samples: int) -> None:
        """``samples`` is the number to try in a pass after the next start."""
        super().__init__(message)
        self.samples = samples


class Damaged(TrainerError):
    """The initial values of this process are lost: parts of another worker's state have replaced them."""


class DataStuck(TrainerError):
    """A sample, or an answer of a process that prepares data, did not arrive within ``--data-timeout-seconds``."""


class Diverged(TrainerError):
    """The loss became NaN or infinite."""


class Drifted(TrainerError):
    """The states of the workers differ, although all made the same steps."""


class Stranger(OSError):
    """The other end of a connection does not know the job's secret, or is another member."""
