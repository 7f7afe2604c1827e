"""What exists in the account, as far as policies ask for it: tags, launch templates, instance profiles.

Conditions on `aws:ResourceTag` and on what a launch template contains need the account's state; tests pass a fake.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from typing_extensions import override

PARTITION = "aws"


@dataclass(frozen=True)
class Template:
    """A version of a launch template; `data` has the names of EC2's API."""

    id: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Profile:
    """An instance profile and the role in it."""

    arn: str
    role_arn: str | None


class Resources(Protocol):
    """Access to the account's resources."""

    def tags(self, arn: str) -> Mapping[str, str]:
        """Return the tags of an EC2 resource, an instance profile or a role; none if it doesn't exist."""

    def launch_template(
        self, region: str, identity: str | None, name: str | None, version: str | None
    ) -> Template | None:
        """Return a version of a launch template, or None."""

    def profile(self, name: str) -> Profile | None:
        """Return the instance profile with this name or ARN, or None."""

    def role(self, name: str) -> str | None:
        """Return the ARN, which has the path, of the role with this name, or None."""


class NoResources(Resources):
    """`Resources` of an account in which nothing exists."""

    @override
    def tags(self, arn: str) -> Mapping[str, str]:
        return {}

    @override
    def launch_template(
        self, region: str, identity: str | None, name: str | None, version: str | None
    ) -> Template | None:
        return None

    @override
    def profile(self, name: str) -> Profile | None:
        return None

    @override
    def role(self, name: str) -> str | None:
        return None


class MotoResources(Resources):
    """`Resources` backed by moto in this process."""

    def __init__(self, account: str) -> None:
        self._account = account

    @override
    def tags(self, arn: str) -> Mapping[str, str]:
        parts = arn.split(":", 5)
        if len(parts) < 6:  # the resource of the call is not known
            return {}
        service, region = parts[2], parts[3]
        kind, _, identity = parts[5].partition("/")
        if service == "ec2":
            return dict(self._ec2(region).tags.get(identity, {})) if identity != "*" else {}
        if service != "iam" or kind not in ("instance-profile", "role"):
            return {}
        known = self._iam().instance_profiles if kind == "instance-profile" else self._iam().roles
        for found in list(known.values()):
            if found.arn == arn:
                return _tags(found.tags)
        return {}

    @override
    def launch_template(
        self, region: str, identity: str | None, name: str | None, version: str | None
    ) -> Template | None:
        for template in list(self._ec2(region).launch_templates.values()):
            if (identity or name) in (template.id, template.name):
                return Template(str(template.id), _version(template, version))
        return None

    @override
    def profile(self, name: str) -> Profile | None:
        for found in list(self._iam().instance_profiles.values()):
            if name in (found.name, found.arn):
                return Profile(str(found.arn), str(found.roles[0].arn) if found.roles else None)
        return None

    @override
    def role(self, name: str) -> str | None:
        return next((str(found.arn) for found in list(self._iam().roles.values()) if found.name == name), None)

    def _ec2(self, region: str) -> Any:
        from moto.ec2.models import ec2_backends

        return ec2_backends[self._account][region]

    def _iam(self) -> Any:
        from moto.iam.models import iam_backends

        return iam_backends[self._account][PARTITION]


def _tags(given: Any) -> Mapping[str, str]:
    """Return tags; moto keeps some as a dictionary of them by key, some as a list, some as plain pairs."""
    listed = given.values() if isinstance(given, dict) else given or []
    if all(isinstance(each, dict) for each in listed):
        return {str(each["Key"]): str(each["Value"]) for each in listed}
    return {str(key): str(value) for key, value in given.items()}


def _version(template: Any, version: str | None) -> Mapping[str, Any]:
    from moto.ec2.exceptions import EC2ClientError

    try:
        found: Mapping[str, Any] = template.get_version(version or "$Default").data
    except (EC2ClientError, ValueError):  # EC2 itself refuses the call for that
        return {}
    return found
