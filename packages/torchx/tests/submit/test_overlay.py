"""Further fields of pods, laid over the template."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tidewater_torchx.errors import Refused
from tidewater_torchx.submit.job import Submission, elastic_job
from tidewater_torchx.submit.options import Options
from tidewater_torchx.submit.overlay import merged, read

from packages.torchx.tests.doubles import app, role
from tidewater.elasticjob import names

BASE: dict[str, Any] = {"spec": {"tolerations": [{"key": "own"}], "nodeSelector": {"a": "1"}, "hostNetwork": False}}


@pytest.mark.parametrize(
    ("over", "expected"),
    [
        pytest.param({"nodeSelector": {"b": "2"}}, {"nodeSelector": {"a": "1", "b": "2"}}, id="mappings-are-merged"),
        pytest.param(
            {"tolerations": [{"key": "more"}]}, {"tolerations": [{"key": "own"}, {"key": "more"}]}, id="lists-are-added"
        ),
        pytest.param({"tolerations": ({"key": "x"},)}, {"tolerations": [{"key": "x"}]}, id="tuples-replace"),
        pytest.param({"hostNetwork": True}, {"hostNetwork": True}, id="values-replace"),
        pytest.param({"affinity": {"nodeAffinity": {}}}, {"affinity": {"nodeAffinity": {}}}, id="new-fields"),
        pytest.param({"hostAliases": [{"ip": "1"}]}, {"hostAliases": [{"ip": "1"}]}, id="new-lists"),
    ],
)
def test_what_is_laid_over(over: dict[str, Any], expected: dict[str, Any]) -> None:
    assert merged(BASE, {"spec": over}) == {"spec": {**BASE["spec"], **expected}}


def test_nothing_is_changed_in_place() -> None:
    over = {"spec": {"tolerations": [{"key": "more"}]}}
    result = merged(BASE, over)
    result["spec"]["tolerations"][1]["key"] = "changed"
    assert (len(BASE["spec"]["tolerations"]), over["spec"]["tolerations"][0]["key"]) == (1, "more")


def test_the_overlay_of_a_file_is_read_and_its_tuples_replace(tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text("spec:\n  tolerations: !!python/tuple\n    - key: x\n  hostAliases: [{ip: '1'}]\n")
    found = read(role(metadata={"kubernetes": f"file://{file}"}))
    assert merged(BASE, found)["spec"]["tolerations"] == [{"key": "x"}]


def test_what_is_in_a_file_and_not_in_json_is_named(tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text("metadata: {annotations: {day: 2026-03-01}}\n")
    with pytest.raises(Refused, match=r"role trainer: metadata kubernetes\[metadata\]\[annotations\]\[day\] is date"):
        read(role(metadata={"kubernetes": f"file://{file}"}))


def test_a_role_without_an_overlay_has_none() -> None:
    assert read(role()) == {}


@pytest.mark.parametrize(
    ("metadata", "told"),
    [
        (3, "metadata kubernetes must be a mapping or the address of a file, not int"),
        ("file:///nowhere/pod.yaml", "metadata kubernetes=file:///nowhere/pod.yaml can't be read"),
    ],
)
def test_what_is_no_overlay_is_named_with_its_role(metadata: object, told: str) -> None:
    with pytest.raises(Refused, match=f"role trainer: {told}"):
        read(role(metadata={"kubernetes": metadata}))


def test_a_file_makes_no_objects_of_python(tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text("spec: !!python/object/apply:os.getcwd []\n")
    with pytest.raises(Refused, match="can't be read"):
        read(role(metadata={"kubernetes": f"file://{file}"}))


def test_each_role_has_its_own_overlay() -> None:
    submission = Submission(
        unique="kx3p",
        namespace="ns",
        options=Options(),
        overlays={"ps": {"spec": {"nodeSelector": {"disk": "ssd"}}}},
    )
    types = elastic_job(app(role(), role("ps")), submission)["spec"]["replicaSpecs"]
    assert types["ps"]["template"]["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert "nodeSelector" not in types[names.WORKER]["template"]["spec"]
