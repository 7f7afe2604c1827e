"""The rules that decide which nodes run together, for every situation of torchrun's agents."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidewater.elastic.errors import RecordError
from tidewater.elastic.torchrun import rounds
from tidewater.elastic.torchrun.rounds import Inputs, Kind, Limits, Node, Round, View

LIMITS = Limits(1, 2, last_call_seconds=3, patience_seconds=60)


def node(name: str, done_with: int = 0, *, age: int | None = None) -> Node:
    return Node(name, "127.0.0.1", 1, 2, done_with, age=ord(name) if age is None else age)


def inputs(me: str, limits: Limits = LIMITS, **more: object) -> Inputs:
    return replace(Inputs(me, limits), **more)  # type: ignore[arg-type]


def running(*names: str, number: int = 1, others: tuple[Node, ...] = ()) -> View:
    """Return a round of these nodes with running workers."""
    nodes = tuple(node(name, number - 1) for name in names)
    return View(Round(number, nodes), 10, (*nodes, *others))


def chosen(action: rounds.Action) -> list[str]:
    assert action.kind is Kind.PROPOSE
    assert action.round
    return [each.id for each in action.round.nodes]


def test_the_first_round_waits_for_a_last_call_unless_it_is_full() -> None:
    one = View(nodes=(node("a"),))
    waiting = rounds.decide(one, inputs("a", arrived_at=10), now=12)
    assert (waiting.kind, waiting.wake_at) == (Kind.WAIT, 13)
    assert chosen(rounds.decide(one, inputs("a", arrived_at=10), now=13)) == ["a"]
    two = View(nodes=(node("b"), node("a")))
    assert chosen(rounds.decide(two, inputs("a", arrived_at=10), now=10)) == ["a", "b"]


def test_below_the_minimum_no_round_is_formed() -> None:
    action = rounds.decide(View(nodes=(node("a"),)), inputs("a", Limits(2, 3)), now=1e9)
    assert (action.kind, action.wake_at) == (Kind.WAIT, None)


def test_the_first_in_line_proposes_and_the_second_only_if_it_does_not() -> None:
    view = View(nodes=(node("a"), node("b")))
    assert rounds.decide(view, inputs("b", arrived_at=10), now=11).kind is Kind.WAIT
    assert chosen(rounds.decide(view, inputs("b", arrived_at=10), now=13)) == ["a", "b"]


def test_a_round_has_at_most_the_maximum_number_of_nodes() -> None:
    view = View(nodes=(node("a"), node("b"), node("c")))
    assert chosen(rounds.decide(view, inputs("a"), now=10)) == ["a", "b"]
    assert rounds.decide(view, inputs("c"), now=1e9).kind is Kind.WAIT


def test_a_node_enters_the_round_that_lists_it() -> None:
    view = running("a", "b")
    assert rounds.decide(view, inputs("b"), now=0) == rounds.Action(Kind.ENTER, round=view.round)


def test_a_newcomer_makes_the_members_restart_their_workers_only_if_there_is_room() -> None:
    newcomer = (node("c", 1),)
    assert rounds.nodes_waiting(running("a", others=newcomer), "a", 1, LIMITS) == 1
    full = running("a", "b", others=newcomer)
    assert rounds.nodes_waiting(full, "a", 1, LIMITS) == 0
    assert rounds.decide(full, inputs("c"), now=1e9).kind is Kind.WAIT


def test_a_newcomer_waits_for_the_members_to_stop_without_a_time_limit() -> None:
    view = running("a", others=(node("c", 1),))
    assert rounds.decide(view, inputs("c", broken_at=0), now=1e9).kind is Kind.WAIT
    stopped = replace(view, nodes=(node("a", 1), node("c", 1)))
    assert chosen(rounds.decide(stopped, inputs("a"), now=10)) == ["a", "c"]


def test_after_a_lost_node_the_others_restart_and_form_a_round_without_a_last_call() -> None:
    view = running("a", "b")
    lost = replace(view, nodes=view.nodes[:1])
    assert rounds.nodes_waiting(lost, "a", 1, LIMITS) == 1
    stopped = replace(lost, nodes=(node("a", 1),))
    action = rounds.decide(stopped, inputs("a", arrived_at=10), now=10)
    assert chosen(action) == ["a"]
    assert action.round
    assert action.round.number == 2


def test_a_node_whose_workers_failed_makes_the_others_restart_theirs() -> None:
    view = running("a", "b")
    failed = replace(view, nodes=(node("a", 1), view.nodes[1]))
    assert rounds.nodes_waiting(failed, "b", 1, LIMITS) == 1


def test_busy_nodes_are_waited_for_until_the_patience_ends_or_they_are_known_to_be_dead() -> None:
    view = running("a", "b")
    broken = replace(view, nodes=(node("a", 1), view.nodes[1]))
    waiting = rounds.decide(broken, inputs("a", broken_at=10), now=69)
    assert (waiting.kind, waiting.wake_at) == (Kind.WAIT, 70)
    assert chosen(rounds.decide(broken, inputs("a", broken_at=10), now=70)) == ["a"]
    assert chosen(rounds.decide(broken, inputs("a", broken_at=10, dead=frozenset("b")), now=11)) == ["a"]


def test_a_node_that_was_left_behind_restarts_its_workers_and_joins_as_a_newcomer() -> None:
    frozen = node("b", 0)
    view = running("a", number=2, others=(frozen,))
    assert rounds.nodes_waiting(view, "b", 1, LIMITS) == 1
    assert rounds.nodes_waiting(view, "a", 2, LIMITS) == 0  # not ready yet: its workers still run
    back = replace(view, nodes=(view.nodes[0], node("b", 2)))
    assert rounds.nodes_waiting(back, "a", 2, LIMITS) == 1


def test_survivors_keep_their_order_and_newcomers_come_after_them() -> None:
    view = View(Round(3, (node("c"), node("a"))), 10, (node("b", 3, age=1), node("a", 3), node("c", 3)))
    assert chosen(rounds.decide(view, inputs("c", Limits(1, 4)), now=10)) == ["c", "a", "b"]


def test_a_finished_run_restarts_no_workers_and_admits_no_nodes() -> None:
    view = replace(running("a", "b"), closed=True)
    gone = replace(view, nodes=())
    assert rounds.nodes_waiting(gone, "a", 1, LIMITS) == 0
    assert rounds.decide(view, inputs("c"), now=0).kind is Kind.GIVE_UP


def test_the_round_number_keeps_increasing_when_etcd_has_lost_its_data() -> None:
    action = rounds.decide(View(nodes=(node("a", 7),)), inputs("a", Limits(1, 1)), now=0)
    assert action.round
    assert action.round.number == 8


def test_records_are_read_as_they_were_written_and_another_version_is_named() -> None:
    found = Round(4, (node("a", 3, age=0), node("b", 3, age=0)))
    assert rounds.round_from_json(rounds.round_to_json(found)) == found
    assert rounds.node_from_json(rounds.node_to_json(node("a")), age=97) == node("a")
    with pytest.raises(RecordError, match="version 9"):
        rounds.node_from_json(b'{"version": 9}', age=1)
    with pytest.raises(RecordError, match="unexpected keyword"):
        rounds.node_from_json(rounds.node_to_json(node("a"))[:-1] + b', "new": 1}', age=1)
