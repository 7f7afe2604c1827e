"""The controller: what changes makes jobs due, and each job that is due is brought to where it should be.

    controller = Controller(Fenced(server, fence), Options(), recorder=recorder, log=log, metrics=metrics)
    await controller.run()          # for ever; cancel it to stop

A reconciliation decides on what the mirrors show, carries that out, and decides again on the result, until there is
nothing left to do; then it writes the status, once. It depends on nothing that an earlier one remembered. So it makes
no difference which replica does it, how often it is repeated, or after which of its requests the last one was killed.

An error ends the reconciliation of its job only, which is tried again after a back-off.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from tidewater.controller.act import Hands, PodNotCreated, ServiceRefused, TaintRefused, stamp
from tidewater.controller.cluster.client import Cluster, Manifest
from tidewater.controller.cluster.fence import NotLeader
from tidewater.controller.cluster.mirror import Key
from tidewater.controller.decide.actions import Action, Decision, DeletePod, Emit, reserving, status_comes_first
from tidewater.controller.decide.decision import decide
from tidewater.controller.observe.events import About, Recorder
from tidewater.controller.observe.log import Log
from tidewater.controller.observe.metrics import Metrics
from tidewater.controller.options import Options
from tidewater.controller.store import Store
from tidewater.controller.work import WorkQueue
from tidewater.elasticjob import codec, names
from tidewater.elasticjob.model import ElasticJob, Status
from tidewater.kube.errors import ClusterError, Conflict, NotFound, Refused, Unavailable

ROUNDS = 4
"""Decisions in one reconciliation; one that needs more continues later, so that other jobs have their turn."""

SOONEST_SECONDS = 0.2
"""Pause before a job is looked at again although nothing was observed: decisions count in whole seconds."""

REFUSED_SECONDS = 5.0
"""Pause after the API server refused a pod: only a person or another object can change that."""


class Controller:
    """Reconciles all jobs while it runs. A new one is made for each term as the leader.

    Args:
        cluster: A fenced one.
        options: What to look after.
        recorder: Where to record Kubernetes events; `run` also sends them.
        log: The log.
        metrics: The metrics.
        now: Returns the time in UTC.
    """

    def __init__(
        self,
        cluster: Cluster,
        options: Options,
        *,
        recorder: Recorder,
        log: Log,
        metrics: Metrics,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.work = WorkQueue()
        self.store = Store(cluster, options, self._due, self._watch_ended)
        self._options = options
        self._recorder = recorder
        self._log = log
        self._metrics = metrics
        self._now = now
        self._hands = Hands(cluster, self.store, recorder, log, options.domain)

    async def run(self) -> None:
        """Reconcile for ever."""
        began = time.perf_counter()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.store.run())
                tasks.create_task(self._recorder.run())
                await self.store.wait_synced()
                self._log.info(
                    "synced",
                    jobs=len(self.store.jobs.entries),
                    pods=len(self.store.pods.entries),
                    nodes=len(self.store.nodes.entries),
                    seconds=time.perf_counter() - began,
                )
                for _ in range(self._options.workers):
                    tasks.create_task(self._work())
        finally:
            self.work.close()

    async def _work(self) -> None:
        while True:
            await self.turn()

    async def turn(self) -> None:
        """Wait for a job that is due and reconcile it. An error of one job never ends the controller."""
        key = await self.work.take()
        began = time.perf_counter()
        try:
            again = await self._reconcile(key)
        except NotLeader:
            result = "fenced"
            self.work.done(key)
        except Refused as error:
            result = "refused"
            self._retry(key, error, REFUSED_SECONDS)
        except Unavailable as error:
            result = "failed"
            self._retry(key, error, error.retry_after)
        except Conflict as error:
            result = "conflict"
            self._retry(key, error)
        except Exception as error:
            result = "failed"
            self._retry(key, error)
        else:
            result = "done"
            self.work.done(key)
            if again is not None:
                self.work.add_after(key, max(SOONEST_SECONDS, (again - self._now()).total_seconds()))
        self._metrics.reconciled(result, time.perf_counter() - began)

    def _due(self, key: Key, seconds: float) -> None:
        if seconds > 0:
            self.work.add_after(key, seconds)
        else:
            self.work.add(key)

    def _watch_ended(self, plural: str, error: ClusterError | None) -> None:
        self._metrics.watch_ended(plural, type(error).__name__ if error else "ended")
        if error is not None:
            undefined = isinstance(error, NotFound) and plural == names.PLURAL
            self._log.warning(
                "watch_failed",
                resource=plural,
                reason=f"{type(error).__name__}: {error}",
                remedy="install the definition: tidewater install | kubectl apply -f -" if undefined else None,
            )

    def _retry(self, key: Key, error: Exception, at_least: float = 0.0) -> None:
        seconds = self.work.failed(key, at_least=at_least)
        reason = f"{type(error).__name__}: {error}"
        if isinstance(error, Conflict):  # another client has changed the job: its event is on the way
            self._log.debug("retry", job=str(key), seconds=seconds, reason=reason)
        elif isinstance(error, ClusterError):
            self._log.warning("retry", job=str(key), seconds=seconds, reason=reason)
        else:
            self._log.error("retry", job=str(key), seconds=seconds, reason=reason, at=_origin(error))

    async def _reconcile(self, key: Key) -> datetime | None:
        """Bring a job to where it should be. Return when to look again; None: when something changes."""
        try:
            return await self._converge(key)
        except codec.InvalidJob as error:
            await self._tell_invalid(key, str(error))
            return None

    async def _converge(self, key: Key) -> datetime | None:
        emits: dict[Emit, None] = {}  # each once, in order
        for _ in range(ROUNDS):
            decision, job = self._decide(key)
            if job is None:
                return None
            work = [action for action in decision.actions if not isinstance(action, Emit)]
            emits |= dict.fromkeys(action for action in decision.actions if isinstance(action, Emit))
            if not work or status_comes_first(job.status, decision.status):
                await self._hands.write_status(job, decision.status)
                self._hands.emit(job, emits)
                emits = {}
            else:
                await self._hands.write_status(job, reserving(job.status, decision))
            if not work:
                return decision.again
            await self._carry_out(key, job, work)
        return self._now()

    def _decide(self, key: Key, refusal: str = "") -> tuple[Decision, ElasticJob | None]:
        """Decide on what is known now. Without a job, or with one that is being deleted, there is nothing to do."""
        now = self._now()
        view = self.store.view(key, now, refusal)
        if view is None or view.job.deleting:
            self.work.forget(key)
            return Decision(Status()), None
        self.store.note(view)
        return decide(view, now), view.job

    async def _carry_out(self, key: Key, job: ElasticJob, work: Sequence[Action]) -> None:
        """Carry out actions. If the API server refuses one of them, write into the status what was done or refused."""
        try:
            await self._hands.carry_out(job, work)
        except PodNotCreated as error:
            await self._tell_refusal(key, str(error))
            raise error.cause from None
        except (ServiceRefused, TaintRefused):
            await self._tell_refusal(key)
            raise

    async def _tell_refusal(self, key: Key, refusal: str = "") -> None:
        """Write the refusal into the status. Pods that are to give way to the one that was refused are deleted."""
        decision, job = self._decide(key, refusal)
        if job is not None:
            await self._hands.write_status(job, decision.status)
            self._hands.emit(job, [action for action in decision.actions if isinstance(action, Emit)])
            await self._hands.carry_out(job, [action for action in decision.actions if isinstance(action, DeletePod)])

    async def _tell_invalid(self, key: Key, problem: str) -> None:
        """Write into a job that can't be read what to correct. It is looked at again when it changes."""
        manifest = self.store.job(key)
        if manifest is None or manifest["metadata"].get("deletionTimestamp"):
            return
        old = manifest.get("status") or {}
        new = invalid_status(manifest, problem, self._now())
        if new != old:
            meta = manifest["metadata"]
            about = About(key.namespace, key.name, meta["uid"])
            await self._hands.patch_status(about, meta["resourceVersion"], old, new)
            self._recorder.record(about, "Warning", names.Reason.INVALID, problem)
            self._log.warning("job_invalid", job=str(key), reason=problem)


def invalid_status(manifest: Manifest, problem: str, now: datetime) -> Manifest:
    """Return the status of a job that can't be read: its present one, with conditions that say what to correct."""
    status = manifest.get("status") or {}
    conditions = [each for each in status.get("conditions") or () if isinstance(each, dict)]
    before = {each.get("type"): each for each in conditions}
    generation = manifest["metadata"].get("generation", 0)

    def condition(type: names.ConditionType, value: str) -> Manifest:
        old = before.get(type.value, {})
        new = {
            "type": type.value,
            "status": value,
            "reason": names.Reason.INVALID.value,
            "message": problem,
            "observedGeneration": generation,
        }
        if new.items() <= old.items():
            return old
        turned = stamp(now) if old.get("status") != value else old.get("lastTransitionTime", stamp(now))
        return {**new, "lastUpdateTime": stamp(now), "lastTransitionTime": turned}

    kinds = names.ConditionType
    values = {kinds.CREATED: "False", kinds.READY: "False", kinds.RECONCILING: "False", kinds.STALLED: "True"}
    others = [each for each in conditions if each.get("type") not in values]
    said = [condition(type, value) for type, value in values.items()]
    return {**status, "conditions": [*said, *others], "observedGeneration": generation}


def _origin(error: Exception) -> str | None:
    """Return the innermost line of code of an error in this program itself."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return None if trace is None else f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}"
