"""The schema of a pod template: what the API server validates when a job is written.

    pod_template.schema()                    # for the definition
    pod_template.check(template, "spec.replicaSpecs[Worker].template", one_trains=True)    # raises InvalidJob

Declared are the parts that the rules reason about and those that people mistype most. Everything else is kept as it
is, and validated when the first pod is made. A template may also have the `apiVersion` and `kind` of a pod, as those
of the old controller's samples do.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidewater.elasticjob import names
from tidewater.elasticjob.errors import InvalidJob

MOST_CONTAINERS = 64


def check(template: Mapping[str, object], path: str, *, one_trains: bool) -> None:
    """Raise InvalidJob for a template without containers, or if it must be clear which one trains and isn't.

    Args:
        template: The pod template.
        path: Where the template is, for the message.
        one_trains: Whether it must be clear: the launcher adds something to that container alone. It is the one named
            elasticjob-worker, or the only one.
    """
    spec = template.get("spec")
    containers = spec.get("containers") if isinstance(spec, Mapping) else None
    if not isinstance(containers, list) or not containers:
        raise InvalidJob(f"{path}.spec.containers", "must be a list of at least one container")
    found = []
    for index, container in enumerate(containers):
        name = container.get("name") if isinstance(container, Mapping) else None
        if not isinstance(name, str) or not name:
            raise InvalidJob(f"{path}.spec.containers[{index}].name", "must be a text that is not empty")
        found.append(name)
    named = found.count(names.WORKER_CONTAINER)
    if named > 1 or (one_trains and len(found) > 1 and not named):
        problem = f"exactly one must be named {names.WORKER_CONTAINER}, and these are {', '.join(found)}"
        raise InvalidJob(f"{path}.spec.containers", problem)


def schema() -> Mapping[str, object]:
    """Return the schema of a pod template."""
    metadata = _open(
        "Labels and annotations of the pods, in addition to the controller's.",
        labels={"type": "object", "additionalProperties": _text()},
        annotations={"type": "object", "additionalProperties": _text()},
    )
    return {**_open("", metadata=metadata, spec=_pod_spec()), "required": ["spec"]}


def _pod_spec() -> dict[str, object]:
    containers = {**_containers("Containers of the pod."), "minItems": 1}
    return {
        **_open(
            "Spec of the pods, as in a Pod. Fields that are not described here are kept as they are.",
            containers=containers,
            initContainers=_containers("Containers that run one after the other before the others start."),
            restartPolicy={
                **_one_of("Always", "OnFailure", "Never", ""),
                "description": "Ignored: the restartPolicy of the replica type applies.",
            },
            nodeSelector={"type": "object", "additionalProperties": _text()},
            affinity=_open("Which nodes and which neighbours the pods prefer or need."),
            tolerations=_list_of(_open("A taint with which the pods put up.", key=_text(), value=_text())),
            volumes=_list_of(_named("A volume of the pod.")),
            imagePullSecrets=_list_of(_open("A secret for a registry.", name=_text())),
            serviceAccountName=_text(),
            priorityClassName=_text(),
            schedulerName=_text(),
            runtimeClassName=_text(),
            hostNetwork={"type": "boolean"},
            terminationGracePeriodSeconds={"type": "integer", "format": "int64", "minimum": 0},
        ),
        "required": ["containers"],
    }


def _containers(text: str) -> dict[str, object]:
    return {
        "type": "array",
        "description": text,
        "items": _container(),
        "maxItems": MOST_CONTAINERS,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    }


def _container() -> dict[str, object]:
    name = {"type": "string", "minLength": 1, "maxLength": names.LONGEST_NAME, "pattern": names.DNS_LABEL}
    return {
        **_open(
            "A container, as in a Pod.",
            name=name,
            image=_name(),
            command=_list_of(_text()),
            args=_list_of(_text()),
            workingDir=_text(),
            env=_list_of(_named("An environment variable.", value=_text())),
            envFrom=_list_of(_open("A source of environment variables.")),
            ports=_list_of(_port()),
            resources=_open("What the container requests and may use.", limits=_open(""), requests=_open("")),
            volumeMounts=_list_of(_mount()),
            imagePullPolicy=_one_of("Always", "IfNotPresent", "Never", ""),
        ),
        "required": ["image", "name"],
    }


def _port() -> dict[str, object]:
    number = {"type": "integer", "format": "int32", "minimum": 1, "maximum": 65535}
    return {**_open("A port of the container.", containerPort=number), "required": ["containerPort"]}


def _mount() -> dict[str, object]:
    return {**_named("Where a volume appears.", mountPath=_name()), "required": ["mountPath", "name"]}


def _open(text: str, **properties: object) -> dict[str, object]:
    """Return the schema of an object that may have other properties than these."""
    return {
        "type": "object",
        **({"description": text} if text else {}),
        **({"properties": properties} if properties else {}),
        "x-kubernetes-preserve-unknown-fields": True,
    }


def _named(text: str, **properties: object) -> dict[str, object]:
    """Return the schema of an object that has a name and may have other properties than these."""
    return {**_open(text, name=_name(), **properties), "required": ["name"]}


def _list_of(items: Mapping[str, object]) -> dict[str, object]:
    return {"type": "array", "items": items}


def _one_of(*values: str) -> dict[str, object]:
    return {"type": "string", "enum": list(values)}


def _text() -> dict[str, object]:
    return {"type": "string"}


def _name() -> dict[str, object]:
    return {"type": "string", "minLength": 1}
