"""The command of ElasticDL's tutorial, and a stack's namespace to submit it to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elasticdl.client.flags import commandline
from elasticdl.client.flags.request import Asked
from elasticdl.job import JobMode

from tests.cli.fake import FakeCluster
from tidewater.contract.stack import CONFIG_MAP, Facts
from tidewater.kube.cluster import Object
from tidewater.kube.kinds import PODS, Kind

FACTS = Facts(
    bucket="stack-bucket",
    service_account="trainer",
    fetch_image="aws-cli:1",
    image="pytorch:2",
    etcd="http://etcd.training.svc:2379",
    data_claim="data",
    posix_id="1000",
)
CODE = "s3://stack-bucket/code/0123.tar"

COMMAND: Mapping[str, str] = {
    "model_zoo": "model_zoo",
    "model_def": "mnist.mnist_functional_api.custom_model",
    "training_data": "/data/mnist/train",
    "validation_data": "/data/mnist/test",
    "num_epochs": "5",
    "master_resource_request": "cpu=2,memory=2048Mi",
    "master_resource_limit": "cpu=2,memory=2048Mi",
    "master_pod_priority": "high",
    "worker_resource_request": "cpu=2,memory=2048Mi",
    "worker_resource_limit": "cpu=2,memory=2048Mi",
    "worker_pod_priority": "low",
    "ps_resource_request": "cpu=2,memory=2048Mi",
    "ps_resource_limit": "cpu=2,memory=2048Mi",
    "ps_pod_priority": "high",
    "minibatch_size": "64",
    "num_minibatches_per_task": "64",
    "num_ps_pods": "2",
    "num_workers": "4",
    "evaluation_steps": "200",
    "grads_to_wait": "1",
    "job_name": "test-mnist",
    "log_level": "INFO",
    "image_pull_policy": "Always",
    "volume": "mount_path=/data,claim_name=fileserver-claim",
}
"""The flags of the tutorial's command, but for the image."""


class Cluster(FakeCluster):
    """A cluster in memory, to which pods are shown before a job is made."""

    def create(self, kind: Kind, object: Object, *, dry_run: bool = False) -> Object:
        """Create an object; of pods only say whether that would be possible."""
        if kind != PODS:
            return super().create(kind, object, dry_run=dry_run)
        assert dry_run
        self._may("create", kind)
        return object


def asked(without: tuple[str, ...] = (), /, **changed: str) -> Asked:
    """Return what the tutorial's command asks for, with some flags changed, added or left out."""
    given = {name: text for name, text in {**COMMAND, **changed}.items() if name not in without}
    return commandline.asked(JobMode.TRAIN, given, [])


def config_map(namespace: str = "training") -> dict[str, Any]:
    """Return the ConfigMap of a stack."""
    return {"metadata": {"name": CONFIG_MAP, "namespace": namespace}, "data": FACTS.data}


def zoo(folder: Path) -> str:
    """Write the zoo that the tutorial's command names; return its folder."""
    module = folder / "model_zoo" / "mnist" / "mnist_functional_api.py"
    module.parent.mkdir(parents=True)
    functions = ("custom_model", "loss", "optimizer", "feed", "eval_metrics_fn")
    module.write_text("\n".join(f"def {name}(*arguments): ...\n" for name in functions))
    return str(folder / "model_zoo")
