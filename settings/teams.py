"""The part of `parsing` for teams: people who share the cluster, each team in a namespace of its own.

    teams.teams(read, Limits("training", (), 1, 8))      # (Team("vision", ("arn:aws:iam::…:role/vision",), 2, 8),)

`teams` is a list of objects, so that a name that is there twice is found: in an object the second would win silently.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from settings.reader import Reader
from tidewater.contract import devices, metrics
from tidewater.elasticjob.install.pods import NAMESPACE

PRINCIPAL_ARN = r"arn:aws[a-z-]*:iam::\d{12}:(role|user)/[\w+=,.@/-]+"
PRINCIPAL = "the ARN of an IAM role or user"
GROUPS = "tidewater:"
"""The groups of teams begin with it; nothing else that an access entry names does."""

MAX_NAME_LENGTH = 20
"""IAM allows names of 64 characters for roles. They begin with the stack's name, and Pulumi adds 8."""

_NAME = r"[a-z]([-a-z0-9]*[a-z0-9])?"
_KEYS = ("name", "userArns", "minWorkers", "nominalWorkers", "maxWorkers")
_FORM = "an object with name and maxWorkers, and optionally userArns, minWorkers and nominalWorkers, and nothing else"
_OWNERS = {
    NAMESPACE: "the ElasticJob controller",
    devices.NAMESPACE: "the GPUs' device plug-in",
    metrics.NAMESPACE: "the stack's Prometheus",
}


@dataclass(frozen=True)
class Team:
    """People with a namespace, a role and a folder of their own."""

    name: str
    """Also that of the namespace."""
    user_arns: tuple[str, ...]
    """IAM roles and users that see and run jobs there, and nowhere else."""
    minimum: int
    """How many workers it may have with the priority of core workers, for which other jobs give up theirs."""
    maximum: int
    """How many workers its resources are enough for."""
    nominal: int | None = None
    """How many of these it may always have; the others while other teams leave them. None: the teams have no such
    quotas, and each may have its maximum as long as there are nodes."""

    @property
    def group(self) -> str:
        """Return the group of Kubernetes that its people are in."""
        return f"{GROUPS}{self.name}"

    @property
    def role(self) -> str:
        """Return the name of its role in `roleArns`."""
        return f"team-{self.name}"


@dataclass(frozen=True)
class Limits:
    """What the teams share: the stack's own namespace, its administrators, and the workers that nodes may come for."""

    namespace: str
    admin_arns: Collection[str]
    minimum: int
    """Of the stack's own job."""
    maximum: int
    pools: bool = False
    """Whether there are pools. A team may use their nodes too, and one of them may have room for many workers."""


def owner(namespace: str) -> str:
    """Return what a namespace belongs to, in words, if it isn't free for people."""
    if namespace == "default" or namespace.startswith("kube-"):
        return "Kubernetes"
    if namespace.startswith(("amazon-", "aws-")):
        return "AWS"
    return _OWNERS.get(namespace, "")


def teams(read: Reader, limits: Limits) -> tuple[Team, ...]:
    """Return the teams, in the order of the list."""
    given = [(each, str(each["name"])) for each in read.objects("teams", _FORM, _is_team)]
    for name, count in Counter(name for _, name in given).items():
        if count > 1:
            read.wrong("teams", name, f"is the name of {count} teams; give each team a name of its own")
    found = tuple(_team(read, name, each, limits) for each, name in given)
    together = sum(team.minimum for team in found)
    if found and together + limits.minimum > limits.maximum and read.are_right("teams", "minWorkers", "maxWorkers"):
        remedy = (
            f"the teams' minWorkers and that of the stack's own job are {together + limits.minimum} together, and "
            f"there are nodes for {limits.maximum} workers; lower some of them, or raise maxWorkers"
        )
        read.wrong("teams", f"minWorkers {together}", remedy)
    _check_nominal(read, found, limits)
    return found


def _check_nominal(read: Reader, found: Sequence[Team], limits: Limits) -> None:
    """Check the quotas that teams may always use: a promise, which the nodes must be enough for."""
    without = [team.name for team in found if team.nominal is None]
    if without and len(without) < len(found):
        remedy = "the other teams have nominalWorkers; give each team its own, 0 if it only borrows, or none to any"
        read.wrong("teams", ", ".join(without), remedy)
    nominal = sum(team.nominal or 0 for team in found)
    sums = ("teams", "minWorkers", "maxWorkers", *(f"teams.{team.name}.nominalWorkers" for team in found))
    if found and not without and not nominal and read.are_right(*sums):
        read.wrong("teams", "nominalWorkers 0", "no team could have a worker; give at least one of them more")
    if nominal and nominal + limits.minimum > limits.maximum and read.are_right(*sums):
        remedy = (
            f"the teams' nominalWorkers and the minWorkers of the stack's own job are {nominal + limits.minimum} "
            f"together, and there are nodes for {limits.maximum} workers; lower some of them, or raise maxWorkers"
        )
        read.wrong("teams", f"nominalWorkers {nominal}", remedy)


def _is_team(value: Mapping[str, Any]) -> bool:
    texts = isinstance(value.get("name"), str) and isinstance(value.get("userArns", []), list)
    return texts and "maxWorkers" in value and value.keys() <= {*_KEYS}


def _team(read: Reader, name: str, given: Mapping[str, Any], limits: Limits) -> Team:
    key = f"teams.{name}"
    _check_name(read, name, limits)
    maximum = _number(read, f"{key}.maxWorkers", given["maxWorkers"], 1)
    minimum = _number(read, f"{key}.minWorkers", given.get("minWorkers", 0), 0)
    if maximum > limits.maximum and not limits.pools and read.are_right("maxWorkers"):
        remedy = f"there are nodes for {limits.maximum} workers at most; lower it, or raise the stack's maxWorkers"
        read.wrong(f"{key}.maxWorkers", maximum, remedy)
    if minimum > maximum and read.are_right(f"{key}.maxWorkers"):
        remedy = f"is above the team's maxWorkers, which is {maximum}; lower it, or raise that"
        read.wrong(f"{key}.minWorkers", minimum, remedy)
    nominal = _nominal(read, key, given, (minimum, maximum)) if "nominalWorkers" in given else None
    return Team(name, _people(read, f"{key}.userArns", given.get("userArns", []), limits), minimum, maximum, nominal)


def _nominal(read: Reader, key: str, given: Mapping[str, Any], bounds: tuple[int, int]) -> int:
    """Return how many workers a team may always have, which is not outside of its minWorkers and maxWorkers."""
    nominal, (low, high) = _number(read, f"{key}.nominalWorkers", given["nominalWorkers"], 0), bounds
    if not read.are_right(f"{key}.nominalWorkers", f"{key}.minWorkers", f"{key}.maxWorkers"):
        return nominal
    if nominal > high:
        remedy = f"is above the team's maxWorkers, which is {high}; lower it, or raise that"
        read.wrong(f"{key}.nominalWorkers", nominal, remedy)
    if low > nominal:
        remedy = f"is above the team's nominalWorkers, which is {nominal}; lower it, or raise that"
        read.wrong(f"{key}.minWorkers", low, remedy)
    return nominal


def _check_name(read: Reader, name: str, limits: Limits) -> None:
    if not re.fullmatch(_NAME, name) or len(name) > MAX_NAME_LENGTH:
        what = f"{MAX_NAME_LENGTH} lower-case letters, digits and hyphens at most, beginning with a letter"
        read.wrong("teams", name or '""', f"the name of a team must be {what}")
    elif name == limits.namespace:
        read.wrong("teams", name, "is the stack's own namespace; give the team another name")
    elif belongs_to := owner(name):
        read.wrong("teams", name, f"is a namespace of {belongs_to}; give the team another name")


def _people(read: Reader, key: str, arns: Sequence[Any], limits: Limits) -> tuple[str, ...]:
    found: list[str] = []
    for arn in arns:
        if not isinstance(arn, str) or not re.fullmatch(PRINCIPAL_ARN, arn):
            remedy = f"must be {PRINCIPAL}; of a session, such as arn:aws:sts::…:assumed-role/ROLE/NAME, name the role"
            read.wrong(key, arn if isinstance(arn, str) and arn else json.dumps(arn), remedy)
        elif arn in found:
            read.wrong(key, arn, "is listed twice")
        elif arn in limits.admin_arns:
            read.wrong(key, arn, "is in adminArns and has all rights already; remove it from one of the two")
        else:
            found.append(arn)
    return tuple(found)


def _number(read: Reader, key: str, value: Any, low: int) -> int:
    number = int(value) if isinstance(value, str) and re.fullmatch(r"\d{1,6}", value) else value
    if isinstance(number, bool) or not isinstance(number, int) or number < low:
        read.wrong(key, value if isinstance(value, str) and value else json.dumps(value), f"must be {low} or more")
        return low
    return number
