"""Names: of an application, of its replica types, of what becomes a label. Pure.

    types = replica_types(["trainer", "reader"], worker=0)     # ("Worker", "reader")
    app_id("My App", "kx3p", {"Worker": 3, "reader": 1})       # my-app-kx3p

TorchX names an application's object after the application, with a random end, in lower case and without what no name
may have. Its pods are named after it, and a pod's name, which is also its host name, has at most 63 characters. So the
application's part is shortened until the names of all pods fit. A role's name is never shortened, since people select
by it: one that is too long is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tidewater.elasticjob import names
from tidewater.elasticjob.model import LONGEST_TYPE, MOST_TYPES
from tidewater_torchx.errors import Refused

LONGEST_LABEL = 63
"""Characters of a label's value.

https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
"""

_NOT_IN_NAMES = re.compile(r"[^a-z0-9-]")
_NOT_IN_TYPES = re.compile(r"[^a-z0-9]")
_NOT_IN_LABELS = re.compile(r"[^A-Za-z0-9_.-]")
_ENDS = "-_."


def replica_types(roles: Sequence[str], worker: int) -> tuple[str, ...]:
    """Return the replica type of each role: `Worker` for one of them, the others after their names.

    Args:
        roles: the names of the roles.
        worker: the position of the role that becomes `Worker`.

    Raises:
        Refused: there are too many roles, two of the same name, or a name is too long.
    """
    if len(roles) > MOST_TYPES:
        raise Refused(f"the application has {len(roles)} roles; an ElasticJob has at most {MOST_TYPES} replica types")
    if twice := sorted({name for name in roles if roles.count(name) > 1}):
        raise Refused(f"role {twice[0]}: two roles have this name; rename one of them")
    for name in roles:
        _check_role(name)
    taken, types = {names.WORKER.lower()}, list[str]()
    for position, name in enumerate(roles):
        own = names.WORKER if position == worker else _free(_type_of(name), position, taken)
        taken.add(own.lower())
        types.append(own)
    return tuple(types)


def app_id(name: str, unique: str, last: Mapping[str, int]) -> str:
    """Return the name of the object: the application's, shortened so that the names of all pods fit, and its end.

    Args:
        name: the application's name, whatever it contains.
        unique: the random end, in characters of a name.
        last: the highest index that a pod may have, by replica type.
    """
    longest = max(len(names.pod_name("", type, index)) for type, index in last.items())
    room = names.LONGEST_NAME - longest - len(unique) - 1
    own = _NOT_IN_NAMES.sub("", name.lower()).strip("-")
    if not own or not own[0].isalpha():
        own = f"app-{own}".rstrip("-")  # a Service has this name, which must begin with a letter
    return f"{own[:room].rstrip('-')}-{unique}"


def label_value(text: str) -> str:
    """Return a text as the value of a label: what it may not contain becomes a dot, and it is cut at its end."""
    return _NOT_IN_LABELS.sub(".", text)[:LONGEST_LABEL].strip(_ENDS)


def _check_role(name: str) -> None:
    if not name:
        raise Refused("a role has no name; give each role of the application one")
    if len(name) > LONGEST_LABEL:
        raise Refused(
            f"role {name}: its name has {len(name)} characters, and a label's value at most {LONGEST_LABEL};"
            " shorten it (components of dist name a role after its script or module)"
        )


def _type_of(name: str) -> str:
    """Return the replica type for a role's name, which keeps its letters and digits."""
    kept = _NOT_IN_TYPES.sub("", name.lower())
    type_ = kept if kept and kept[0].isalpha() else f"role{kept}"
    if len(type_) > LONGEST_TYPE:
        raise Refused(
            f"role {name}: its name is part of its pods' names and may have {LONGEST_TYPE} letters and digits;"
            f" it has {len(type_)}. Shorten it"
        )
    return type_


def _free(type_: str, position: int, taken: set[str]) -> str:
    """Return the type, or with the role's position at its end if another role has it: `a-b` and `ab` are one type.

    A role may also have a name as `abx3`, so the number grows until no role has the type.
    """
    free = type_
    while free in taken:
        end = f"x{position}"
        free = f"{type_[: LONGEST_TYPE - len(end)]}{end}"
        position += 1
    return free
