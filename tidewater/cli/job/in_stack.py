"""A job from flags in the namespace of a stack or of one of its teams, as TorchX's plug-in makes one too.

    facts = facts_of(session)                     # None: there is no stack
    job = placed(job, facts)

Such a namespace accepts only pods without privileges, and the stack's worker nodes only pods that are meant for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tidewater.cli.errors import UsageError
from tidewater.cli.job.manifest import Flags
from tidewater.cli.session import Session
from tidewater.contract import stack
from tidewater.contract.pod_defaults import confined
from tidewater.contract.stack import CONFIG_MAP, Facts
from tidewater.elasticjob import names
from tidewater.elasticjob.model import Launcher
from tidewater.kube.cluster import Object
from tidewater.kube.errors import Forbidden, NoAccess, NotFound
from tidewater.kube.kinds import CONFIG_MAPS

UNKNOWN_USER = {"HOME": "/tmp", "USER": "tidewater"}
"""Variables of pods that run as a user that the image doesn't know: libraries ask for both."""


def facts_of(session: Session) -> Facts | None:
    """Return what the stack in the command's namespace says of itself; None if there is none, or it can't be asked.

    Raises:
        UsageError: the stack is of another version.
    """
    try:
        namespace = session.target.namespace or session.cluster.namespace
        data = session.cluster.get(CONFIG_MAPS, CONFIG_MAP, namespace).get("data") or {}
    except (NotFound, Forbidden, NoAccess):
        return None
    try:
        return Facts.of(data)
    except KeyError as error:
        raise UsageError(
            f"ConfigMap {CONFIG_MAP} in namespace {namespace} says nothing of {error}: the stack is of another version",
            "Bring the stack and this command to the same version, or submit a manifest: -f FILE.",
        ) from None


def met(flags: Flags, facts: Facts) -> Flags:
    """Return the flags with the stack's etcd as meeting point, if the launcher needs one and none is named."""
    needs = flags.launcher in (Launcher.TIDEWATER, Launcher.TORCHELASTIC) and not flags.rdzv_endpoint
    return replace(flags, rdzv_endpoint=facts.etcd) if needs else flags


def placed(job: Object, facts: Facts) -> Object:
    """Return a job with pods that the stack's namespace accepts, on its nodes or a pool, with its files."""
    worker = job["spec"]["replicaSpecs"][names.WORKER]
    pod = worker["template"]["spec"]
    init = pod.get("initContainers", ())
    mounts = [{"name": path.strip("/"), "mountPath": path} for path in facts.claims]
    claims = zip(mounts, facts.claims.values(), strict=True)
    volumes = [{"name": at["name"], "persistentVolumeClaim": {"claimName": claim}} for at, claim in claims]
    spec = {
        **pod,
        "serviceAccountName": facts.service_account,
        "nodeSelector": pod.get("nodeSelector", dict(stack.WORKER_NODES)),
        "tolerations": stack.tolerations(),
        "securityContext": stack.non_root(int(facts.posix_id)),
        **({"initContainers": [_with(each, facts.variables) for each in init]} if init else {}),
        "containers": [_confined(_with(each, facts.variables), mounts) for each in pod["containers"]],
        "volumes": [*pod.get("volumes", ()), *volumes],
    }
    template = {**worker["template"], "spec": spec}
    specs = {**job["spec"]["replicaSpecs"], names.WORKER: {**worker, "template": template}}
    return {**job, "spec": {**job["spec"], "replicaSpecs": specs}}


def _with(container: Object, variables: Mapping[str, str]) -> Object:
    """Return the container with variables that it doesn't set itself."""
    own = container.get("env", [])
    more = [{"name": name, "value": variables[name]} for name in variables.keys() - {each["name"] for each in own}]
    return {**container, "env": [*own, *sorted(more, key=lambda each: each["name"])]} if more else container


def _confined(container: Object, mounts: list[Object]) -> Object:
    """Return the container without privileges. An image of people's may write to its own file system."""
    given = {each["name"]: each["value"] for each in container.get("env", ())}
    rights = {key: value for key, value in confined().items() if key != "readOnlyRootFilesystem"}
    return {
        **container,
        "env": [{"name": name, "value": value} for name, value in {**UNKNOWN_USER, **given}.items()],
        "securityContext": rights,
        "volumeMounts": [*container.get("volumeMounts", ()), *map(dict, mounts)],
    }
