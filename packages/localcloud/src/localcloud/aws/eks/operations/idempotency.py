"""`clientRequestToken`: a repeated call creates nothing, and starts no second update.

    answer = once(eks, "CreateAddon", params, lambda: addons.create(eks, caller, params))

A call with the same token and the same parameters gets the first call's reply
(https://docs.aws.amazon.com/eks/latest/APIReference/API_CreateCapability.html says so; the pages of the other create
operations say only that the token makes them idempotent). With other parameters the call fails with
InvalidParameterException, which all of these operations can raise. A token is forgotten when the resource that it
created is deleted, so the same program can create it again. An SDK sends one token with every attempt of a call: the
attempt after a lost answer would be refused because of the update that the first one has started.
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
    """Where a reply has the new resource's ARN, or the update's id, and which parameter names the cluster."""

    member: str
    arn: str
    cluster: str = "clusterName"


SHAPES: Mapping[str, Shape] = {
    "CreateCluster": Shape("cluster", "arn", cluster="name"),
    "CreateNodegroup": Shape("nodegroup", "nodegroupArn"),
    "CreateAddon": Shape("addon", "addonArn"),
    "CreateAccessEntry": Shape("accessEntry", "accessEntryArn"),
    "CreatePodIdentityAssociation": Shape("association", "associationArn"),
    "UpdateClusterConfig": Shape("update", "id", cluster="name"),
    "UpdateClusterVersion": Shape("update", "id", cluster="name"),
    "UpdateNodegroupConfig": Shape("update", "id"),
    "UpdateNodegroupVersion": Shape("update", "id"),
    "UpdateAddon": Shape("update", "id"),
}


def once(eks: Eks, operation: str, params: Mapping[str, Any], carry_out: Callable[[], Json]) -> Json:
    """Return the reply of `carry_out()`, or the stored reply if this call was made before.

    Raises:
        EksError: The token belongs to a call with other parameters.
    """
    shape, token = SHAPES.get(operation), str(params.get("clientRequestToken") or "")
    if shape is None or not token:
        return carry_out()
    cluster, key = str(params[shape.cluster]), (operation, token)
    # One call at a time: of two calls at once (a client that retries after a timeout), the second is a repetition.
    with eks.creating:
        there = eks.clusters.get(cluster)
        before = there.creations.get(key) if there else None
        if there and before and before.arn in there.made():
            return _repeated(before, operation, params, cluster)
        answer = carry_out()
        made = eks.clusters.get(cluster)
        if made:
            present = made.made()
            kept = {other: known for other, known in made.creations.items() if known.arn in present}
            made.creations = {**kept, key: Creation(dict(params), str(answer[shape.member][shape.arn]), answer)}
        return answer


def _repeated(before: Creation, operation: str, params: Mapping[str, Any], cluster: str) -> Json:
    names = sorted({*before.params, *params})
    different = [name for name in names if before.params.get(name) != params.get(name)]
    if different:
        raise invalid(
            f"clientRequestToken {params['clientRequestToken']} belongs to a {operation} with another value of "
            f"{', '.join(different)}: use a new token for a different request",
            clusterName=cluster,
        )
    return before.answer
