"""The stack's outputs: what people and scripts need to work with it, and a ConfigMap for tools that submit jobs."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

import settings
from infra.outputs import POSIX_ID, TRAINER_SERVICE_ACCOUNT
from settings import prices
from tidewater.contract import labels
from tidewater.contract.stack import CONFIG_MAP, Facts
from workloads import objects
from workloads.etcd import manifests as etcd
from workloads.manifests import Manifest, Text, metadata
from workloads.storage import CLAIM, LUSTRE_CLAIM


def selector(job: str) -> str:
    """Return the label selector of the worker pods of `job`."""
    return labels.selector(labels.worker_pods(job))


def next_steps(namespace: str, job: str, workers: settings.Workers) -> str:
    """Return the commands to run next, each with what it does."""
    pods = f"-n {namespace} -l {labels.JOB}={job}"
    size = min(3 * workers.per_replica, workers.maximum)
    steps = {
        f"kubectl logs {pods} --prefix --tail=5 -f": "watch it train",
        f"kubectl get ej -n {namespace} {job}": "see the job: its state and its size",
        f"kubectl get pods {pods} -o wide": "see its workers",
        f"pulumi config set workers {size} && pulumi up --yes": "resize it while it trains",
        "pulumi destroy --yes": "take it all down",
    }
    width = max(map(len, steps))
    return "\n".join(f"{command:{width}}  # {purpose}" for command, purpose in steps.items())


@dataclass(frozen=True)
class Exported:
    """Outputs that are known only after the resources are made."""

    kubeconfig: pulumi.Input[str]
    bucket: pulumi.Input[str]
    file_system_id: pulumi.Input[str]
    code_uri: pulumi.Input[str]
    trainer_role_arn: pulumi.Input[str]
    prometheus: pulumi.Input[str] | None


def facts_manifest(training: settings.Training, bucket: Text, *, lustre: bool = False) -> Manifest:
    """Return the ConfigMap; Pulumi knows the name of the stack's bucket once that is made.

    In the namespace of a team `bucket` is empty: its pods may not read the folder for code.
    """
    proxy = training.proxy
    facts = Facts(
        bucket=bucket,  # type: ignore[arg-type] # becomes text before the object is sent
        service_account=TRAINER_SERVICE_ACCOUNT,
        fetch_image=training.images.fetch,
        image=training.images.trainer,
        etcd=etcd.endpoint(training.namespace),
        data_claim=CLAIM,
        posix_id=str(POSIX_ID),
        lustre_claim=LUSTRE_CLAIM if lustre else "",
        http_proxy=proxy.url if proxy else "",
        no_proxy=",".join(proxy.direct) if proxy else "",
    )
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(CONFIG_MAP, {labels.NAME: labels.APPLICATION}, namespace=training.namespace),
        "data": facts.data,
    }


@dataclass(frozen=True)
class StackFactsArgs:
    """The training settings, the name of the stack's bucket, and whether there is a file system of Lustre."""

    training: settings.Training
    bucket: pulumi.Input[str]
    lustre: bool = False


class StackFacts(pulumi.ComponentResource):
    """The ConfigMap that shows the stack's bucket, etcd and images to TorchX's plug-in and ElasticDL's client."""

    def __init__(self, name: str, args: StackFactsArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:workloads:StackFacts", name, None, opts)
        manifest = facts_manifest(args.training, args.bucket, lustre=args.lustre)
        objects.register(manifest, opts=pulumi.ResourceOptions(parent=self))
        self.register_outputs({})


def export(stack: settings.Settings, made: Exported, opts: pulumi.ResourceOptions) -> None:
    """Export the outputs, and write those into the cluster that tools read there, with these options.

    To use the kubeconfig: `pulumi stack output kubeconfig --show-secrets`.
    """
    wanted = stack.training
    StackFacts(wanted.namespace, StackFactsArgs(wanted, made.bucket, stack.lustre is not None), opts)
    pulumi.export("clusterName", stack.cluster_name)
    pulumi.export("kubeconfig", pulumi.Output.secret(made.kubeconfig))
    pulumi.export("namespace", wanted.namespace)
    pulumi.export("jobName", wanted.job)
    pulumi.export("workerSelector", selector(wanted.job))
    pulumi.export("bucket", made.bucket)
    pulumi.export("codeUri", made.code_uri)
    pulumi.export("fileSystemId", made.file_system_id)
    pulumi.export("trainerRoleArn", made.trainer_role_arn)
    pulumi.export("etcdEndpoint", etcd.endpoint(wanted.namespace))
    pulumi.export("hourlyCost", prices.hourly(stack))
    if made.prometheus is not None:
        pulumi.export("prometheus", made.prometheus)
    pulumi.export("next", next_steps(wanted.namespace, wanted.job, stack.workers))
