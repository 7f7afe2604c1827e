"""The registries that ECR caches for a stack, and the names of their images in the cache. Pure.

    place = f"{registry(account, region, partition)}/{stack.name}"
    cached("quay.io/coreos/etcd:v3.5.21", place, upstreams(stack.image_cache))
    # 123456789012.dkr.ecr.us-west-2.amazonaws.com/tidewater-dev/quay/coreos/etcd:v3.5.21

ECR has no rules for nvcr.io. Those for other registries than these need credentials:
https://docs.aws.amazon.com/AmazonECR/latest/userguide/pull-through-cache.html
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import settings


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
DOCKER_HUB = Upstream("docker.io", "registry-1.docker.io", "hub")


def upstreams(cache: settings.ImageCache) -> tuple[Upstream, ...]:
    """Return the registries that are cached."""
    return (*WITHOUT_CREDENTIALS, DOCKER_HUB) if cache.docker_hub_secret else WITHOUT_CREDENTIALS


def registry(account: str, region: str, partition: str) -> str:
    """Return the host name of the account's registry in ECR."""
    domain = "amazonaws.com.cn" if partition == "aws-cn" else "amazonaws.com"
    return f"{account}.dkr.ecr.{region}.{domain}"


def cached(image: str, place: str, known: Sequence[Upstream]) -> str:
    """Return the image's name in the cache at `place`; the name as it is if its registry is not cached."""
    host, path = _parts(image)
    for upstream in known:
        if host == upstream.registry:
            return f"{place}/{upstream.folder}/{path}"
    return image


def _parts(image: str) -> tuple[str, str]:
    """Return an image's registry and the rest of its name.

    The first part names a registry if it has a dot or a port, else the image is Docker Hub's. Docker Hub's own
    images are in `library`, which must be in the name for ECR:
    https://github.com/distribution/reference (normalize.go)
    https://docs.aws.amazon.com/AmazonECR/latest/userguide/pull-through-cache-working.html
    """
    first, slash, rest = image.partition("/")
    if not slash or not ("." in first or ":" in first):
        first, rest = DOCKER_HUB.registry, image
    if first == DOCKER_HUB.registry and "/" not in rest:
        rest = f"library/{rest}"
    return first, rest
