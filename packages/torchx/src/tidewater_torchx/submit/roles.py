"""A role as its replicas run it: macros filled in, and every other text left alone by Kubernetes. Pure.

    resolved(role, Values(app_id="app-kx3p"))      # a copy of the role

All replicas of a role have one pod template. So what differs between them is written as Kubernetes' own reference to
an environment variable, `$(TORCHX_REPLICA_ID)`, which it expands in a container's command and in its environment:
https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/
The variable has the value of the pod's label. What a user writes as `$(…)` is the user's own, for a shell that runs in
the container, and is escaped.
"""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass

from torchx.specs import Role, macros

REPLICA_ID = "TORCHX_REPLICA_ID"
RANK0_HOST = "TORCHX_RANK0_HOST"
IMAGE = "TORCHX_IMAGE"

_REPLICA = f"$({REPLICA_ID})"
_PLACE_OF_REPLICA = "\0replica\0"
"""Stands for the reference while the rest is escaped: no command line contains such a character."""

_EXPANDED = re.compile(r"\$(?=[$(\0]|[^\0-\x7f])")
"""A dollar sign that Kubernetes would read: before a parenthesis, also that of a reference which is put in later, or
before another one: it makes one of two. It also breaks a character up that has several bytes and follows one:
https://github.com/kubernetes/kubernetes/blob/master/third_party/forked/golang/expansion/expand.go
"""


@dataclass(frozen=True)
class Values:
    """What stands for the macros of an application."""

    app_id: str


def resolved(role: Role, values: Values) -> Role:
    """Return a copy of the role with its macros filled in, for Kubernetes to run."""
    filled = macros.Values(img_root="", app_id=values.app_id, replica_id=_PLACE_OF_REPLICA, rank0_env=RANK0_HOST).apply(
        role
    )
    result: Role = copy.deepcopy(filled)
    result.entrypoint = literal(filled.entrypoint)
    result.args = [_with_replica(each) for each in filled.args]
    result.env = {name: _with_replica(value) for name, value in filled.env.items()}
    return result


def literal(text: str) -> str:
    """Return a text that Kubernetes leaves as it is when it expands references."""
    return _EXPANDED.sub("$$", text)


def _with_replica(text: str) -> str:
    return literal(text).replace(_PLACE_OF_REPLICA, _REPLICA)
