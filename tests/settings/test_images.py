"""The names that images have in a mirror, and the credentials with which nodes pull them."""

from __future__ import annotations

import json
from typing import Any

import pytest

import settings
from settings import images
from tests import graph

MIRROR = "registry.example.com:5000/mirror"


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("quay.io/coreos/etcd:v3.5.21", "quay.io/coreos/etcd:v3.5.21"),
        ("registry.k8s.io/pause@sha256:0123", "registry.k8s.io/pause@sha256:0123"),
        ("pytorch/pytorch:2.14.1", "docker.io/pytorch/pytorch:2.14.1"),
        ("docker.io/pytorch/pytorch:2.14.1", "docker.io/pytorch/pytorch:2.14.1"),
        ("python:3.12", "docker.io/library/python:3.12"),
        ("registry.example.com/team/train:1", "registry.example.com/team/train:1"),
    ],
)
def test_an_image_is_in_the_mirror_below_its_own_registry(image: str, name: str) -> None:
    assert images.mirrored(image, MIRROR) == f"{MIRROR}/{name}"


@pytest.mark.parametrize("image", [f"{MIRROR}/quay.io/coreos/etcd:v3.5.21", "registry.example.com:5000/ml/train:1"])
def test_an_image_that_is_in_that_registry_keeps_its_name(image: str) -> None:
    assert images.mirrored(image, MIRROR) == image


@pytest.mark.parametrize(
    "place", ["registry.example.com", "localhost:5000", "123456789012.dkr.ecr.eu-west-1.amazonaws.com/a/b-c"]
)
def test_a_registry_with_or_without_a_folder_is_accepted(place: str) -> None:
    stack = graph.parsed(imageRegistry=place, etcdImage="quay.io/coreos/etcd:v3.5.21")
    assert stack.training.images.etcd == f"{place}/quay.io/coreos/etcd:v3.5.21"


@pytest.mark.parametrize(
    "place", ["https://registry.example.com", "registry.example.com/", "mirror/images", "R.example", "a.b/c:1"]
)
def test_what_no_image_could_begin_with_is_refused(place: str) -> None:
    with pytest.raises(settings.ConfigurationError, match="must be a registry with or without a folder in it"):
        graph.parsed(imageRegistry=place)


def with_credentials(text: str, *secrets: str) -> settings.Settings:
    return settings.parse({**graph.defaults(), "imagePullSecret": text}, stack="dev", secrets=secrets)


@pytest.mark.parametrize("entry", [{"auth": "dTpw"}, {"username": "u", "password": "p"}], ids=["auth", "password"])
def test_a_configuration_with_credentials_is_taken_as_it_is_and_never_shown(entry: dict[str, Any]) -> None:
    text = json.dumps({"auths": {"registry.example.com": entry}})
    stack = with_credentials(text, "imagePullSecret")
    assert stack.training.pull_secret == text
    assert "registry.example.com" not in repr(stack)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{auths}", "is no JSON"),
        ("{}", "names no registry in auths"),
        (json.dumps({"auths": {}, "credsStore": "desktop"}), "names no registry in auths"),
        (json.dumps({"auths": {"a.example": {}}, "credsStore": "desktop"}), "has no user and password of a.example"),
        (json.dumps({"auths": {"a.example": {"auth": ""}}}), "has no user and password of a.example"),
        (json.dumps({"auths": {"a.example": {"username": "u"}}}), "has no user and password of a.example"),
    ],
)
def test_what_no_node_can_log_in_with_is_refused_without_showing_it(text: str, why: str) -> None:
    with pytest.raises(settings.ConfigurationError) as refused:
        with_credentials(text, "imagePullSecret")
    (mistake,) = refused.value.mistakes
    assert mistake.startswith(f"imagePullSecret = [secret]: {why}")


def test_credentials_that_are_no_secret_are_refused_without_showing_them() -> None:
    with pytest.raises(settings.ConfigurationError) as refused:
        with_credentials(json.dumps({"auths": {"a.example": {"auth": "dTpw"}}}))
    (mistake,) = refused.value.mistakes
    assert "pulumi config set --secret" in mistake
    assert "dTpw" not in mistake
