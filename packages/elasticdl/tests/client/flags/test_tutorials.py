"""The commands of ElasticDL's tutorials and of its example for PyTorch are taken as they are."""

from __future__ import annotations

import shlex

import pytest
from elasticdl.client.flags import commandline, table
from elasticdl.client.flags.request import Asked
from elasticdl.job import JobMode

SIZES = """
  --master_resource_request="cpu=0.2,memory=1024Mi" --master_resource_limit="cpu=1,memory=2048Mi"
  --worker_resource_request="cpu=0.4,memory=1024Mi" --worker_resource_limit="cpu=1,memory=2048Mi"
"""
MINIKUBE = f"""
  --image_name=elasticdl:mnist-run --model_zoo=model_zoo
  --model_def=mnist_functional_api.mnist_functional_api.custom_model
  --training_data=/data/mnist/train --validation_data=/data/mnist/test --num_epochs=2 {SIZES}
  --ps_resource_request="cpu=0.2,memory=1024Mi" --ps_resource_limit="cpu=1,memory=2048Mi"
  --minibatch_size=64 --num_minibatches_per_task=2 --num_ps_pods=1 --num_workers=1 --evaluation_steps=50
  --grads_to_wait=1 --job_name=test-mnist --log_level=INFO --image_pull_policy=Never
  --volume="host_path=/home/me/data,mount_path=/data" --distribution_strategy=ParameterServerStrategy
"""
PYTORCH = f"""
  --image_name=elasticdl/elasticdl:v1.0.0 --worker_image=elasticdl:mnist_pytorch
  --job_command="python -m model_zoo.mnist.mnist_pytorch --batch_size 64 --training_data=/data/mnist_png/training"
  --num_minibatches_per_task=2 --num_workers=2 {SIZES}
  --envs="USE_TORCH=true,HOROVOD_GLOO_TIMEOUT_SECONDS=60,PYTHONUNBUFFERED=true"
  --job_name=test-mnist-allreduce --image_pull_policy=Never
  --volume="host_path=/home/me/data,mount_path=/data" --distribution_strategy=AllreduceStrategy
"""
EXAMPLE = f"{PYTORCH} --worker_pod_priority=0.5 --custom_training_loop=true --need_elasticdl_job_service=true"


def asked(command: str) -> Asked:
    """Return what a command asks for; raise WrongCommand."""
    given, more = dict[str, str](), list[str]()
    for word in commandline.words(shlex.split(command)):
        name, _, value = word.removeprefix("--").partition("=")
        if name in table.known():
            given[name] = value
        else:
            more.append(word)
    return commandline.asked(JobMode.TRAIN, given, more)


@pytest.mark.parametrize("command", [MINIKUBE, PYTORCH, EXAMPLE], ids=["minikube", "pytorch", "example"])
def test_a_command_of_a_tutorial_is_taken(command: str) -> None:
    assert asked(command).args.job_name.startswith("test-mnist")


def test_a_share_alone_is_that_of_the_workers_with_high_priority() -> None:
    priority = asked(EXAMPLE).deployment.worker_pod_priority
    assert (priority.core, priority.surge, priority.share) == ("high", "low", 0.5)
