"""A job of ElasticDL as the ElasticJob that is sent. Pure.

    elastic_job(asked, Place("training", facts, "s3://bucket/code/….tar"))

    type     podNames     pods                                 restarts
    Master   Single       elasticdl-JOB-master                 replaced when it is killed; its exit code is the job's
    PS       Indexed      elasticdl-JOB-ps-0, -1, …            replaced under the same name, also after an error
    Worker   Successive   elasticdl-JOB-worker-0, -1, …        replaced under the next number

One worker is the minimum, so that any number of them may be lost or displaced. With a share of the workers at a higher
priority, these are the minimum.

With AllreduceStrategy the workers find each other in etcd. There is a master only for a script of the user's own, which
takes its shards from it; otherwise the job succeeds when one worker says that the training is finished.
"""

from __future__ import annotations

import shlex
import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from elasticdl.client.flags.conflicts import PREFIX
from elasticdl.client.flags.request import Asked, Deployment, Restart
from elasticdl.client.job.pods import JOB_UID, LABEL_INDEX, POD_INDEX, POD_NAME, ZOO, Place, Process, literal, template
from elasticdl.job import JobArgs, Strategy
from tidewater.contract import devices, env, exit_codes
from tidewater.elasticjob import names
from tidewater.elasticjob.choices import CleanPodPolicy, Launcher, PodNames, RestartPolicy, SuccessPolicy

Manifest = dict[str, Any]

PS = "PS"
MASTER_PORT, PS_PORT = 50001, 2222
"""ElasticDL's own."""

CRASHES = tuple(128 + number for number in (signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV))
"""Exit codes of a process that was ended by a signal of its own: the next one may fare better."""

SERVER_FAILURES = 5
"""Failures for each parameter server after which the job fails, if no worker is replaced after a failure. Otherwise
servers count as workers do. A lost or deleted pod is no failure."""

MASTER_ADDR, JOB_ARGS, JOB_NAME = "ELASTICDL_MASTER_ADDR", "ELASTICDL_JOB_ARGS", "ELASTICDL_JOB_NAME"
"""A user's own script finds its master with these variables: `elasticdl.api.assembly` reads them."""


_UID = f"$({JOB_UID})"
"""Of the ElasticJob. A file of --yaml may be used again; what the last job of it has left in etcd must not count."""


def name_of(job: str) -> str:
    """Return the name of the ElasticJob."""
    return f"{PREFIX}{job}"


def elastic_job(asked: Asked, place: Place) -> Manifest:
    """Return the job.

    Args:
        asked: What the command line asks for, without mistakes.
        place: Where it runs.
    """
    asked = replace(asked, args=_in_pods(asked.args, place))
    args, deployment = asked.args, asked.deployment
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {
            "name": name_of(args.job_name),
            "namespace": place.namespace,
            "labels": {"app": "elasticdl", "elasticdl-job-name": args.job_name},
        },
        "spec": {
            **_meeting(args, etcd(asked, place)),
            "minReplicas": _least(args, deployment),
            "maxReplicas": max(deployment.max_workers, args.num_workers),
            "successPolicy": (SuccessPolicy.RANK0 if has_master(args) else SuccessPolicy.ANY_WORKER).value,
            # Only servers don't leave by themselves, and workers that are about to end have time for that. With
            # all-reduce the job has succeeded when the first worker has ended: a script may then have a model to store.
            "cleanPodPolicy": (CleanPodPolicy.RUNNING if servers(args) else CleanPodPolicy.NONE).value,
            "backoffLimit": _failures(args, deployment),
            **_classes(deployment),
            "replicaSpecs": _replicas(asked, place),
        },
    }


def etcd(asked: Asked, place: Place) -> str:
    """Return the client URLs of etcd; empty if none is known."""
    given = asked.deployment.etcd or (place.facts.etcd if place.facts else "")
    return ",".join(each if "://" in each else f"http://{each}" for each in given.split(",") if each)


def servers(args: JobArgs) -> int:
    """Return the number of parameter servers."""
    return args.num_ps_pods if args.distribution_strategy is Strategy.PARAMETER_SERVER and not args.job_command else 0


def has_master(args: JobArgs) -> bool:
    """Return whether the job has a master: by all-reduce a model of the zoo is trained without one."""
    return args.distribution_strategy is not Strategy.ALLREDUCE or bool(args.job_command)


def _in_pods(args: JobArgs, place: Place) -> JobArgs:
    """Return the arguments with the zoo where the pods have it, and with another run for each ElasticJob."""
    zoo = ZOO if place.code and place.zoo and args.model_zoo else args.model_zoo
    return replace(args, model_zoo=zoo, run_id=f"{args.run_id}-{_UID}")


def _meeting(args: JobArgs, etcd: str) -> Manifest:
    """Return where the workers meet: at the master, or in etcd if they may train by all-reduce."""
    if etcd and (args.job_command or args.distribution_strategy is Strategy.ALLREDUCE):
        return {"rdzvEndpoint": etcd, "launcher": Launcher.TIDEWATER.value}
    return {"rdzvEndpoint": _master(args), "launcher": Launcher.NONE.value}


def _least(args: JobArgs, deployment: Deployment) -> int:
    """Return the minimum of workers: one, or as many as have the higher priority."""
    wanted = deployment.worker_pod_priority
    return 1 if wanted.share is None else wanted.of_core(args.num_workers)


def _failures(args: JobArgs, deployment: Deployment) -> int:
    """Return which failure of the code fails the job: the one after those that are replaced."""
    relaunched = deployment.relaunch_on_worker_failure * args.num_workers
    return relaunched + 1 if relaunched else SERVER_FAILURES * servers(args)


def _classes(deployment: Deployment) -> Manifest:
    """Return the priority classes of the job, if not all workers have the same."""
    wanted = deployment.worker_pod_priority
    if wanted.share is None:
        return {}
    return {"schedulingPolicy": {"corePriorityClassName": wanted.core, "surgePriorityClassName": wanted.surge}}


def _replicas(asked: Asked, place: Place) -> Manifest:
    args, deployment = asked.args, asked.deployment
    found: Manifest = {}
    if has_master(args):
        found[names.MASTER] = {
            "replicas": 1,
            "podNames": PodNames.SINGLE.value,
            "restartPolicy": RestartPolicy.EXIT_CODE.value,
            "retryableExitCodes": list(CRASHES),  # 1 is the end of a job that has failed
            "template": template("master", _master_process(asked, place), asked, place),
        }
    if servers(args):
        found[PS] = {
            "replicas": servers(args),
            "indexLabel": LABEL_INDEX,
            **_restarts(deployment.restart_policy, retried=True),
            "template": template("ps", _server_process(args), asked, place),
        }
    found[names.WORKER] = {
        "replicas": args.num_workers,
        "podNames": PodNames.SUCCESSIVE.value,
        "indexLabel": LABEL_INDEX,
        **_restarts(deployment.restart_policy, retried=deployment.relaunch_on_worker_failure > 0),
        "template": template("worker", _worker_process(args, deployment), asked, place),
    }
    return found


def _restarts(policy: Restart, *, retried: bool) -> Manifest:
    """Return what happens after an error of the code. A pod that is lost or deleted is replaced in any case."""
    if policy is not Restart.NEVER:
        return {"restartPolicy": RestartPolicy.ON_FAILURE.value}
    if not retried:
        return {"restartPolicy": RestartPolicy.NEVER.value}
    return {"restartPolicy": RestartPolicy.EXIT_CODE.value, "retryableExitCodes": [*exit_codes.RETRYABLE, *CRASHES]}


def _master_process(asked: Asked, place: Place) -> Process:
    args = asked.args
    state = etcd(asked, place)
    more = [*(["--etcd", state] if state else []), *_ps_addrs(args), *_job_args(args)]
    return Process([*_module("master"), "--job", args.job_name, "--port", str(MASTER_PORT), *more])


def _server_process(args: JobArgs) -> Process:
    own = ["--index", f"$({POD_INDEX})", "--servers", str(servers(args)), "--port", str(PS_PORT)]
    return Process([*_module("ps"), "--job", args.job_name, *own, "--master_addr", _master(args), *_job_args(args)])


def _worker_process(args: JobArgs, deployment: Deployment) -> Process:
    named = ["--job", args.job_name, "--name", f"$({POD_NAME})"]
    # The controller sets the job's name alone, and etcd may still have records of an earlier job of this name.
    run = {env.JOB: f"{args.job_name}-{args.run_id}"}
    if args.job_command:
        told = {JOB_NAME: args.job_name, MASTER_ADDR: _master(args), JOB_ARGS: _json(args)}
        return Process([literal(word) for word in shlex.split(args.job_command)], {**run, **told})
    if not has_master(args):
        processes = {env.PROCESSES: deployment.worker.limits.get(devices.GPU, "1")}  # one for each GPU
        return Process([*_module("allreduce"), *named, *_job_args(args)], {**run, **processes})
    return Process([*_module("worker"), *named, "--master_addr", _master(args), *_ps_addrs(args), *_job_args(args)])


def _module(name: str) -> Sequence[str]:
    return ["python3", "-m", f"elasticdl.{name}"]


def _master(args: JobArgs) -> str:
    return f"{names.single_pod_name(name_of(args.job_name), names.MASTER)}:{MASTER_PORT}"


def _addresses(args: JobArgs) -> str:
    found = (names.pod_name(name_of(args.job_name), PS, index) for index in range(servers(args)))
    return ",".join(f"{name}:{PS_PORT}" for name in found)


def _ps_addrs(args: JobArgs) -> Sequence[str]:
    return ["--ps_addrs", _addresses(args)] if servers(args) else []


def _job_args(args: JobArgs) -> Sequence[str]:
    return ["--job_args", _json(args)]


def _json(args: JobArgs) -> str:
    """Return the arguments as JSON in which Kubernetes replaces one variable: that of the run."""
    return literal(args.to_json()).replace(literal(_UID), _UID)


def first_pods(manifest: Mapping[str, Any]) -> tuple[str, str]:
    """Return the names of the pod that writes the metrics, the master if there is one, and of the first worker."""
    own = manifest["metadata"]["name"]
    worker = names.pod_name(own, names.WORKER, 0)
    has = names.MASTER in manifest["spec"]["replicaSpecs"]
    return (names.single_pod_name(own, names.MASTER) if has else worker), worker
