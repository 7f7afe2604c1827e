"""AWS's own way to interrupt Spot Instances: an AWS FIS experiment with `aws:ec2:send-spot-instance-interruptions`.

    started(interruptions, backends, template_id)       # after moto has started an experiment of this template

moto's experiments have no effect; this action gets its effect here, and the others still have none.
https://docs.aws.amazon.com/fis/latest/userguide/fis-actions-reference.html#send-spot-instance-interruptions
"""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from localcloud.aws.events.interruptions import SPOT, Interruptions
from localcloud.errors import CloudError

log = logging.getLogger(__name__)

ACTION: Final = "aws:ec2:send-spot-instance-interruptions"
TARGET: Final = "SpotInstances"
DURATION: Final = "durationBeforeInterruption"
_MINUTES = re.compile(r"PT(\d+)M")
_MODE = re.compile(r"(COUNT|PERCENT)\((\d+)\)")


@dataclass(frozen=True)
class Candidate:
    """A running instance that an experiment's target may select."""

    id: str
    lifecycle: str | None
    tags: Mapping[str, str]


def planned(
    targets: Mapping[str, Any], actions: Mapping[str, Any], candidates: Sequence[Candidate]
) -> list[tuple[list[str], float]]:
    """Return the instances that an experiment interrupts, and in how many seconds each group of them ends.

    Args:
        targets: Of the template, with `resourceArns` or `resourceTags`, and `selectionMode`.
        actions: Of the template.
    """
    plans = []
    for action in actions.values():
        if action.get("actionId") != ACTION:
            continue
        target = targets.get((action.get("targets") or {}).get(TARGET, ""), {})
        minutes = _MINUTES.fullmatch((action.get("parameters") or {}).get(DURATION, "PT2M"))
        found = _selected(_targeted(target, candidates), str(target.get("selectionMode", "ALL")))
        if found and minutes:
            plans.append((found, 60.0 * int(minutes[1])))
    return plans


def started(interruptions: Interruptions, account: str, region: str, template_id: str) -> None:
    """Interrupt the Spot Instances of an experiment that has started."""
    from moto.ec2.models import ec2_backends
    from moto.fis.models import fis_backends

    template = fis_backends[account][region].experiment_templates.get(template_id)
    if template is None:
        return
    candidates = [
        Candidate(instance.id, instance.lifecycle, {tag["key"]: tag["value"] for tag in instance.get_tags()})
        for instance in ec2_backends[account][region].all_running_instances()
    ]
    for instances, seconds in planned(template.targets or {}, template.actions or {}, candidates):
        try:
            interruptions.announce(instances, seconds)
        except CloudError as error:
            log.warning("experiment template %s: %s", template_id, error)


def _targeted(target: Mapping[str, Any], candidates: Sequence[Candidate]) -> list[str]:
    named = {str(arn).rpartition("/")[2] for arn in target.get("resourceArns") or []}
    tags = (target.get("resourceTags") or {}).items()
    return [
        each.id
        for each in candidates
        if each.lifecycle == SPOT and (each.id in named or (tags and tags <= each.tags.items()))
    ]


def _selected(instances: list[str], mode: str) -> list[str]:
    """Return as many instances as the selection mode says, chosen at random as FIS does."""
    given = _MODE.fullmatch(mode)
    if given is None:
        return instances
    number = int(given[2]) if given[1] == "COUNT" else len(instances) * int(given[2]) // 100
    return random.sample(instances, min(number, len(instances)))
