"""ECR's rules: under which prefix it caches which registry.

    ImageCache(name, ImageCacheArgs(stack.image_cache), account.options())

ECR makes a repository for each image at its first pull, and keeps it when the rule is deleted; python -m scripts.sweep
finds these repositories, and rules that are left, by the stack's name at the beginning of theirs.
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

import settings
from infra.image_cache import names


@dataclass(frozen=True)
class ImageCacheArgs:
    """What is cached."""

    cache: settings.ImageCache


class ImageCache(pulumi.ComponentResource):
    """The rules of the stack that the component is named after. Pods come after all of them."""

    def __init__(self, name: str, args: ImageCacheArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:infra:ImageCache", name, None, opts)
        for upstream in names.upstreams(args.cache):
            secret = args.cache.docker_hub_secret if upstream == names.DOCKER_HUB else None
            aws.ecr.PullThroughCacheRule(
                f"{name}-{upstream.folder}",
                ecr_repository_prefix=f"{name}/{upstream.folder}",
                upstream_registry_url=upstream.url,
                credential_arn=secret,
                opts=pulumi.ResourceOptions(parent=self),
            )
        self.register_outputs({})
