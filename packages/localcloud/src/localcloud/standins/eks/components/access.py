"""A cluster's access entries and the access policies associated with them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from pulumi.provider.experimental.property_value import PropertyValue

from localcloud.standins.algebra import NULL, is_set, record
from localcloud.standins.eks.arguments import ACCESS_ENTRY, ACCESS_POLICY
from localcloud.standins.eks.scope import Scope, members
from localcloud.standins.monitor import Resource


async def access_entries(
    scope: Scope, name: str, cluster: Resource, entries: Mapping[str, PropertyValue]
) -> frozenset[str]:
    """Make an entry for each member of `entries`, and the associations under it.

    Returns:
        The URNs of the entries.
    """
    made = await asyncio.gather(*(_entry(scope, f"{name}-{key}", cluster, value) for key, value in entries.items()))
    return frozenset(entry.urn for entry in made)


async def _entry(scope: Scope, name: str, cluster: Resource, value: PropertyValue) -> Resource:
    fields = members(value)
    ACCESS_ENTRY.check(fields)
    inputs = record(
        {
            "clusterName": cluster.output("name"),
            "principalArn": fields["principalArn"],
            "kubernetesGroups": fields.get("kubernetesGroups", NULL),
            "tags": fields.get("tags", NULL),
            "type": fields.get("type", NULL),
            "userName": fields.get("username", NULL),
        }
    )
    after_cluster = frozenset({cluster.urn})
    entry = await scope.aws("eks/accessEntry:AccessEntry", name, inputs, depends_on=after_cluster)
    policies = fields.get("accessPolicies", NULL)
    if is_set(policies):
        await asyncio.gather(
            *(
                _association(scope, f"{name}-{key}", cluster, entry, fields["principalArn"], policy)
                for key, policy in members(policies).items()
            )
        )
    return entry


async def _association(
    scope: Scope, name: str, cluster: Resource, entry: Resource, principal: PropertyValue, policy: PropertyValue
) -> None:
    fields = members(policy)
    ACCESS_POLICY.check(fields)
    inputs = record(
        {
            "accessScope": fields["accessScope"],
            "clusterName": cluster.output("name"),
            "policyArn": fields["policyArn"],
            "principalArn": principal,
        }
    )
    await scope.aws(
        "eks/accessPolicyAssociation:AccessPolicyAssociation",
        name,
        inputs,
        depends_on=frozenset({entry.urn}),
        parent=entry.urn,
    )
