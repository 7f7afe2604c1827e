"""ElasticJobs in the cluster of a checkout, made from `examples/elasticjob` or from a shell script.

apply(checkout, *example("mnist.yaml"))
mnist = Job(checkout.path, "mnist", NAMESPACE)
wait_for_world(mnist, 4)          # what the other helpers read of the stack's job, they read of this one
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.checkout import LONG_TRAINING, PATIENCE_SECONDS, ROOT, Checkout, wait_until
from tidewater.contract.code import runtime
from tidewater.elasticjob.names import JOBS
from tidewater.kube.kinds import NODES, PODS

NAMESPACE = "elastic-job"
EXAMPLES = ROOT / "examples" / "elasticjob"
WORKER_NODES = {"tidewater.dev/node-role": "worker"}
TOLERATION = {"key": "tidewater.dev/worker", "operator": "Exists", "effect": "NoSchedule"}

SHELL = "localcloud/shell:1"
PYTORCH = "localcloud/pytorch:2.14.1"
IMAGES = {
    "quay.io/coreos/etcd:v3.5.21": "localcloud/etcd:3.5.21",
    "nginx:1.28": SHELL,
    "torchelastic/examples:0.2.0rc1": PYTORCH,
    "example.com/my-training:1": PYTORCH,
}
"""Image of an example → the one in the nodes of the one-machine cloud that takes its place."""

CODE = "tidewater.zip"
"""Key in the ConfigMap `code`: the runtime as from a wheel, and the examples."""

SLEEP = """sh -c 'trap "exit 143" TERM; sleep 3600 & wait'"""
"""A worker's command that leaves at once when its pod is deleted. Most programs wait for the end of the grace period as
process 1 of a container, which ignores SIGTERM without a handler.
"""

NODE_GROUP = {"surgeNodes": "nodegroup", "workers": "1", "minWorkers": "1", "trainerArgs": LONG_TRAINING}
"""Settings of a stack with one node group for its worker nodes."""

Object = dict[str, Any]


@dataclass(frozen=True)
class Job(Checkout):
    """One ElasticJob in the checkout's cluster."""

    name: str
    space: str = NAMESPACE

    @property
    def namespace(self) -> str:
        """Return the job's namespace."""
        return self.space

    @property
    def named(self) -> str:
        """Return the arguments that name the job to kubectl."""
        return f"-n {self.space} elasticjob/{self.name}"

    def worker_pods(self) -> list[Object]:
        """Return the pods of type Worker, oldest first."""
        return self.pods("replica-type=worker")

    def pods(self, more: str = "") -> list[Object]:
        """Return the job's pods, oldest first."""
        selector = ",".join(filter(None, ["group-name=elastic.pytorch.org", f"job-name={self.name}", more]))
        return self.objects(PODS, self.space, selector)

    def read(self) -> Object:
        """Return the job as the API server has it."""
        return self.asked(lambda server: server.get(JOBS, self.name, self.space))

    def status(self) -> Object:
        """Return the job's status; {} before the controller has seen the job."""
        found: Object = self.read().get("status", {})
        return found

    def condition(self, kind: str) -> Object:
        """Return a condition; {} if the job has none of this type."""
        return next((each for each in self.status().get("conditions", []) if each["type"] == kind), {})

    def await_condition(self, kind: str, *, seconds: int = PATIENCE_SECONDS) -> Object:
        """Wait until a condition is True and return it."""
        self.run(f"kubectl wait {self.named} --for=condition={kind} --timeout={seconds}s")
        return self.condition(kind)

    def await_active(self, count: int, kind: str = "Worker") -> None:
        """Wait until the status counts this number of active pods of a replica type."""
        wait_until(
            f"{count} active {kind}s of {self.name}",
            lambda: self.status().get("replicaStatuses", {}).get(kind, {}).get("active", 0) == count,
        )

    def change(self, **spec: Any) -> None:
        """Set fields of the job's specification with `kubectl patch`."""
        self.run(f"kubectl patch {self.named} --type=merge -p '{json.dumps({'spec': spec})}'")

    def scale(self, count: int) -> None:
        """Set the number of workers with `kubectl scale`."""
        self.run(f"kubectl scale {self.named} --replicas={count}")


def make_stack(checkout: Checkout, settings: Mapping[str, str]) -> None:
    """Make the stack unless there is one, and the namespace of the tests' jobs."""
    if not checkout.has_stack():
        checkout.bring_up(settings)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    apply(checkout, namespace)


def make_room(checkout: Checkout, workers: int) -> None:
    """Have a stack with this number of worker nodes, and suspend its own job: others use them."""
    make_stack(checkout, NODE_GROUP)
    own = Job(checkout.path, checkout.outputs["jobName"], checkout.namespace)
    own.change(suspend=True)
    wait_until("no pods of the stack's job", lambda: not own.pods())
    scale_nodes(checkout, workers)


def apply(checkout: Checkout, *objects: Object) -> None:
    """Apply objects with kubectl."""
    file = checkout.path / "objects.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    checkout.run(f"kubectl apply -f {file}")


def adapt(checkout: Checkout, file: str, *objects: Object) -> None:
    """Write these objects into an example of the checkout, for commands that name its file."""
    (checkout.path / "examples" / "elasticjob" / file).write_text(yaml.safe_dump_all(objects))


def example(file: str) -> list[Object]:
    """Return the objects of an example, with images of the one-machine cloud.

    Jobs and Deployments run on the stack's worker nodes, which have no GPUs here.
    """
    found: list[Object] = list(yaml.safe_load_all((EXAMPLES / file).read_text()))
    for made in found:
        for pod in _pods(made):
            for container in pod["containers"]:
                container |= {"image": IMAGES[container["image"]], "imagePullPolicy": "IfNotPresent"}
                container.get("resources", {}).pop("limits", None)
            if made["kind"] != "Pod":
                pod |= {"nodeSelector": WORKER_NODES, "tolerations": [TOLERATION]}
    return found


def _pods(made: Object) -> Iterator[Object]:
    """Yield the specifications of the pods in an object."""
    spec = made.get("spec", {})
    if "containers" in spec:
        yield spec
    if "template" in spec:
        yield spec["template"]["spec"]
    for replica in spec.get("replicaSpecs", {}).values():
        yield replica["template"]["spec"]


def with_code(job: Object, command: list[str], arguments: list[str]) -> Object:
    """Give the workers of a job the code of the ConfigMap and a command; return the job."""
    pod = job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]
    container = pod["containers"][0]
    container |= {"command": command, "args": arguments}
    container["env"] = [
        {"name": "PYTHONPATH", "value": f"/code/{CODE}:/opt/site-packages"},
        {"name": "PYTHONUNBUFFERED", "value": "1"},
    ]
    container["volumeMounts"] = [{"name": "code", "mountPath": "/code"}]
    pod["volumes"] = [{"name": "code", "configMap": {"name": "code"}}]
    return job


def store_code(checkout: Checkout, *scripts: Path) -> None:
    """Make the ConfigMap `code`."""
    files = " ".join(f"--from-file={file}" for file in (_archive(checkout.path / CODE), *scripts))
    checkout.run(f"kubectl create configmap code -n {NAMESPACE} {files}")


def _archive(target: Path) -> Path:
    """Write the packages and their entry points as Python imports them from a zip file."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in runtime(ROOT).items():
            archive.writestr(name, content)
        for path in (ROOT / "examples" / "__init__.py", *sorted(EXAMPLES.glob("*.py"))):
            archive.write(path, path.relative_to(ROOT))
        archive.writestr("tidewater-0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tidewater\nVersion: 0\n")
        entry = "[torchrun.handlers]\netcd-v3 = tidewater.elastic.torchrun:creator\n"
        archive.writestr("tidewater-0.dist-info/entry_points.txt", entry)
    return target


def shell_job(name: str, script: str = "", **spec: Any) -> Object:
    """Return a job with one worker that runs a bash script. `spec` replaces fields of the job; None removes a field."""
    replica = {"replicas": 1, "template": {"spec": shell_pod(script)}}
    own = {"rdzvEndpoint": "nowhere:1", "launcher": "none", "replicaSpecs": {"Worker": replica}, **spec}
    return {
        "apiVersion": "elastic.pytorch.org/v1alpha1",
        "kind": "ElasticJob",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {field: value for field, value in own.items() if value is not None},
    }


def shell_pod(script: str, **container: Any) -> Object:
    """Return the specification of a pod that runs a bash script and ends within a second when it is deleted."""
    own = {"name": "elasticjob-worker", "image": SHELL, "command": ["bash", "-c", script], **container}
    return {"terminationGracePeriodSeconds": 1, "containers": [own]}


def scale_nodes(checkout: Checkout, count: int) -> None:
    """Set the size of the stack's worker node group, and wait for its nodes.

    Pulumi doesn't see it. A module before may have made the smallest size larger.
    """
    cluster, eks = checkout.outputs["clusterName"], checkout.client("eks")
    groups = eks.list_nodegroups(clusterName=cluster)["nodegroups"]
    group = next(name for name in groups if "-workers" in name)
    size = {"minSize": 1, "desiredSize": count}
    eks.update_nodegroup_config(clusterName=cluster, nodegroupName=group, scalingConfig=size)
    wait_until(f"{count} worker nodes", lambda: len(_ready_nodes(checkout)) == count)


def _ready_nodes(checkout: Checkout) -> list[str]:
    """Return the names of the worker nodes; [] while one of them isn't ready, or is being drained."""
    selector = ",".join(f"{key}={value}" for key, value in WORKER_NODES.items())
    nodes = checkout.objects(NODES, labels=selector)
    ready = [
        any(
            each["type"] == "Ready" and each["status"] == "True"
            for each in node.get("status", {}).get("conditions", ())
        )
        and not node["spec"].get("unschedulable")
        for node in nodes
    ]
    return [node["metadata"]["name"] for node in nodes] if all(ready) else []
