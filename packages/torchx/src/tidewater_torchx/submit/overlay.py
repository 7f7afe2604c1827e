"""Fields of a pod that TorchX has no name for: the role's metadata `kubernetes`, laid over its pod template.

    read(role)                       # a mapping; reads the file that the metadata names
    merged(template, overlay)        # pure

As of TorchX's own Kubernetes scheduler after 0.7: mappings are merged, lists are added to lists, and everything else
replaces what is there. A list replaces a list if it is a tuple, in a file of YAML `!!python/tuple`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import fsspec
import yaml
from torchx.specs import Role

from tidewater_torchx.errors import Refused
from tidewater_torchx.submit import appdef

METADATA = "kubernetes"
"""Key in a role's metadata: the overlay, or the address of a file with it."""

_TUPLE = "tag:yaml.org,2002:python/tuple"


def _tuple(loader: yaml.SafeLoader, node: yaml.Node) -> tuple[Any, ...]:
    if not isinstance(node, yaml.SequenceNode):
        raise yaml.constructor.ConstructorError(None, None, "a tuple must be a list", node.start_mark)
    return tuple(loader.construct_sequence(node, deep=True))


class _Loader(yaml.SafeLoader):
    """YAML without Python's objects, but for tuples."""

    yaml_constructors = {**yaml.SafeLoader.yaml_constructors, _TUPLE: _tuple}  # noqa: RUF012 # PyYAML's own


def read(role: Role) -> Mapping[str, Any]:
    """Return the overlay of a role; empty if it has none.

    Raises:
        Refused: it is no mapping, it has a value that JSON doesn't have, or the file can't be read.
    """
    found = role.metadata.get(METADATA)
    if isinstance(found, str):
        try:
            with fsspec.open(found, "r") as file:
                found = yaml.load(file, _Loader)  # a SafeLoader but for tuples
        except (OSError, ValueError, ImportError, yaml.YAMLError) as error:
            raise Refused(f"role {role.name}: metadata {METADATA}={found} can't be read: {error}") from error
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        kind = type(found).__name__
        raise Refused(f"role {role.name}: metadata {METADATA} must be a mapping or the address of a file, not {kind}")
    appdef.check(found, f"role {role.name}: metadata {METADATA}")
    return found


def merged(template: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod template with an overlay."""
    result = dict(template)
    for key, value in overlay.items():
        old = result.get(key)
        if isinstance(value, Mapping):
            result[key] = merged(old if isinstance(old, Mapping) else {}, value)
        elif isinstance(value, list) and isinstance(old, Sequence) and not isinstance(old, str):
            result[key] = [*old, *copy.deepcopy(value)]
        else:
            result[key] = list(value) if isinstance(value, tuple) else copy.deepcopy(value)
    return result
