"""A chart's inputs: names, types, and what becomes of values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi
import pytest
from localcloud.standins.kubernetes.helm.arguments import COVERED, REFUSED, ChartArguments, read
from localcloud.standins.values import repair_property_value, wrap
from pulumi.errors import InputPropertyError
from pulumi.provider.experimental.property_value import PropertyValue, ResourceReference

repair_property_value()


def arguments(**inputs: Any) -> ChartArguments:
    values: Mapping[str, Any] = {"chart": "demo", **inputs}
    return read({key: value if isinstance(value, PropertyValue) else wrap(value) for key, value in values.items()}, "r")


def test_the_inputs_are_those_of_the_sdk() -> None:
    from pulumi_kubernetes.helm.v4 import ChartArgs

    names = {name for name in vars(ChartArgs) if isinstance(vars(ChartArgs)[name], property)}
    assert {name.replace("_", "").lower() for name in names} == {name.lower() for name in [*COVERED, *REFUSED]}


def test_the_release_has_the_component_s_name_by_default() -> None:
    assert arguments().name == "r"
    assert arguments(name="release").name == "release"


@pytest.mark.parametrize(("key", "remedy"), REFUSED.items())
def test_an_input_that_the_program_does_not_set_is_refused_by_name(key: str, remedy: str) -> None:
    with pytest.raises(InputPropertyError) as caught:
        arguments(**{key: True})
    assert (caught.value.property_path, caught.value.reason) == (
        key,
        f"not covered by the stand-in of the kubernetes provider: {remedy}",
    )
    assert arguments(**{key: False}).chart == "demo"


def test_numbers_that_are_whole_stay_whole_and_null_stays() -> None:
    values = PropertyValue({"a": PropertyValue(2.0), "b": PropertyValue(0.5), "c": PropertyValue(None)})
    assert arguments(values=values).values == {"a": 2, "b": 0.5, "c": None}


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        pytest.param({"charts": "x"}, "has no input charts", id="unknown"),
        pytest.param({"version": 1}, "must be a string, not float", id="type"),
        pytest.param({"skipCrds": "yes"}, "must be a boolean, not str", id="truth"),
        pytest.param({"values": ["x"]}, "must be a map, not", id="list"),
        pytest.param({"chart": ""}, "is missing", id="no-chart"),
    ],
)
def test_a_wrong_input_is_an_error_that_names_it(inputs: dict[str, Any], message: str) -> None:
    with pytest.raises(InputPropertyError) as caught:
        arguments(**inputs)
    assert message in caught.value.reason


@pytest.mark.parametrize(
    ("value", "message"),
    [
        pytest.param(pulumi.FileArchive("x"), "Archive values are not supported", id="archive"),
        pytest.param(ResourceReference("urn", PropertyValue("id"), None), "Resource values are not", id="resource"),
        pytest.param(pulumi.FileAsset("a"), "an asset is not covered by the stand-in", id="asset"),
    ],
)
def test_a_value_that_helm_cannot_have_is_refused_with_its_path(value: Any, message: str) -> None:
    with pytest.raises(InputPropertyError) as caught:
        arguments(values=PropertyValue({"a": PropertyValue([PropertyValue(value)])}))
    assert caught.value.property_path == "values.a[0]"
    assert message in caught.value.reason
