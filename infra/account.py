"""Where and as whom the stack is deployed: the explicit AWS provider, and what only AWS can tell.

Every resource and every look-up goes through this one provider, so that region, profile and default tags are the
same everywhere, whatever the shell's environment says.
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
    id: pulumi.Output[str]
    partition: pulumi.Output[str]

    @property
    def options(self) -> pulumi.ResourceOptions:
        """Options for components whose children belong to this account."""
        return pulumi.ResourceOptions(providers=[self.provider])


def account(wanted: settings.Settings) -> Account:
    """Makes the provider and asks who is calling."""
    provider = aws.Provider(
        wanted.name,
        region=wanted.region,
        profile=wanted.profile or None,
        default_tags={"tags": wanted.all_tags},
    )
    caller = aws.get_caller_identity_output(opts=pulumi.InvokeOutputOptions(provider=provider))
    return Account(
        provider=provider,
        id=caller.account_id,
        partition=caller.arn.apply(partition_of),
    )


def partition_of(arn: str) -> str:
    """`aws`, `aws-cn` or `aws-us-gov`."""
    return arn.split(":")[1]
