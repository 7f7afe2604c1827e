"""The AWS account and region that the stack is deployed to, behind one explicit provider.

    account = connect(stack, place.keep(stack))
    Network(name, args, account.options())

Every resource and every look-up goes through this provider, so region, profile and default tags do not depend on the
shell's environment.
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

import settings


@dataclass(frozen=True)
class Account:
    """The provider, and the account behind it."""

    provider: aws.Provider
    region: str
    id: pulumi.Output[str]
    partition: pulumi.Output[str]
    caller_arn: pulumi.Output[str]
    """Who deploys: a user, or the session of a role."""
    roles: settings.Roles
    """How roles are made."""

    def options(self, *after: pulumi.Resource) -> pulumi.ResourceOptions:
        """Return options for components in this account, which are created after `after` and deleted before it."""
        return pulumi.ResourceOptions(providers=[self.provider], depends_on=list(after))


def connect(stack: settings.Settings, *after: pulumi.Resource) -> Account:
    """Make the provider, which is deleted before `after`, and look up the caller's account."""
    provider = aws.Provider(
        stack.name,
        region=stack.region,
        profile=stack.profile or None,
        # The provider refuses others as soon as it starts, in a preview too.
        allowed_account_ids=list(stack.allowed_accounts) or None,
        default_tags={"tags": stack.all_tags},
        opts=pulumi.ResourceOptions(depends_on=list(after)),
    )
    caller = aws.get_caller_identity_output(opts=pulumi.InvokeOutputOptions(provider=provider))
    return Account(
        provider=provider,
        region=stack.region,
        id=caller.account_id,
        partition=caller.arn.apply(partition_of),
        caller_arn=caller.arn,
        roles=stack.roles,
    )


def partition_of(arn: str) -> str:
    """Return the partition of an ARN: `aws`, `aws-cn` or `aws-us-gov`."""
    return arn.split(":")[1]


def is_caller(principal_arn: str, caller_arn: str) -> bool:
    """Return whether the caller is this IAM user, or a session of this IAM role.

    The ARN of a session has the role's name without its path: arn:aws:sts::ACCOUNT:assumed-role/ROLE/SESSION. An
    account has only one role of a name, whatever the path and the case.
    https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers.html#identifiers-arns
    https://docs.aws.amazon.com/IAM/latest/APIReference/API_CreateRole.html
    """
    return _identity(principal_arn) == _identity(caller_arn)


def _identity(arn: str) -> tuple[str, str, str]:
    account, resource = arn.split(":", 5)[4:]
    kind, _, rest = resource.partition("/")
    if kind == "assumed-role":
        return account, "role", rest.rpartition("/")[0].lower()
    return account, kind, rest.rpartition("/")[2].lower()
