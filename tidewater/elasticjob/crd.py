"""The CustomResourceDefinition of ElasticJob, made from the model.

    json.dumps(crd.definition())       # what `tidewater install` prints and the stack applies

There is no copy of it in the repository: who needs a file writes this one.
"""

from __future__ import annotations

from tidewater.elasticjob import names, rules, schema
from tidewater.elasticjob.model import JobSpec, Status

_WORKER_SPEC = f".spec.replicaSpecs.{names.WORKER}"


def definition() -> dict[str, object]:
    """Return the manifest; the same for every call."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": names.CRD_NAME},
        "spec": {
            "group": names.GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": names.KIND,
                "listKind": names.LIST_KIND,
                "plural": names.PLURAL,
                "singular": names.SINGULAR,
                "shortNames": [names.SHORT_NAME],
                "categories": ["all"],
            },
            "versions": [_version()],
        },
    }


def _version() -> dict[str, object]:
    return {
        "name": names.VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _schema()},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": f"{_WORKER_SPEC}.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [
            _column("State", "string", ".status.state", "Where the job is in its life."),
            _column("Desired", "integer", f"{_WORKER_SPEC}.replicas", "Number of workers that is wanted."),
            _column("Active", "integer", f".status.replicaStatuses.{names.WORKER}.active", "Workers that run."),
            _column("Min", "integer", ".spec.minReplicas", "Fewest workers with which the training runs."),
            _column("Max", "integer", ".spec.maxReplicas", "Most workers."),
            _column("Waiting", "string", ".status.waiting", "What keeps workers that are wanted from running."),
            _column("Restarts", "integer", ".status.restarts", "Failures that were retried.", wide=True),
            _column("Queue", "string", ".spec.schedulingPolicy.queue", "Queue in which the job waits.", wide=True),
            _column("Age", "date", ".metadata.creationTimestamp", "Time since the job was created."),
        ],
    }


def _schema() -> dict[str, object]:
    """Return the schema of the whole object; of metadata only what the rules name, since Kubernetes knows the rest."""
    return {
        "type": "object",
        "description": "A training job. Its number of workers may change, between minReplicas and maxReplicas, while it"
        " runs.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object", "properties": {"name": {"type": "string"}}},
            "spec": schema.of(JobSpec, defaults=True),
            "status": schema.of(Status, defaults=False),
        },
        "x-kubernetes-validations": rules.of_object(),
    }


def _column(name: str, type_: str, path: str, text: str, *, wide: bool = False) -> dict[str, object]:
    """Return a column of `kubectl get`, or of `kubectl get -o wide` only."""
    column: dict[str, object] = {"name": name, "type": type_, "jsonPath": path, "description": text}
    return {**column, "priority": 1} if wide else column
