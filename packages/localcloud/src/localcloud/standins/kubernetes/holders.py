"""Which resource of the program holds an object, so that the deletion of an earlier resource leaves the object alone.

After a replacement that failed, the state lists the old object as one to delete. If the program is set back, Pulumi
creates that object again, finds it, and then deletes it, in this run or in a later one. The field manager in the state
shows the difference: each creation has a manager of its own.
"""

from __future__ import annotations

import threading

from localcloud.standins.kubernetes.cluster.kinds import group_of
from localcloud.standins.kubernetes.metadata import Object, object_id


class Holders:
    """The field managers of the resources that this run has compared or created, by their objects."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._managers: dict[tuple[str, str, str], str] = {}

    def hold(self, obj: Object, manager: str) -> None:
        """Remember the manager of the resource that describes the object."""
        with self._lock:
            self._managers[_identity(obj)] = manager

    def held_by_another(self, obj: Object, manager: str) -> bool:
        """Return whether another resource than that of this manager describes the object."""
        with self._lock:
            return self._managers.get(_identity(obj), manager) != manager


def _identity(obj: Object) -> tuple[str, str, str]:
    return group_of(str(obj.get("apiVersion"))), str(obj.get("kind")), object_id(obj)
