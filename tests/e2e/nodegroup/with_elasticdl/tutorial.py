"""ElasticDL's tutorial on the one-machine cluster: its commands as the guide has them, and what it looks at.

tutorial = Tutorial(checkout.path)
tutorial.begin()
tutorial.run(TRAIN)
tutorial.phases()          # {"elasticdl-test-mnist-master": "Running", …}
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.checkout import wait_until
from tests.e2e.elasticjob import Job
from tests.pages import commands

HERE = Path(__file__).parent
SPACE = "training"
NAME = "elasticdl-test-mnist"
MASTER = f"{NAME}-master"
SERVERS = [f"{NAME}-ps-0", f"{NAME}-ps-1"]

BEGIN, (TRAIN, PODS), LOGS, (DELETE_WORKER,), (DEPLOY, GIVE_BACK), (ALL_LOGS, END) = commands(
    "packages/elasticdl/docs/elasticdl.md", "The tutorial"
)
"""The tutorial's commands, block by block."""

SMALL = " ".join(
    f'--{kind}_resource_request="cpu=50m,memory=512Mi" --{kind}_resource_limit="cpu=1,memory=1024Mi"'
    for kind in ("master", "ps", "worker")
)
MODEL = "--model_zoo=model_zoo --model_def=mnist.mnist_functional_api.custom_model --minibatch_size=16"
DATA = "/data/elasticdl/digits"
EXPORTED = "/data/elasticdl/model"

ALLREDUCE = (
    f"elasticdl train --job_name=all {MODEL} {SMALL} --distribution_strategy=AllreduceStrategy --num_workers=2"
    f" --worker_pod_priority=high=0.5 --training_data={DATA}/train --validation_data={DATA}/test --num_epochs=5"
    f" --output={EXPORTED}"
)
EVALUATE = (
    f"elasticdl evaluate --job_name=evaluate {MODEL} {SMALL} --validation_data={DATA}/test"
    f" --checkpoint_dir_for_init={EXPORTED}"
)
SCRIPT = (
    f"elasticdl train --job_name=script --distribution_strategy=AllreduceStrategy --num_workers=2 {SMALL}"
    " --model_zoo=examples/elasticdl --minibatch_size=16 --num_minibatches_per_task=4 --num_epochs=3"
    ' --job_command="python3 digits_script.py --data /data/digits --pause 0.2"'
)
"""The digits here are the stack's dataset, as images. The pauses take half a minute with two workers and a minute with
one, so that a worker's successor comes in time."""


@dataclass(frozen=True)
class Tutorial(Job):
    """The job, and a shell with a kubeconfig for its namespace."""

    name: str = NAME
    space: str = SPACE

    def begin(self) -> None:
        """Do what comes before the job, and give it a model that takes its time."""
        self.run("kubectl delete priorityclass high low --ignore-not-found")  # of examples/elasticjob/mnist.yaml
        for command in BEGIN:
            self.run(command)
        model = self.path / "model_zoo" / "mnist" / "mnist_functional_api.py"
        model.rename(model.with_name("example.py"))
        shutil.copy(HERE / "paced.py", model)

    def phases(self) -> dict[str, str]:
        """Return the job's pods with their phases; one that is being deleted is Terminating, as kubectl prints it."""
        return {
            pod["metadata"]["name"]: "Terminating" if "deletionTimestamp" in pod["metadata"] else pod["status"]["phase"]
            for pod in self.pods()
        }

    def running(self, kind: str = "worker") -> set[str]:
        """Return the names of the pods of a kind that run."""
        return {name for name, phase in self.phases().items() if f"{NAME}-{kind}" in name and phase == "Running"}

    def uids(self) -> dict[str, str]:
        """Return the uids of the job's pods."""
        return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in self.pods()}

    def grep(self, pod: str, pattern: str) -> list[str]:
        """Return the lines of a pod's log as the tutorial finds them, with `kubectl logs POD | grep PATTERN`."""
        return self.run(f'kubectl logs {pod} 2>/dev/null | grep "{pattern}"', expect=None).text.splitlines()

    def losses(self, pod: str) -> int:
        """Return how many losses a worker has logged."""
        return len(self.grep(pod, "Loss"))

    def await_training_by(self, *pods: str) -> None:
        """Wait until each of these workers has logged another loss than those that it has logged now."""
        before = {pod: self.losses(pod) for pod in pods}
        wait_until(f"training by {', '.join(pods)}", lambda: all(self.losses(pod) > before[pod] for pod in pods))

    def await_workers(self, *numbers: int) -> None:
        """Wait until exactly the workers with these numbers run."""
        names = {f"{NAME}-worker-{number}" for number in numbers}
        wait_until(f"workers {numbers}", lambda: self.running() == names)

    def evaluations(self, pod: str = MASTER) -> list[tuple[int, float]]:
        """Return step and accuracy of each evaluation in the log of the master, or of another pod."""
        lines = self.grep(pod, "Evaluation")
        found = [re.search(r"Evaluation metrics\[step=(\d+)\]: \{'accuracy': ([0-9.]+)\}", line) for line in lines]
        return [(int(each[1]), float(each[2])) for each in found if each]
