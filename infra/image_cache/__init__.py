"""Images through ECR's pull-through cache: which of them, under which names, and the rules in ECR.

    stack = image_cache.through(stack, account)          # before any manifest is made
    ImageCache(name, ImageCacheArgs(stack.image_cache), account.options())

names   the upstream registries, and the name of an image in the cache; pure
rules   a rule in ECR for each upstream
"""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

import settings
from infra.account import Account, partition_of
from infra.image_cache import names


def through(stack: settings.Settings, account: Account) -> settings.Settings:
    """Return the settings with the names that images have in the stack's cache; without a cache, as they are.

    The names contain the account's number, so AWS is asked for it. Manifests are made of plain text, so the program
    waits for the answer.
    """
    if stack.image_cache is None:
        return stack
    caller = aws.get_caller_identity(opts=pulumi.InvokeOptions(provider=account.provider))
    registry = names.registry(caller.account_id, stack.region, partition_of(caller.arn))
    upstreams = names.upstreams(stack.image_cache)
    return stack.with_images(lambda image: names.cached(image, f"{registry}/{stack.name}", upstreams))


__all__ = ["through"]
