"""Which nodes run together: frozen records, their JSON codec, and one pure function that decides.

    action = decide(view, Inputs(me="node-1f", limits=Limits(1, 4)), now=time.monotonic())
    if action.kind is Kind.PROPOSE: ...   # compare-and-set action.round on the round's record

A *node* is one torchrun agent; its record exists as long as its lease. A *round* is a numbered list of nodes in rank
order, changed only by compare-and-set. ``done_with`` in a node's record says: "my workers of all rounds up to this
number are stopped; put me into a later one". The rules differ from those of ``membership``, because no worker
survives a change:

* A round is broken when one of its nodes is gone or done with it. Then all its nodes learn from ``nodes_waiting`` that
  they must restart their workers. They return as done with the round, and form the next one.
* The others wait for nodes that are still busy, at most ``patience_seconds`` from the break, or until they are known to
  be dead. A node that returns later is a newcomer.
* Newcomers do not break a round. If there is room, ``nodes_waiting`` reports them; if not, they wait in line.
* The first round waits for ``last_call_seconds`` after the last arrival, unless it is full. A round that survivors form
  again waits only for the survivors.
* Survivors keep their order, newcomers follow by age, and a round has at most ``max_nodes`` nodes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from tidewater.contract import keys
from tidewater.elastic.addresses import Address
from tidewater.elastic.errors import RecordError
from tidewater.elastic.etcd import codec

_TURN_SECONDS = 2.0
"""Time that the first node in line has for a proposal before the second one makes it."""


@dataclass(frozen=True)
class Node:
    """One agent, as in its record."""

    id: str
    host: str
    peer_port: int
    """TCP port of its server, which shows whether its process still exists. At that of rank 0 a round meets."""
    store_port: int
    """TCP port of its torch store, for a round in which it has rank 0."""
    done_with: int
    age: int = 0
    """etcd's create revision of the record: smaller is older. Not part of the stored record."""

    @property
    def address(self) -> Address:
        """Address of its server."""
        return Address(self.host, self.peer_port, self.id)


@dataclass(frozen=True)
class Round:
    """The nodes that run together, in rank order."""

    number: int
    nodes: tuple[Node, ...]

    def rank(self, node_id: str) -> int | None:
        """Return the rank of a node, or None if it is not in this round."""
        return next((rank for rank, node in enumerate(self.nodes) if node.id == node_id), None)


@dataclass(frozen=True)
class View:
    """The records of one run in etcd, at one revision."""

    round: Round | None = None
    round_revision: int = 0
    """Mod revision of the round's record: the fencing token of the next proposal; 0 means there is none."""
    nodes: tuple[Node, ...] = ()
    closed: bool = False

    @property
    def number(self) -> int:
        """Number of the current round, 0 before the first."""
        return self.round.number if self.round else 0

    def node(self, node_id: str) -> Node | None:
        """Return the living node of that id."""
        return next((node for node in self.nodes if node.id == node_id), None)


@dataclass(frozen=True)
class Limits:
    """How many nodes may run together, and how long to wait."""

    min_nodes: int
    max_nodes: int
    last_call_seconds: float = 3.0
    patience_seconds: float = 60.0


@dataclass(frozen=True)
class Inputs:
    """What a node knows in addition to the view. Times are monotonic."""

    me: str
    limits: Limits
    dead: frozenset[str] = frozenset()
    """Nodes that are known to have ended although their lease is still valid."""
    arrived_at: float = 0.0
    """When this node first saw the nodes that are ready now."""
    broken_at: float = 0.0
    """When this node first saw that the current round is broken."""


class Kind(Enum):
    """What a node that wants to be in a round must do."""

    ENTER = "enter"
    PROPOSE = "propose"
    WAIT = "wait"
    GIVE_UP = "give up"


@dataclass(frozen=True)
class Action:
    """``ENTER`` and ``PROPOSE`` have a round, ``WAIT`` the monotonic time at which to decide again, if any."""

    kind: Kind
    round: Round | None = None
    wake_at: float | None = None


def decide(view: View, inputs: Inputs, now: float) -> Action:
    """Return what ``inputs.me`` must do to get into a round. Total and without side effects."""
    if view.closed:
        return Action(Kind.GIVE_UP)
    if view.round and any(node.id == inputs.me for node in busy(view)):
        return Action(Kind.ENTER, round=view.round)
    wake_at = _wait_until(view, inputs)
    if wake_at is None or now < wake_at:
        return Action(Kind.WAIT, wake_at=wake_at)
    chosen = ready(view, inputs.dead)[: inputs.limits.max_nodes]
    turn = next((turn for turn, node in enumerate(chosen) if node.id == inputs.me), None)
    if turn is None:
        return Action(Kind.WAIT)
    my_turn = max(wake_at, inputs.arrived_at) + turn * _TURN_SECONDS
    if now < my_turn:
        return Action(Kind.WAIT, wake_at=my_turn)
    # If etcd has lost its data, the nodes still know the last number.
    number = max([view.number, *(node.done_with for node in chosen)]) + 1
    return Action(Kind.PROPOSE, round=Round(number, tuple(chosen)))


def _wait_until(view: View, inputs: Inputs) -> float | None:
    """Return when the next round may be formed: a time, possibly in the past, or None until something changes."""
    limits, standing = inputs.limits, ready(view, inputs.dead)
    if len(standing) < limits.min_nodes:
        return None
    if any(node.id not in inputs.dead for node in busy(view)):
        return inputs.broken_at + limits.patience_seconds if is_broken(view) else None
    survivors = view.round is not None and any(view.round.rank(node.id) is not None for node in standing)
    if survivors or len(standing) >= limits.max_nodes:
        return float("-inf")
    return inputs.arrived_at + limits.last_call_seconds


def nodes_waiting(view: View, me: str, joined: int, limits: Limits) -> int:
    """Return the number for torchrun's agent while its workers run: more than 0 makes it restart them.

    Args:
        joined: Number of the round in which its workers run.
    """
    if view.closed:
        return 0  # the run is finished: there is no next round
    if view.round is None or view.number != joined or view.round.rank(me) is None:
        return 1
    newcomers = [node for node in ready(view) if view.round.rank(node.id) is None]
    if is_broken(view):
        return max(1, len(newcomers))
    return len(newcomers) if len(view.round.nodes) < limits.max_nodes else 0


def is_broken(view: View) -> bool:
    """Return whether a node of the current round is gone or done with it."""
    return view.round is not None and len(busy(view)) < len(view.round.nodes)


def busy(view: View) -> list[Node]:
    """Return the living nodes of the current round that are not done with it."""
    living = [view.node(node.id) for node in (view.round.nodes if view.round else ())]
    return [node for node in living if node and node.done_with < view.number]


def ready(view: View, dead: frozenset[str] = frozenset()) -> list[Node]:
    """Return the living nodes that may be in the next round: those of the current one in order, then others by age."""
    standing = [node for node in view.nodes if node.done_with >= view.number and node.id not in dead]
    ranks = {node.id: rank for rank, node in enumerate(view.round.nodes if view.round else ())}
    return sorted(standing, key=lambda node: (ranks.get(node.id, len(ranks)), node.age))


def node_to_json(node: Node) -> bytes:
    """Return the record under ``keys.rendezvous_node``."""
    fields = asdict(node)
    del fields["age"]
    return codec.encode(fields, version=keys.RENDEZVOUS_VERSION)


def node_from_json(data: bytes, *, age: int) -> Node:
    """Raise RecordError for a version or shape this code does not know."""
    return _node({**_fields(data), "age": age})


def round_to_json(round_: Round) -> bytes:
    """Return the record under ``keys.rendezvous_round``."""
    return codec.encode(asdict(round_), version=keys.RENDEZVOUS_VERSION)


def round_from_json(data: bytes) -> Round:
    """Raise RecordError for a version or shape this code does not know."""
    fields = _fields(data)
    number, nodes = fields.get("number"), fields.get("nodes")
    if not isinstance(number, int) or not isinstance(nodes, list):
        raise RecordError(f"rendezvous record: {data[:80]!r} is not a round")
    return Round(number, tuple(_node(node) for node in nodes))


def _fields(data: bytes) -> dict[str, Any]:
    remedy = "install the same tidewater on all nodes, or use another --rdzv-id"
    return codec.decode(data, "rendezvous", version=keys.RENDEZVOUS_VERSION, reader="node", remedy=remedy)


def _node(fields: dict[str, Any]) -> Node:
    return codec.build(Node, fields, "rendezvous")
