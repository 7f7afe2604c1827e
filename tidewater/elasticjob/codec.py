"""Objects of the API server to the model, and a status back.

    job = codec.job_of(api.get("elasticjobs", "imagenet"))
    api.replace_status({**obj, "status": codec.status_object(status)})

The reader is tolerant of what it does not know, an unknown field for example, and applies the model's defaults to what
is absent. It raises `InvalidJob` for what it cannot understand: a job that was stored under another definition may
contain such a thing.
"""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import StrEnum

from tidewater.elasticjob import names, pod_template
from tidewater.elasticjob.about import About, fields_of
from tidewater.elasticjob.choices import PodNames
from tidewater.elasticjob.errors import InvalidJob
from tidewater.elasticjob.model import MOST_REPLICAS, ElasticJob, JobSpec, Launcher, Status

__all__ = ["InvalidJob", "job_of", "status_object"]


def job_of(obj: Mapping[str, object]) -> ElasticJob:
    """Return the job that an object of the API server describes. Raise InvalidJob if it describes none."""
    metadata = _mapping(obj.get("metadata"), "metadata")
    annotations = _texts(metadata.get("annotations"), "metadata.annotations")
    spec: JobSpec = _read(JobSpec, obj.get("spec"), "spec")
    _check(spec, annotations)
    return ElasticJob(
        name=_text(metadata.get("name"), "metadata.name"),
        namespace=_text(metadata.get("namespace"), "metadata.namespace"),
        uid=_text(metadata.get("uid", ""), "metadata.uid"),
        generation=_integer(metadata.get("generation", 0), "metadata.generation"),
        resource_version=_text(metadata.get("resourceVersion", ""), "metadata.resourceVersion"),
        created=_moment(metadata.get("creationTimestamp"), "metadata.creationTimestamp"),
        deleting=metadata.get("deletionTimestamp") is not None,
        labels=_texts(metadata.get("labels"), "metadata.labels"),
        annotations=annotations,
        spec=spec,
        status=_read(Status, obj.get("status") or {}, "status"),
    )


def status_object(status: Status) -> dict[str, object]:
    """Return a status as the API server stores it: without what is not set, and with times in whole seconds.

    It must replace the stored status. Merged into it, it would not remove what is no longer set.
    """
    return {
        field.key: written
        for field in fields_of(Status)
        if (written := _written(getattr(status, field.name))) not in (None, "", [], {})
    }


def _check(spec: JobSpec, annotations: Mapping[str, str]) -> None:
    """Raise InvalidJob for what would make the controller's decision impossible, as its rules would."""
    types = spec.replica_specs
    if names.WORKER not in types:
        raise InvalidJob("spec.replicaSpecs", f"must contain the replica type {names.WORKER}")
    lower = [type_.lower() for type_ in types]
    if twice := sorted(type_ for type_ in types if lower.count(type_.lower()) > 1):
        raise InvalidJob("spec.replicaSpecs", f"{' and '.join(twice)} would have pods of the same names; rename one")
    for type_ in types:
        low, high = spec.bounds(type_)
        where = "spec" if type_ == names.WORKER else f"spec.replicaSpecs[{type_}]"
        if low > high:
            raise InvalidJob(f"{where}.minReplicas", f"{low} must not be above maxReplicas, which is {high}")
        if high > 1 and types[type_].pod_names is PodNames.SINGLE:
            raise InvalidJob(
                f"spec.replicaSpecs[{type_}].podNames", f"Single is for one pod, and the maximum is {high}"
            )
    if spec.bounds(names.WORKER)[0] < 1:
        raise InvalidJob(f"spec.replicaSpecs[{names.WORKER}].replicas", "must be at least 1")
    _check_replicas(spec)
    annotated = annotations.get(names.ANNOTATION_LAUNCHER, Launcher.TORCHELASTIC)
    launcher = spec.launcher or _member(Launcher, annotated, f"metadata.annotations[{names.ANNOTATION_LAUNCHER}]")
    one_trains = launcher in (Launcher.TORCHRUN, Launcher.TIDEWATER)
    pod_template.check(spec.worker.template, f"spec.replicaSpecs[{names.WORKER}].template", one_trains=one_trains)


def _check_replicas(spec: JobSpec) -> None:
    """Raise InvalidJob for replicas of several pods that there can't be."""
    each, where = spec.workers_per_replica, "spec.workersPerReplica"
    if each > 1 and spec.launcher is not Launcher.TIDEWATER:
        raise InvalidJob(where, f"{each} must be 1, or spec.launcher must be {Launcher.TIDEWATER}")
    if each > 1 and spec.worker.pod_names is not PodNames.INDEXED:
        raise InvalidJob(where, f"{each} must be 1, or podNames of {names.WORKER} must be {PodNames.INDEXED}")
    if (pods := spec.bounds(names.WORKER)[1] * each) > MOST_REPLICAS:
        raise InvalidJob(where, f"{pods} pods are the maximum, and at most {MOST_REPLICAS} are possible")


def _read(model: typing.Any, value: object, path: str) -> typing.Any:
    """Return a dataclass of the model that a JSON object describes."""
    data = _mapping(value, path)
    found = {}
    for field in fields_of(model):
        given = data.get(field.key)
        if given == "" and field.about.blank:
            given = None
        if given is None and field.required:
            raise InvalidJob(f"{path}.{field.key}", "is required")
        if given is None:
            found[field.name] = field.default
        else:
            found[field.name] = _value(field.type, field.about, given, f"{path}.{field.key}")
    return model(**found)


def _value(type_: typing.Any, about: About, value: object, path: str) -> object:
    """Return one value of the model's type, within the bounds that the model gives."""
    if dataclasses.is_dataclass(type_):
        return _read(type_, value, path)
    origin = typing.get_origin(type_)
    if origin is tuple:
        element = typing.get_args(type_)[0]
        return tuple(_value(element, about, one, f"{path}[{i}]") for i, one in enumerate(_list(value, path)))
    if origin is not None:
        return _map(typing.get_args(type_)[1], about, value, path)
    if issubclass(type_, StrEnum):
        return _member(type_, value, path)
    read = _READERS[type_](value, path)
    _within(about, read, path)
    return read


def _map(type_: typing.Any, about: About, value: object, path: str) -> Mapping[str, object]:
    """Return a map; the bounds of characters are those of its keys."""
    data = _mapping(value, path)
    if type_ is object:
        return data
    for key in data:
        _within(about, key, f"{path}[{key}]")
    return {key: _value(type_, About(""), one, f"{path}[{key}]") for key, one in data.items()}


def _within(about: About, value: object, path: str) -> None:
    """Raise InvalidJob for a number or a text out of the model's bounds."""
    if isinstance(value, bool):
        return
    if isinstance(value, int):
        if about.minimum is not None and value < about.minimum:
            raise InvalidJob(path, f"{value} must be at least {about.minimum}")
        if about.maximum is not None and value > about.maximum:
            raise InvalidJob(path, f"{value} must be at most {about.maximum}")
    if isinstance(value, str):
        if about.min_length is not None and len(value) < about.min_length:
            raise InvalidJob(path, f"must have at least {about.min_length} characters")
        if about.max_length is not None and len(value) > about.max_length:
            raise InvalidJob(path, f"must have at most {about.max_length} characters")
        if about.pattern and not re.search(about.pattern, value):
            raise InvalidJob(path, f"{value!r} must match {about.pattern}")


def _member(members: type[StrEnum], value: object, path: str) -> StrEnum:
    """Return the member of an enumeration that has this value."""
    for member in members:
        if member == value:
            return member
    raise InvalidJob(path, f"{value!r} must be one of {', '.join(members)}")


def _mapping(value: object, path: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise InvalidJob(path, "must be an object")
    return value


def _list(value: object, path: str) -> list[object]:
    if not isinstance(value, list):
        raise InvalidJob(path, "must be a list")
    return value


def _texts(value: object, path: str) -> Mapping[str, str]:
    data = {} if value is None else _mapping(value, path)
    return {key: _text(one, f"{path}[{key}]") for key, one in data.items()}


def _text(value: object, path: str) -> str:
    if not isinstance(value, str):
        raise InvalidJob(path, "must be a text")
    return value


def _integer(value: object, path: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidJob(path, "must be an integer")
    return value


def _truth(value: object, path: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidJob(path, "must be true or false")
    return value


def _moment(value: object, path: str) -> datetime | None:
    if value is None:
        return None
    text = _text(value, path)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidJob(path, f"{value!r} must be a time, as 2026-01-31T12:00:00Z") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


_READERS: Mapping[type, Callable[[object, str], object]] = {
    str: _text,
    bool: _truth,
    int: _integer,
    datetime: _moment,
}


def _written(value: object) -> object:
    """Return a value of the model as JSON."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.key: written
            for field in fields_of(type(value))
            if (written := _written(getattr(value, field.name))) not in (None, "")
        }
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, Mapping):
        return {key: _written(one) for key, one in value.items()}
    if isinstance(value, tuple):
        return [_written(one) for one in value]
    return value
