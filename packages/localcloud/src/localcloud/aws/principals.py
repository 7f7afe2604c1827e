"""Find the owner of credentials and the owner's policies, in moto's IAM and STS.

principals = MotoPrincipals(account="123456789012", region="us-west-2")
principals.create_operator(instance.credentials())
caller = principals.find(access_key, session_token)
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from typing_extensions import override

from localcloud.aws.requests.resources import PARTITION, MotoResources
from localcloud.instance import Credentials

OPERATOR = "operator"
# The calls that the EFS driver makes before it mounts a volume.
EFS_DRIVER_ACTIONS = (
    "elasticfilesystem:DescribeFileSystems",
    "elasticfilesystem:DescribeMountTargets",
    "elasticfilesystem:DescribeAccessPoints",
)


class UnknownCredentials(Exception):
    """No user or role session has this access key, or the session token is wrong."""


class ExpiredCredentials(Exception):
    """The role session has expired."""


@dataclass(frozen=True)
class Principal:
    """A caller.

    Args:
        arn: The ARN that `sts get-caller-identity` returns: a user, or a session of an assumed role.
        identity_arn: The ARN of the user or the role itself. Access entries and trust policies use this one.
        policies: The documents attached to the user or role.
        limits: The policy that the session was started with and the role's permissions boundary, as far as there are
            any. Each must allow the call too.
    """

    arn: str
    identity_arn: str
    account: str
    secret: str
    policies: tuple[Mapping[str, Any], ...]
    limits: tuple[Mapping[str, Any], ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that a resource-based policy can use for this caller."""
        return (self.arn, self.identity_arn, self.account, f"arn:{PARTITION}:iam::{self.account}:root")


@dataclass(frozen=True)
class Role:
    """The parts of a role that decide who can assume it."""

    arn: str
    trust: Mapping[str, Any]


@dataclass(frozen=True)
class SessionCredentials:
    """Temporary credentials of a role session."""

    access_key: str
    secret: str
    token: str
    expiration: datetime
    session_arn: str
    session_id: str


class Principals(Protocol):
    """Access to IAM and STS; tests pass a fake."""

    def find(self, access_key: str, session_token: str | None) -> Principal:
        """Return the owner of these credentials; raise UnknownCredentials or ExpiredCredentials."""

    def role(self, arn: str) -> Role | None:
        """Return the role with this ARN, or None."""

    def role_of_profile(self, profile_arn: str) -> str | None:
        """Return the ARN of the role in an instance profile, or None."""

    def assume(self, role_arn: str, session_name: str, seconds: int) -> SessionCredentials:
        """Start a role session without checking the role's trust policy."""

    def bucket_policy(self, bucket: str) -> Mapping[str, Any] | None:
        """Return the policy document of an S3 bucket, or None."""


class MotoPrincipals(Principals):
    """`Principals` backed by moto in this process."""

    def __init__(self, account: str, region: str) -> None:
        self._account = account
        self._region = region
        self._agents: dict[str, Principal] = {}

    def create_operator(self, credentials: Credentials) -> None:
        """Create the operator, a user who may do everything, with this access key."""
        from moto.iam.models import AccessKey

        iam = self._iam()
        iam.create_user(region_name=self._region, user_name=OPERATOR, tags=[])
        everything = {
            "Version": "2012-10-17",
            "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}],
        }
        iam.put_user_policy(OPERATOR, "everything", json.dumps(everything))
        key: AccessKey = iam.create_access_key(user_name=OPERATOR)
        iam.access_keys.pop(key.access_key_id, None)
        key.access_key_id = credentials.access_key
        key.secret_access_key = credentials.secret_key
        iam.access_keys[key.physical_resource_id] = key

    def create_agent(self, name: str, actions: Sequence[str]) -> tuple[str, str]:
        """Create a principal for one of the cloud's own agents. IAM's list operations don't show it.

        Args:
            actions: The actions it may do, on any resource.

        Returns:
            A random access key and its secret.
        """
        role = f"localcloud-{name}"
        key, secret = f"AKIA{secrets.token_hex(8).upper()}", secrets.token_urlsafe(30)
        statement = {"Effect": "Allow", "Action": list(actions), "Resource": "*"}
        self._agents[key] = Principal(
            arn=f"arn:{PARTITION}:sts::{self._account}:assumed-role/{role}/nodes",
            identity_arn=f"arn:{PARTITION}:iam::{self._account}:role/{role}",
            account=self._account,
            secret=secret,
            policies=({"Version": "2012-10-17", "Statement": [statement]},),
        )
        return key, secret

    @override
    def find(self, access_key: str, session_token: str | None) -> Principal:
        if access_key in self._agents and not session_token:
            return self._agents[access_key]
        session = self._sts().get_assumed_role_from_access_key(access_key)
        if session is not None:
            return self._session(session, session_token)
        for user in list(self._iam().users.values()):
            for key in list(user.access_keys):
                if key.access_key_id == access_key and key.status == "Active" and not session_token:
                    return self._user(user, key.secret_access_key)
        raise UnknownCredentials(access_key)

    @override
    def role(self, arn: str) -> Role | None:
        for role in list(self._iam().roles.values()):
            if role.arn == arn:
                return Role(arn, json.loads(role.assume_role_policy_document or "{}"))
        return None

    @override
    def role_of_profile(self, profile_arn: str) -> str | None:
        found = MotoResources(self._account).profile(profile_arn)
        return found.role_arn if found is not None else None

    @override
    def assume(self, role_arn: str, session_name: str, seconds: int) -> SessionCredentials:
        session = self._sts().assume_role(
            region_name=self._region,
            role_session_name=session_name,
            role_arn=role_arn,
            policy=None,
            duration=seconds,
            external_id=None,
        )
        return SessionCredentials(
            access_key=session.access_key_id,
            secret=session.secret_access_key,
            token=session.session_token,
            expiration=session.expiration.replace(tzinfo=UTC),
            session_arn=session.arn,
            session_id=session.user_id,
        )

    @override
    def bucket_policy(self, bucket: str) -> Mapping[str, Any] | None:
        from moto.s3.models import s3_backends

        found = s3_backends[self._account][PARTITION].buckets.get(bucket)
        if found is None or not found.policy:
            return None
        document: Mapping[str, Any] = json.loads(found.policy)
        return document

    def _user(self, user: Any, secret: str) -> Principal:
        documents = [entry["policy_document"] for entry in _inline(user)] + _attached(user)
        for group in self._iam().get_groups_for_user(user.name):
            documents += list(group.policies.values()) + _attached(group)
        policies = tuple(_parsed(document) for document in documents)
        return Principal(user.arn, user.arn, self._account, secret, policies)

    def _session(self, session: Any, token: str | None) -> Principal:
        if token != session.session_token:
            raise UnknownCredentials(session.access_key_id)
        if session.expiration.replace(tzinfo=UTC) < datetime.now(UTC):
            raise ExpiredCredentials(session.access_key_id)
        role = next((role for role in list(self._iam().roles.values()) if role.arn == session.role_arn), None)
        documents = [] if role is None else list(role.policies.values()) + _attached(role)
        return Principal(
            arn=session.arn,
            identity_arn=session.role_arn,
            account=self._account,
            secret=session.secret_access_key,
            policies=tuple(_parsed(document) for document in documents),
            limits=(*([_parsed(session.policy)] if session.policy else []), *self._boundary(role)),
        )

    def _boundary(self, role: Any) -> Sequence[Mapping[str, Any]]:
        """Return the role's permissions boundary; one that doesn't exist allows nothing."""
        arn = getattr(role, "permissions_boundary_arn", None)
        if not arn:
            return ()
        policy = self._iam().managed_policies.get(arn)
        documents = [version.document for version in policy.versions if version.is_default] if policy else [{}]
        return [_parsed(document) for document in documents]

    def _iam(self) -> Any:
        from moto.iam.models import iam_backends

        return iam_backends[self._account][PARTITION]

    def _sts(self) -> Any:
        from moto.sts.models import sts_backends

        return sts_backends[self._account][PARTITION]


def _inline(user: Any) -> list[Mapping[str, Any]]:
    return [user.get_policy(name) for name in list(user.policies)]


def _attached(holder: Any) -> list[Any]:
    policies = list(holder.managed_policies.values())
    return [version.document for policy in policies for version in policy.versions if version.is_default]


def _parsed(document: Any) -> Mapping[str, Any]:
    parsed: Mapping[str, Any] = json.loads(document) if isinstance(document, str) else document
    return parsed
