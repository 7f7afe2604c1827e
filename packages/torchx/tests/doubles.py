"""A cluster in memory that also knows pods and what they refer to, applications, pods in every state, and a Docker."""

from __future__ import annotations

import copy
import tarfile
from collections.abc import Sequence
from typing import Any

from torchx.specs import AppDef, BindMount, Resource, Role, macros

from tests.cli.fake import FakeCluster
from tidewater.contract.stack import CONFIG_MAP, Facts
from tidewater.elasticjob import codec, names
from tidewater.elasticjob.errors import InvalidJob
from tidewater.elasticjob.names import JOBS
from tidewater.kube.cluster import ALL_NAMESPACES, Object, Selection
from tidewater.kube.errors import error_of
from tidewater.kube.kinds import CONFIG_MAPS, PODS, Kind

FACTS = Facts(
    bucket="stack-bucket",
    service_account="trainer",
    fetch_image="aws-cli:1",
    image="trainer:1",
    etcd="http://etcd.training.svc:2379",
    data_claim="shared",
    posix_id="1000",
)

FINISHED = "2026-03-01T12:00:30Z"


class KubernetesInMemory(FakeCluster):
    """A `FakeCluster` with pods that can be tried, and jobs that are read as the controller reads them."""

    def __init__(self, namespace: str = "training") -> None:
        super().__init__(namespace=namespace)
        self.refused_pods: dict[str, str] = {}
        """What the API server says of pods of these images."""

    def create(self, kind: Kind, object: Object, *, dry_run: bool = False) -> Object:
        """Create a job as `FakeCluster` does, if the contract's own reader accepts it; try a pod."""
        if kind == JOBS:
            try:
                codec.job_of(object)
            except InvalidJob as error:
                raise error_of(422, "Invalid", str(error)) from error
            made = super().create(kind, object, dry_run=dry_run)
            return {**made, "metadata": {"generation": 1, **made["metadata"]}}
        self._may("create", kind)
        self.sent.append(("try" if dry_run else "create", copy.deepcopy(object)))
        image = object["spec"]["containers"][0]["image"]
        if image in self.refused_pods:
            raise error_of(403, "Forbidden", self.refused_pods[image])
        return object

    def put_facts(self, facts: Facts = FACTS) -> None:
        """Let a stack say what it has."""
        self.put(CONFIG_MAPS, {"metadata": {"name": CONFIG_MAP}, "data": facts.data})

    def job(self, app_id: str) -> Object:
        """Return the job of an application."""
        namespace, _, name = app_id.partition(":")
        return self.get(JOBS, name, namespace)

    def become(self, app_id: str, state: str, *pods: Object) -> None:
        """Let the controller and the kubelets write what became of an application."""
        job = self.job(app_id)
        for each in pods:
            each["metadata"]["namespace"] = job["metadata"]["namespace"]
            self.put(PODS, each)
        self.put(JOBS, {**job, "status": {"observedGeneration": 9, "state": state}})

    def end_streams(self) -> None:
        """Let threads end that still follow a log or a job."""
        for name in list(self.logs):
            self.close(name)
        for job in self.list(JOBS, Selection(ALL_NAMESPACES)).items:
            self.put(JOBS, job)

    def created(self) -> list[Object]:
        """Return what was created or tried, in order."""
        return [body for verb, body in self.sent if verb in ("create", "try")]


def role(name: str = "trainer", **fields: Any) -> Role:
    """Return a role that runs a program."""
    own: dict[str, Any] = {
        "image": "img:1",
        "entrypoint": "train",
        "resource": Resource(cpu=2, gpu=0, memMB=3000),
        **fields,
    }
    return Role(name=name, **own)


def app(*roles: Role, name: str = "app") -> AppDef:
    """Return an application; by default of one role."""
    return AppDef(name, list(roles) or [role()])


def complete() -> AppDef:
    """Return an application with everything that those of TorchX's own tests have."""
    return app(
        role(
            "trainer_foo",
            entrypoint="main",
            args=["--out", macros.img_root, "--app-id", macros.app_id, "--rank0-env", macros.rank0_env],
            env={"FOO": "bar", "IP": "[FIELD_PATH]status.podIP"},
            port_map={"foo": 1234},
            max_retries=3,
            mounts=[BindMount(src_path="/src", dst_path="/dst", read_only=True)],
        ),
        name="test",
    )


def pod(job: str, index: int = 0, *, type: str = names.WORKER, **status: Any) -> Object:
    """Return a pod of a job that runs, or is as `status` says."""
    name = names.pod_name(job, type, index)
    running = {
        "phase": "Running",
        "podIP": "10.0.0.1",
        "containerStatuses": [{"name": names.WORKER_CONTAINER, "restartCount": 0, "state": {"running": {}}}],
    }
    return {
        "metadata": {"name": name, "labels": dict(names.pod_labels(job, type, index))},
        "spec": {"containers": [{"name": names.WORKER_CONTAINER}]},
        "status": {**running, **status},
    }


def ended(exit_code: int, *, reason: str = "", finished: str = FINISHED, **status: Any) -> dict[str, Any]:
    """Return the status of a pod after its container has ended."""
    terminated = {
        "exitCode": exit_code,
        "reason": reason or ("Error" if exit_code else "Completed"),
        "finishedAt": finished,
    }
    container = {"name": names.WORKER_CONTAINER, "restartCount": 0, "state": {"terminated": terminated}}
    return {"phase": "Failed" if exit_code else "Succeeded", "containerStatuses": [container], **status}


class Images:
    """The images of a Docker daemon, as far as TorchX's code asks for them."""

    def __init__(self) -> None:
        self.built: list[dict[str, Any]] = []
        self.pushed: list[str] = []
        self._image = self._tag = ""

    @property
    def images(self) -> Images:
        return self

    @property
    def api(self) -> Images:
        return self

    def list(self, name: str) -> Sequence[Any]:
        return []

    def pull(self, image: str) -> None:
        """Succeed."""

    def build(self, **options: Any) -> Sequence[dict[str, Any]]:
        with tarfile.open(fileobj=options["fileobj"]) as context:
            self.built.append({"files": context.getnames(), **options["buildargs"]})
        return [{"aux": {"ID": "sha256:0123"}}]

    def get(self, image: str) -> Images:
        self._image = image
        return self

    def tag(self, repository: str, tag: str) -> None:
        self._tag = f"{repository}:{tag}"

    def push(self, repository: str, tag: str, **options: Any) -> Sequence[dict[str, str]]:
        assert self._tag == f"{repository}:{tag}"
        self.pushed.append(f"{self._image} as {repository}:{tag}")
        return [{"status": "pushed"}]
