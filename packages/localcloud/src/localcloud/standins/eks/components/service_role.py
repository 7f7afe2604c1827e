"""`eks:index:ServiceRole`: an IAM role for an AWS service, with managed policies attached."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass

from pulumi.provider.experimental.property_value import PropertyValue

from localcloud.standins.algebra import combine, record
from localcloud.standins.eks.components.kubeconfig import compact_json
from localcloud.standins.eks.scope import Scope
from localcloud.standins.monitor import Resource


@dataclass(frozen=True)
class ServiceRole:
    """A role, and the URNs that must exist before it is usable."""

    role: Resource
    ready: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class RoleSpec:
    """The parts of a service role."""

    service: PropertyValue
    actions: tuple[str, ...]
    policies: tuple[str, ...]
    """Name of AWS managed policies."""
    description: str | None = None


async def service_role(
    scope: Scope, name: str, spec: RoleSpec, partition: PropertyValue, tags: PropertyValue
) -> ServiceRole:
    """Make the component `name` with the role and its attachments."""
    inner = await scope.component("ServiceRole", name)
    trust = combine(lambda service: compact_json(trust_policy(service, spec.actions)), spec.service)
    inputs = record({"description": spec.description, "assumeRolePolicy": trust, "tags": tags})
    role = await inner.aws("iam/role:Role", f"{name}-role", inputs)
    attachments = await asyncio.gather(*(_attach(inner, name, role, policy, partition) for policy in spec.policies))
    await inner.close({"role": role.reference})
    return ServiceRole(role, frozenset({role.urn, *(attachment.urn for attachment in attachments)}))


async def _attach(scope: Scope, name: str, role: Resource, policy: str, partition: PropertyValue) -> Resource:
    arn = combine(lambda part: f"arn:{part}:iam::aws:policy/{policy}", partition)
    inputs = record({"policyArn": arn, "role": role.identity})
    return await scope.aws(
        "iam/rolePolicyAttachment:RolePolicyAttachment", f"{name}-{attachment_suffix(policy)}", inputs
    )


def attachment_suffix(policy: str) -> str:
    """Return the suffix of an attachment's name: a hash of the policy's ARN in the standard partition."""
    arn = f"arn:aws:iam::aws:policy/{policy}"
    return hashlib.sha1(arn.encode(), usedforsecurity=False).hexdigest()[:8]


def trust_policy(service: str, actions: tuple[str, ...]) -> dict[str, object]:
    """Return the trust policy that lets the service assume the role."""
    statement = {"Action": list(actions), "Effect": "Allow", "Principal": {"Service": [service]}}
    return {"Version": "2012-10-17", "Statement": [statement]}
