"""The stack's outputs: what people and scripts need to go on."""

from __future__ import annotations

import pulumi

import settings
from contract import labels
from infra.outputs import ClusterOutputs
from workloads import etcd


def selector(job: str) -> str:
    """Label selector of the worker pods of `job`."""
    return labels.selector(labels.worker_pods(job))


def next_steps(namespace: str, job: str, maximum: int) -> str:
    """What to run now: commands, each with what it does."""
    pods = f"-n {namespace} -l {labels.JOB}={job}"
    steps = {
        f"kubectl logs {pods} --prefix --tail=5 -f": "watch it train",
        f"kubectl get pods {pods} -o wide": "see the workers",
        f"pulumi config set workers {min(3, maximum)} && pulumi up --yes": "resize it while it trains",
        "pulumi destroy --yes": "take it all down",
    }
    width = max(map(len, steps))
    return "\n".join(f"{command:{width}}  # {purpose}" for command, purpose in steps.items())


def export(stack: settings.Settings, cluster: ClusterOutputs, code_uri: pulumi.Input[str]) -> None:
    """Exports the outputs. To use the kubeconfig: `pulumi stack output kubeconfig --show-secrets`."""
    wanted = stack.training
    pulumi.export("clusterName", cluster.name)
    pulumi.export("kubeconfig", pulumi.Output.secret(cluster.kubeconfig))
    pulumi.export("namespace", wanted.namespace)
    pulumi.export("jobName", wanted.job)
    pulumi.export("workerSelector", selector(wanted.job))
    pulumi.export("bucket", cluster.bucket)
    pulumi.export("codeUri", code_uri)
    pulumi.export("fileSystemId", cluster.file_system_id)
    pulumi.export("etcdEndpoint", etcd.endpoint(wanted.namespace))
    pulumi.export("next", next_steps(wanted.namespace, wanted.job, stack.workers.maximum))
