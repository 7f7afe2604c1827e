"""What the texts of ElasticDL's flags mean."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from elasticdl.client.flags import values
from elasticdl.client.flags.request import PullPolicy
from elasticdl.client.flags.values import Volume, WorkerPriority, WrongValue


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("cpu=2,memory=2048Mi", {"cpu": "2", "memory": "2048Mi"}),
        ("cpu=250m, memory=32Mi, gpu=1", {"cpu": "250m", "memory": "32Mi", "nvidia.com/gpu": "1"}),
        ("disk=64Mi", {"ephemeral-storage": "64Mi"}),
        ("amd.com/gpu=2,ephemeral-storage=1Gi", {"amd.com/gpu": "2", "ephemeral-storage": "1Gi"}),
    ],
)
def test_resources_have_kubernetes_names(text: str, found: dict[str, str]) -> None:
    assert values.resources(text) == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("cpu", "'cpu' is not NAME=VALUE", id="no-amount"),
        pytest.param("cpu=two", "cpu=two is no number of CPUs", id="words"),
        pytest.param("cpu=0", "cpu=0 is no number of CPUs", id="none"),
        pytest.param("cpu=2Gi", "cpu=2Gi is no number of CPUs", id="cpus-with-a-unit"),
        pytest.param("memory=2048", "memory=2048 is no size with a unit", id="memory-without-a-unit"),
        pytest.param("memory=100m", "memory=100m is no size with a unit", id="thousandths-of-a-byte"),
        pytest.param("gpu=0.5", "gpu=0.5 is no whole number", id="half-a-gpu"),
        pytest.param("ram=2Gi", "ram is no resource", id="unknown"),
        pytest.param("disk=1Gi,ephemeral-storage=2Gi", "ephemeral-storage is given twice", id="twice"),
    ],
)
def test_a_wrong_resource_is_named(text: str, said: str) -> None:
    with pytest.raises(WrongValue) as caught:
        values.resources(text)
    assert caught.value.message == said
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("quantity", "number"), [("250m", "0.25"), ("2Ki", "2048"), ("1.5G", "1500000000"), ("3", "3"), (".5", "0.5")]
)
def test_quantities_can_be_compared(quantity: str, number: str) -> None:
    assert values.amount(quantity) == Decimal(number)


def test_volumes_are_claims_and_paths_of_the_host() -> None:
    text = "host_path=/c0,mount_path=/path0,type=Directory;claim_name=c1,mount_path=/path1,sub_path=a/b,read_only=true;"
    assert values.volumes(text) == (
        Volume(mount_path="/path0", host_path="/c0", type="Directory"),
        Volume(mount_path="/path1", claim_name="c1", sub_path="a/b", read_only=True),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("claim_name=c", "has no mount_path that begins with /", id="nowhere"),
        pytest.param("claim_name=c,mount_path=data", "has no mount_path that begins with /", id="relative"),
        pytest.param("mount_path=/data", "exactly one of claim_name and host_path", id="nothing"),
        pytest.param("claim_name=c,host_path=/h,mount_path=/data", "exactly one of", id="both"),
        pytest.param("claim_name=C_1,mount_path=/data", "no name of a claim", id="no-name"),
        pytest.param("claim_name=c,mount_path=/data,type=File", "type, which is of a host_path", id="type-of-a-claim"),
        pytest.param("claim_name=c,mount_path=/data,sub_path=../x", "not a path within", id="out-of-the-volume"),
        pytest.param("claim=c,mount_path=/data", "claim is unknown in a volume", id="unknown"),
        pytest.param("claim_name=c,mount_path=/d;claim_name=e,mount_path=/d", "/d is given twice", id="same-place"),
        pytest.param("claim_name=c,mount_path=/d,read_only=maybe", "neither true nor false", id="no-truth"),
    ],
)
def test_a_wrong_volume_is_named(text: str, said: str) -> None:
    with pytest.raises(WrongValue, match=said):
        values.volumes(text)


def test_a_variable_may_have_commas_and_equals_signs() -> None:
    found = values.environment("A=1,B=x,y,z=3,HTTP_PROXY=http://a:1/?q=2")
    assert found == {"A": "1", "B": "x,y", "z": "3", "HTTP_PROXY": "http://a:1/?q=2"}
    assert values.environment("") == {}


def test_what_is_no_variable_is_named() -> None:
    with pytest.raises(WrongValue, match="'1A' is not NAME=VALUE"):
        values.environment("1A")


def test_workers_have_one_class_or_two() -> None:
    assert values.worker_priority("low") == WorkerPriority("low")
    assert values.worker_priority("high=0.5") == WorkerPriority("high", "low", 0.5)
    assert values.worker_priority("") == WorkerPriority()


@pytest.mark.parametrize("text", ["high=2", "high=0", "high=1", "high=half", "urgent=0.5", "high="])
def test_a_wrong_share_is_refused(text: str) -> None:
    with pytest.raises(WrongValue, match="neither a class nor a share"):
        values.worker_priority(text)


@pytest.mark.parametrize(("workers", "share", "core"), [(4, 0.5, 2), (3, 0.5, 2), (1, 0.1, 1), (10, 0.25, 3)])
def test_a_share_is_rounded_up(workers: int, share: float, core: int) -> None:
    assert WorkerPriority("high", "low", share).of_core(workers) == core


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (values.boolean, "True", True),
        (values.boolean, "no", False),
        (values.always("so"), "true", True),
        (values.whole(0), "0", 0),
        (values.seconds, "2.5", 2.5),
        (values.seconds, "false", 300.0),
        (values.choice(PullPolicy), "ifnotpresent", PullPolicy.IF_NOT_PRESENT),
        (values.parameters, "a=1; b='x;y'", "a=1; b='x;y'"),
        (values.cluster_spec, '{"pod_spec": {}}', {"pod_spec": {}}),
        (values.priority, "high", "high"),
    ],
)
def test_a_text_becomes_a_value(read: Callable[[str], Any], text: str, value: Any) -> None:
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "text", "said"),
    [
        (values.boolean, "perhaps", "neither true nor false"),
        (values.always("pods are replaced"), "false", "not possible: pods are replaced"),
        (values.whole(1), "0", "not a whole number of at least 1"),
        (values.whole(0), "1.5", "not a whole number"),
        (values.seconds, "true", "its tasks go to others"),
        (values.seconds, "soon", "no number of seconds"),
        (values.choice(PullPolicy), "sometimes", "'sometimes' is unknown"),
        (values.parameters, "a", "is not name=value"),
        (values.cluster_spec, "[1]", "no mapping"),
        (values.cluster_spec, "{", "not JSON"),
        (values.priority, "High!", "no name of a priority class"),
    ],
)
def test_a_text_that_is_no_value_is_refused_with_a_remedy(read: Callable[[str], Any], text: str, said: str) -> None:
    with pytest.raises(WrongValue, match=said) as caught:
        read(text)
    assert caught.value.remedy
