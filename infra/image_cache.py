"""Images through ECR's pull-through cache: which of them, under which names, and the rules in ECR.

    stack = image_cache.through(stack, account)          # before any manifest is made
    ImageCache(name, ImageCacheArgs(stack.image_cache), account.options())

    cached("quay.io/coreos/etcd:v3.5.21", place, upstreams(stack.image_cache))
    # 123456789012.dkr.ecr.us-west-2.amazonaws.com/tidewater-dev/quay/coreos/etcd:v3.5.21

ECR has no rules for nvcr.io. Those for other registries than these need credentials:
https://docs.aws.amazon.com/AmazonECR/latest/userguide/pull-through-cache.html
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

import settings
from infra.account import Account, partition_of
from settings import images


@dataclass(frozen=True)
class Upstream:
    """A registry: as images name it, as ECR's API does, and its folder in the stack's part of the cache.

    The stack's name and the folder are the prefix of a rule, for which ECR allows 30 characters. So folders are short.
    """

    registry: str
    url: str
    folder: str


WITHOUT_CREDENTIALS = (
    Upstream("public.ecr.aws", "public.ecr.aws", "ecr"),
    Upstream("quay.io", "quay.io", "quay"),
    Upstream("registry.k8s.io", "registry.k8s.io", "k8s"),
)
DOCKER_HUB = Upstream(images.DOCKER_HUB, "registry-1.docker.io", "hub")


def through(stack: settings.Settings, account: Account) -> settings.Settings:
    """Return the settings with the names that images have in the stack's cache; without a cache, as they are.

    The names contain the account's number, so AWS is asked for it. Manifests are made of plain text, so the program
    waits for the answer.
    """
    if stack.image_cache is None:
        return stack
    caller = aws.get_caller_identity(opts=pulumi.InvokeOptions(provider=account.provider))
    place = f"{registry(caller.account_id, stack.region, partition_of(caller.arn))}/{stack.name}"
    known = upstreams(stack.image_cache)
    return stack.with_images(lambda image: cached(image, place, known))


def upstreams(cache: settings.ImageCache) -> tuple[Upstream, ...]:
    """Return the registries that are cached."""
    return (*WITHOUT_CREDENTIALS, DOCKER_HUB) if cache.docker_hub_secret else WITHOUT_CREDENTIALS


def registry(account: str, region: str, partition: str) -> str:
    """Return the host name of the account's registry in ECR."""
    domain = "amazonaws.com.cn" if partition == "aws-cn" else "amazonaws.com"
    return f"{account}.dkr.ecr.{region}.{domain}"


def cached(image: str, place: str, known: Sequence[Upstream]) -> str:
    """Return the image's name in the cache at `place`; the name as it is if its registry is not cached."""
    host, path = images.parts(image)
    for upstream in known:
        if host == upstream.registry:
            return f"{place}/{upstream.folder}/{path}"
    return image


@dataclass(frozen=True)
class ImageCacheArgs:
    """What is cached."""

    cache: settings.ImageCache


class ImageCache(pulumi.ComponentResource):
    """The rules of the stack that the component is named after. Pods come after all of them.

    ECR makes a repository for each image at its first pull, and keeps it when the rule is deleted; python -m
    scripts.sweep finds these repositories, and rules that are left, by the stack's name at the beginning of theirs.
    """

    def __init__(self, name: str, args: ImageCacheArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:infra:ImageCache", name, None, opts)
        for upstream in upstreams(args.cache):
            secret = args.cache.docker_hub_secret if upstream == DOCKER_HUB else None
            aws.ecr.PullThroughCacheRule(
                f"{name}-{upstream.folder}",
                ecr_repository_prefix=f"{name}/{upstream.folder}",
                upstream_registry_url=upstream.url,
                credential_arn=secret,
                opts=pulumi.ResourceOptions(parent=self),
            )
        self.register_outputs({})
