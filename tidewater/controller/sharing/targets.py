"""How many workers each job may have in the end. The rules, for all teams that have a quota:

    found = targets(claims, {"vision": Quota(2, 4), "speech": Quota(2, 4)})
    found["vision", "digits"]       # 1: the second of its sizes; a job that isn't in it may have no pods

1. A team's jobs get their minimum in order as long as all of it fits into the nominal quota: first the jobs that have
   started, then those that wait, by priority and age. A job that waits lets no later one of its team pass, unless it
   could not run within the quota even alone. What a started job keeps beyond the quota leaves nothing of it to these.
2. What all teams together leave of their nominal quotas is lent, up to each team's `most`: first to jobs that have
   started with borrowed workers, then to jobs that wait, for their minimum. A job gets all of its minimum or nothing.
3. Then the jobs grow, one step at a time: the team that borrows least in proportion to its quota comes first, and its
   jobs in order. Room for a team's own growth within its quota is not lent in step 2.

Taking back is no step of its own. As soon as the owner wants its workers, less is left to lend; the growth of others
goes first, since it is the last that is given, and a borrowed minimum only when no growth with borrowed workers is
left. Nothing depends on an earlier answer, so a controller that has just started decides the same.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction

from tidewater.contract.controller_program import Quota
from tidewater.controller.sharing.claims import Claim, Key

Targets = dict[Key, int]
"""The index of a size, by job."""


def targets(claims: Iterable[Claim], quotas: Mapping[str, Quota]) -> Targets:
    """Return what each job may have in the end; the claims' namespaces all have quotas."""
    wanting = [claim for claim in claims if claim.sizes]
    while True:
        found = _given(wanting, quotas)
        lost = {claim.key for claim in wanting if claim.started and claim.key not in found}
        if not lost:
            return found
        # Its team's other jobs may have what it could not keep, as they may as soon as it has given that back.
        wanting = [replace(claim, started=False) if claim.key in lost else claim for claim in wanting]


def _given(claims: Iterable[Claim], quotas: Mapping[str, Quota]) -> Targets:
    queues: defaultdict[str, list[Claim]] = defaultdict(list)
    for claim in sorted(claims, key=lambda each: (not each.started, each.rank)):
        queues[claim.team].append(claim)
    cohort = _Cohort(quotas)
    left = {team: cohort.own_minimums(queue) for team, queue in queues.items()}
    cohort.lend(left, started=True)
    cohort.lend(left, started=False)
    cohort.grow(queues)
    return cohort.found


class _Cohort:
    """What has been given so far."""

    def __init__(self, quotas: Mapping[str, Quota]) -> None:
        self.found: Targets = {}
        self._quotas = quotas
        self._used = dict.fromkeys(quotas, 0)
        self._reserved = dict.fromkeys(quotas, 0)  # of its nominal quota, by what a team's own jobs want
        self._all = sum(quota.nominal for quota in quotas.values())

    def own_minimums(self, queue: Iterable[Claim]) -> list[Claim]:
        """Give a team's jobs their minimum within its nominal quota. Return those that get none, in order."""
        left, blocked = [], False
        for claim in queue:
            nominal, used = self._quotas[claim.team].nominal, self._used[claim.team]
            if (claim.started or not blocked) and used + claim.least <= nominal:
                self._give(claim, 0, claim.least)
                self._reserved[claim.team] = min(nominal, self._reserved[claim.team] + claim.wanted)
                continue
            # The rest of the quota is part of what a started job keeps.
            blocked = blocked or claim.started or waits_its_turn(claim, self._quotas)
            left.append(claim)
        return left

    def lend(self, left: Mapping[str, list[Claim]], *, started: bool) -> None:
        """Give minimums to the jobs that are left, of those that have started or of the others."""
        queues = {team: deque(claim for claim in queue if claim.started is started) for team, queue in left.items()}
        while waiting := [queue for queue in queues.values() if queue]:
            queue = min(waiting, key=lambda each: self._borrowed(each[0].team, each[0].least))
            claim = queue.popleft()
            if self._fits(claim.team, claim.least):
                self._give(claim, 0, claim.least)
            elif waits_its_turn(claim, self._quotas):
                queue.clear()

    def grow(self, queues: Mapping[str, list[Claim]]) -> None:
        """Give more than the minimum to the jobs that have it."""
        growing = {team: deque(claim for claim in queue if claim.key in self.found) for team, queue in queues.items()}
        while wanting := [queue for queue in growing.values() if queue]:
            step, queue = min(
                ((_step(each[0], self.found[each[0].key]), each) for each in wanting),
                key=lambda each: self._borrowed(each[1][0].team, each[0] or 0),
            )
            claim = queue[0]
            if step is None or not self._fits(claim.team, step):
                queue.popleft()
            else:
                self._give(claim, self.found[claim.key] + 1, step)

    def _give(self, claim: Claim, size: int, units: int) -> None:
        self.found[claim.key] = size
        self._used[claim.team] += units

    def _fits(self, team: str, units: int) -> bool:
        """Return whether a team may have so much more, without what others keep for their own jobs."""
        used = self._used | {team: self._used[team] + units}
        kept = sum(max(used[each], self._reserved[each]) for each in used)
        return used[team] <= self._quotas[team].most and kept <= self._all

    def _borrowed(self, team: str, units: int) -> tuple[bool, Fraction]:
        """Return how much the team borrows, in proportion to its quota, after it gets so much more."""
        nominal = self._quotas[team].nominal
        above = max(0, self._used[team] + units - nominal)
        return nominal == 0 and above > 0, Fraction(above, max(1, nominal))


def waits_its_turn(claim: Claim, quotas: Mapping[str, Quota]) -> bool:
    """Return whether later jobs of its team wait for the job while it waits: it fits into the nominal quota alone."""
    return bool(claim.sizes) and not claim.started and claim.least <= quotas[claim.team].nominal


def _step(claim: Claim, size: int) -> int | None:
    """Return what the next size counts more; None if there is none."""
    following = size + 1
    return claim.sizes[following].units - claim.sizes[size].units if following < len(claim.sizes) else None
