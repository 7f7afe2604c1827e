"""Exit codes of the trainer, and what each means for a restart.

FINISHED      0    the job is finished (now, or before this process started); don't start it again
FAILED        1    an error that may not happen again after a restart; also if the last worker left and could not save
                   the state, so that the steps since the last checkpoint are lost
USAGE         2    bad command line, configuration or data; a restart gives the same error
LEFT          143  left at a step boundary after SIGTERM (128 + 15, what a shell reports for SIGTERM);
                   not 0, since the job would then count this worker's work as completed
DEVICE_FAILED 200  the GPU reports an error after which a process can't use it, or does not answer; the others go on,
                   and a new process may succeed
UNCONNECTED   201  left because it could not sum with the others again and again; a new process may succeed

An ElasticJob with restartPolicy ExitCode replaces workers that exit with LEFT or KILLED. It counts a failure if memory
was exhausted, or from the fourth time in a row that this happened without a disruption. It replaces those of
ALWAYS_RETRIED and RETRYABLE too, and counts them towards its back-off limit. Other codes are permanent.

Above 192 there are no signals (128 + 64 is the last one), and other operators retry such codes too.
"""

from __future__ import annotations

FINISHED = 0
FAILED = 1
USAGE = 2
LEFT = 143
DEVICE_FAILED = 200
UNCONNECTED = 201

KILLED = 137
"""What the container runtime reports for SIGKILL (128 + 9): the node is lost, or memory is exhausted."""

NOT_THE_WORKERS_FAULT = (KILLED, LEFT)
"""Exit codes that are mostly no failures of the code. An ElasticJob replaces the worker, and counts a row of them."""

OF_THE_MACHINE = (DEVICE_FAILED, UNCONNECTED)
"""Failures of the machine. A worker of several processes goes on without a process that ends so again and again."""

ALWAYS_RETRIED = (130, 138, *OF_THE_MACHINE)
"""SIGINT, SIGUSR1 and failures of the machine: an ElasticJob replaces the worker, and counts a failure."""

RETRYABLE = (FAILED,)
"""For `retryableExitCodes` of a job's workers, in addition to those that an ElasticJob always retries."""
