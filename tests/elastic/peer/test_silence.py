"""A job that makes no step says whom it waits for: the workers that don't wait themselves, or don't answer."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from tidewater.elastic.membership.rules import Generation, Member, Seat, View
from tidewater.elastic.observe.log import Log, parse
from tidewater.elastic.observe.metrics import Metrics
from tidewater.elastic.peer.silence import Asks, Place, Silence

SECONDS = 60.0
NAMES = ("a", "b", "c")
WAITS, WORKS, DUMB = True, False, None


class Noted(Metrics):
    """Metrics that remember what was last said."""

    def __init__(self) -> None:
        self.last: tuple[float, Sequence[str]] = (-1.0, ())

    def silent(self, seconds: float, workers: Sequence[str]) -> None:
        self.last = (seconds, workers)


class World:
    """A job, seen from one of its workers."""

    def __init__(self, me: str = "a", names: Sequence[str] = NAMES, *, least: int = 1) -> None:
        self.now = 1000.0
        self.does: dict[str, bool | None] = dict.fromkeys(names, WAITS)
        self.asked: list[str] = []
        self.during: Callable[[], None] = lambda: None
        """Happens while a worker is asked."""
        members = tuple(Member(f"{name}-id", name, "h", 1, "", 0) for name in names)
        self.view = View(generation=Generation(3, 7, members, "joined"))
        self.output, self.metrics = io.StringIO(), Noted()
        self.silence = Silence(
            Place(f"{me}-id", lambda: self.view, least),
            SECONDS,
            Log(me, stream=self.output),
            self.metrics,
            Asks(lambda: bool(self.does[me]), self.ask),
            clock=lambda: self.now,
        )

    def ask(self, member: Seat) -> bool | None:
        self.asked.append(member.worker)
        self.during()
        return self.does[member.worker]

    def after(self, seconds: float) -> tuple[float, Sequence[str]]:
        """Look again after so long; return what the metrics say."""
        self.now += seconds
        self.silence.look()
        return self.metrics.last

    @property
    def lines(self) -> list[tuple[str, str]]:
        lines = [parse(line) for line in self.output.getvalue().splitlines()]
        assert {line["event"] for line in lines} <= {"silent"}
        return [(line["seconds"], line["waits_for"]) for line in lines]


def test_a_job_that_makes_steps_is_not_silent_and_no_worker_is_asked() -> None:
    world = World()
    for _ in range(10):
        world.metrics.progressed_at = world.now
        assert world.after(SECONDS - 1) == (0.0, ())
    assert (world.asked, world.lines) == ([], [])


def test_rank_0_names_the_workers_that_do_not_wait_or_do_not_answer() -> None:
    world = World()
    world.does |= {"b": WORKS, "c": DUMB}
    assert world.after(SECONDS - 1) == (0.0, ())
    assert world.after(1) == (SECONDS, ["b", "c"])
    assert world.asked == ["b", "c"]
    assert world.lines == [("60", "b, c")]


def test_a_worker_that_the_others_wait_for_says_so_itself_and_asks_no_other() -> None:
    world = World("b")
    world.does["b"] = WORKS
    assert world.after(SECONDS) == (SECONDS, ["b"])
    assert (world.asked, world.lines) == ([], [("60", "b")])
    world.does["b"] = WAITS
    assert world.after(1) == (SECONDS + 1, [])


def test_it_is_not_said_again_and_again_and_the_metrics_are_current() -> None:
    world = World()
    world.does["b"] = WORKS
    for _ in range(100):
        world.after(1)
    assert world.metrics.last == (100.0, ["b"])
    assert len(world.lines) < 5
    world.metrics.progressed_at = world.now
    assert world.after(1) == (0.0, ())


def test_a_worker_in_line_or_below_the_minimum_or_of_a_finished_job_says_nothing() -> None:
    in_line, few, finished = World(), World(least=4), World()
    in_line.view = View(generation=Generation(4, 8, few.view.generation.members[1:], "left"))  # type: ignore[union-attr]
    finished.view = replace(finished.view, finished="{}")
    for world in (in_line, few, finished):
        assert world.after(10 * SECONDS) == (0.0, ())
        assert (world.asked, world.lines) == ([], [])


def test_a_worker_that_has_just_become_a_member_has_the_whole_time() -> None:
    world = World()
    view = world.view
    world.view = View()
    world.after(10 * SECONDS)
    world.view = view
    assert world.after(SECONDS - 1) == (0.0, ())
    assert world.after(1)[0] == SECONDS


def test_asking_ends_with_the_silence_and_with_the_generation() -> None:
    """Each worker that doesn't answer takes seconds, and there may be hundreds of them."""

    def steps(world: World) -> None:
        world.metrics.progressed_at = world.now

    def lost(world: World) -> None:
        world.view = View(generation=Generation(4, 8, world.view.generation.members[:1], "lost"))  # type: ignore[union-attr]

    for happens in (steps, lost):
        world = World()
        world.does |= {"b": DUMB, "c": DUMB}
        before = world.after(1)
        world.during = partial(happens, world)
        assert world.after(SECONDS) == before
        assert (world.asked, world.lines) == (["b"], [])


def test_at_most_eight_are_named_in_a_line() -> None:
    names = [f"w-{number}" for number in range(12)]
    world = World("w-0", names)
    world.does = dict.fromkeys(names, DUMB) | {"w-0": WAITS}
    world.after(SECONDS)
    assert world.lines[0][1] == ", ".join([*names[1:9], "3 others"])
