"""An application survives its way through the annotation, with all of its fields."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tidewater_torchx.errors import Refused
from tidewater_torchx.submit.appdef import decoded, encoded
from torchx.components import dist
from torchx.specs import AppDef, BindMount, DeviceMount, Resource, RetryPolicy, Role, VolumeMount

from packages.torchx.tests.doubles import app, role

COMPLETE = Role(
    name="trainer",
    image="img@sha256:0",
    min_replicas=1,
    base_image="base",
    entrypoint="bash",
    args=["-c", 'echo "ä" $HOME'],
    env={"A": "[FIELD_PATH]status.podIP"},
    num_replicas=3,
    max_retries=2,
    retry_policy=RetryPolicy.HOT_SPARE,
    resource=Resource(cpu=1, gpu=2, memMB=3, capabilities={"k": ["v", 1]}, devices={"d": 4}),
    port_map={"p": 1},
    metadata={"kubernetes": {"a": [1, 2.5, None, True], "b": ({"c": (1,)},)}},
    mounts=[
        BindMount("/a", "/b", read_only=True),
        VolumeMount("c", "/d"),
        DeviceMount("/dev/e", "/dev/f", permissions="r"),
    ],
)


def test_a_complete_application_comes_back() -> None:
    given = AppDef("app", [COMPLETE, role("ps")], {"team": "x"})
    assert decoded(encoded(given)) == given


def test_this_test_sets_every_field_of_a_role() -> None:
    plain = Role(name="", image="")
    assert not [name for name in Role.__dataclass_fields__ if getattr(COMPLETE, name) == getattr(plain, name)]


def test_an_application_of_a_component_comes_back() -> None:
    given = dist.ddp("--x", script="train.py", j="1:3x2", image="img", mounts=["type=volume", "src=a", "dst=/b"])
    assert decoded(encoded(given)) == given


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"metadata": {"k": {"n": object()}}}, "role trainer: metadata[k][n] is object"),
        ({"metadata": {"k": {1: "x"}}}, "role trainer: metadata[k]: key 1 must be a text"),
        ({"resource": Resource(1, 1, 1, capabilities={"k": {1}})}, "role trainer: resource[capabilities][k] is set"),
        ({"mounts": ["/a"]}, "role trainer: '/a' is no mount"),
        ({"metadata": {"k": {"$tuple": [1]}}}, "role trainer: metadata[k]: key '$tuple' stands for a tuple"),
    ],
)
def test_what_json_does_not_have_is_named(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(Refused) as error:
        encoded(app(role(**fields)))
    assert str(error.value).startswith(told)


def test_metadata_of_the_application_that_json_does_not_have_is_named() -> None:
    with pytest.raises(Refused, match=r"metadata of the application\[k\] is object"):
        encoded(AppDef("app", [role()], {"k": object()}))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "holds no TorchX application"),
        ("[]", "holds no TorchX application"),
        ('{"version":1,"name":"x"}', "holds no TorchX application"),
        ('{"version":1,"name":"x","metadata":{},"roles":["y"]}', "holds no TorchX application"),
        (json.dumps({"version": 9}), "another version of this scheduler"),
    ],
)
def test_what_is_no_application_is_said(text: str, told: str) -> None:
    with pytest.raises(Refused, match=told):
        decoded(text)
