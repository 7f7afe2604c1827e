"""How many workers each job may have now, with a sentence for people.

    found = shares(claims, {"vision": Quota(2, 4), "speech": Quota(2, 4)})
    found["vision", "digits"]       # Share(1, "gives back 2 workers to team speech")

A job that has more than its target gives the rest back at once. A job that has less gets more only when it is there:
while pods of others end, it waits, so that its own pods neither displace those of a third job, nor are more than the
nodes have room for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidewater.contract.controller_program import Quota
from tidewater.controller.sharing.claims import Claim, Key
from tidewater.controller.sharing.targets import Targets, targets, waits_its_turn


@dataclass(frozen=True, slots=True)
class Share:
    """How many workers a job may have.

    Attributes:
        workers: the most; 0: it may have no pods.
        why: what it waits for, or gives back, as the end of a sentence that begins with the job; empty if it may have
            all that it wants.
    """

    workers: int
    why: str = ""


def shares(claims: Iterable[Claim], quotas: Mapping[str, Quota]) -> dict[Key, Share]:
    """Return what each job may have now; nothing of jobs that want no pods."""
    every = sorted(claims, key=lambda each: (not each.started, each.rank, each.key))
    wanting = [claim for claim in every if claim.sizes]
    aims = targets(wanting, quotas)
    free = sum(quota.nominal for quota in quotas.values()) - sum(claim.held for claim in every)
    now = _now(wanting, aims, free)
    words = _Words(every, quotas, aims, now)
    return {
        claim.key: Share(claim.sizes[now[claim.key]].workers if claim.key in now else 0, words.of(claim))
        for claim in wanting
    }


def _now(claims: Sequence[Claim], aims: Targets, free: int) -> Targets:
    """Return the sizes that the jobs may have now, of the jobs that may have some; `free` may be below 0."""
    now: Targets = {}
    for claim in claims:
        if claim.key not in aims:
            continue
        lacks = max(0, claim.least - claim.held)
        if claim.started or lacks <= free:  # what has started never has less than its minimum
            now[claim.key] = 0
            free -= lacks
    for claim in claims:
        if claim.key not in now:
            continue
        for size in range(1, aims[claim.key] + 1):
            step = claim.sizes[size].units - max(claim.held, claim.sizes[size - 1].units)
            if step > max(0, free):
                break
            now[claim.key] = size
            free -= max(0, step)
    return now


class _Words:
    """What people read of the jobs' shares."""

    def __init__(self, every: Sequence[Claim], quotas: Mapping[str, Quota], aims: Targets, now: Targets) -> None:
        self._quotas = quotas
        self._now = now
        self._first: dict[str, Claim] = {}  # of each team, the first job that waits for its turn, if one does
        for claim in every:
            if claim.key not in aims and waits_its_turn(claim, quotas):
                self._first.setdefault(claim.team, claim)
        self._all = sum(quota.nominal for quota in quotas.values())
        self._late = {claim.key: claim.team for claim in every if aims.get(claim.key, -1) > now.get(claim.key, -1)}
        self._given = Counter[str]()
        for claim in every:
            target = claim.sizes[aims[claim.key]].units if claim.key in aims else 0
            self._given[claim.team] += max(0, claim.held - target)

    def of(self, claim: Claim) -> str:
        """Return the end of a sentence about the job; empty if it has what it wants."""
        size = self._now.get(claim.key)
        if size == len(claim.sizes) - 1:
            return ""
        given = claim.held - (0 if size is None else claim.sizes[size].units)
        if given > 0 and self._late:
            return f"gives back {_workers(given)} to {self._receivers(claim)}"
        if size is None:
            return self._waiting(claim)
        most, wanted = claim.sizes[size].workers, claim.sizes[-1].workers
        return f"may have {most} of {wanted} {claim.noun}: {self._reason(claim)}"

    def _waiting(self, claim: Claim) -> str:
        quota = self._quotas[claim.team]
        if claim.least > quota.most:
            return f"needs {_workers(claim.least)}, and team {claim.team} may have {quota.most}"
        if claim.least > self._all:
            return f"needs {_workers(claim.least)}, and the quotas of all teams are {self._all} together"
        first = self._first.get(claim.team, claim)
        if first.rank < claim.rank and claim.key not in self._late:
            return f"waits for {_workers(claim.least)}: {first.key[1]} of its team comes first"
        return f"waits for {_workers(claim.least)}: {self._reason(claim)}"

    def _reason(self, claim: Claim) -> str:
        """Return why it has no more."""
        givers = [team for team, count in self._given.items() if count]
        if claim.key in self._late and givers:
            verb = "gives" if len(givers) == 1 else "give"
            return f"{_teams(givers)} {verb} back {_workers(sum(self._given.values()))}"
        nominal = self._quotas[claim.team].nominal
        return f"too few are left of the {nominal} of team {claim.team}, and other teams lend no more"

    def _receivers(self, claim: Claim) -> str:
        others = sorted({team for team in self._late.values() if team != claim.team})
        return _teams(others) if others else f"another job of team {claim.team}"


def _workers(count: int) -> str:
    return f"{count} worker{'' if count == 1 else 's'}"


def _teams(names: Sequence[str]) -> str:
    return f"team {names[0]}" if len(names) == 1 else f"teams {', '.join(names[:-1])} and {names[-1]}"
