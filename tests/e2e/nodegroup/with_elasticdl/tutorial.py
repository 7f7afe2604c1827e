"""ElasticDL's tutorial on the one-machine cluster: its objects, its command, and what it looks at.

tutorial = Tutorial(checkout)
tutorial.write_data()
tutorial.train()
tutorial.phases()          # {"elasticdl-test-mnist-master": "Running", …}
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.e2e.checkout import wait_until
from tests.e2e.elasticjob import Job

HERE = Path(__file__).parent
SPACE = "training"
NAME = "elasticdl-test-mnist"
MASTER = f"{NAME}-master"
SERVERS = [f"{NAME}-ps-0", f"{NAME}-ps-1"]

CLASSES = [
    {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}
    for name, value in (("high", 1_000_000), ("low", 1_000))
]

COMMAND = """elasticdl train \\
  --model_zoo=model_zoo \\
  --model_def=paced.digits.custom_model \\
  --training_data=/data/elasticdl/digits/train \\
  --validation_data=/data/elasticdl/digits/test \\
  --num_epochs=40 \\
  --master_resource_request="cpu=50m,memory=512Mi" \\
  --master_resource_limit="cpu=1,memory=1024Mi" \\
  --master_pod_priority=high \\
  --worker_resource_request="cpu=300m,memory=512Mi" \\
  --worker_resource_limit="cpu=1,memory=1024Mi" \\
  --worker_pod_priority=low \\
  --ps_resource_request="cpu=50m,memory=512Mi" \\
  --ps_resource_limit="cpu=1,memory=1024Mi" \\
  --ps_pod_priority=high \\
  --minibatch_size=16 \\
  --num_minibatches_per_task=4 \\
  --num_ps_pods=2 \\
  --num_workers=4 \\
  --evaluation_steps=200 \\
  --grads_to_wait=1 \\
  --job_name=test-mnist \\
  --log_level=INFO \\
  --image_pull_policy=IfNotPresent \\
  --volume="mount_path=/data,claim_name=data" \\
  --log_loss_steps=10 --checkpoint_steps=50 --checkpoint_dir=/data/elasticdl/checkpoints"""
"""The tutorial's command. Other than there: sizes that fit the nodes, this cluster's claim, an image that no registry
has, and the last line."""

DEPLOYMENT = (
    'sed "s|IMAGE|$(kubectl get configmap tidewater -o jsonpath={.data.image})|" examples/elasticdl/nginx.yaml'
    " | kubectl create -f -"
)
"""As the documentation has it."""

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
        """Write the model zoo, choose the namespace, and make the priority classes."""
        self.run(f"kubectl config set-context --current --namespace={SPACE}")
        self.run("elasticdl zoo init model_zoo")
        shutil.copytree(HERE / "zoo" / "paced", self.path / "model_zoo" / "paced")
        file = self.path / "classes.yaml"
        file.write_text(yaml.safe_dump_all(CLASSES))
        self.run(f"kubectl apply -f {file}")  # the other example of elastic scheduling has the same ones

    def write_data(self) -> None:
        """Write real digits as RecordIO on the file system."""
        self.run("elasticdl data write digits /data/elasticdl/digits --in_pod --records_per_shard=500")

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
