"""Mistakes in a job, with what the API server must say of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tests.elasticjob.manifests import ABSENT, POD, WORKER, container, replica


@dataclass(frozen=True)
class Mistake:
    """A change that makes a valid job invalid.

    Args:
        name: Of the test case.
        changes: To imagenet.
        field: The field that the refusal names, with dots only.
        says: A part of the sentence.
        read: Whether the controller's reader refuses it too. What it can live with, or what concerns only the pods'
            other fields, it leaves to the API server.
    """

    name: str
    changes: Mapping[str, object]
    field: str
    says: str
    read: bool = True


_REPLICAS = "spec.replicaSpecs.Worker.replicas"
_CONTAINERS = "spec.replicaSpecs.Worker.template.spec.containers"

MISTAKES = (
    Mistake(
        "min-above-max",
        {"spec/minReplicas": 4},
        "spec.minReplicas",
        "minReplicas (4) must not be above maxReplicas (3).",
    ),
    Mistake(
        "replicas-below-min",
        {"spec/minReplicas": 3},
        _REPLICAS,
        "replicaSpecs.Worker.replicas (2) must not be below minReplicas (3).",
        read=False,
    ),
    Mistake(
        "replicas-above-max",
        {f"{WORKER}/replicas": 4},
        _REPLICAS,
        "replicaSpecs.Worker.replicas (4) must not be above maxReplicas (3).",
        read=False,
    ),
    Mistake(
        "default-replicas-below-min",
        {f"{WORKER}/replicas": ABSENT, "spec/minReplicas": 2},
        _REPLICAS,
        "replicas (1) must not be below",
        read=False,
    ),
    Mistake(
        "zero-workers", {f"{WORKER}/replicas": 0, "spec/minReplicas": ABSENT}, _REPLICAS, "replicas must be at least 1"
    ),
    Mistake("negative-workers", {f"{WORKER}/replicas": -1}, _REPLICAS, "greater than or equal to 0"),
    Mistake(
        "workers-beyond-any-cluster",
        {f"{WORKER}/replicas": 5001, "spec/maxReplicas": ABSENT},
        _REPLICAS,
        "less than or equal to 5000",
    ),
    Mistake("workers-as-text", {f"{WORKER}/replicas": "2"}, _REPLICAS, "must be of type integer"),
    Mistake("min-zero", {"spec/minReplicas": 0}, "spec.minReplicas", "greater than or equal to 1"),
    Mistake(
        "no-worker",
        {"spec/replicaSpecs": {"Master": replica("a")}},
        "spec.replicaSpecs",
        "must contain the replica type Worker",
    ),
    Mistake("no-types", {"spec/replicaSpecs": ABSENT}, "spec.replicaSpecs", "Required value"),
    Mistake("no-spec", {"spec": ABSENT}, "spec", "Required value"),
    Mistake(
        "too-many-types",
        {"spec/replicaSpecs": {name: replica("a") for name in ("Worker", *"ABCDEFGH")}},
        "spec.replicaSpecs",
        "must have at most 8 items",
        read=False,
    ),
    Mistake(
        "worker-in-lower-case",
        {"spec/replicaSpecs": {"worker": replica("a")}},
        "spec.replicaSpecs",
        "must contain the replica type Worker",
    ),
    Mistake(
        "worker-twice",
        {"spec/replicaSpecs/worker": replica("a")},
        "spec.replicaSpecs",
        "must not differ only in the case of letters",
    ),
    Mistake(
        "types-that-differ-only-in-case",
        {"spec/replicaSpecs/PS2": replica("a"), "spec/replicaSpecs/Ps2": replica("a")},
        "spec.replicaSpecs",
        "must not differ only in the case of letters",
    ),
    Mistake(
        "type-that-begins-with-a-digit",
        {"spec/replicaSpecs/2nd": replica("a")},
        "spec.replicaSpecs",
        "must begin with a letter",
    ),
    Mistake("type-with-a-dash", {"spec/replicaSpecs/Ps-0": replica("a")}, "spec.replicaSpecs", "letters and digits"),
    Mistake("type-too-long", {f"spec/replicaSpecs/P{'s' * 40}": replica("a")}, "spec.replicaSpecs", "at most 40"),
    Mistake(
        "type-without-a-name",
        {"spec/replicaSpecs/": replica("a")},
        "spec.replicaSpecs",
        "must begin with a letter",
    ),
    Mistake(
        "minimum-of-workers-in-the-wrong-place",
        {f"{WORKER}/minReplicas": 1},
        "spec.replicaSpecs.Worker.minReplicas",
        "Set spec.minReplicas.",
        read=False,
    ),
    Mistake(
        "maximum-of-workers-in-the-wrong-place",
        {f"{WORKER}/maxReplicas": 2},
        "spec.replicaSpecs.Worker.maxReplicas",
        "Set spec.maxReplicas.",
        read=False,
    ),
    Mistake(
        "other-type-below-its-min",
        {"spec/replicaSpecs/PS": replica("a", replicas=1, minReplicas=2)},
        "spec.replicaSpecs.PS.replicas",
        "replicas (1) must not be below minReplicas (2).",
        read=False,
    ),
    Mistake(
        "other-type-above-its-max",
        {"spec/replicaSpecs/PS": replica("a", replicas=3, maxReplicas=2)},
        "spec.replicaSpecs.PS.replicas",
        "replicas (3) must not be above maxReplicas (2).",
        read=False,
    ),
    Mistake(
        "two-worker-containers",
        {f"{POD}/containers": [container("elasticjob-worker")] * 2, "spec/launcher": "torchrun"},
        _CONTAINERS,
        "must be named elasticjob-worker",
    ),
    Mistake(
        "none-of-the-containers-trains",
        {f"{POD}/containers": [container("train"), container("sidecar")], "spec/launcher": "torchrun"},
        _CONTAINERS,
        "Exactly one of the containers",
    ),
    Mistake("no-containers", {f"{POD}/containers": []}, _CONTAINERS, "at least 1 item"),
    Mistake("containers-as-text", {f"{POD}/containers": "trainer"}, _CONTAINERS, "must be of type array"),
    Mistake("no-list-of-containers", {f"{POD}/containers": ABSENT}, _CONTAINERS, "Required value"),
    Mistake(
        "container-without-image",
        {f"{POD}/containers/0/image": ABSENT},
        f"{_CONTAINERS}[0].image",
        "Required value",
        read=False,
    ),
    Mistake(
        "container-with-empty-image",
        {f"{POD}/containers/0/image": ""},
        f"{_CONTAINERS}[0].image",
        "at least 1 char",
        read=False,
    ),
    Mistake("container-without-name", {f"{POD}/containers/0/name": ABSENT}, f"{_CONTAINERS}[0].name", "Required value"),
    Mistake(
        "container-with-a-bad-name",
        {f"{POD}/containers/0/name": "My Worker"},
        f"{_CONTAINERS}[0].name",
        "should match",
        read=False,
    ),
    Mistake(
        "argument-that-is-a-number",
        {f"{POD}/containers/0/args": [1]},
        f"{_CONTAINERS}[0].args[0]",
        "must be of type string",
        read=False,
    ),
    Mistake(
        "environment-that-is-a-number",
        {f"{POD}/containers/0/env": [{"name": "A", "value": 1}]},
        f"{_CONTAINERS}[0].env[0].value",
        "must be of type string",
        read=False,
    ),
    Mistake(
        "template-without-spec",
        {f"{WORKER}/template": {}},
        "spec.replicaSpecs.Worker.template.spec",
        "Required value",
        read=False,
    ),
    Mistake("no-template", {f"{WORKER}/template": ABSENT}, "spec.replicaSpecs.Worker.template", "Required value"),
    Mistake(
        "name-that-is-no-value-of-a-label",
        {"metadata/name": "a" * 64},
        "metadata.name",
        "must have at most 63 characters",
        read=False,
    ),
    Mistake(
        "two-pods-of-the-same-name",
        {"spec/replicaSpecs/PS": replica("a", podNames="Single", replicas=2, maxReplicas=1)},
        "spec.replicaSpecs.PS.replicas",
        "replicas (2) must be at most 1, since podNames is Single",
        read=False,
    ),
    Mistake(
        "single-pod-that-may-become-two",
        {"spec/replicaSpecs/PS": replica("a", podNames="Single", maxReplicas=2)},
        "spec.replicaSpecs.PS.maxReplicas",
        "maxReplicas (2) must be at most 1, since podNames is Single",
        read=False,
    ),
    Mistake(
        "single-worker-that-may-become-three",
        {f"{WORKER}/replicas": 1, f"{WORKER}/podNames": "Single"},
        "spec.maxReplicas",
        "maxReplicas (3) must be 1, since replicaSpecs.Worker.podNames is Single.",
        read=False,
    ),
    Mistake(
        "unknown-pod-names", {f"{WORKER}/podNames": "Random"}, "spec.replicaSpecs.Worker.podNames", "Unsupported value"
    ),
    Mistake(
        "meeting-at-a-worker-that-is-not-replaced-by-name",
        {f"{WORKER}/podNames": "Successive", "spec/rdzvEndpoint": "imagenet-worker-0:29400"},
        "spec.rdzvEndpoint",
        "must not name a worker",
        read=False,
    ),
    Mistake(
        "index-label-of-the-controller",
        {f"{WORKER}/indexLabel": "job-name"},
        "spec.replicaSpecs.Worker.indexLabel",
        "must not be a label that the controller sets: app.kubernetes.io/component,",
        read=False,
    ),
    Mistake(
        "index-label-with-the-controllers-prefix",
        {f"{WORKER}/indexLabel": "tidewater.dev/tier"},
        "spec.replicaSpecs.Worker.indexLabel",
        "begins with tidewater.dev/",
        read=False,
    ),
    Mistake(
        "index-label-that-is-no-label",
        {f"{WORKER}/indexLabel": "torchx/replica/id"},
        "spec.replicaSpecs.Worker.indexLabel",
        "should match",
    ),
    Mistake(
        "index-label-with-a-long-prefix",
        {f"{WORKER}/indexLabel": f"{'a' * 254}/id"},
        "spec.replicaSpecs.Worker.indexLabel",
        "at most 253 characters before the '/'",
        read=False,
    ),
    Mistake("no-endpoint", {"spec/rdzvEndpoint": ABSENT}, "spec.rdzvEndpoint", "Required value"),
    Mistake("empty-endpoint", {"spec/rdzvEndpoint": ""}, "spec.rdzvEndpoint", "should match"),
    Mistake(
        "size-above-max",
        {"spec/sizes": [2, 4]},
        "spec.sizes",
        "between minReplicas (1) and maxReplicas (3)",
        read=False,
    ),
    Mistake("size-twice", {"spec/sizes": [2, 2]}, "spec.sizes[1]", "Duplicate value", read=False),
    Mistake(
        "sizes-and-steps", {"spec/sizes": [2], "spec/sizeStep": 1}, "spec.sizeStep", "exclude each other", read=False
    ),
    Mistake("step-of-zero", {"spec/sizeStep": 0}, "spec.sizeStep", "greater than or equal to 1"),
    Mistake(
        "queue-with-a-space", {"spec/schedulingPolicy": {"queue": "a b"}}, "spec.schedulingPolicy.queue", "should match"
    ),
    Mistake(
        "replicas-of-several-pods-without-their-launcher",
        {"spec/workersPerReplica": 2, "spec/launcher": "torchrun"},
        "spec.workersPerReplica",
        "workersPerReplica (2) must be 1, or launcher must be tidewater",
    ),
    Mistake(
        "replicas-of-several-pods-without-a-launcher",
        {"spec/workersPerReplica": 2},
        "spec.workersPerReplica",
        "workersPerReplica (2) must be 1, or launcher must be tidewater",
    ),
    *(
        Mistake(
            f"replicas-of-several-pods-that-are-{naming.lower()}",
            {
                "spec/workersPerReplica": 2,
                "spec/launcher": "tidewater",
                "spec/minReplicas": 1,
                "spec/maxReplicas": 1,
                f"{WORKER}/replicas": 1,
                f"{WORKER}/podNames": naming,
            },
            "spec.workersPerReplica",
            "workersPerReplica (2) must be 1, or replicaSpecs.Worker.podNames must be Indexed",
        )
        for naming in ("Successive", "Single")
    ),
    Mistake(
        "replicas-of-more-pods-than-there-may-be",
        {"spec/workersPerReplica": 1667, "spec/launcher": "tidewater"},
        "spec.workersPerReplica",
        "maxReplicas (3) times workersPerReplica (1667) must be at most 5000 pods.",
    ),
    Mistake(
        "replicas-of-no-pods", {"spec/workersPerReplica": 0}, "spec.workersPerReplica", "greater than or equal to 1"
    ),
    Mistake(
        "topology-of-replicas-of-one-pod",
        {"spec/topologyKey": "topology.kubernetes.io/zone"},
        "spec.topologyKey",
        "topologyKey keeps the pods of a replica together. Set workersPerReplica",
        read=False,
    ),
    Mistake(
        "topology-that-is-no-label",
        {"spec/workersPerReplica": 2, "spec/launcher": "tidewater", "spec/topologyKey": "a zone"},
        "spec.topologyKey",
        "should match",
    ),
    Mistake(
        "required-topology-without-a-key",
        {"spec/workersPerReplica": 2, "spec/launcher": "tidewater", "spec/topologyRequired": True},
        "spec.topologyRequired",
        "Set topologyKey, or remove it.",
        read=False,
    ),
    Mistake("unknown-launcher", {"spec/launcher": "mpi"}, "spec.launcher", "Unsupported value"),
    Mistake(
        "unknown-restart-policy",
        {f"{WORKER}/restartPolicy": "Sometimes"},
        "spec.replicaSpecs.Worker.restartPolicy",
        "Unsupported value",
    ),
    Mistake("unknown-clean-pod-policy", {"spec/cleanPodPolicy": "Some"}, "spec.cleanPodPolicy", "Unsupported value"),
    Mistake("unknown-restart-scope", {"spec/restartScope": "Role"}, "spec.restartScope", "Unsupported value"),
    Mistake("unknown-success-policy", {"spec/successPolicy": "Rank1"}, "spec.successPolicy", "Unsupported value"),
    Mistake(
        "exit-code-of-success",
        {f"{WORKER}/retryableExitCodes": [0]},
        "spec.replicaSpecs.Worker.retryableExitCodes[0]",
        "greater than or equal to 1",
    ),
    Mistake("negative-limit", {"spec/backoffLimit": -1}, "spec.backoffLimit", "greater than or equal to 0"),
    Mistake(
        "negative-time-to-live",
        {"spec/ttlSecondsAfterFinished": -1},
        "spec.ttlSecondsAfterFinished",
        "greater than or equal to 0",
    ),
    Mistake(
        "deadline-after-the-end-of-time",
        {"spec/activeDeadlineSeconds": 10**12},
        "spec.activeDeadlineSeconds",
        "less than or equal to 2147483647",
    ),
    Mistake("suspend-as-text", {"spec/suspend": "yes"}, "spec.suspend", "must be of type boolean"),
)
