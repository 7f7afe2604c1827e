"""Whether the one who deploys is in no team. Pure.

EKS makes the cluster's creator its administrator by an access entry, and takes no second one for a principal. Later the
one who deploys makes Kubernetes objects, for which a team's rights are not enough.
"""

from __future__ import annotations

import settings
from infra.account import is_caller
from infra.preflight.region import Region


def mistakes(stack: settings.Settings, region: Region) -> list[str]:
    """Return a mistake for each team that lists the one who deploys."""
    caller = region.login.caller
    return [
        f"teams.{team.name}.userArns = {arn}: deploys this stack now and administers the cluster, so it can't be in a "
        "team; remove it, or deploy as another role"
        for team in stack.teams
        for arn in team.user_arns
        if caller and is_caller(arn, caller)
    ]
