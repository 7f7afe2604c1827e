"""The stack's outputs: what people and scripts need to work with it."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

import settings
from contract import labels
from workloads import etcd


def selector(job: str) -> str:
    """Return the label selector of the worker pods of `job`."""
    return labels.selector(labels.worker_pods(job))


def next_steps(namespace: str, job: str, maximum: int) -> str:
    """Return the commands to run next, each with what it does."""
    pods = f"-n {namespace} -l {labels.JOB}={job}"
    steps = {
        f"kubectl logs {pods} --prefix --tail=5 -f": "watch it train",
        f"kubectl get ej -n {namespace} {job}": "see the job: its state and its size",
        f"kubectl get pods {pods} -o wide": "see its workers",
        f"pulumi config set workers {min(3, maximum)} && pulumi up --yes": "resize it while it trains",
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
    prometheus: pulumi.Input[str] | None


def export(stack: settings.Settings, made: Exported) -> None:
    """Export the outputs. To use the kubeconfig: `pulumi stack output kubeconfig --show-secrets`."""
    wanted = stack.training
    pulumi.export("clusterName", stack.name)
    pulumi.export("kubeconfig", pulumi.Output.secret(made.kubeconfig))
    pulumi.export("namespace", wanted.namespace)
    pulumi.export("jobName", wanted.job)
    pulumi.export("workerSelector", selector(wanted.job))
    pulumi.export("bucket", made.bucket)
    pulumi.export("codeUri", made.code_uri)
    pulumi.export("fileSystemId", made.file_system_id)
    pulumi.export("etcdEndpoint", etcd.endpoint(wanted.namespace))
    if made.prometheus is not None:
        pulumi.export("prometheus", made.prometheus)
    pulumi.export("next", next_steps(wanted.namespace, wanted.job, stack.workers.maximum))
