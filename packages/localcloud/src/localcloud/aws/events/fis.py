"""AWS's own way to interrupt Spot Instances: an AWS FIS experiment with `aws:ec2:send-spot-instance-interruptions`.

    started(interruptions, account, region)       # after moto has started an experiment

moto's experiments have no effect; this action gets its effect here, and the others still have none.
https://docs.aws.amazon.com/fis/latest/userguide/fis-actions-reference.html#send-spot-instance-interruptions
"""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from localcloud.aws.compute.capacity import SPOT
from localcloud.aws.events.interruptions import Interruptions
from localcloud.errors import CloudError

log = logging.getLogger(__name__)

ACTION: Final = "aws:ec2:send-spot-instance-interruptions"
TARGET: Final = "SpotInstances"
DURATION: Final = "durationBeforeInterruption"
# The part of DescribeInstances' answer that a filter names, and the attribute of moto's instance with its value.
PATHS: Final = {
    "ImageId": "image_id",
    "InstanceType": "instance_type",
    "Placement.AvailabilityZone": "availability_zone",
    "State.Name": "state",
    "SubnetId": "subnet_id",
    "VpcId": "vpc_id",
}
_MINUTES = re.compile(r"PT([2-9]|1[0-5])M")
_MODE = re.compile(r"(COUNT|PERCENT)\((\d+)\)")


class BadExperiment(CloudError):
    """The experiment's template can't be carried out here; the message says why."""


@dataclass(frozen=True)
class Candidate:
    """A running instance that an experiment's target may select; `fields` are the values of `PATHS`."""

    id: str
    lifecycle: str | None
    tags: Mapping[str, str]
    fields: Mapping[str, str] = field(default_factory=dict)


def planned(
    targets: Mapping[str, Any], actions: Mapping[str, Any], candidates: Sequence[Candidate]
) -> list[tuple[list[str], float]]:
    """Return the instances that an experiment interrupts, and in how many seconds each group of them ends.

    Args:
        targets: Of the template, with `resourceArns` or `resourceTags`, `filters` and `selectionMode`.
        actions: Of the template.

    Raises:
        BadExperiment: The action's duration or a target's filter is not one of this cloud.
    """
    plans = []
    for action in actions.values():
        if action.get("actionId") != ACTION:
            continue
        given = (action.get("parameters") or {}).get(DURATION)
        minutes = _MINUTES.fullmatch(str(given))
        if minutes is None:
            raise BadExperiment(f"{DURATION} {given!r} must be from PT2M to PT15M")
        target = targets.get((action.get("targets") or {}).get(TARGET, ""), {})
        found = _selected(_targeted(target, candidates), str(target.get("selectionMode", "ALL")))
        if found:
            plans.append((found, 60.0 * int(minutes[1])))
    return plans


def started(interruptions: Interruptions, account: str, region: str) -> None:
    """Interrupt the Spot Instances of each experiment that has started since the last call.

    A StartExperiment that is sent again, with the same client token, starts none.
    """
    from moto.fis.models import fis_backends

    for experiment in list(fis_backends[account][region].experiments.values()):
        mine = object()
        if vars(experiment).setdefault("_localcloud_begun", mine) is not mine:
            continue
        if experiment.experiment_options.get("actionsMode") == "skip-all":
            continue
        try:
            plans = planned(experiment.targets, experiment.actions, _candidates(account, region))
            if not plans:
                log.warning("experiment %s interrupts nothing: no running Spot Instance is its target", experiment.id)
            for instances, seconds in plans:
                interruptions.announce(instances, seconds)
        except CloudError as error:
            log.warning("experiment %s: %s", experiment.id, error)


def _candidates(account: str, region: str) -> list[Candidate]:
    from moto.ec2.models import ec2_backends

    return [
        Candidate(
            instance.id,
            instance.lifecycle,
            {tag["key"]: tag["value"] for tag in instance.get_tags()},
            {path: str(getattr(instance, name)) for path, name in PATHS.items()},
        )
        for instance in ec2_backends[account][region].all_running_instances()
    ]


def _targeted(target: Mapping[str, Any], candidates: Sequence[Candidate]) -> list[str]:
    named = {str(arn).rpartition("/")[2] for arn in target.get("resourceArns") or []}
    tags = (target.get("resourceTags") or {}).items()
    filters = target.get("filters") or []
    for each in filters:
        if each["path"] not in PATHS:
            raise BadExperiment(f"the filter {each['path']} is none of {', '.join(sorted(PATHS))}")
    return [
        each.id
        for each in candidates
        if each.lifecycle == SPOT
        and (each.id in named or (tags and tags <= each.tags.items()))
        and all(each.fields.get(wanted["path"]) in wanted["values"] for wanted in filters)
    ]


def _selected(instances: list[str], mode: str) -> list[str]:
    """Return as many instances as the selection mode says, chosen at random as FIS does."""
    given = _MODE.fullmatch(mode)
    if given is None:
        return instances
    number = int(given[2]) if given[1] == "COUNT" else len(instances) * int(given[2]) // 100
    return random.sample(instances, min(number, len(instances)))
