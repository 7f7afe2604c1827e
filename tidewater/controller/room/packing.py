"""The room that is left on the nodes, and whether many pods fit into it at once.

    free = room.free()                       # a Free, to be filled
    free.place(demand)                       # takes the room for all pods of the demand, or for none

Pods of one type are alike, so they are placed together, the types that ask for most first (first-fit decreasing). With
one type the answer is exact. With several, a packing that exists may be missed, never the other way round; but the
scheduler may choose another one, after which the last pod doesn't fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from tidewater.controller.room.placement import Node, Rules, admits, in_order, rules_of
from tidewater.controller.room.requests import PODS, Amounts, Spec, requested


@dataclass(frozen=True, slots=True)
class Part:
    """Pods of one replica type.

    Attributes:
        type: as the job has it.
        count: number of pods.
        amounts: what each asks for, by resource, in thousandths.
        rules: which nodes it may be on.
        classes: the priority classes that they have; an empty name is the cluster's default.
    """

    type: str
    count: int
    amounts: tuple[tuple[str, int], ...]
    rules: Rules
    classes: frozenset[str]

    def __str__(self) -> str:
        each = ", ".join(f"{name} {_shown(amount / 1000)}" for name, amount in self.amounts if name != PODS)
        return f"{self.count} of type {self.type}" + (f" ({each} each)" if each else "")


Demand = tuple[Part, ...]
"""All pods that must have room at once."""


def part(type: str, count: int, template: Spec, classes: Iterable[str | None]) -> Part | None:
    """Return pods of this template; None if it can't be said where they fit.

    The template is a user's, which the API server checks only when a pod is created.

    Args:
        type: Their replica type.
        count: Their number.
        template: Their template.
        classes: The priority classes that they have instead of the template's; None: the template's.
    """
    try:
        spec = template.get("spec") or {}
        rules, found, own = rules_of(spec), requested(spec), str(spec.get("priorityClassName") or "")
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    if rules is None:
        return None
    amounts = tuple(sorted((name, amount) for name, amount in found.items() if amount > 0))
    return Part(type, count, amounts, rules, frozenset(each or own for each in classes))


def _shown(amount: float) -> str:
    return f"{amount / 2**20:g}Mi" if amount >= 2**20 else f"{amount:g}"


@dataclass(frozen=True, slots=True)
class Held:
    """The room that a pod holds on its node.

    Attributes:
        node: its name.
        amounts: what it asked for.
        owner: uid of the object that it belongs to.
        type: the label `replica-type`.
        priority: a pod with a higher one may displace it.
        ending: whether it is being deleted.
        fixed: whether it comes with the node, as one of a DaemonSet.
    """

    node: str
    amounts: Amounts
    owner: str
    type: str
    priority: int
    ending: bool
    fixed: bool


class Free:
    """The room that is left on each node."""

    def __init__(self, nodes: Mapping[str, Node], held: Iterable[Held]) -> None:
        self._nodes = nodes
        self._left = {name: dict(node.allocatable) for name, node in nodes.items()}
        self._extended = {name: [of for of in node.allocatable if "/" in of] for name, node in nodes.items()}
        for each in held:
            if each.node in self._left:
                _take(self._left[each.node], each.amounts.items(), 1)

    def place(self, demand: Demand, *, keep: bool = True) -> bool:
        """Return whether all pods of the demand have room at once; if so, take it, unless `keep` is False."""
        taken: list[tuple[str, Part, int]] = []
        fits = True
        for each in sorted(demand, key=self._size, reverse=True) if len(demand) > 1 else demand:
            taken += self._placed(each)
            if sum(count for _, of, count in taken if of is each) < each.count:
                fits = False
                break
        if not (fits and keep):
            for node, of, count in taken:
                _take(self._left[node], of.amounts, -count)
        return fits

    def reserve(self, demand: Demand) -> None:
        """Take the room for those pods of the demand that have some."""
        for each in demand:
            self._placed(each)

    def _placed(self, part: Part) -> list[tuple[str, Part, int]]:
        """Take the room for as many of the pods as have some; return how many on which node."""
        found, missing, asked = [], part.count, {of for of, _ in part.amounts}

        def has_more(name: str) -> bool:
            return any(of not in asked and self._left[name][of] > 0 for of in self._extended[name])

        # Nodes with GPUs last, if these pods ask for none: others may need them.
        for name in sorted(self._left, key=has_more):
            left = self._left[name]
            count = min(missing, *(left.get(of, 0) // amount for of, amount in part.amounts))
            if count > 0 and admits(self._nodes[name], part.rules):
                _take(left, part.amounts, count)
                found.append((name, part, count))
                missing -= count
            if missing <= 0:
                break
        return found

    def _size(self, part: Part) -> float:
        """Return the largest share of a node's room that such a pod takes, on the node where that is least."""
        rooms = [node.allocatable for node in self._nodes.values() if admits(node, part.rules)]
        shares = (max(amount / max(1, room.get(of, 0)) for of, amount in part.amounts) for room in rooms)
        return min(shares, default=float("inf"))


@dataclass(frozen=True)
class Room:
    """The nodes and what is on them.

    Attributes:
        nodes: by name.
        held: what pods hold of them, those included that are being deleted.
        classes: of each priority class that displaces others: its value, by name; the default also by an empty name.
        known: False: the API server has not been asked yet. Then there are no nodes.
    """

    nodes: Mapping[str, Node] = field(default_factory=dict)
    held: tuple[Held, ...] = ()
    classes: Mapping[str, int] = field(default_factory=dict)
    known: bool = True

    def free(self, gone: Collection[str] = (), *, ending: bool = True, above: int | None = None) -> Free:
        """Return the room that is left.

        Args:
            gone: Uids of jobs; their pods don't count.
            ending: Whether pods that are being deleted count.
            above: The priority of pods that displace others; None: they displace none.
        """

        def counts(each: Held) -> bool:
            displaced = above is not None and each.priority < above
            return not displaced and each.owner not in gone and (ending or not each.ending)

        return Free(self.nodes, filter(counts, self.held))

    def above(self, demand: Demand) -> int | None:
        """Return the priority with which all pods of the demand displace others; None if some displace none."""
        values = [self.classes.get(name) for part in demand for name in part.classes]
        found = [value for value in values if value is not None]
        return min(found) if found and len(found) == len(values) else None

    def rest(self, demand: Demand, owner: str) -> Demand:
        """Return what a job's pods that have a node leave of its demand."""
        there = self._placed.get(owner, Counter[str]())
        left = (replace(part, count=part.count - there[part.type.lower()]) for part in demand)
        return tuple(part for part in left if part.count > 0)

    def never(self, demand: Demand) -> bool:
        """Return whether the demand would have no room if the nodes were in order, and without other jobs' pods."""
        if demand not in self._nevers:
            self._nevers[demand] = not self._empty.place(demand, keep=False)
        return self._nevers[demand]

    @cached_property
    def _empty(self) -> Free:
        nodes = {name: in_order(node) for name, node in self.nodes.items()}
        return Free(nodes, (each for each in self.held if each.fixed))

    @cached_property
    def _placed(self) -> Mapping[str, Counter[str]]:
        found: dict[str, Counter[str]] = {}
        for each in self.held:
            if not each.ending:
                found.setdefault(each.owner, Counter())[each.type] += 1
        return found

    @cached_property
    def _nevers(self) -> dict[Demand, bool]:
        return {}


def _take(left: Amounts, amounts: Iterable[tuple[str, int]], count: int) -> None:
    for name, amount in amounts:
        left[name] = left.get(name, 0) - amount * count
