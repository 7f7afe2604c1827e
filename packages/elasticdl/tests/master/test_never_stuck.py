"""No job gets stuck: messages that are late, lost or doubled, streams that end in any order, masters that are killed.

One thread simulates all processes, in an order that a seed gives. Workers behave as real ones do: after its stream
broke, a worker opens another one and names its task; without an answer it asks again. After the disorder everything
that is under way arrives, one worker goes on, and the job must end within a day of the coordinator's clock.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from elasticdl.data.reader import Shard
from elasticdl.master.coordinator import Coordinator, Plans, Setup
from elasticdl.master.store import Fields, MemoryStore
from elasticdl.master.tasks import transitions
from elasticdl.master.tasks.decide import Action, decide
from elasticdl.master.tasks.plan import EVALUATIONS, Cut, Plan
from elasticdl.master.tasks.state import JobState, Rules, Stage, begin
from elasticdl.master.tasks.task_queue import Owner
from elasticdl.master.tasks.transitions import Outcome

TASKS = 12
STEPS = 300
ROUNDS, ROUND_SECONDS = 3000, 30.0
RULES = Rules(evaluation_steps=15, checkpoint_steps=25, exports=True, goes_on_without=True)


class Record(MemoryStore):
    """What a master that is killed leaves behind: JSON, as in etcd."""

    def save(self, fields: Fields) -> None:
        super().save(json.loads(json.dumps(fields)))


@dataclass
class Player:
    """A worker's process."""

    owner: Owner
    stream: object = None
    """The stream that it believes to be open."""
    task: int = 0
    leaving: bool = False


@dataclass
class World:
    """The master's process, the workers, and the messages that are under way."""

    seed: int
    store: Record = field(default_factory=Record)
    now: float = 0.0
    version: int = 0
    counted: Counter[int] = field(default_factory=Counter)
    under_way: list[Callable[[], object]] = field(default_factory=list)
    players: list[Player] = field(default_factory=list)
    names: itertools.count[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        self.rules = dataclasses.replace(
            RULES,
            servers=self.draw.choice([0, 2]),
            evaluation_tasks=self.draw.choice([0, 2]),
            max_step=self.draw.choice([None, self.draw.randrange(10, 90)]),
        )
        self.plan = Plan.of([Shard("s", 0, TASKS)], Cut(1))
        self.evaluation = Plan.of([Shard("e", 0, 2)], Cut(1, shuffle=False, first=EVALUATIONS))
        self.start_master(begin(self.rules, self.plan.tasks, plan="plan"))
        for _ in range(3):
            self.join()

    def start_master(self, state: JobState) -> None:
        plans = Plans(self.plan, self.evaluation)
        self.master = Coordinator(Setup(self.rules), plans, self.store, state, clock=lambda: self.now)

    # -- what may happen ----------------------------------------------------------------------------------------------

    def join(self) -> None:
        number = next(self.names)
        self.players.append(Player(Owner(f"worker-{number}", f"p{number}")))

    def restart_master(self) -> None:
        """Kill the master: what was under way to it is lost, and every stream breaks."""
        self.under_way.clear()
        for player in self.players:
            player.stream = None
        self.now += self.draw.choice([0.0, 1000.0])
        fields = self.store.take_over()
        if fields is not None:
            self.start_master(JobState.from_fields(fields, now=self.now))

    def send(self, call: Callable[[], object]) -> None:
        """Let a message arrive now or later."""
        if self.draw.random() < 0.3:
            self.under_way.append(call)
        else:
            call()

    def arrive(self) -> None:
        if self.under_way:
            self.under_way.pop(self.draw.randrange(len(self.under_way)))()

    def attend(self, player: Player) -> None:
        player.stream = object()
        held = [player.task] if player.task else []
        self.send(functools.partial(self.open, player, held, player.stream, player.leaving))

    def open(self, player: Player, held: list[int], stream: object, leaving: bool) -> None:
        """Run the service's handler of a stream: it learns in the end if the stream is broken already."""
        self.master.attend(player.owner, held, stream)
        if leaving:
            self.master.leave(player.owner)
        if player not in self.players or player.stream is not stream:
            self.send(functools.partial(self.master.gone, player.owner, stream))

    def break_stream(self, player: Player) -> None:
        if player.stream is not None:
            self.send(functools.partial(self.master.gone, player.owner, player.stream))
            player.stream = None

    def die(self, player: Player) -> None:
        self.break_stream(player)
        self.players.remove(player)
        self.join()

    def leave(self, player: Player) -> None:
        player.leaving = True
        if player.stream is not None:
            self.send(functools.partial(self.master.leave, player.owner))

    def work(self, player: Player, *, orderly: bool = False) -> None:
        """Do the worker's next thing."""
        if player.stream is None:
            self.attend(player)
        elif player.leaving:
            if player.task:
                self.master.report(Outcome(task=player.task, owner=player.owner, given_back=True), {})
            self.die(player)
        elif player.task:
            self.report(player, orderly)
        else:
            holding: list[int] = []
            if self.draw.random() < 0.1 and not orderly:  # a call that was given up arrives after the next one
                self.under_way.append(functools.partial(self.master.hand_out, player.owner, holding))
            assignment = self.master.hand_out(player.owner, holding)
            if assignment.replace:
                return self.die(player)
            if orderly or self.draw.random() < 0.9:
                player.task = assignment.task

    def report(self, player: Player, orderly: bool) -> None:
        fails = not orderly and self.draw.random() < 0.1
        outcome = Outcome(task=player.task, owner=player.owner, records=1, error="no" if fails else "")
        answer = self.master.report(outcome, {})
        if self.draw.random() < 0.2 and not orderly:  # the answer was lost; or the call arrives again much later
            if self.draw.random() < 0.5:
                assert fails or self.master.report(outcome, {}) == answer
            else:
                self.under_way.append(functools.partial(self.master.report, outcome, {}))
        if answer and not fails:
            self.counted[player.task] += 1
        player.task = 0

    def act(self) -> None:
        """Do what the master's actor does."""
        match decide(self.master.state, self.rules):
            case Action.TAKE_SNAPSHOT:
                self.master.apply(functools.partial(transitions.snapshot_taken, step=self.version, servers=()))
            case Action.CONCLUDE:
                self.master.apply(transitions.evaluation_concluded)
            case Action.SAVE:
                self.master.apply(lambda state, rules: transitions.saved(state, rules, state.version))
            case Action.FLUSH:
                self.master.apply(lambda state, rules: transitions.flushed(state, rules, self.version))

    def happen(self) -> None:
        """Let one thing happen."""
        player = self.draw.choice(self.players)
        things: list[tuple[int, Callable[[], object]]] = [
            (30, lambda: self.work(player)),
            (10, self.arrive),
            (5, self.act),
            (4, lambda: self.break_stream(player)),
            (2, lambda: self.die(player)),
            (1, lambda: self.leave(player)),
            (2, self.restart_master),
            (5, self.reach),
            (3, self.pass_time),
            (1, lambda: self.master.apply(transitions.evaluation_begun_anew) if self.master.state.evaluation else None),
        ]
        (thing,) = self.draw.choices([call for _, call in things], [weight for weight, _ in things])
        thing()

    def reach(self) -> None:
        self.version = max(0, self.version + self.draw.randrange(-3, 9))
        self.master.reached(self.version)

    def pass_time(self) -> None:
        self.now += self.draw.choice([1.0, 11.0, 400.0])
        self.master.tick()

    def end(self) -> None:
        """Let everything arrive, and one worker go on until the job has ended; the others hang with their tasks."""
        while self.under_way:
            self.arrive()
        last = self.players[0]
        for _ in range(ROUNDS):
            if self.master.state.ended:
                return
            self.act()
            self.work(last, orderly=True)
            if last not in self.players:
                last = self.players[-1]
            while self.under_way:
                self.arrive()
            self.now += ROUND_SECONDS
            self.master.tick()


BLOCKS = [*range(2), *(pytest.param(block, marks=pytest.mark.soak) for block in range(2, 30))]


@pytest.mark.parametrize("block", BLOCKS)
def test_every_job_ends_and_counts_each_task_once_or_names_it_as_left_out(block: int) -> None:
    for seed in range(100 * block, 100 * block + 100):
        world = World(seed)
        for _ in range(STEPS):
            world.happen()
        world.end()
        check(world)


def check(world: World) -> None:
    """Check that the job has ended, and each task is counted once, left out, or not handed out after the last step."""
    state, about = world.master.state, f"seed {world.seed}: {world.master.state} {world.counted}"
    assert state.ended, about
    assert all(count == 1 for count in world.counted.values()), about
    done, left_out = state.work.done_tasks(), set(state.work.left_out)
    # A report of a process that has died may arrive, and count, when no worker sees the answer.
    assert {task for task in world.counted if task <= TASKS} <= set(done), about
    assert state.records == state.work.done == len(done), about
    if state.stage is Stage.DONE:
        never = set(range(state.work.end, TASKS + 1))
        assert bool(never) <= bool(state.stopped), about
        assert not left_out & set(done), about
        assert left_out | never | set(done) == set(range(1, TASKS + 1)), about
        assert state.export.done == 1, about
    else:  # only if not one task was done, or no worker could write the model
        assert not done or state.export.left_out, about
