"""One turn: two jobs on a cluster with room for one and a half of them.

    with cluster(folder) as site:
        make(GANGS, site)

Each job wants four workers, and the cluster has six rooms, each for one worker. The second job is submitted when the
workers of the first have theirs.

- Gang-scheduled: a job has all its workers or none. The second is suspended, as Kueue keeps a job that waits, and is
  resumed when the first has ended. The queue of ElasticJob does not do that: it gives the next job the two rooms that
  are left, and workers of parameter servers don't wait for the other two.
- Elastic: both begin at once, the second with two workers. It gets the others when the first has ended.
"""

from __future__ import annotations

import contextlib
import copy
import json
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.elasticdl.systems import BOTH_DONE, ELASTIC, GANGS, SECOND_TRAINS, System
from benchmarks.stack import deployed, first_line
from tests.e2e.checkout import Checkout, wait_until
from tests.e2e.elasticjob import WORKER_NODES, Job
from tests.e2e.training import running_workers

Object = dict[str, Any]

ROOM, ROOMS = "example.com/room", 6
"""The name of a resource that stands for a GPU, and its number on the worker node. Each worker needs one."""
WORKERS = ELASTIC.workers
MINIBATCH, MINIBATCHES = 16, 480
PAUSE_SECONDS = 0.2
"""Of each minibatch, in place of an accelerator: 24 s for four workers, while a fifth of two cores is busy."""
DATA = "/data/bench-elasticdl"
SETTINGS = {"surgeNodes": "nodegroup", "workers": 1, "minWorkers": 1, "maxWorkers": 2, "jobName": "own"}
"""Of the stack. Its own job is suspended, and leaves its node to the others."""


@dataclass(frozen=True)
class Site:
    """A cluster with six rooms and the data."""

    checkout: Checkout

    def job(self, name: str) -> Job:
        """Return a job of ElasticDL."""
        return Job(self.checkout.path, f"elasticdl-{name}", self.checkout.namespace)


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[Site]:
    """Give a stack on a one-machine cloud of its own; stop the cloud afterwards."""
    with deployed(folder, SETTINGS) as checkout:
        site = Site(checkout)
        own = Job(checkout.path, checkout.outputs["jobName"], checkout.namespace)
        own.change(suspend=True)
        wait_until("no pods of the stack's job", lambda: not own.pods())
        checkout.run(f"kubectl config set-context --current --namespace={checkout.namespace}")
        _give_rooms(checkout)
        checkout.run(
            f"elasticdl data write generated-clicks {DATA} --in_pod --records={MINIBATCH * MINIBATCHES} --test_share=0"
        )
        yield site


def make(system: System, site: Site) -> dict[str, float]:
    """Make a turn; return its values by measure.

    Raises:
        AssertionError: a job has not done what it should in time.
    """
    gangs, number = system == GANGS, secrets.token_hex(2)
    first, second = (site.job(f"{which}-{number}") for which in ("first", "second"))
    files = [_written(job, gang=gangs, waits=gangs and job is second) for job in (first, second)]
    begin = time.time()
    _create(first, files[0])
    wait_until("the workers of the first job to have rooms", lambda: placed(first) == WORKERS)
    _create(second, files[1])
    if gangs:
        first.await_condition("Succeeded")
        second.change(suspend=False)
    wait_until("the second job to have rooms", lambda: placed(second) == (WORKERS if gangs else ROOMS - WORKERS))
    trains = _first_loss(second)
    if not gangs:
        first.await_condition("Succeeded")
        wait_until("the second job to have all its workers", lambda: placed(second) == WORKERS)
    second.await_condition("Succeeded")
    end = time.time()
    for job in (first, second):
        _delete(job)
    return {BOTH_DONE: end - begin, SECOND_TRAINS: trains - begin}


def command(name: str, file: str) -> str:
    """Return the command that writes a job to a file."""
    small, room = "cpu=50m,memory=256Mi", f"{ROOM}=1"
    large = "cpu=1,memory=1Gi"
    sizes = {"master": (small, large), "ps": (small, large), "worker": (f"{small},{room}", f"{large},{room}")}
    resources = " ".join(
        f"--{kind}_resource_request={request} --{kind}_resource_limit={limit}"
        for kind, (request, limit) in sizes.items()
    )
    return (
        f"elasticdl train --job_name={name} --yaml={file} --model_zoo=benchmarks/elasticdl/zoo"
        f" --model_def=paced.custom_model --model_params='pause={PAUSE_SECONDS}; hidden=32' --training_data={DATA}"
        f" --minibatch_size={MINIBATCH} --num_minibatches_per_task=4 --log_loss_steps=1 --use_async"
        f" --num_workers={WORKERS} --num_ps_pods={ELASTIC.servers} {resources}"
    )


def as_gang(job: Object, *, waits: bool) -> Object:
    """Return a job that has all its workers or none; while it waits, it is suspended."""
    made = copy.deepcopy(job)
    made["spec"] |= {"minReplicas": made["spec"]["replicaSpecs"]["Worker"]["replicas"], "suspend": waits}
    return made


def placed(job: Job) -> int:
    """Return how many workers of a job have a room."""
    return sum("nodeName" in pod["spec"] for pod in job.worker_pods())


def _written(job: Job, *, gang: bool, waits: bool) -> Path:
    file = job.path / f"{job.name}.yaml"
    job.run(command(job.name.removeprefix("elasticdl-"), file.name))
    if gang:
        file.write_text(yaml.safe_dump(as_gang(yaml.safe_load(file.read_text()), waits=waits)))
    return file


def _create(job: Job, file: Path) -> None:
    job.run(f"kubectl create -f {file}")


def _delete(job: Job) -> None:
    job.run(f"kubectl delete {job.named}")
    wait_until("its pods to be gone", lambda: not job.pods())


def _first_loss(job: Job) -> float:
    """Wait until a worker has used a minibatch; return when the first one had."""

    def found() -> bool:
        command = f"kubectl logs {{}} -n {job.namespace} | grep -q 'Loss: '"
        return any(job.run(command.format(pod), expect=None).status == 0 for pod in running_workers(job))

    wait_until("a loss of the second job", found)
    return first_line(job, running_workers(job), "Loss: ")


def _give_rooms(checkout: Checkout) -> None:
    """Give the worker node its rooms; a resource that no device plugin knows stays as it is patched."""
    selector = ",".join(f"{key}={value}" for key, value in WORKER_NODES.items())
    (node,) = checkout.json(f"kubectl get nodes -l {selector} -o json")["items"]
    name, patch = node["metadata"]["name"], json.dumps({"status": {"capacity": {ROOM: str(ROOMS)}}})
    checkout.run(f"kubectl patch node {name} --subresource=status --type=merge -p '{patch}'")

    def allocatable() -> bool:
        status = checkout.json(f"kubectl get node {name} -o json")["status"]
        return bool(status["allocatable"].get(ROOM) == str(ROOMS))

    wait_until(f"{ROOMS} rooms", allocatable)
