"""Additions to the pods: --cluster_spec_json. Pure.

    {"pod_spec": {"labels": {"team": "vision"}, "tolerations": [...]}, "worker_spec": {"env": [...]}}

The keys are ElasticDL's: `pod_spec` for all pods, `master_spec`, `ps_spec` and `worker_spec` for one kind, also with
`_pod_spec` at their end. Each may have labels, annotations, tolerations, affinity, nodeSelector and env, as Kubernetes
writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from elasticdl.client.flags.mistakes import Mistake

Manifest = dict[str, Any]

KINDS = ("master", "ps", "worker")
_KEYS = {"pod_spec": "", **{f"{kind}{end}": kind for kind in KINDS for end in ("_spec", "_pod_spec")}}
_TEXTS = ("labels", "annotations", "nodeSelector")
_LISTS = ("tolerations", "env")
_FIELDS = (*_TEXTS, *_LISTS, "affinity")
_FLAG = "--cluster_spec"


def mistakes(spec: Mapping[str, Any]) -> list[Mistake]:
    """Return what is wrong with the additions."""
    return list(_wrong(spec))


def added(template: Manifest, kind: str, spec: Mapping[str, Any]) -> Manifest:
    """Return a pod template with the additions for all pods, then those for its kind; the template's own stay."""
    for each in _additions(kind, spec):
        template = _with(template, each)
    return template


def chooses(label: str, kind: str, spec: Mapping[str, Any]) -> bool:
    """Return whether the additions select nodes by this label for the pods of a kind."""
    return any(label in each.get("nodeSelector", {}) for each in _additions(kind, spec))


def _additions(kind: str, spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [spec[key] for key, only in _KEYS.items() if key in spec and only in ("", kind)]


def _with(template: Manifest, more: Mapping[str, Any]) -> Manifest:
    metadata, pod = dict(template["metadata"]), dict(template["spec"])
    for name in ("labels", "annotations"):
        if name in more:
            metadata[name] = {**more[name], **metadata.get(name, {})}
    if "nodeSelector" in more:
        pod["nodeSelector"] = {**pod.get("nodeSelector", {}), **more["nodeSelector"]}
    if "affinity" in more:
        pod["affinity"] = more["affinity"]
    if "tolerations" in more:
        pod["tolerations"] = [*pod.get("tolerations", []), *more["tolerations"]]
    if "env" in more:
        names = {each["name"] for each in more["env"]}
        pod["containers"] = [
            {**each, "env": [*(own for own in each.get("env", []) if own["name"] not in names), *more["env"]]}
            for each in pod["containers"]
        ]
    return {"metadata": metadata, "spec": pod}


def _wrong(spec: Mapping[str, Any]) -> Iterator[Mistake]:
    if "service_spec" in spec:
        yield Mistake(
            f"{_FLAG}: service_spec", "pods find each other by the service of the ElasticJob, which is fixed: remove it"
        )
    for key, more in spec.items():
        if key == "service_spec":
            continue
        if key not in _KEYS:
            yield Mistake(f"{_FLAG}: {key} is unknown", f"choose from {', '.join(_KEYS)}")
        elif not isinstance(more, Mapping):
            yield Mistake(f"{_FLAG}: {key} is no mapping", f"it may have {', '.join(_FIELDS)}")
        else:
            yield from _wrong_fields(key, more)


def _wrong_fields(key: str, more: Mapping[str, Any]) -> Iterator[Mistake]:
    for name, value in more.items():
        form, fits = _FORMS.get(name, ("", lambda _: False))
        if not form:
            yield Mistake(f"{_FLAG}: {key}.{name} is unknown", f"it may have {', '.join(_FIELDS)}")
        elif not fits(value):
            yield Mistake(f"{_FLAG}: {key}.{name} has the wrong form", f"write {form}")


def _is_texts(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(each, str) for pair in value.items() for each in pair)


def _is_objects(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, Mapping) for each in value)


def _is_env(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, Mapping) and each.get("name") for each in value)


_FORMS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(_TEXTS, ("texts by name, numbers in quotes", _is_texts)),
    "tolerations": ("a list of tolerations", _is_objects),
    "env": ("a list of variables, each with a name", _is_env),
    "affinity": ("an affinity as Kubernetes has it", lambda value: isinstance(value, Mapping)),
}
