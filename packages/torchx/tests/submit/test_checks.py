"""What is wrong with an application is named before anything is asked."""

from __future__ import annotations

from typing import Any

import pytest
from tidewater_torchx.errors import Refused
from tidewater_torchx.submit.checks import check
from torchx.components import dist, utils
from torchx.specs import AppDef, BindMount, DeviceMount, Resource, VolumeMount

from packages.torchx.tests.doubles import app, role


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        pytest.param({"image": ""}, "role trainer: its image is missing", id="no-image"),
        pytest.param({"image": "<MISSING>"}, "role trainer: its image is missing", id="image-not-set"),
        pytest.param({"image": "a b"}, "role trainer: image 'a b' can't have blanks", id="blank-in-image"),
        pytest.param({"entrypoint": "<MISSING>"}, "role trainer: its entrypoint is missing", id="no-entrypoint"),
        pytest.param({"args": [1]}, "role trainer: argument 1 must be a text", id="number-as-argument"),
        pytest.param({"env": {"A=B": "1"}}, "role trainer: 'A=B' can't be the name", id="variable"),
        pytest.param({"env": {"A": None}}, "role trainer: the value of variable A is None", id="value"),
        pytest.param({"resource": None}, "role trainer: resource=None must be a Resource", id="resource"),
        pytest.param({"num_replicas": "3"}, "role trainer: num_replicas='3' must be a whole", id="number-as-text"),
        pytest.param({"num_replicas": True}, "role trainer: num_replicas=True must be a whole", id="truth-value"),
        pytest.param({"max_retries": 1.5}, "role trainer: max_retries=1.5 must be a whole", id="part-of-a-retry"),
        pytest.param({"num_replicas": 0}, "role trainer: num_replicas=0 must be between 1", id="no-replicas"),
        pytest.param({"num_replicas": 5001}, "role trainer: num_replicas=5001", id="too-many-replicas"),
        pytest.param(
            {"min_replicas": 3, "num_replicas": 2},
            "role trainer: min_replicas=3 must not be above num_replicas=2",
            id="min-above-max",
        ),
        pytest.param({"min_replicas": 0}, "role trainer: min_replicas=0 must be at least 1", id="min-0"),
        pytest.param({"max_retries": -1}, "role trainer: max_retries=-1", id="retries"),
        pytest.param({"retry_policy": "ALWAYS"}, "role trainer: retry_policy='ALWAYS' must be one of", id="policy"),
    ],
)
def test_a_role_that_cannot_run_is_named(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(Refused) as error:
        check(app(role("other"), role(**fields)))
    assert str(error.value).startswith(told)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        pytest.param({"cpu": None}, "cpu=None must be a number", id="no-cpu"),
        pytest.param({"cpu": "2"}, "cpu='2' must be a number", id="cpu-as-text"),
        pytest.param({"cpu": float("inf")}, "cpu=inf must be a number", id="infinite-cpu"),
        pytest.param({"cpu": True}, "cpu=True must be a number", id="truth-value"),
        pytest.param({"memMB": "1G"}, "memMB='1G' must be a number", id="memory-as-text"),
        pytest.param({"gpu": 1.5}, "gpu=1.5 must be a whole number", id="part-of-a-gpu"),
        pytest.param({"devices": None}, "devices=None must be a mapping", id="no-devices"),
        pytest.param({"devices": {"a": -1}}, "devices: a=-1 must be a whole number of 0 or more", id="negative-device"),
        pytest.param({"devices": {"a": 0.5}}, "devices: a=0.5 must be a whole number", id="part-of-a-device"),
        pytest.param({"capabilities": None}, "capabilities=None must be a mapping", id="no-capabilities"),
    ],
)
def test_a_resource_that_no_pod_can_have_is_named_with_its_role(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(Refused) as error:
        check(app(role(resource=Resource(**{"cpu": 1, "gpu": 0, "memMB": 100, **fields}))))
    assert str(error.value).startswith(f"role trainer: resource: {told}")


def test_a_resource_that_is_not_set_and_parts_of_a_cpu_are_right() -> None:
    check(app(role(resource=Resource(cpu=-1, gpu=-1, memMB=-1))))
    check(app(role(resource=Resource(cpu=0.5, gpu=0, memMB=1.5, devices={"a": 1}))))


@pytest.mark.parametrize(
    ("mount", "told"),
    [
        (BindMount("", "/a"), "src_path=''"),
        (BindMount("/a", None), "dst_path=None"),
        (VolumeMount(None, "/a"), "src=None"),
        (DeviceMount("/dev/a", "/dev/a", permissions=None), "permissions=None"),
    ],
)
def test_a_mount_that_names_nothing_is_refused_with_its_role(mount: Any, told: str) -> None:
    with pytest.raises(Refused) as error:
        check(app(role(mounts=[mount])))
    assert str(error.value).startswith(f"role trainer: {type(mount).__name__}: {told} must be a text")


def test_an_application_without_roles_is_refused() -> None:
    with pytest.raises(Refused, match="'empty' has no roles"):
        check(AppDef("empty"))


@pytest.mark.parametrize(("application", "of_role"), [(None, "trainer"), ("app", 3)])
def test_a_name_that_is_no_text_is_refused(application: Any, of_role: Any) -> None:
    given = app(role(of_role), name=application)
    with pytest.raises(Refused, match="can't be the name of an application or a role"):
        check(given)


def test_more_nodes_at_least_than_at_most_is_refused() -> None:
    with pytest.raises(Refused, match="min_replicas=4 must not be above num_replicas=2"):
        check(dist.ddp(script="train.py", j="4:2x1", image="img"))


def test_the_components_of_torchx_are_right() -> None:
    check(utils.echo())
    check(dist.ddp(script="train.py", j="1:4x2"))
    check(dist.spmd(script="train.py", j="2x2", h="gpu.small"))
