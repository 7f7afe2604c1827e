"""The AWS account and region that the stack is deployed to, behind one explicit provider.

    account = connect(stack, place.keep(stack))
    Network(name, args, account.options())

Every resource and every look-up goes through this provider, so region, profile and default tags do not depend on the
shell's environment.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

import settings

_NOT_ALLOWED = re.compile(r"account ID not allowed: (\d+)")
"""https://github.com/hashicorp/aws-sdk-go-base (VerifyAccountIDAllowed)"""


@dataclass(frozen=True)
class Account:
    """The provider, and the account behind it."""

    provider: aws.Provider
    region: str
    id: pulumi.Output[str]
    partition: pulumi.Output[str]
    caller_arn: pulumi.Output[str]
    """Who deploys: a user, or the session of a role."""
    stack: settings.Settings
    """The stack that is made here, as its config says."""

    def options(self, *after: pulumi.Resource) -> pulumi.ResourceOptions:
        """Return options for components in this account, which are created after `after` and deleted before it."""
        return pulumi.ResourceOptions(providers=[self.provider], depends_on=list(after))


def connect(stack: settings.Settings, *after: pulumi.Resource) -> Account:
    """Make the provider, which is deleted before `after`, and look up the caller's account.

    Raises:
        settings.ConfigurationError: there are no credentials, AWS refuses them, or they are of an account in which the
            stack may not be.
    """
    provider = aws.Provider(
        stack.name,
        region=stack.region,
        profile=stack.profile or None,
        # The provider refuses others as soon as it starts, in a preview too.
        allowed_account_ids=list(stack.allowed_accounts) or None,
        default_tags={"tags": stack.all_tags},
        opts=pulumi.ResourceOptions(depends_on=list(after)),
    )
    try:
        caller = aws.get_caller_identity(opts=pulumi.InvokeOptions(provider=provider))
    except Exception as error:  # the SDK has no other type for it
        raise settings.ConfigurationError([refusal(stack, str(error))]) from error
    return Account(
        provider=provider,
        region=stack.region,
        id=pulumi.Output.from_input(caller.account_id),
        partition=pulumi.Output.from_input(partition_of(caller.arn)),
        caller_arn=pulumi.Output.from_input(caller.arn),
        stack=stack,
    )


def refusal(stack: settings.Settings, error: str) -> str:
    """Return why the provider can't be used, from the error of its first call: it starts with that one."""
    which = f"the credentials of the profile {stack.profile}" if stack.profile else "the default credentials"
    if found := _NOT_ALLOWED.search(error):
        return (
            f"allowedAccountIds = {', '.join(stack.allowed_accounts)}: {which} are of the account {found[1]}; set "
            "profile to a profile of an account that is allowed, or correct allowedAccountIds"
        )
    return (
        f"profile = {stack.profile or '(empty)'}: AWS doesn't say who deploys with {which}: {words(error)}. Log in "
        "again, or set profile to a profile with credentials"
    )


def words(error: str) -> str:
    """Return AWS's words in the error of a function that Pulumi has called, without what Pulumi says around them."""
    return error.rpartition("returned an error: ")[2].strip(" .\n")


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
