"""Rules of a job that no type and no bound can say, in CEL: the API server refuses what breaks one of them.

    rules.of(JobSpec)        # what the schema of JobSpec has as x-kubernetes-validations
    rules.of_object()        # rules of the whole object, which reason about its name

A rule's message is a sentence that names the field, and its path is where the API server says that the mistake is.

The API server estimates the cost of every rule, and refuses the whole definition if one of them could be expensive.
So lists have a maximum length, and no function that reads a whole string is applied to what has no maximum: a map's
keys, and the text of a number. This is why messages with numbers are `format`ted and not added up.
https://kubernetes.io/docs/reference/using-api/cel/
"""

from __future__ import annotations

import json
import string
from dataclasses import dataclass

from tidewater.contract import labels
from tidewater.elasticjob import names
from tidewater.elasticjob.choices import Launcher, PodNames
from tidewater.elasticjob.model import LONGEST_TYPE, MOST_REPLICAS, JobSpec, ReplicaSpec


@dataclass(frozen=True)
class Rule:
    """One rule.

    Args:
        holds: The CEL expression that is true of what is accepted.
        message: A sentence that names the field and the remedy; `%d` and `%s` stand for `values`.
        path: Field at fault, from the object that has the rule.
        values: CEL expressions, all of one type.
    """

    holds: str
    message: str
    path: str = ""
    values: tuple[str, ...] = ()

    def manifest(self) -> dict[str, object]:
        """Return the rule as an element of x-kubernetes-validations."""
        text: dict[str, object] = {"message": self.message}
        if self.values:
            text = {"messageExpression": f"{_quoted(self.message)}.format([{', '.join(self.values)}])"}
        return {"rule": self.holds, **text, **({"fieldPath": self.path} if self.path else {})}


def of(model: type) -> list[dict[str, object]]:
    """Return the rules of a dataclass of the model; most have none."""
    return [rule.manifest() for rule in _RULES.get(model, ())]


def of_object() -> list[dict[str, object]]:
    """Return the rules of the whole object."""
    return [rule.manifest() for rule in (_NAME_IS_A_LABEL, _HOST_STAYS)]


def immutable(key: str) -> dict[str, object]:
    """Return the rule that a field, which is always present, keeps its value."""
    return Rule("self == oldSelf", f"{key} is immutable. Create another job to change it.").manifest()


def _quoted(text: str) -> str:
    """Return a string literal of CEL. Its escapes are those of JSON."""
    return json.dumps(text)


def _with_worker(expression: str) -> str:
    """Return an expression about Worker that says nothing of a job without one, which breaks its own rule."""
    return f"!has({_WORKER}) || ({expression})"


def _within(character: str, *ranges: str) -> str:
    """Return the expression that a character is within one of the ranges, each given by its first and its last."""
    return " || ".join(f"('{ends[0]}' <= {character} && {character} <= '{ends[1]}')" for ends in ranges)


_WORKER = f"self.replicaSpecs.{names.WORKER}"
_REPLICAS = f"{_WORKER}.replicas"
_MIN = f"(has(self.minReplicas) ? self.minReplicas : {_REPLICAS})"
_MAX = f"(has(self.maxReplicas) ? self.maxReplicas : {_REPLICAS})"
_PATH = f".replicaSpecs.{names.WORKER}"
_CONTAINERS = f"self.replicaSpecs['{names.WORKER}'].template.spec.containers"
"""With an index, since the API server finds no bounds for the cost of a list behind a key with a dot."""

_HAS_WORKER = Rule(
    f"has({_WORKER})",
    f"replicaSpecs must contain the replica type {names.WORKER}.",
    ".replicaSpecs",
)

# CEL takes a key of a map for a string without a maximum length, so that a regular expression would be too expensive.
_INDICES = ", ".join(str(index) for index in range(LONGEST_TYPE))
_TYPES_ARE_NAMES = Rule(
    f"self.replicaSpecs.all(t, size(t) <= {LONGEST_TYPE} && ({_within('t.charAt(0)', 'az', 'AZ')})"
    f" && [{_INDICES}].all(i, i >= size(t) || {_within('t.charAt(i)', 'az', 'AZ', '09')}))",
    "The keys of replicaSpecs must begin with a letter and consist of letters and digits, at most"
    f" {LONGEST_TYPE}, as {names.WORKER} does.",
    ".replicaSpecs",
)

# For the same reason two keys are compared letter by letter, and not with `lowerAscii`. Each key has the same letters
# as itself, so the expression counts the keys rather than compare them.
_LETTERS_AND_DIGITS = string.ascii_lowercase + string.digits
_SPELLINGS = ", ".join(f"['{low}', '{low.upper()}']" if low.isalpha() else f"['{low}']" for low in _LETTERS_AND_DIGITS)
_SAME_LETTERS = f"[{_SPELLINGS}].exists(s, t.charAt(i) in s && u.charAt(i) in s)"
_TYPES_DIFFER = Rule(
    "self.replicaSpecs.all(t, self.replicaSpecs.filter(u, size(t) == size(u)"
    f" && [{_INDICES}].all(i, i >= size(t) || {_SAME_LETTERS})).size() <= 1)",
    "The keys of replicaSpecs must not differ only in the case of letters: their pods would have the same names.",
    ".replicaSpecs",
)
_TYPES_STAY = Rule(
    "self.replicaSpecs.all(t, t in oldSelf.replicaSpecs) && oldSelf.replicaSpecs.all(t, t in self.replicaSpecs)",
    "The set of types in replicaSpecs is immutable. Create another job to change it.",
    ".replicaSpecs",
)
_LAUNCHER_STAYS = Rule(
    "has(self.launcher) == has(oldSelf.launcher) && (!has(self.launcher) || self.launcher == oldSelf.launcher)",
    "launcher is immutable. Create another job to change it.",
    ".launcher",
)
_SOME_WORKERS = Rule(
    _with_worker(f"{_REPLICAS} >= 1"),
    f"replicaSpecs.{names.WORKER}.replicas must be at least 1. To stop the job's pods, set suspend.",
    f"{_PATH}.replicas",
)
_MIN_BELOW_MAX = Rule(
    "!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
    "minReplicas (%d) must not be above maxReplicas (%d).",
    ".minReplicas",
    ("self.minReplicas", "self.maxReplicas"),
)
_NOT_BELOW_MIN = Rule(
    _with_worker(f"!has(self.minReplicas) || self.minReplicas <= {_REPLICAS}"),
    f"replicaSpecs.{names.WORKER}.replicas (%d) must not be below minReplicas (%d).",
    f"{_PATH}.replicas",
    (_REPLICAS, "self.minReplicas"),
)
_NOT_ABOVE_MAX = Rule(
    _with_worker(f"!has(self.maxReplicas) || {_REPLICAS} <= self.maxReplicas"),
    f"replicaSpecs.{names.WORKER}.replicas (%d) must not be above maxReplicas (%d).",
    f"{_PATH}.replicas",
    (_REPLICAS, "self.maxReplicas"),
)
_WORKERS_MIN_IS_THE_SPECS = Rule(
    _with_worker(f"!has({_WORKER}.minReplicas)"),
    f"replicaSpecs.{names.WORKER}.minReplicas is not allowed. Set spec.minReplicas.",
    f"{_PATH}.minReplicas",
)
_WORKERS_MAX_IS_THE_SPECS = Rule(
    _with_worker(f"!has({_WORKER}.maxReplicas)"),
    f"replicaSpecs.{names.WORKER}.maxReplicas is not allowed. Set spec.maxReplicas.",
    f"{_PATH}.maxReplicas",
)
_ONE_TRAINS = Rule(
    _with_worker(
        f"!has(self.launcher) || !(self.launcher in {[Launcher.TORCHRUN.value, Launcher.TIDEWATER.value]})"
        f" || {_CONTAINERS}.size() == 1 || {_CONTAINERS}.exists_one(c, c.name == '{names.WORKER_CONTAINER}')"
    ),
    f"Exactly one of the containers in the template of {names.WORKER} must be named {names.WORKER_CONTAINER}, unless"
    " there is only one, since the launcher adds something to it alone.",
    f"{_PATH}.template.spec.containers",
)
_SIZES_WITHIN_BOUNDS = Rule(
    _with_worker(f"!has(self.sizes) || self.sizes.all(s, {_MIN} <= s && s <= {_MAX})"),
    "Each of sizes must be between minReplicas (%d) and maxReplicas (%d).",
    ".sizes",
    (_MIN, _MAX),
)
_SIZES_OR_STEPS = Rule(
    "!has(self.sizes) || !has(self.sizeStep)",
    "sizeStep and sizes exclude each other. Remove one of them.",
    ".sizeStep",
)
_SINGLE_WORKER = Rule(
    _with_worker(f"{_WORKER}.podNames != '{PodNames.SINGLE}' || !has(self.maxReplicas) || self.maxReplicas <= 1"),
    f"maxReplicas (%d) must be 1, since replicaSpecs.{names.WORKER}.podNames is {PodNames.SINGLE}.",
    ".maxReplicas",
    ("self.maxReplicas",),
)
_SEVERAL = "self.workersPerReplica > 1"
_SEVERAL_HAVE_A_LAUNCHER = Rule(
    f"!({_SEVERAL}) || (has(self.launcher) && self.launcher == '{Launcher.TIDEWATER}')",
    f"workersPerReplica (%d) must be 1, or launcher must be {Launcher.TIDEWATER}: no other one divides a model among"
    " pods.",
    ".workersPerReplica",
    ("self.workersPerReplica",),
)
_SEVERAL_ARE_INDEXED = Rule(
    _with_worker(f"!({_SEVERAL}) || {_WORKER}.podNames == '{PodNames.INDEXED}'"),
    f"workersPerReplica (%d) must be 1, or replicaSpecs.{names.WORKER}.podNames must be {PodNames.INDEXED}: a pod's"
    " number says which replica it belongs to.",
    ".workersPerReplica",
    ("self.workersPerReplica",),
)
_SEVERAL_ARE_NOT_TOO_MANY = Rule(
    _with_worker(f"{_MAX} * self.workersPerReplica <= {MOST_REPLICAS}"),
    f"maxReplicas (%d) times workersPerReplica (%d) must be at most {MOST_REPLICAS} pods.",
    ".workersPerReplica",
    (_MAX, "self.workersPerReplica"),
)
_TOPOLOGY_OF_SEVERAL = Rule(
    f"!has(self.topologyKey) || {_SEVERAL}",
    "topologyKey keeps the pods of a replica together. Set workersPerReplica, or remove it.",
    ".topologyKey",
)
_TOPOLOGY_HAS_A_KEY = Rule(
    "!self.topologyRequired || has(self.topologyKey)",
    "topologyRequired says how strictly topologyKey is kept. Set topologyKey, or remove it.",
    ".topologyRequired",
)

_SINGLE_IS_ONE = Rule(
    f"self.podNames != '{PodNames.SINGLE}' || self.replicas <= 1",
    f"replicas (%d) must be at most 1, since podNames is {PodNames.SINGLE}: its pod's name has no number.",
    ".replicas",
    ("self.replicas",),
)
_SINGLE_STAYS_ONE = Rule(
    f"self.podNames != '{PodNames.SINGLE}' || !has(self.maxReplicas) || self.maxReplicas <= 1",
    f"maxReplicas (%d) must be at most 1, since podNames is {PodNames.SINGLE}: its pod's name has no number.",
    ".maxReplicas",
    ("self.maxReplicas",),
)

_OWN_LABELS = sorted({*names.pod_labels("", "", 0), *labels.worker_pods("")})
_INDEX_LABEL_IS_FREE = Rule(
    f"!has(self.indexLabel) || (!(self.indexLabel in {_OWN_LABELS})"
    f" && !self.indexLabel.startsWith('{labels.PREFIX}/'))",
    f"indexLabel must not be a label that the controller sets: {', '.join(_OWN_LABELS)}, or one that begins with"
    f" {labels.PREFIX}/.",
    ".indexLabel",
)
_INDEX_LABEL_PREFIX = Rule(
    f"!has(self.indexLabel) || self.indexLabel.indexOf('/') <= {names.LONGEST_LABEL_PREFIX}",
    f"indexLabel must have at most {names.LONGEST_LABEL_PREFIX} characters before the '/'.",
    ".indexLabel",
)
_INDEX_LABEL_STAYS = Rule(
    "has(self.indexLabel) == has(oldSelf.indexLabel)"
    " && (!has(self.indexLabel) || self.indexLabel == oldSelf.indexLabel)",
    "indexLabel is immutable. Create another job to change it.",
    ".indexLabel",
)
_OTHERS_NOT_BELOW_MIN = Rule(
    "!has(self.minReplicas) || self.minReplicas <= self.replicas",
    "replicas (%d) must not be below minReplicas (%d).",
    ".replicas",
    ("self.replicas", "self.minReplicas"),
)
_OTHERS_NOT_ABOVE_MAX = Rule(
    "!has(self.maxReplicas) || self.replicas <= self.maxReplicas",
    "replicas (%d) must not be above maxReplicas (%d).",
    ".replicas",
    ("self.replicas", "self.maxReplicas"),
)

_RULES: dict[type, tuple[Rule, ...]] = {
    JobSpec: (
        _HAS_WORKER,
        _TYPES_ARE_NAMES,
        _TYPES_DIFFER,
        _TYPES_STAY,
        _LAUNCHER_STAYS,
        _SOME_WORKERS,
        _MIN_BELOW_MAX,
        _NOT_BELOW_MIN,
        _NOT_ABOVE_MAX,
        _WORKERS_MIN_IS_THE_SPECS,
        _WORKERS_MAX_IS_THE_SPECS,
        _ONE_TRAINS,
        _SIZES_WITHIN_BOUNDS,
        _SIZES_OR_STEPS,
        _SINGLE_WORKER,
        _SEVERAL_HAVE_A_LAUNCHER,
        _SEVERAL_ARE_INDEXED,
        _SEVERAL_ARE_NOT_TOO_MANY,
        _TOPOLOGY_OF_SEVERAL,
        _TOPOLOGY_HAS_A_KEY,
    ),
    ReplicaSpec: (
        _OTHERS_NOT_BELOW_MIN,
        _OTHERS_NOT_ABOVE_MAX,
        _SINGLE_IS_ONE,
        _SINGLE_STAYS_ONE,
        _INDEX_LABEL_IS_FREE,
        _INDEX_LABEL_PREFIX,
        _INDEX_LABEL_STAYS,
    ),
}

_NAME_IS_A_LABEL = Rule(
    f"size(self.metadata.name) <= {names.LONGEST_NAME}",
    f"metadata.name must have at most {names.LONGEST_NAME} characters, since it is the value of a label.",
    ".metadata.name",
)
_HOST_STAYS = Rule(
    f"!has(self.spec.replicaSpecs.{names.WORKER})"
    f" || self.spec.replicaSpecs.{names.WORKER}.podNames != '{PodNames.SUCCESSIVE}'"
    f" || !self.spec.rdzvEndpoint.startsWith(self.metadata.name + '-{names.WORKER.lower()}-')",
    f"spec.rdzvEndpoint must not name a worker, since replicaSpecs.{names.WORKER}.podNames is {PodNames.SUCCESSIVE}:"
    " after the loss of that worker no other one gets its name.",
    ".spec.rdzvEndpoint",
)
