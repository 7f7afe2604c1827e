"""The names of images in the cache, and the rules that fill it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import settings
from infra import image_cache
from scripts.sweep.model import Stack
from scripts.sweep.storage import PULL_THROUGH_RULES
from settings import images
from settings.images import MAX_CACHED_NAME_LENGTH
from tests import graph

PLACE = "123456789012.dkr.ecr.us-west-2.amazonaws.com/tidewater-dev"
SECRET = "arn:aws:secretsmanager:us-west-2:123456789012:secret:ecr-pullthroughcache/hub-AbCdEf"
OPEN = image_cache.upstreams(settings.ImageCache(""))
ALL = image_cache.upstreams(settings.ImageCache(SECRET))
RULE = "aws:ecr/pullThroughCacheRule:PullThroughCacheRule"
POLICY = "aws:iam/rolePolicy:RolePolicy"
STACK = "dev"
NAME = f"tidewater-{STACK}"
REGISTRY = f"{graph.ACCOUNT}.dkr.ecr.{graph.REGION}.amazonaws.com"
SECRET_ARN = f"arn:aws:secretsmanager:{graph.REGION}:{graph.ACCOUNT}:secret:ecr-pullthroughcache/hub-AbCdEf"
EVERYTHING = {"imageCache": True, "dockerHubSecret": SECRET_ARN, "monitoring": "prometheus"}


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
    assert image_cache.cached(image, PLACE, ALL) == f"{PLACE}/{path}"


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
    assert image_cache.cached(image, PLACE, ALL) == image


@pytest.mark.parametrize("image", ["pytorch/pytorch:2.14.1", "python", "docker.io/library/python:3.12"])
def test_without_credentials_images_of_docker_hub_keep_their_names(image: str) -> None:
    assert image_cache.cached(image, PLACE, OPEN) == image


def test_a_name_in_the_cache_is_not_changed_again() -> None:
    once = image_cache.cached("quay.io/coreos/etcd:v3.5.21", PLACE, ALL)
    assert image_cache.cached(once, PLACE, ALL) == once


def test_the_registry_of_a_partition_has_its_domain() -> None:
    assert image_cache.registry("1", "us-gov-west-1", "aws-us-gov") == "1.dkr.ecr.us-gov-west-1.amazonaws.com"
    assert image_cache.registry("1", "cn-north-1", "aws-cn") == "1.dkr.ecr.cn-north-1.amazonaws.com.cn"


def deployed(**changes: Any) -> graph.Graph:
    return graph.deploy({**graph.stack_config("Pulumi.aws.yaml.example"), **changes}, stack=STACK)


@pytest.fixture(scope="module")
def made() -> graph.Graph:
    return deployed(**EVERYTHING)


def named_in(value: Any) -> Iterator[str]:
    """Yield all images that manifests name."""
    if isinstance(value, dict):
        yield from (each for key, each in value.items() if key == "image" and isinstance(each, str))
        for each in value.values():
            yield from named_in(each)
    elif isinstance(value, list):
        for each in value:
            yield from named_in(each)


def image_policies(made: graph.Graph) -> list[graph.Registered]:
    return [each for each in made.all(POLICY) if each.name.endswith("-images")]


def all_images(made: graph.Graph) -> set[str]:
    return {image for resource in made.resources for image in named_in(dict(resource.inputs))}


def test_all_pods_get_their_images_through_the_cache_but_those_of_nvidia(made: graph.Graph) -> None:
    found = all_images(made)
    outside = {image for image in found if not image.startswith(f"{REGISTRY}/{NAME}/")}
    assert {image.partition("/")[0] for image in outside} == {"nvcr.io"}
    before = {
        image_cache.cached(image, f"{REGISTRY}/{NAME}", image_cache.upstreams(settings.ImageCache(SECRET_ARN)))
        for image in all_images(deployed(monitoring="prometheus"))
    }
    assert found == before


def test_karpenters_chart_gets_the_cached_name_too(made: graph.Graph) -> None:
    charts = json.dumps([dict(each.inputs) for each in made.resources if "helm" in each.type], default=str)
    assert f"{REGISTRY}/{NAME}/ecr/karpenter/controller" in charts


def test_every_image_of_the_settings_gets_its_name_from_the_one_function() -> None:
    config = {**graph.defaults(), **EVERYTHING}
    keys = [key for key in config if key == "image" or key.endswith("Image")]
    assert len(keys) >= 9
    stack = settings.parse({**config, **{key: f"quay.io/{key.lower()}" for key in keys}}, stack=STACK)
    renamed = repr(stack.with_images(lambda image: image.replace("quay.io", "renamed")))
    assert "quay.io" not in renamed
    assert set(re.findall(r"renamed/(\w+)", renamed)) == {key.lower() for key in keys}


def test_with_a_mirror_every_image_comes_from_it_that_of_karpenters_chart_too() -> None:
    mirror = "registry.example.com/mirror"
    made = deployed(imageRegistry=mirror, monitoring="prometheus")
    own = all_images(deployed(monitoring="prometheus"))
    assert all_images(made) == {images.mirrored(image, mirror) for image in own}
    charts = json.dumps([dict(each.inputs) for each in made.resources if "helm" in each.type], default=str)
    assert f'"repository": "{mirror}/public.ecr.aws/karpenter/controller"' in charts


def test_each_upstream_has_a_rule_under_the_stacks_name(made: graph.Graph) -> None:
    rules = {each.inputs["ecrRepositoryPrefix"]: each.inputs for each in made.all(RULE)}
    assert {prefix: rule["upstreamRegistryUrl"] for prefix, rule in rules.items()} == {
        f"{NAME}/ecr": "public.ecr.aws",
        f"{NAME}/quay": "quay.io",
        f"{NAME}/k8s": "registry.k8s.io",
        f"{NAME}/hub": "registry-1.docker.io",
    }
    assert {prefix for prefix, rule in rules.items() if rule.get("credentialArn")} == {f"{NAME}/hub"}
    assert rules[f"{NAME}/hub"]["credentialArn"] == SECRET_ARN


def test_without_credentials_there_is_no_rule_for_docker_hub() -> None:
    rules = deployed(imageCache=True).all(RULE)
    assert {each.inputs["upstreamRegistryUrl"] for each in rules} == {"public.ecr.aws", "quay.io", "registry.k8s.io"}


def test_the_longest_name_leaves_room_for_every_folder() -> None:
    folders = [upstream.folder for upstream in image_cache.upstreams(settings.ImageCache(SECRET_ARN))]
    assert all(MAX_CACHED_NAME_LENGTH + len(f"/{folder}") <= 30 for folder in folders)
    longest = "s" * (MAX_CACHED_NAME_LENGTH - len("tidewater-"))
    settings.parse({**graph.defaults(), "imageCache": True}, stack=longest)
    with pytest.raises(settings.ConfigurationError) as refused:
        settings.parse({**graph.defaults(), "imageCache": True}, stack=f"{longest}s")
    (mistake,) = refused.value.mistakes
    assert mistake.startswith("imageCache = true: the stack's name may have 15 characters with it")


def test_all_nodes_may_have_repositories_made_under_the_stacks_name_only(made: graph.Graph) -> None:
    policies = {each.inputs["role"]: json.loads(each.inputs["policy"]) for each in image_policies(made)}
    assert policies.keys() == {f"{NAME}-node", f"{NAME}-surge-node"}
    for policy in policies.values():
        (statement,) = policy["Statement"]
        assert statement["Action"] == "ecr:CreateRepository"
        assert statement["Resource"] == f"arn:aws:ecr:{graph.REGION}:{graph.ACCOUNT}:repository/{NAME}/*"


def test_no_pod_comes_before_the_rules(made: graph.Graph) -> None:
    jobs = [each for each in made.resources if each.type.endswith(("Job", "Deployment", "StatefulSet", "DaemonSet"))]
    assert jobs
    for rule in made.all(RULE):
        assert all(made.needs(job, rule) for job in jobs)


class LeftRules:
    """ECR with the rules that an interrupted destroy of a stack has left, and with one of another stack."""

    def __init__(self, prefixes: Sequence[str]) -> None:
        self.prefixes = [*prefixes, f"{NAME}2/quay"]

    def get_paginator(self, operation: str) -> LeftRules:
        assert operation == "describe_pull_through_cache_rules"
        return self

    def paginate(self) -> Iterator[dict[str, Any]]:
        for prefix in self.prefixes:
            yield {"pullThroughCacheRules": [{"ecrRepositoryPrefix": prefix, "upstreamRegistryUrl": "quay.io"}]}


def test_the_sweep_finds_every_rule_of_the_stack_by_its_prefix(made: graph.Graph) -> None:
    prefixes = [each.inputs["ecrRepositoryPrefix"] for each in made.all(RULE)]
    left = LeftRules(prefixes)
    found = PULL_THROUGH_RULES.find(lambda service: left, Stack("tidewater", STACK))
    assert [id_ for id_, _ in found] == prefixes


def test_without_the_option_nothing_of_it_is_there() -> None:
    made = deployed()
    assert not made.all(RULE)
    assert not image_policies(made)
    assert not [image for image in all_images(made) if REGISTRY in image]
