"""The part of `model` and of `parsing` for container images: their names, and from where nodes pull them.

images(read)                                       # the names, as the configuration has them
cache(read, stack="dev")                           # None, or ECR's cache
registry(read)                                     # "", or the prefix of a mirror
pull_secret(read)                                  # "", or Docker's configuration
mirrored("quay.io/coreos/etcd:v3.5.21", "registry.example.com/mirror")
# registry.example.com/mirror/quay.io/coreos/etcd:v3.5.21
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from settings.reader import Reader

DOCKER_HUB = "docker.io"

MAX_CACHED_NAME_LENGTH = 25
"""Limit of `tidewater-<stack>` with `imageCache`: ECR allows prefixes of 30 characters, and the program adds 5.
https://docs.aws.amazon.com/AmazonECR/latest/APIReference/API_CreatePullThroughCacheRule.html"""

_DOCKER_HUB_SECRET = r"arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:\d{12}:secret:ecr-pullthroughcache/[\w+=.@/-]+"
"""ECR uses no secret of another name.
https://docs.aws.amazon.com/AmazonECR/latest/userguide/pull-through-cache-creating-rule.html"""

MAX_CONFIGURATION = 64 * 1024
"""Far more than the credentials of any number of registries take; Kubernetes allows a secret of 1 MiB."""

_LOG_IN = "make it with kubectl create secret docker-registry, as docs/deploy-aws.md shows"

_REGISTRY = r"(?=[^/]*[.:])[a-z0-9][a-z0-9.-]*(:\d{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
"""A host with a dot or a port, and folders: https://github.com/distribution/reference (reference.go, normalize.go)"""


@dataclass(frozen=True)
class Images:
    """Container images."""

    trainer: str
    fetch: str
    etcd: str
    controller: str
    efa_plugin: str
    device_plugin: str

    def named(self, name: Callable[[str], str]) -> Images:
        """Return the images with the names that `name` returns for theirs."""
        return Images(**{each.name: name(getattr(self, each.name)) for each in fields(self)})


@dataclass(frozen=True)
class ImageCache:
    """Nodes pull images through ECR, which keeps them in the stack's account and region."""

    docker_hub_secret: str
    """ARN of the secret with Docker Hub's credentials; without one, images from there are not cached."""


def images(read: Reader) -> Images:
    """Return the images of the training, with the names that the configuration has."""
    return Images(
        trainer=read.image("image"),
        fetch=read.image("fetchImage"),
        etcd=read.image("etcdImage"),
        controller=read.image("controllerImage"),
        efa_plugin=read.image("efaPluginImage"),
        device_plugin=read.image("devicePluginImage"),
    )


def cache(read: Reader, project: str, stack: str) -> ImageCache | None:
    """Return ECR's cache for the stack of this name; None without one."""
    wanted = read.boolean("imageCache")
    what = "the ARN of a secret with a name that begins with ecr-pullthroughcache/, or empty"
    secret = read.text("dockerHubSecret", f"({_DOCKER_HUB_SECRET})?", what)
    region = read.config.get("region")
    if secret and not wanted:
        read.wrong("dockerHubSecret", secret, "has an effect only with imageCache; remove it or set imageCache to true")
    elif secret and secret.split(":")[3] != region:
        read.wrong("dockerHubSecret", secret, f"is in another region than the stack; ECR needs one in {region}")
    if wanted and len(f"{project}-{stack}") > MAX_CACHED_NAME_LENGTH:
        longest = MAX_CACHED_NAME_LENGTH - len(project) - 1
        remedy = f"the stack's name may have {longest} characters with it, since ECR's prefixes begin with it; "
        read.wrong("imageCache", "true", remedy + "take a shorter name, or set it to false")
    return ImageCache(secret) if wanted else None


def registry(read: Reader) -> str:
    """Return the registry and folder from which nodes pull all images; empty for those in the images' names."""
    what = "a registry with or without a folder in it, such as registry.example.com/mirror, or empty"
    found = read.text("imageRegistry", f"({_REGISTRY})?", what, longest=128)
    if found and read.boolean("imageCache"):
        read.wrong("imageRegistry", found, "nodes pull from one place, and imageCache is another; remove one of them")
    return found


def pull_secret(read: Reader) -> str:
    """Return Docker's configuration with the credentials with which nodes pull images; empty without any.

    No message shows it, also where it is no secret for Pulumi.
    """
    key, what = "imagePullSecret", "the JSON of Docker's configuration, or empty"
    text = read.text(key, r"(\s*\{[\s\S]*\}\s*)?", what, longest=MAX_CONFIGURATION)
    if text and key not in read.secrets:
        read.mistake(f"{key}: would be readable in the stack's file; set it with pulumi config set --secret")
    elif wrong := next(_without_credentials(text), None) if text else None:
        read.wrong(key, text, wrong)
    return text


def _without_credentials(text: str) -> Iterator[str]:
    """Yield what keeps nodes from pulling with this configuration.

    https://kubernetes.io/docs/tasks/configure-pod-container/pull-image-private-registry/
    """
    try:
        found = json.loads(text)
    except ValueError as error:
        yield f"is no JSON: {error}"
        return
    registries = found.get("auths")
    if not isinstance(registries, Mapping) or not registries:
        yield f"names no registry in auths; {_LOG_IN}"
        return
    for name, given in registries.items():
        if not isinstance(given, Mapping) or not _has_credentials(given):
            yield f"has no user and password of {name}, which docker login may keep elsewhere; {_LOG_IN}"


def _has_credentials(given: Mapping[str, Any]) -> bool:
    """Return whether an entry has what the kubelet sends: a name and a password, or both in Base64."""
    return bool(given.get("auth") or (given.get("username") and given.get("password")))


def mirrored(image: str, place: str) -> str:
    """Return the image's name below `place`: there its own registry is a folder. One of that registry stays as it is.

    Without the registry in it, two images of different registries could have the same name.
    """
    host, path = parts(image)
    return image if host == place.partition("/")[0] else f"{place}/{host}/{path}"


def parts(image: str) -> tuple[str, str]:
    """Return an image's registry and the rest of its name.

    The first part names a registry if it has a dot or a port, else the image is Docker Hub's. Docker Hub's own
    images are in `library`, which must be in the name for ECR:
    https://github.com/distribution/reference (normalize.go)
    https://docs.aws.amazon.com/AmazonECR/latest/userguide/pull-through-cache-working.html
    """
    first, slash, rest = image.partition("/")
    if not slash or not ("." in first or ":" in first):
        first, rest = DOCKER_HUB, image
    if first == DOCKER_HUB and "/" not in rest:
        rest = f"library/{rest}"
    return first, rest
