"""Whether people can get the access entries that the stack makes for them. Pure.

EKS has one access entry for each principal, and makes one for the cluster's creator. Pulumi removes what the program no
longer has only after it has made all that is new: someone who goes from `adminArns` to a team, or back, would get the
second entry before the first is gone, and EKS ends the update in the middle of it (409, ResourceInUseException). So it
does for an entry that the stack has not made: EKS's own for the creator, or one that was made by hand.

The one who deploys makes Kubernetes objects, for which a team's rights are not enough.
"""

from __future__ import annotations

import settings
from infra.account import is_caller
from infra.preflight.cluster import Inside
from infra.preflight.region import Region
from settings.teams import GROUPS


def mistakes(stack: settings.Settings, region: Region) -> list[str]:
    """Return a mistake for each person who deploys, or who has another access entry than the stack would make."""
    caller, inside = region.login.caller, region.inside or Inside()
    of_teams = {
        arn
        for arn, groups in inside.entries.items()
        if arn not in inside.foreign and any(each.startswith(GROUPS) for each in groups)
    }
    found = []
    for team in stack.teams:
        for arn in team.user_arns:
            named = f"teams.{team.name}.userArns = {arn}:"
            if caller and is_caller(arn, caller):
                found.append(
                    f"{named} deploys this stack now and administers the cluster, so it can't be in a team; remove it, "
                    "or deploy as another role"
                )
            elif arn in inside.entries and arn not in of_teams:
                found.append(f"{named} {_other_entry(stack, arn)}")
    found += [
        f"adminArns = {arn}: has the access entry of a team's people on the cluster {stack.cluster_name}, and EKS has "
        "one for each principal; run `pulumi up` without it in both, then add it"
        for arn in stack.cluster.admin_arns
        if arn in of_teams
    ]
    found += [_foreign_entry(stack, arn) for arn in stack.cluster.admin_arns if arn in inside.foreign]
    return found


def _foreign_entry(stack: settings.Settings, arn: str) -> str:
    """Return what is wrong with an administrator who has an entry that the stack has not made, and what to do."""
    return (
        f"adminArns = {arn}: has an access entry on the cluster {stack.cluster_name} that this stack has not made, and "
        "EKS has one for each principal; if it is that of the cluster's creator, who administers the cluster by it, "
        f"remove {arn} from adminArns; if it was made by hand, remove the entry: {_deletion(stack, arn)}"
    )


def _deletion(stack: settings.Settings, arn: str) -> str:
    return f"aws eks delete-access-entry --cluster-name {stack.cluster_name} --principal-arn {arn}"


def _other_entry(stack: settings.Settings, arn: str) -> str:
    """Return what is wrong with a person who has an entry that is no team's, and what to do."""
    there = f"has an access entry on the cluster {stack.cluster_name} already, and EKS has one for each principal;"
    if stack.cluster.existing:
        return f"{there} remove it from the team, or ask the cluster's owner to remove the entry"
    return (
        f"{there} if it is that of adminArns, run `pulumi up` without the person in both, then add it to the team; if "
        f"it is the creator's or made by hand, remove it: {_deletion(stack, arn)}"
    )
