"""`clientRequestToken`: a create call that comes again makes nothing again.

    answer = once(eks, "CreateAddon", params, lambda: addons.create(eks, caller, params))

The same token with the same parameters gets the first call's answer, as the API reference has it
(https://docs.aws.amazon.com/eks/latest/APIReference/API_CreateCapability.html is the page that spells it out; the
other create operations only say that the token makes them idempotent). With other parameters it is an
InvalidParameterException, the one of their errors that is about what was sent. A token is forgotten with what it
made, so that the same program can make the same thing anew after having deleted it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from localcloud.aws.eks.errors import invalid
from localcloud.aws.eks.model import Creation, Json
from localcloud.aws.eks.state import Eks


@dataclass(frozen=True)
class Shape:
    """Where a create operation's answer has the ARN of what was made, and which parameter names the cluster."""

    member: str
    arn: str
    cluster: str = "clusterName"


SHAPES: Mapping[str, Shape] = {
    "CreateCluster": Shape("cluster", "arn", cluster="name"),
    "CreateNodegroup": Shape("nodegroup", "nodegroupArn"),
    "CreateAddon": Shape("addon", "addonArn"),
    "CreateAccessEntry": Shape("accessEntry", "accessEntryArn"),
    "CreatePodIdentityAssociation": Shape("association", "associationArn"),
}


def once(eks: Eks, operation: str, params: Mapping[str, Any], carry_out: Callable[[], Json]) -> Json:
    """What `carry_out()` answers, or has answered when this call was made before.

    Raises:
        EksError: the token belongs to a call with other parameters.
    """
    shape, token = SHAPES.get(operation), str(params.get("clientRequestToken") or "")
    if shape is None or not token:
        return carry_out()
    cluster, key = str(params[shape.cluster]), (operation, token)
    # One at a time: of two that come at once, as when a client has lost patience, the second is a repetition too.
    with eks.creating:
        there = eks.clusters.get(cluster)
        before = there.creations.get(key) if there else None
        if there and before and before.arn in there.arns():
            return _repeated(before, operation, params, cluster)
        answer = carry_out()
        made = eks.clusters.get(cluster)
        if made:
            present = made.arns()
            kept = {other: known for other, known in made.creations.items() if known.arn in present}
            made.creations = {**kept, key: Creation(dict(params), str(answer[shape.member][shape.arn]), answer)}
        return answer


def _repeated(before: Creation, operation: str, params: Mapping[str, Any], cluster: str) -> Json:
    names = sorted({*before.params, *params})
    different = [name for name in names if before.params.get(name) != params.get(name)]
    if different:
        raise invalid(
            f"clientRequestToken {params['clientRequestToken']} belongs to a {operation} with another value of "
            f"{', '.join(different)}: send a token of its own with every other request",
            clusterName=cluster,
        )
    return before.answer
