"""The job's state in one place: each call is one transition, saved before it is answered.

    coordinator = Coordinator(Setup(rules, plans, scores), store, state)
    coordinator.attend(owner, tasks=[], stream=object())
    task = coordinator.hand_out(owner, holding=[])
    coordinator.report(Outcome(task=task.id, owner=owner, records=4096))

Calls come from many threads; one lock makes their transitions one after the other. Calls that come while the state is
saved share the next save. While etcd is away a call waits for it.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from elasticdl.errors import ElasticDLError, InputError
from elasticdl.master.failing import Failing
from elasticdl.master.scores import Scores
from elasticdl.master.store import Interrupted, StateStore
from elasticdl.master.tasks import transitions
from elasticdl.master.tasks.decide import Action, decide
from elasticdl.master.tasks.plan import Piece, Plan
from elasticdl.master.tasks.state import JobState, Rules, Script, Stage
from elasticdl.master.tasks.task_queue import Owner, Queue
from elasticdl.master.tasks.transitions import EVALUATION, EXPORT, Outcome

log = logging.getLogger(__name__)

REJOIN_SECONDS = 10.0
"""How long a restarted master waits for the workers that have the tasks in its record; they try twice a second."""
WAIT_SECONDS = 0.5
"""After this time a worker without a task asks again."""
SOON_SECONDS = 0.05
"""The same, while the worker's stream has not yet reached the master."""


@dataclass(frozen=True)
class Plans:
    """Which records the tasks have."""

    work: Plan | None
    """None until a script has said how many records there are."""
    evaluation: Plan | None = None


@dataclass(frozen=True)
class Setup:
    """What does not change in a job."""

    rules: Rules
    scores: Scores | None = None
    by_script: Callable[[Script], Plan] | None = None
    """The plan for the data that a script finds by itself; None: the data is that of the flags."""


@dataclass(frozen=True)
class Assignment:
    """The answer to a worker that asks for a task."""

    task: int = 0
    kind: str = ""
    piece: Piece | None = None
    snapshot: int = 0
    wait_seconds: float = 0.0
    stop: bool = False
    """The job has ended."""
    replace: bool = False
    """The process fails tasks that others do: it is to end with an error."""
    reason: str = ""


@dataclass(frozen=True)
class Progress:
    """How far the job is."""

    stage: Stage
    done: int
    total: int
    epoch: int
    records: int
    version: int
    workers: int


class Coordinator:
    """See the module. Errors of the store pass through every method, and `Fenced` must end the process."""

    def __init__(
        self,
        setup: Setup,
        plans: Plans,
        store: StateStore,
        state: JobState,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._setup, self._plans, self._store, self._clock = setup, plans, store, clock
        self._state = state
        self._streams: dict[Owner, set[object]] = {}
        """A process may have two for a moment, in any order: it opens another one before it is known that one broke."""
        self._leaving: set[Owner] = set()
        self._failing = Failing()
        self._ended: set[Owner] = set()
        """Processes of a script that take no more part, and end with success: their pods are not replaced."""
        self._expected = _known(state)
        """Processes that another master knew and this one has not yet seen."""
        self._rejoin_until = clock() + REJOIN_SECONDS
        self._fatal: Exception | None = None
        self._made = self._saved = 0
        """Numbers of the newest state and of the one that was saved last."""
        self._saving = False
        self._changed = threading.Condition(threading.RLock())

    @property
    def state(self) -> JobState:
        """Return the present state."""
        with self._changed:
            return self._state

    @property
    def rules(self) -> Rules:
        """Return the rules of the job."""
        return self._setup.rules

    # -- workers ------------------------------------------------------------------------------------------------------

    def attend(self, owner: Owner, tasks: Collection[int], stream: object) -> None:
        """Take in that a process is there, by the first message of a stream."""
        with self._changed:
            self._streams.setdefault(owner, set()).add(stream)
            self._expected.discard(owner.process)
            self._leaving.discard(owner)
            self._commit(transitions.attend(self._state, self.rules, owner, tasks, now=self._clock()))

    def leave(self, owner: Owner) -> None:
        """Take in that a process got SIGTERM: it gets no more tasks."""
        with self._changed:
            self._leaving.add(owner)
            self._changed.notify_all()

    def gone(self, owner: Owner, stream: object) -> None:
        """Take in that a stream has ended; its process is gone unless it has opened another one."""
        with self._changed:
            streams = self._streams.get(owner, set())
            streams.discard(stream)
            if streams or owner not in self._streams:
                return
            del self._streams[owner]
            left = owner in self._leaving
            self._leaving.discard(owner)
            self._failing.forget(owner.process)
            tasks = [task for queue in _queues(self._state) for task in queue.held_by(owner)]
            if tasks:
                log.warning("%s is gone; its tasks %s are given to others", owner.worker, tasks)
            self._commit(transitions.lost(self._state, self.rules, owner, left=left))
            if owner in self._ended and not self._streams:
                remedy = "Take all minibatches from controller.batches(…), or call controller.stop()."
                self.fail(InputError(f"all workers have ended, and {self._state.work.todo} tasks are not done", remedy))

    def hand_out(self, owner: Owner, holding: Collection[int]) -> Assignment:
        """Return a task, or what to do without one."""
        with self._changed:
            if self._state.ended:
                self._commit(self._state)
                return Assignment(stop=True, reason=self._state.reason)
            if owner not in self._streams:
                return Assignment(wait_seconds=SOON_SECONDS)
            if self._failing.is_broken(owner.process):
                log.warning("%s fails tasks that other workers do: it is replaced", owner.worker)
                return Assignment(replace=True, reason="this worker fails tasks that other workers do")
            now = self._clock()
            if owner in self._leaving or self._failing.rests(owner.process, now):
                return Assignment(wait_seconds=WAIT_SECONDS)
            present = {other.process for other in self._streams if other not in self._leaving}
            state, task = transitions.hand_out(self._state, owner, now=now, holding=holding, present=present)
            assignment = self._assignment(state, task) if task else Assignment(wait_seconds=WAIT_SECONDS)
            self._commit(state)
            return assignment

    def report(self, outcome: Outcome, metric_states: Mapping[str, bytes]) -> bool:
        """Take in how a task has ended. Return whether it was this process's task."""
        with self._changed:
            evaluation = self._state.evaluation
            scores = self._setup.scores
            done = not (outcome.error or outcome.given_back)
            if done and evaluation and scores and transitions.kind_of(outcome.task) == EVALUATION:
                outcome = self._kept(evaluation.number, outcome, metric_states, scores)
            queue, now = transitions.queue_of(self._state, outcome.task), self._clock()
            failed_on = queue.failures.get(outcome.task, ()) if queue else ()
            state, counted = transitions.report(self._state, self.rules, outcome, now=now)
            if outcome.error and counted:
                self._failing.failed(outcome.owner.process, now)
                log.warning("task %d failed on %s: %s", outcome.task, outcome.owner.worker, outcome.error)
            elif counted and not outcome.given_back:
                self._failing.done(outcome.owner.process, failed_on)
            self._commit(state)
            return counted

    def reached(self, version: int) -> None:
        """Take in the version of the model."""
        with self._changed:
            state = transitions.reached(self._state, self.rules, version)
            if state.stopped and not self._state.stopped:
                log.info("No more tasks are handed out: %s", state.stopped)
            for step in transitions.joined(self._state, state, self.rules):
                log.info("The evaluation due at step %d is joined with the next one", step)
            if dataclasses.replace(state, version=0) != dataclasses.replace(self._state, version=0):
                self._commit(state)
            else:
                self._keep(state)  # a version alone is reported again soon enough

    def ended(self, owner: Owner, *, everyone: bool) -> None:
        """Take in that the loop of a script has ended, and whether that is to end the training of all workers."""
        with self._changed:
            if everyone:
                self._commit(transitions.enough(self._state, self.rules))
            self._ended.add(owner)

    def begun_from(self, version: int, generation: int) -> None:
        """Take in how many updates the model of a script's workers has had when a generation of them began."""
        with self._changed:
            before, state = self._state, transitions.begun_from(self._state, self.rules, version, generation)
            if state.version < before.version:
                lost, again = "All workers with the newest model were lost", before.work.done - state.work.done
                log.warning("%s. The model is that of update %d; %d tasks begin anew", lost, version, again)
            self._commit(state)

    def describe(self, script: Script | None) -> Plan | None:
        """Return the plan of the work; None if no script has said how many records there are.

        Raises:
            InputError: a script says something else than the flags or another script.
        """
        with self._changed:
            if script is None or self._setup.by_script is None:
                return self._plans.work
            if self._state.script is None:
                plan = self._setup.by_script(script)
                work = Queue.of(plan.tasks)
                self._plans = dataclasses.replace(self._plans, work=plan)
                self._commit(dataclasses.replace(self._state, script=script, plan=plan.digest(), work=work))
            elif self._state.script != script:
                raise InputError(
                    f"a script has {script}, and another one said {self._state.script}",
                    "All workers must run the same script on the same data.",
                )
            return self._plans.work

    # -- the master itself --------------------------------------------------------------------------------------------

    def next_action(self) -> Action:
        """Wait until the master has to do something, and return what.

        Raises:
            Fenced: another master has taken over, as a save has shown. The same holds for every other error of a save.
        """
        with self._changed:
            while (action := decide(self._state, self.rules)) is Action.WAIT and self._fatal is None:
                self._changed.wait()
            if self._fatal is not None:
                raise self._fatal
            if action is Action.END:
                self._commit(self._state)
            return action

    def confirm(self) -> None:
        """Return if this is still the master that leads; raise Fenced if not. An effect outside etcd comes after it."""
        with self._changed:
            self._made += 1
            self._commit(self._state)

    def end_with(self, error: Exception) -> None:
        """Let `next_action` raise an error: this process must end, and the job goes on under another master."""
        with self._changed:
            self._fatal = self._fatal or error
            self._changed.notify_all()

    def apply(self, transition: Callable[[JobState, Rules], JobState]) -> JobState:
        """Make a transition, save the state and return it."""
        with self._changed:
            self._commit(transition(self._state, self.rules))
            return self._state

    def fail(self, error: ElasticDLError | str) -> None:
        """End the job for this reason."""
        with self._changed:
            self._commit(transitions.failed(self._state, str(error)))

    def tick(self) -> None:
        """Take in that time has passed: tasks may be late, and workers of before a restart may stay away."""
        with self._changed:
            now = self._clock()
            state, late = transitions.expire(self._state, self.rules, now=now)
            for task, owner in late.items():
                log.warning("task %d takes too long on %s; it is given to others", task, owner.worker)
            if self._expected and now >= self._rejoin_until:
                self._expected.clear()
                state = transitions.lost_all_but(state, self.rules, set(self._streams))
            self._commit(state)

    def progress(self) -> Progress:
        """Return how far the job is."""
        with self._changed:
            work, plan = self._state.work, self._plans.work
            epoch = plan.piece(max(work.first, work.cursor - 1)).epoch if plan and plan.pieces else 0
            total = len(plan.tasks) if plan else 0
            state = self._state
            return Progress(state.stage, work.done, total, epoch, state.records, state.version, len(self._streams))

    def wait_until_all_are_gone(self, deadline: float) -> list[str]:
        """Wait until no worker attends any more, or until the deadline on the coordinator's clock.

        Workers that another master knew, and that have not yet come to this one, are waited for, too. Return the names
        of those that still attend.
        """
        with self._changed:
            while (left := deadline - self._clock()) > 0 and (self._streams or self._expected):
                self._changed.wait(left)
            return sorted({owner.worker for owner in self._streams})

    def _kept(self, number: int, outcome: Outcome, states: Mapping[str, bytes], scores: Scores) -> Outcome:
        """Keep the metrics of an evaluation task; return the outcome, which is an error if they are of no use."""
        queue = transitions.queue_of(self._state, outcome.task)
        held = queue.doing.get(outcome.task) if queue else None
        if held is None or held.owner != outcome.owner:
            return outcome
        try:
            self._store.add_part(number, outcome.task, scores.packed(states))
        except InputError as error:
            return dataclasses.replace(outcome, error=str(error))
        return outcome

    def _assignment(self, state: JobState, task: int) -> Assignment:
        kind = transitions.kind_of(task)
        if kind == EXPORT:
            return Assignment(task, kind)
        plan = self._plans.evaluation if kind == EVALUATION else self._plans.work
        assert plan is not None
        evaluation = state.evaluation
        snapshot = evaluation.snapshot if evaluation and kind == EVALUATION else 0
        return Assignment(task, kind, plan.piece(task), snapshot)

    def _commit(self, state: JobState) -> None:
        """Return once a state is saved, and all before it with it: only then is a call answered."""
        if state != self._state:
            self._made += 1
        self._keep(state)
        mine = self._made
        while self._saved < mine:
            if self._fatal is not None:
                raise self._fatal
            if self._saving:
                self._changed.wait()
            else:
                self._save()

    def _save(self) -> None:
        """Save the newest state, with the lock given up for as long as that takes."""
        made, fields = self._made, self._state.to_fields()
        self._saving = True
        self._changed.release()
        try:
            self._store.save(fields)
        except (ElasticDLError, Interrupted) as error:
            self.end_with(error)
        else:
            self._saved = made  # no other thread changes it while `_saving` is set
        finally:
            self._changed.acquire()
            self._saving = False
            self._changed.notify_all()

    def _keep(self, state: JobState) -> None:
        """Show a state to the next calls. It is saved before their answers; a version alone need not be saved now."""
        self._state = state
        self._changed.notify_all()


def _queues(state: JobState) -> list[Queue]:
    return [state.work, state.export, *([state.evaluation.queue] if state.evaluation else [])]


def _known(state: JobState) -> set[str]:
    """Return the processes that have a task, or had one that was counted."""
    owners = {held.owner.process for queue in _queues(state) for held in queue.doing.values()}
    return owners | set(state.credited)
