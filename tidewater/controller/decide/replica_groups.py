"""The pods of a job, by replica type and by what their state means.

Pods that have completed or failed for good are among them also after they were deleted: the job's status has their
indexes, and no other pod gets them. So what a pod has proved is not forgotten with the pod.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from tidewater.controller.decide.exits import Verdict, signals, verdict
from tidewater.controller.decide.observed import JobView, PodView, is_finished
from tidewater.controller.decide.replicas import indices, noun, together, unended
from tidewater.elasticjob import indexes, names
from tidewater.elasticjob.choices import PodNames
from tidewater.elasticjob.model import ElasticJob
from tidewater.elasticjob.status import ReplicaStatus, Status

_NOTHING = ReplicaStatus()
_UNKNOWN = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """The pods of one replica type. Each pod is in exactly one of the lists, except that `live` contains `active`.

    With workersPerReplica a "pod" is here a replica of several pods: see `replicas`.

    Attributes:
        each: number of pods that one of these is.
        low: fewest pods with which the job can run.
        high: most pods.
        wanted: pods that the spec asks for, within the bounds.
        naming: how they are named.
        live: pods that wait, run, or may run.
        active: of these, those that run.
        ended: pods to be replaced, with the verdict REPLACE or RETRY.
        permanent: pods that failed for good. Some of these, and of those that are done, may be gone.
        ending: pods that are being deleted, or are to be because of their node, whatever they did before.
        template_hash: that of a pod made now; empty if it is not known.
        yielded_at: number of pods that were left when one last gave way to a core pod that a quota refuses; None: none
            has since the type had its minimum.
        next_index: with podNames Successive, the lowest number that no pod has had or is about to get.
        spare: lower numbers that no pod has had either, in order.
        replaced: pods that were replaced under another number and stay for their logs; they count as nothing else.
        replaced_indexes: their numbers as the status has them, perhaps with those of some that are gone.
    """

    type: str
    each: int = 1
    low: int
    high: int
    wanted: int
    naming: PodNames
    live: list[PodView]
    active: list[PodView]
    done: list[PodView]
    ended: list[tuple[PodView, Verdict]]
    permanent: list[PodView]
    ending: list[PodView]
    template_hash: str = ""
    yielded_at: int | None = None
    next_index: int = 0
    spare: tuple[int, ...] = ()
    replaced: tuple[PodView, ...] = ()
    replaced_indexes: str = ""

    @property
    def noun(self) -> str:
        """Return what the numbers count."""
        return noun(self.each) if self.each > 1 else f"pods of type {self.type}"

    @property
    def size(self) -> int:
        """Return the number of pods that hold an index and keep it: all but those that are being deleted."""
        return len(self.live) + len(self.done) + len(self.ended) + len(self.permanent)

    @property
    def serving(self) -> int:
        """Return the number of pods that run and are ready, or have done their work."""
        return sum(pod.ready for pod in self.active) + len(self.done)

    @property
    def lacking(self) -> int:
        """Return the number of core pods that are to be created."""
        core = self.cores()
        return max(0, self.low - sum(core(pod) and not pod.absent for pod in self.counting()))

    @property
    def placed(self) -> int:
        """Return the number of pods that need no room: they have one, or have done their work."""
        return len(self.live) - len(self.unplaced) + len(self.done)

    @property
    def unplaced(self) -> list[PodView]:
        """Return the pods that no node has room for, or that the scheduler has not seen yet."""
        if len(self.active) == len(self.live):
            return []
        return [pod for pod in self.live if pod.phase == "Pending" and pod.node is None]

    def staying(self) -> Iterator[PodView]:
        """Yield all pods that are not being deleted."""
        yield from self.counting()
        yield from self.permanent

    def failed(self) -> Iterator[PodView]:
        """Yield those that have failed, to be replaced or for good."""
        yield from (pod for pod, _ in self.ended)
        yield from self.permanent

    def counting(self) -> Iterator[PodView]:
        """Yield those of them that the job can count on for its minimum: all but those that failed for good."""
        yield from self.live
        yield from self.done
        yield from (pod for pod, _ in self.ended)

    def unended(self) -> Iterator[PodView]:
        """Yield the single pods, also of replicas of several, that wait, run or may run and are not being deleted."""
        for pod in (*self.staying(), *self.ending):
            yield from unended(pod)

    def cores(self) -> Callable[[PodView], bool]:
        """Return the function that says whether a pod that stays belongs to the job's minimum.

        With podNames Successive the index says nothing of that, but the pod itself does. After the minimum was lowered
        there may be too many of them; then those with the lowest indices count.
        """
        if self.naming is not PodNames.SUCCESSIVE:
            bound = core_bound(self.low, (pod.index for pod in self.permanent))
            return lambda pod: pod.index < bound
        made = sorted((pod for pod in self.counting() if pod.core), key=lambda pod: pod.index)
        uids = {pod.uid for pod in made[: self.low]}
        return lambda pod: pod.uid in uids

    def without(self, gone: Collection[str]) -> Crew:
        """Return the same pods after those with these uids were deleted."""
        if not gone:
            return self
        return replace(
            self,
            live=[pod for pod in self.live if pod.uid not in gone],
            active=[pod for pod in self.active if pod.uid not in gone],
            done=[pod for pod in self.done if pod.uid not in gone],
            ended=[each for each in self.ended if each[0].uid not in gone],
            permanent=[pod for pod in self.permanent if pod.uid not in gone],
        )

    def departed(self, gone: Collection[str]) -> Crew:
        """Return the same pods with these uids counted as ending; they are live ones, or to be replaced."""
        if not gone:
            return self
        going = (pod for pod in (*self.live, *(pod for pod, _ in self.ended)) if pod.uid in gone)
        return replace(self.without(gone), ending=[*self.ending, *going])

    def judged(self) -> Iterator[tuple[PodView, Verdict]]:
        """Yield all pods that exist with what their state means."""
        yield from ((pod, Verdict.LIVE) for pod in self.live)
        yield from self.ended
        yield from ((pod, Verdict.PERMANENT) for pod in self.permanent if not pod.gone)
        yield from ((pod, Verdict.DONE) for pod in self.done if not pod.gone)
        yield from ((pod, Verdict.LIVE) for pod in self.ending)


def core_bound(low: int, failed: Iterable[int]) -> int:
    """Return the index below which pods belong to the minimum: as many as `low` of those that have not `failed`."""
    bound = low
    for index in sorted(failed):
        bound += index < bound
    return bound


def crews(view: JobView) -> tuple[dict[str, Crew], list[PodView]]:
    """Return the pods by replica type, and those that have no place in the job: of no type or without an index."""
    job = view.job
    sorted_ = {type: _crew(view, type) for type in job.spec.replica_specs}
    known = {type: {} if _is_of_another_template(view) else _recorded(job.status, type) for type in sorted_}
    strays, placed = list[PodView](), {type: list[PodView]() for type in sorted_}
    for pod in view.pods:
        (strays if pod.type not in sorted_ or pod.index < 0 else placed[pod.type]).append(pod)
    for type, crew in sorted_.items():
        judge = partial(verdict, replica=job.spec.replica_specs[type])
        for pod in together(placed[type], crew.each, judge, job.status.counted, view.nodes):
            _put(crew, pod, job, known[type])
    for type, ends in known.items():
        _remember(sorted_[type], job, ends)
    return {type: _numbered(crew, view) for type, crew in sorted_.items()}, strays


def _is_of_another_template(view: JobView) -> bool:
    """Return whether a template has changed since ends of pods were recorded: all pods are then made anew."""
    status, hashes = view.job.status, view.template_hashes
    recorded = {type: found.template_hash for type, found in status.replica_statuses.items() if found.template_hash}
    return not is_finished(status) and any(hashes.get(type, made) != made for type, made in recorded.items())


def _recorded(status: Status, type: str) -> Mapping[int, Verdict]:
    """Return the ends of the type's pods that the status records, by index."""
    found = status.replica_statuses.get(type, _NOTHING)
    ends = dict.fromkeys(indexes.numbers(found.failed_indexes), Verdict.PERMANENT)
    return {**ends, **dict.fromkeys(indexes.numbers(found.completed_indexes), Verdict.DONE)}


def _remember(crew: Crew, job: ElasticJob, ends: Mapping[int, Verdict]) -> None:
    """Add the pods to their type that have ended and are gone."""
    if not ends:
        return
    held = {pod.index for pod in crew.staying()}
    for index in sorted(ends.keys() - held):
        done = ends[index] is Verdict.DONE
        pod = PodView(
            name=job.pod_name(crew.type, indices(index, crew.each)[0]),
            uid=f"{crew.type}/{index}",
            type=crew.type,
            index=index,
            phase="Succeeded" if done else "Failed",
            gone=True,
            core=done,
            created=_UNKNOWN,
        )
        (crew.done if done else crew.permanent).append(pod)


def _numbered(crew: Crew, view: JobView) -> Crew:
    """Return the crew with the numbers that its new pods get."""
    if crew.naming is not PodNames.SUCCESSIVE:
        return crew
    status = view.job.status.replica_statuses.get(crew.type)
    taken = {pod.index for pod in (*crew.staying(), *crew.ending)}
    following = max((status and status.next_index) or 0, max(taken, default=-1) + 1)
    unused = (index for type, index in view.unused if type == crew.type and index not in taken and index < following)
    return replace(crew, next_index=following, spare=tuple(sorted(unused)))


def limits(job: ElasticJob, type: str) -> tuple[int, int, int]:
    """Return the fewest, the most and the wanted number of pods of a type."""
    low, high = job.bounds(type)
    if type == names.WORKER:
        low = max(1, low)
    high = max(low, high)
    return low, high, max(low, min(high, job.spec.replica_specs[type].replicas))


def _crew(view: JobView, type: str) -> Crew:
    job = view.job
    low, high, wanted = limits(job, type)
    status = job.status.replica_statuses.get(type, _NOTHING)
    return Crew(
        type=type,
        each=job.spec.pods_each(type),
        low=low,
        high=high,
        wanted=wanted,
        naming=job.spec.replica_specs[type].pod_names,
        live=[],
        active=[],
        done=[],
        ended=[],
        permanent=[],
        ending=[],
        template_hash=view.template_hashes.get(type, ""),
        yielded_at=status.yielded_at,
        replaced=tuple(pod for pod in view.replaced if pod.type == type),
        replaced_indexes=status.replaced_indexes,
    )


def _put(crew: Crew, pod: PodView, job: ElasticJob, known: Mapping[int, Verdict]) -> None:
    """Add a pod to its type. An end that is recorded already stays what it was, whatever is done to the pod later."""
    if pod.terminating:
        crew.ending.append(pod)
        return
    if pod.phase == "Failed" and (number := signals(pod, job.status)):
        pod = replace(pod, signals=number)
    meaning = verdict(pod, job.spec.replica_specs[pod.type])
    if meaning is not Verdict.LIVE:
        meaning = known.get(pod.index, meaning)
    if meaning is Verdict.LIVE:
        crew.live.append(pod)
        if pod.phase == "Running":
            crew.active.append(pod)
    elif meaning is Verdict.DONE:
        crew.done.append(pod)
    elif meaning is Verdict.PERMANENT:
        crew.permanent.append(pod)
    else:
        crew.ended.append((pod, meaning))
