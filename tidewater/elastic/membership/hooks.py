"""What a coordinator asks of the process in which it runs.

coordinator.start(Hooks(changed=note, is_dead=peers.has_ended))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tidewater.elastic.membership.rules import Seat, View
from tidewater.elastic.membership.suspects import Sign
from tidewater.elastic.membership.votes import Send


@dataclass(frozen=True)
class Hooks:
    """Functions that the coordinator calls from its own threads."""

    changed: Callable[[View], None] = field(default=lambda view: None)
    """Called for every new view, so it must be quick."""
    is_dead: Callable[[Seat], bool] = field(default=lambda member: False)
    """Returns whether waiting for a member is pointless. Called for silent members of a broken generation."""
    look: Callable[[Seat], Sign] = field(default=lambda member: Sign.SILENT)
    """Returns the result of a ping. Called for members that have no record or are silent."""
    unreachable: Callable[[], frozenset[str]] = field(default=frozenset)
    """Returns the ids of members that do not answer this worker."""
    send_votes: Send = field(default=lambda *_: ())
    """See ``votes``. Takes time."""
    returning: Callable[[], None] = field(default=lambda: None)
    """Called before this worker returns after the loss of its lease: etcd may have lost its data. Raises StoreError to
    be called again, and another TrainerError if this worker can't return."""
