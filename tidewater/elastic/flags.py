"""The flags that every training script has; ``Config`` holds their values."""

from __future__ import annotations

import argparse
import socket
from collections.abc import Callable, Mapping

from tidewater.contract import env

OUTER_LR, OUTER_MOMENTUM = 0.7, 0.9
"""Those of DiLoCo (arXiv 2311.08105, section 3: Nesterov momentum)."""


def parser(environ: Mapping[str, str], own: Callable[[argparse._ArgumentGroup], None]) -> argparse.ArgumentParser:
    """Return the parser of all flags. ``environ`` may give their defaults. ``own`` adds the flags of the script."""
    top = argparse.ArgumentParser(
        description="Train as one of several workers that may come and go. Start as many as you like with the same "
        "--job: they find each other through etcd, share every batch, and go on when one of them is lost.",
        epilog="SIGTERM, SIGHUP or Ctrl-C: leave at the next step boundary, exit code 143. Exit code 0: the job has "
        "finished. Exit code 2: a restart would fail in the same way.",
        formatter_class=_Defaults,
    )
    _add_place(top.add_argument_group("where (each has an environment variable)"), environ)
    own(top.add_argument_group("what to train"))
    _add_method(top.add_argument_group("how to train"))
    _add_outer(top.add_argument_group("how to train over a slow network"))
    _add_checkpoints(top.add_argument_group("checkpoints"))
    _add_operation(top.add_argument_group("reports and faults"))
    return top


def _add_place(group: argparse._ArgumentGroup, environ: Mapping[str, str]) -> None:
    for flag, name, fallback, text in (
        ("--job", env.JOB, "", f"name of the job; its workers' secret is in {env.SECRET}, or else in etcd"),
        ("--etcd", env.ETCD, "", "etcd's URLs, comma-separated"),
        ("--etcd-user", env.ETCD_USER, "", f"etcd's user, if it needs one; the password is in {env.ETCD_PASSWORD}"),
        ("--etcd-cacert", env.ETCD_CACERT, "", "for https://: file with the authority that signed etcd's certificate"),
        ("--etcd-cert", env.ETCD_CERT, "", "file with a client certificate, if etcd needs one"),
        ("--etcd-key", env.ETCD_KEY, "", "file with that certificate's key"),
        ("--worker", env.WORKER, socket.gethostname(), "this worker's name in the log"),
        ("--host", env.HOST, "", "address at which others reach this worker; found by the route to etcd if empty"),
        ("--data", env.DATA, "", f"where the data is; packages that a job has installed are in {env.PACKAGES}"),
        (
            "--checkpoints",
            env.CHECKPOINTS,
            "",
            "shared directory, s3://bucket/prefix, or both with a comma",
        ),
        ("--min-workers", env.MIN_WORKERS, "1", "training waits below this number"),
        ("--max-workers", env.MAX_WORKERS, "8", "workers beyond this number wait in line"),
        ("--processes", env.PROCESSES, "1", "processes of this worker, one for each GPU; auto counts the GPUs"),
        ("--shard", env.SHARD, "1", "processes that divide one model among them with fully_shard, and are one worker"),
        ("--shard-nodes", env.SHARD_NODES, "1", "machines over which these processes are spread, with a launcher each"),
        ("--shard-node", env.SHARD_NODE, "0", "number of this machine among them"),
        ("--replica", env.REPLICA, "", "name that these machines share; that of the worker if empty"),
        ("--metrics-port", env.METRICS_PORT, "0", "port on which Prometheus finds this worker's metrics; 0: none"),
    ):
        kind = int if flag.endswith(("workers", "port")) or flag.startswith("--shard") else str
        group.add_argument(flag, type=kind, default=environ.get(name, fallback), help=f"{text} [{name}]")


def _add_method(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--epochs", type=int, default=30, help="every sample is used once in each")
    group.add_argument(
        "--max-steps",
        type=int,
        default=0,
        metavar="STEPS",
        help="end after this number of steps, as after the last epoch; 0: no limit",
    )
    group.add_argument("--batch-size", type=int, default=64, help="samples in a step, see --batch-policy")
    group.add_argument(
        "--batch-policy",
        choices=("keep", "scale"),
        default="keep",
        help="keep: --batch-size is that of all workers together, so batch size and learning rate don't depend on "
        "their number. scale: it is that of each process, and the learning rate grows in proportion to their number",
    )
    group.add_argument(
        "--micro-batch",
        type=int,
        default=0,
        metavar="SAMPLES",
        help="maximum of one forward pass; gradients of several are accumulated. 0: as many as in the first "
        "step. All workers halve it when a worker's memory does not suffice",
    )
    group.add_argument(
        "--seed", type=int, default=0, help="seed for the order of samples and for random changes of them"
    )
    group.add_argument(
        "--amp", choices=("off", "bf16", "fp16"), default="off", help="automatic mixed precision; fp16 scales the loss"
    )
    group.add_argument(
        "--sum-dtype",
        choices=("fp32", "bf16", "fp16"),
        default="fp32",
        help="type in which the gradients are summed over the workers. fp32: that of the parameters, but at least 32 "
        "bits. bf16 and fp16 send half as much, and round each gradient",
    )
    group.add_argument(
        "--data-workers",
        type=int,
        default=0,
        help="processes that prepare samples in advance; 0: the training process does it while it waits for its peers",
    )
    group.add_argument(
        "--prefetch", type=int, default=2, metavar="STEPS", help="number of steps that each of them prepares in advance"
    )
    group.add_argument(
        "--bad-samples",
        choices=("stop", "skip"),
        default="stop",
        help="samples of the dataset that can't be read. stop: the worker ends. skip: all workers leave them out from "
        "then on, and the log names each once",
    )
    group.add_argument(
        "--max-bad-samples",
        type=int,
        default=100,
        metavar="SAMPLES",
        help="with --bad-samples skip: training ends with exit code 2 if there are more",
    )
    group.add_argument(
        "--evaluate-every", type=int, default=0, metavar="EPOCHS", help="measure the model; 0: only at the end"
    )
    group.add_argument("--threads", type=int, default=1, help="torch's threads on the CPU")
    group.add_argument(
        "--min-step-seconds", type=float, default=0.0, help="minimum time of a step, which slows a demonstration down"
    )


class _Defaults(argparse.ArgumentDefaultsHelpFormatter):
    """Shows the default of each flag that has one."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default is None else super()._get_help_string(action)


def _add_outer(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--sync-every",
        type=int,
        metavar="H",
        help="exchange parameters after so many steps, in place of gradients in each: every worker makes H inner steps "
        "by itself, which count as one step, and an outer optimizer applies the mean of what they have changed",
    )
    group.add_argument(
        "--outer-lr",
        type=float,
        metavar="RATE",
        help=f"learning rate of the outer optimizer, SGD with Nesterov momentum; {OUTER_LR} if not given",
    )
    group.add_argument(
        "--outer-momentum", type=float, metavar="FACTOR", help=f"its momentum; {OUTER_MOMENTUM} if not given"
    )


def _add_checkpoints(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--checkpoint-minutes",
        type=float,
        default=10,
        metavar="MINUTES",
        help="longest time between two checkpoints, which are written in the background; 0: no limit",
    )
    group.add_argument(
        "--checkpoint-every", type=int, default=0, metavar="STEPS", help="also after so many steps; 0: only by the time"
    )
    group.add_argument("--keep-checkpoints", type=int, default=2, metavar="N", help="the newest that are kept")
    group.add_argument(
        "--fresh-optimizer",
        action="store_true",
        help="continue from a checkpoint of another optimizer with fresh moments, instead of refusing it",
    )
    group.add_argument(
        "--begin-again",
        action="store_true",
        help="begin at step 0 if etcd knows of a checkpoint and no place has one, instead of refusing that",
    )


def _add_operation(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--report-every", type=int, default=10, metavar="STEPS", help="a line in the log")
    group.add_argument(
        "--lease-seconds", type=int, default=10, help="a worker that etcd has not heard of for this time is lost"
    )
    group.add_argument(
        "--heartbeat-seconds",
        type=float,
        default=1.5,
        help="while a step is late, a peer that answers no ping for this time is given up: it is frozen or cut off; "
        "half of it, where nothing has been late in the last minute",
    )
    group.add_argument(
        "--peer-timeout-seconds",
        type=float,
        default=3.0,
        help="how long survivors of a failure wait for a peer that answers pings but does not continue",
    )
    group.add_argument(
        "--group-timeout-seconds", type=float, default=30.0, help="longest wait for a peer within a step"
    )
    group.add_argument(
        "--data-timeout-seconds",
        type=float,
        default=300.0,
        help="a sample that takes longer ends the worker with exit code 1, and the log names it; 0: no limit",
    )
    group.add_argument(
        "--silent-seconds",
        type=float,
        default=60.0,
        help="without a step for this time the log, the metrics and the ElasticJob say which worker the others wait "
        "for; 0: never",
    )
    group.add_argument(
        "--compare-every",
        type=int,
        default=100,
        metavar="STEPS",
        help="the workers compare checksums of their model and optimizer, which must be equal; 0: never",
    )
    group.add_argument(
        "--on-drift",
        choices=("mend", "stop"),
        default="mend",
        help="if a few differ from the majority. mend: they get the others' state. stop: all end with exit code 2. "
        "Without a majority all end",
    )
    group.add_argument("--debug", action="store_true", help="more events in the log")
