"""What a pod asks of its node, by Kubernetes' rules."""

from __future__ import annotations

from typing import Any

import pytest

from tidewater.controller.room.requests import requested, thousandths


def container(cpu: str | None = None, **fields: Any) -> dict[str, Any]:
    return {**({"resources": {"requests": {"cpu": cpu}}} if cpu else {}), **fields}


@pytest.mark.parametrize(
    ("quantity", "number"),
    [
        ("2", 2000),
        ("500m", 500),
        ("0.5", 500),
        ("1.", 1000),
        (".5", 500),
        ("1500u", 2),
        ("1n", 1),
        ("2k", 2_000_000),
        ("1Ki", 1_024_000),
        ("1.5Gi", 1_610_612_736_000),
        ("1e3", 1_000_000),
        ("2E", 2 * 10**21),
        ("0", 0),
    ],
)
def test_a_quantity_is_read_as_kubernetes_does(quantity: str, number: int) -> None:
    assert thousandths(quantity) == number


@pytest.mark.parametrize("text", ["", "one", "1 Gi", "1GB", "1.2.3", ".", "0x10", "1ki"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no quantity"):
        thousandths(text)


def test_a_pod_asks_for_the_sum_of_its_containers_and_for_one_pod() -> None:
    assert requested({"containers": [container("1"), container("500m"), container()]}) == {"cpu": 1500, "pods": 1000}


def test_a_limit_without_a_request_is_the_request() -> None:
    resources = {"limits": {"nvidia.com/gpu": 2, "cpu": "4"}, "requests": {"cpu": 1}}
    assert requested({"containers": [{"resources": resources}]}) == {"nvidia.com/gpu": 2000, "cpu": 1000, "pods": 1000}


def test_init_containers_count_alone_and_sidecars_together_with_all_that_follows() -> None:
    sidecar = container("1", restartPolicy="Always")
    spec = {"initContainers": [container("5"), sidecar, container("3")], "containers": [container("2")]}
    assert requested(spec)["cpu"] == 5000
    assert requested({**spec, "initContainers": [container("2"), sidecar, container("3")]})["cpu"] == 4000
    assert requested({**spec, "initContainers": [sidecar]})["cpu"] == 3000


def test_the_overhead_of_the_runtime_counts() -> None:
    assert requested({"containers": [container("1")], "overhead": {"cpu": "250m"}})["cpu"] == 1250


def test_what_a_pod_asks_for_as_a_whole_stands_instead_of_what_its_containers_ask_for() -> None:
    whole = {"requests": {"cpu": "8"}, "limits": {"memory": "1Ki"}}
    found = requested({"containers": [container("2")], "resources": whole, "overhead": {"cpu": "1"}})
    assert found == {"cpu": 9000, "memory": 1_024_000, "pods": 1000}
