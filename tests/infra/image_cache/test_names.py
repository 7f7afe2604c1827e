"""The names of images in the cache."""

from __future__ import annotations

import pytest

import settings
from infra.image_cache import names

PLACE = "123456789012.dkr.ecr.us-west-2.amazonaws.com/tidewater-dev"
SECRET = "arn:aws:secretsmanager:us-west-2:123456789012:secret:ecr-pullthroughcache/hub-AbCdEf"
OPEN = names.upstreams(settings.ImageCache(""))
ALL = names.upstreams(settings.ImageCache(SECRET))


@pytest.mark.parametrize(
    ("image", "path"),
    [
        ("quay.io/coreos/etcd:v3.5.21", "quay/coreos/etcd:v3.5.21"),
        ("public.ecr.aws/docker/library/python:3.12", "ecr/docker/library/python:3.12"),
        ("registry.k8s.io/pause@sha256:0123", "k8s/pause@sha256:0123"),
        ("pytorch/pytorch:2.14.1", "hub/pytorch/pytorch:2.14.1"),
        ("docker.io/pytorch/pytorch:2.14.1", "hub/pytorch/pytorch:2.14.1"),
        ("python:3.12", "hub/library/python:3.12"),
        ("docker.io/python:3.12", "hub/library/python:3.12"),
        ("python@sha256:0123", "hub/library/python@sha256:0123"),
    ],
)
def test_an_image_of_a_cached_registry_has_its_name_under_the_stacks_prefix(image: str, path: str) -> None:
    assert names.cached(image, PLACE, ALL) == f"{PLACE}/{path}"


@pytest.mark.parametrize(
    "image",
    [
        "nvcr.io/nvidia/k8s-device-plugin:v0.20.0",
        "602401143452.dkr.ecr.us-west-2.amazonaws.com/eks/aws-efa-k8s-device-plugin:v0.5.8",
        "registry:5000/quay.io/etcd",
        "ghcr.io/quay.io/etcd",
    ],
)
def test_an_image_of_another_registry_keeps_its_name(image: str) -> None:
    assert names.cached(image, PLACE, ALL) == image


@pytest.mark.parametrize("image", ["pytorch/pytorch:2.14.1", "python", "docker.io/library/python:3.12"])
def test_without_credentials_images_of_docker_hub_keep_their_names(image: str) -> None:
    assert names.cached(image, PLACE, OPEN) == image


def test_a_name_in_the_cache_is_not_changed_again() -> None:
    once = names.cached("quay.io/coreos/etcd:v3.5.21", PLACE, ALL)
    assert names.cached(once, PLACE, ALL) == once


def test_the_registry_of_a_partition_has_its_domain() -> None:
    assert names.registry("1", "us-gov-west-1", "aws-us-gov") == "1.dkr.ecr.us-gov-west-1.amazonaws.com"
    assert names.registry("1", "cn-north-1", "aws-cn") == "1.dkr.ecr.cn-north-1.amazonaws.com.cn"
