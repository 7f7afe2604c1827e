"""Whether many pods have room at once."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tidewater.controller.room.packing import Demand, Held, Part, Room, part
from tidewater.controller.room.placement import Node

GPU = "nvidia.com/gpu"


def nodes(**gpus: int) -> dict[str, Node]:
    return {name: Node(True, {GPU: each * 1000, "pods": 110_000}, {"name": name}) for name, each in gpus.items()}


def pods(count: int, gpus: int, type: str = "Worker", **spec: Any) -> Part:
    template = {"spec": {"containers": [{"resources": {"limits": {GPU: gpus}}}], **spec}}
    found = part(type, count, template, [None])
    assert found is not None
    return found


def held(node: str, gpus: int, owner: str = "other", **fields: Any) -> Held:
    given = {"type": "worker", "priority": 0, "ending": False, "fixed": False, **fields}
    return Held(node=node, amounts={GPU: gpus * 1000, "pods": 1000}, owner=owner, **given)


def fits(room: Room, *demand: Part, **how: Any) -> bool:
    return room.free(**how).place(demand)


def test_all_pods_have_room_at_once_or_none_takes_any() -> None:
    free = Room(nodes(a=4, b=4)).free()
    assert not free.place((pods(3, 3),))
    assert free.place((pods(2, 3),))
    assert not free.place((pods(1, 2),))
    assert free.place((pods(2, 1),))


def test_types_that_ask_for_most_are_placed_first() -> None:
    assert fits(Room(nodes(a=4, b=2)), pods(1, 2, "PS"), pods(1, 4))


def test_a_kubelet_runs_only_so_many_pods() -> None:
    room = Room({"a": Node(True, {"pods": 2000, GPU: 9000}, {})})
    assert fits(room, pods(2, 1))
    assert not fits(room, pods(3, 1))


def test_a_resource_that_no_node_has_has_no_room() -> None:
    assert not fits(Room({"a": Node(True, {"pods": 9000}, {})}), pods(1, 1))


def test_pods_of_others_take_room_until_they_are_gone() -> None:
    room = Room(nodes(a=4), (held("a", 3, ending=True), held("gone", 4)))
    assert not fits(room, pods(1, 2))
    assert fits(room, pods(1, 2), ending=False)
    assert fits(room, pods(1, 2), gone={"other"})


def test_pods_of_a_lower_priority_are_displaced_if_all_pods_displace_others() -> None:
    room = Room(nodes(a=4), (held("a", 3, priority=5),), classes={"": 0, "low": 5, "high": 6})
    high, low, unknown = (pods(1, 4, priorityClassName=name) for name in ("high", "low", "never"))
    assert [room.above((each,)) for each in (high, low, unknown, pods(1, 4))] == [6, 5, None, 0]
    assert fits(room, high, above=room.above((high,)))
    assert not fits(room, low, above=room.above((low,)))
    assert room.above((high, unknown)) is None


def test_what_never_fits_does_not_fit_on_nodes_that_are_empty_and_in_order() -> None:
    broken = {"a": Node(False, {GPU: 4000, "pods": 9000}, {}, (("node.kubernetes.io/not-ready", "", "NoExecute"),))}
    room = Room(broken, (held("a", 4), held("a", 1, fixed=True)))
    assert not fits(room, pods(1, 1))
    assert not room.never((pods(1, 3),))
    assert room.never((pods(1, 4),))


def test_pods_with_a_node_are_no_longer_asked_for() -> None:
    mine = (held("a", 1, "job"), held("a", 1, "job", ending=True), held("a", 1, "job", type="ps"))
    room = Room(nodes(a=9), mine)
    assert room.rest((pods(2, 1), pods(1, 1, "PS")), "job") == (pods(1, 1),)


def test_it_is_not_said_where_pods_of_a_template_fit_that_the_api_server_will_refuse() -> None:
    wrong: list[Mapping[str, Any]] = [
        {"spec": "text"},
        {"spec": {"containers": ["text"]}},
        {"spec": {"containers": [{"resources": {"limits": {"cpu": "many"}}}]}},
    ]
    assert [part("Worker", 1, template, [None]) for template in wrong] == [None, None, None]


def test_people_read_what_pods_ask_for() -> None:
    resources = {"limits": {GPU: 8, "cpu": "500m", "memory": "2Gi"}}
    found = part("Worker", 4, {"spec": {"containers": [{"resources": resources}]}}, [None])
    assert str(found) == "4 of type Worker (cpu 0.5, memory 2048Mi, nvidia.com/gpu 8 each)"
    assert str(part("PS", 2, {}, [None])) == "2 of type PS"


SIZES = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@given(SIZES, st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), min_size=1, max_size=2))
def test_what_is_placed_has_room_and_of_one_type_no_room_is_missed(
    rooms: list[int], types: list[tuple[int, int]]
) -> None:
    demand: Demand = tuple(pods(count, gpus, f"T{number}") for number, (count, gpus) in enumerate(types))
    placed = Room(nodes(**{f"n{number}": size for number, size in enumerate(rooms)})).free().place(demand)
    each = [gpus for count, gpus in types for _ in range(count)]
    exists = any(
        all(
            sum(gpus for gpus, at in zip(each, where, strict=True) if at == node) <= size
            for node, size in enumerate(rooms)
        )
        for where in product(range(len(rooms)), repeat=len(each))
    )
    assert placed <= exists
    assert placed or len(types) > 1 or not exists


def test_pods_without_gpus_leave_the_nodes_with_gpus_to_those_that_need_them() -> None:
    def on(cpus: int, **more: int) -> Node:
        return Node(True, {"pods": 110_000, "cpu": cpus * 1000, **more}, {})

    def of(count: int, type: str, **requests: int) -> Part:
        found = part(type, count, {"spec": {"containers": [{"resources": {"requests": requests}}]}}, [None])
        assert found is not None
        return found

    room = Room({"a": on(16, **{GPU: 4000}), "b": on(16)})
    job = of(4, "Worker", cpu=3, **{GPU: 1}), of(1, "PS", cpu=8)
    assert fits(room, *job)
    assert not room.never(job)
    free = room.free()
    free.reserve((of(1, "PS", cpu=8),))
    assert free.place(job[:1])
