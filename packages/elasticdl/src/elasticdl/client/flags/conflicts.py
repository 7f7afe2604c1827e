"""What doesn't fit together in a command line, each with the remedy. Pure.

    conflicts.found(asked, given)      # [Mistake(…), …]; empty if everything fits

Rules about the processes' own arguments are those of `elasticdl.job`; here are those about the deployment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from elasticdl.client.flags import podspec, values
from elasticdl.client.flags.mistakes import Mistake
from elasticdl.client.flags.request import Asked, Resources, Restart, Ship
from elasticdl.job import JobMode, Strategy, problems
from tidewater.contract import devices
from tidewater.elasticjob import names

PREFIX = "elasticdl-"
"""Of the names of all jobs and their pods, as in ElasticDL."""

LONGEST_JOB = names.LONGEST_NAME - len(PREFIX) - len(f"-{names.WORKER}-") - names.SUCCESSIVE_DIGITS
"""Characters of a job's name, so that the pod of its last worker has a name."""

_CLUSTER_ONLY = (
    "image_name",
    "worker_image",
    "ps_image",
    "yaml",
    "volume",
    "envs",
    "cluster_spec",
    "cluster_spec_json",
    "num_workers",
    "etcd",
    "job_command",
)
"""Flags without a use for the strategy Local. A user would be surprised if one were silently ignored."""

_SERVERS_ONLY = {
    "num_ps_pods": 0,
    "use_async": False,
    "grads_to_wait": 1,
    "get_model_steps": 1,
    "lr_staleness_modulation": False,
    "sync_version_tolerance": 0,
}
"""Flags that only parameter servers have a use for, with the values that mean nothing to others."""


def found(asked: Asked, given: frozenset[str]) -> list[Mistake]:
    """Return what doesn't fit together; `given` are the flags that were given, without dashes."""
    return [
        *(Mistake(message, _sentence(remedy)) for message, remedy in problems(asked.args)),
        *_of_place(asked, given),
        *_of_sizes(asked, given),
        *_of_resources(asked),
        *_of_failures(asked, given),
        *podspec.mistakes(asked.deployment.cluster_spec),
    ]


def _sentence(remedy: str) -> str:
    """Return a remedy in the form of those of this package."""
    return remedy[:1].lower() + remedy[1:].removesuffix(".")


def _of_place(asked: Asked, given: frozenset[str]) -> Iterator[Mistake]:
    args, deployment = asked.args, asked.deployment
    if args.distribution_strategy is not Strategy.PARAMETER_SERVER:
        for name, nothing in _SERVERS_ONLY.items():
            if name in given and getattr(args, name) != nothing:
                remedy = "it has no parameter servers; leave it out"
                yield Mistake(f"--{name} with {args.distribution_strategy}", remedy)
    if args.distribution_strategy is Strategy.LOCAL:
        for name in _CLUSTER_ONLY:
            if name in given:
                yield Mistake(f"--{name} with {Strategy.LOCAL}", "the job runs in this process; leave it out")
        return
    if args.job_name and not re.fullmatch(names.DNS_LABEL, args.job_name):
        yield Mistake(
            f"--job_name={args.job_name} can't be part of a pod's name",
            "use lower-case letters, digits and '-', with a letter or digit first and last: test-mnist",
        )
    if len(args.job_name) > LONGEST_JOB:
        yield Mistake(
            f"--job_name={args.job_name} has {len(args.job_name)} characters",
            f"use at most {LONGEST_JOB}: its pods are {PREFIX}JOB-worker-NUMBER, and may have {names.LONGEST_NAME}",
        )
    for name in ("image_name", "worker_image", "ps_image"):
        if any(each.isspace() for each in getattr(deployment, name)):
            yield Mistake(
                f"--{name}={getattr(deployment, name)!r} has blanks", "an image is a name as registry/team/image:1"
            )
    if deployment.ship in (Ship.CODE, Ship.NOTHING) and not deployment.image_name:
        yield Mistake(
            f"--ship={deployment.ship} without --image_name", "name the image that has what isn't sent, or leave it out"
        )


def _of_sizes(asked: Asked, given: frozenset[str]) -> Iterator[Mistake]:
    args, deployment = asked.args, asked.deployment
    if 0 < deployment.max_workers < args.num_workers:
        yield Mistake(
            f"--max_workers={deployment.max_workers} is below --num_workers={args.num_workers}",
            "give at least the number of workers, or leave it out",
        )
    if args.distribution_strategy is Strategy.ALLREDUCE and args.mode is not JobMode.TRAIN:
        yield Mistake(
            f"`elasticdl {args.mode}` with {Strategy.ALLREDUCE}",
            f"use {Strategy.PARAMETER_SERVER} or {Strategy.LOCAL}, which read the --output of that training by "
            "--checkpoint_dir_for_init",
        )
    if args.sync_version_tolerance and args.use_async:
        yield Mistake(
            f"--sync_version_tolerance={args.sync_version_tolerance} with --use_async",
            "asynchronous updates refuse no gradient: leave out one of the two",
        )
    if args.lr_staleness_modulation and args.grads_to_wait > 1:
        yield Mistake(
            f"--lr_staleness_modulation with --grads_to_wait={args.grads_to_wait}",
            "gradients that are averaged have one age: leave out one of the two",
        )


def _of_resources(asked: Asked) -> Iterator[Mistake]:
    deployment = asked.deployment
    for kind in ("master", "ps", "worker"):
        own: Resources = getattr(deployment, kind)
        for name, requested in own.request.items():
            limit = own.limits.get(name)
            if limit is not None and values.amount(limit) < values.amount(requested):
                yield Mistake(
                    f"--{kind}_resource_limit: {name}={limit} is below the request, {requested}",
                    "give at least what is requested",
                )
        for name in {*own.request, *own.limits}:
            if "/" in name and own.request.get(name) != own.limits.get(name):
                shown = "gpu" if name == devices.GPU else name
                yield Mistake(
                    f"--{kind}_resource_request and _limit differ in {shown}",
                    "Kubernetes doesn't share devices: give the same number in both",
                )


def _of_failures(asked: Asked, given: frozenset[str]) -> Iterator[Mistake]:
    deployment = asked.deployment
    if deployment.restart_policy is Restart.ALWAYS:
        yield Mistake(
            "--restart_policy=Always would start processes again that are done", "use OnFailure, or leave it out"
        )
    if deployment.worker_pod_priority.share is not None:
        core = deployment.worker_pod_priority.core
        for name in ("master_pod_priority", "ps_pod_priority"):
            own = getattr(deployment, name)
            if own and own != core:
                yield Mistake(
                    f"--{name}={own} with a share of the workers at {core}",
                    f"master and servers then have the class of the first workers: give {core}, or leave it out",
                )
