"""A whole job in one process: `--distribution_strategy=Local`.

    run(JobArgs(job_name="mnist", distribution_strategy=Strategy.LOCAL, ...))     # an exit code

It has the zoo, the loop, the tasks and the optimizers of a job with parameter servers, but no network. No other
process takes over when this one dies.

job         from the flags to the exit code
tasks       the tasks, evaluations and checkpoints
parameters  the model, its optimizer, and the embedding tables
"""

from __future__ import annotations

from elasticdl.local.job import run

__all__ = ["run"]
