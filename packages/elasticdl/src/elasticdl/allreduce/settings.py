"""The flags of a job as those of the trainer. Pure, but for a folder of this worker's own.

    trainer_flags(job, Place(etcd="http://etcd:2379", worker="elasticdl-mnist-worker-0", scratch=Path("/tmp/x")))

| the job                            | the trainer                                                                     |
|------------------------------------|---------------------------------------------------------------------------------|
| `minibatch_size`, `num_workers`    | `--batch-size` is their product, `--micro-batch` is `minibatch_size`            |
| `num_epochs`, `max_step`, MaxSteps | `--epochs`, `--max-steps`                                                       |
| `checkpoint_dir`                   | `--checkpoints`, in a folder of this submission                                 |
| `checkpoint_steps`                 | `--checkpoint-every`, and no checkpoints by the time                            |
| `keep_checkpoint_max`              | `--keep-checkpoints`                                                            |
| `log_loss_steps`                   | `--report-every`                                                                |
| `job_name`, `run_id`               | `--job`: each submission starts from the beginning, also under an old name      |

Without `checkpoint_dir` each worker has its checkpoints in a folder of its own, which the trainer needs at the end: the
job goes on as long as one worker lives, and begins anew when all were lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from elasticdl.errors import InputError
from elasticdl.job import JobArgs, JobMode, Strategy

NEVER = 10**9
"""Steps, more than any training has."""
PATIENCE_SECONDS = 3600.0
"""Longest wait for a peer in one step. The worker of rank 0 evaluates and exports the final model while others wait. A
peer that is lost, frozen or cut off is noticed within seconds in other ways."""


@dataclass(frozen=True)
class Place:
    """Where a worker is."""

    etcd: str
    """Client URLs, comma-separated; empty: those of the environment."""
    worker: str
    """Name of the pod."""
    scratch: Path
    """A folder of this worker's own, for checkpoints if the job has no other place."""


def check(job: JobArgs) -> None:
    """Raise InputError if AllreduceStrategy can't do this job."""
    if job.distribution_strategy is not Strategy.ALLREDUCE:
        raise InputError(
            f"--distribution_strategy is {job.distribution_strategy}, and this is a worker of {Strategy.ALLREDUCE}",
            f"Start elasticdl.worker for {Strategy.PARAMETER_SERVER}.",
        )
    if job.mode is not JobMode.TRAIN:
        raise InputError(
            f"`elasticdl {job.mode}` with --distribution_strategy={Strategy.ALLREDUCE}",
            f"Use {Strategy.PARAMETER_SERVER} or {Strategy.LOCAL}: they read the --output of this training by "
            "--checkpoint_dir_for_init.",
        )


def job_id(job: JobArgs) -> str:
    """Return the trainer's name for this submission of the job."""
    return f"{job.job_name}-{job.run_id}"


def trainer_flags(job: JobArgs, place: Place, last_step: int | None) -> list[str]:
    """Return the trainer's command line.

    Args:
        job: Of AllreduceStrategy.
        place: Of this worker.
        last_step: Updates after which training ends; None: after the epochs.
    """
    checkpoints = f"{job.checkpoint_dir.rstrip('/')}/{job_id(job)}" if job.checkpoint_dir else str(place.scratch)
    values: dict[str, object] = {
        "--job": job_id(job),
        "--worker": place.worker,
        "--epochs": job.num_epochs,
        "--max-steps": last_step or 0,
        "--batch-size": job.minibatch_size * job.num_workers,
        "--batch-policy": "keep",
        "--micro-batch": job.minibatch_size,
        "--seed": job.seed,
        "--checkpoints": checkpoints,
        "--checkpoint-minutes": 0,
        "--checkpoint-every": job.checkpoint_steps,
        "--keep-checkpoints": job.keep_checkpoint_max or NEVER,
        "--report-every": job.log_loss_steps or NEVER,
        "--group-timeout-seconds": PATIENCE_SECONDS,
        **({"--etcd": place.etcd} if place.etcd else {}),
    }
    return list(_words(values))


def _words(values: dict[str, object]) -> Iterator[str]:
    for flag, value in values.items():
        yield flag
        yield str(value)
