"""Kinds, names, the provider's kubeconfig and configuration, field managers, schemas and the state."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from localcloud.standins.kubernetes import config, state
from localcloud.standins.kubernetes.cluster.kinds import Token, UnsupportedType
from localcloud.standins.kubernetes.decide import field_managers
from localcloud.standins.kubernetes.decide.diff import quantity
from localcloud.standins.kubernetes.decide.schema import unknown_fields
from localcloud.standins.kubernetes.provider import checked_inputs
from localcloud.standins.values import UNKNOWN
from pulumi.provider.experimental.property_value import PropertyValue

from tidewater.kube.errors import NoAccess
from tidewater.kube.kubeconfig import Connection


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        ("kubernetes:core/v1:Service", Token("", "v1", "Service")),
        ("kubernetes:batch/v1:JobPatch", Token("batch", "v1", "Job", patch=True)),
        ("kubernetes:example.test/v1:Toy", Token("example.test", "v1", "Toy")),
    ],
)
def test_type_tokens_are_read(token: str, expected: Token) -> None:
    assert Token.parse(token) == expected


@pytest.mark.parametrize(
    "token",
    ["kubernetes:helm.sh/v3:Release", "kubernetes:yaml/v2:ConfigGroup", "kubernetes:batch/v1:JobList", "aws:x/y:Z"],
)
def test_types_that_are_not_covered_are_refused_by_name(token: str) -> None:
    with pytest.raises(UnsupportedType, match=token.replace("/", "/")):
        Token.parse(token)


def check(
    new: dict[str, Any], old: dict[str, Any] | None = None, token: str = "kubernetes:core/v1:ConfigMap"
) -> dict[str, Any]:
    return checked_inputs(Token.parse(token), new, old or {}, name="base", seed=b"seed", namespace=lambda _: "default")


def test_named_object_keeps_its_name_even_while_that_is_unknown() -> None:
    assert check({"metadata": {"name": "mine"}})["metadata"] == {"name": "mine", "namespace": "default"}
    assert check({"metadata": {"name": UNKNOWN}})["metadata"]["name"] is UNKNOWN
    assert check({"metadata": UNKNOWN})["metadata"] is UNKNOWN


def test_generated_names_and_unnamed_patches_are_refused() -> None:
    with pytest.raises(UnsupportedType, match="generateName"):
        check({"metadata": {"generateName": "x-"}})
    with pytest.raises(UnsupportedType, match=r"metadata\.name"):
        check({}, token="kubernetes:batch/v1:JobPatch")


@pytest.mark.parametrize(
    ("text", "amount"), [("100m", "0.1"), ("1Gi", 2**30), ("2e3", 2000), (3, 3), ("1k", 1000), ("x", None)]
)
def test_quantities_are_read(text: str | int, amount: Any) -> None:
    assert quantity(text) == (None if amount is None else Decimal(amount))


def kubeconfig(server: str = "https://one", **user: Any) -> str:
    return json.dumps(
        {
            "clusters": [
                {"name": "c", "cluster": {"server": server}},
                {"name": "d", "cluster": {"server": "https://two"}},
            ],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
            "users": [{"name": "u", "user": user}],
            "current-context": "x",
        }
    )


def connection(source: str, **settings: str) -> Connection:
    return config.Config.read({"kubeconfig": source, **settings}, {}).connection({})


def test_kubeconfig_is_read_from_contents_and_from_a_path(tmp_path: Path) -> None:
    import yaml

    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(json.loads(kubeconfig(token="t"))))
    flow = yaml.safe_dump(json.loads(kubeconfig(token="t")), default_flow_style=True)
    for source in (kubeconfig(token="t"), flow, str(path)):
        found = connection(source)
        assert (found.server, found.user, found.namespace) == ("https://one", {"token": "t"}, "team")
    assert connection(kubeconfig(), cluster="d").server == "https://two"


def test_kubeconfig_without_the_context_is_an_error_that_names_it() -> None:
    with pytest.raises(NoAccess, match="context none"):
        connection(kubeconfig(), context="none")
    for text in ("no such file", "a: b: c", "{"):
        with pytest.raises(NoAccess, match="failed to parse kubeconfig data in `kubernetes:config:kubeconfig`"):
            connection(text)


def test_without_a_kubeconfig_the_error_names_the_setting(tmp_path: Path) -> None:
    with pytest.raises(NoAccess, match="Set the provider's `kubeconfig`, or KUBECONFIG"):
        config.Config().connection({"HOME": str(tmp_path)})


def test_unknown_and_uncovered_settings_are_refused_by_name() -> None:
    found = config.problems({"kubeconfg": "x", "renderYamlToDirectory": "/tmp", "enableServerSideApply": "false"})
    assert set(found) == {"kubeconfg", "renderYamlToDirectory", "enableServerSideApply"}
    assert config.problems({"kubeconfig": UNKNOWN, "namespace": "x", "enableServerSideApply": "true"}) == {}


@pytest.mark.parametrize(
    ("old", "new", "replaces"),
    [
        pytest.param({"kubeconfig": kubeconfig()}, {"kubeconfig": kubeconfig(token="new")}, (), id="other-credentials"),
        pytest.param(
            {"kubeconfig": kubeconfig()},
            {"kubeconfig": kubeconfig("https://other")},
            ("kubeconfig",),
            id="other-cluster",
        ),
        pytest.param({"kubeconfig": kubeconfig()}, {"kubeconfig": UNKNOWN}, ("kubeconfig",), id="unknown"),
        pytest.param(
            {"kubeconfig": kubeconfig(), "clusterIdentifier": "a"},
            {"kubeconfig": kubeconfig("https://other"), "clusterIdentifier": "a"},
            (),
            id="same-identifier",
        ),
        pytest.param(
            {"kubeconfig": kubeconfig(), "clusterIdentifier": "a"},
            {"kubeconfig": kubeconfig(), "clusterIdentifier": "b"},
            ("clusterIdentifier",),
            id="other-identifier",
        ),
    ],
)
def test_provider_is_replaced_only_for_another_cluster(
    old: dict[str, Any], new: dict[str, Any], replaces: tuple[str, ...]
) -> None:
    difference = config.diff(old, new)
    assert difference.replaces == replaces
    assert difference.changed


def test_flags_come_from_the_provider_first_and_the_environment_second() -> None:
    environment = {"PULUMI_K8S_ENABLE_PATCH_FORCE": "true"}
    assert config.Config.read({}, environment).patch_force
    assert not config.Config.read({"enablePatchForce": "false"}, environment).patch_force


def managed(manager: str, fields: dict[str, Any], operation: str = "Apply", **extra: str) -> dict[str, Any]:
    return {"manager": manager, "operation": operation, "fieldsV1": fields, **extra}


def test_ignored_field_is_left_out_when_only_others_own_it_and_keeps_its_live_value_otherwise() -> None:
    inputs = {"spec": {"parallelism": 2, "completions": 2}}
    live = {
        "spec": {"parallelism": 5, "completions": 6},
        "metadata": {
            "managedFields": [
                managed("us", {"f:spec": {"f:completions": {}}}),
                managed("scaler", {"f:spec": {"f:parallelism": {}, "f:completions": {}}}, "Update"),
            ]
        },
    }
    kept = field_managers.keep_ignored(inputs, live, [("spec", "parallelism"), ("spec", "completions")], "us")
    assert kept == {"spec": {"completions": 6}}


def test_an_update_takes_over_the_fields_of_kubectl_edit_and_not_those_of_kubectl_scale() -> None:
    scale = managed("kubectl", {"f:spec": {"f:replicas": {}}}, "Update", subresource="scale")
    edit = managed("kubectl-edit", {"f:data": {"f:a": {}}}, "Update")
    live = {"metadata": {"managedFields": [managed("us", {"f:data": {"f:b": {}}}), edit, scale]}}
    adopted = field_managers.adopt_client_side(live, "us")
    assert adopted == [managed("us", {"f:data": {"f:a": {}, "f:b": {}}}), scale]
    assert field_managers.adopt_client_side({"metadata": {"managedFields": [scale]}}, "us") is None


def test_fields_that_a_schema_lacks_are_found_through_references_and_lists() -> None:
    document = {
        "components": {
            "schemas": {
                "Toy": {
                    "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "Toy"}],
                    "properties": {
                        "kind": {},
                        "parts": {"items": {"allOf": [{"$ref": "#/components/schemas/Part"}], "default": {}}},
                        "labels": {"additionalProperties": {"type": "string"}},
                    },
                },
                "Part": {"properties": {"size": {}}},
            }
        }
    }
    toy = {"kind": "Toy", "parts": [{"size": 1}, {"siez": UNKNOWN}], "labels": {"any": "x"}, "colour": "red"}
    assert unknown_fields(document, "v1", "Toy", toy) == ["parts[1].siez", "colour"]


def test_state_marks_what_the_program_marks_secret_and_the_data_of_secrets() -> None:
    inputs = {"kind": PropertyValue("ConfigMap"), "data": PropertyValue({"a": PropertyValue("1", is_secret=True)})}
    live = {"kind": "ConfigMap", "data": {"a": "1", "b": "2"}, "status": None}
    kept = state.checkpoint({"kind": "ConfigMap", "data": {"a": "1"}}, live, inputs, "v1", "us")
    data = kept["data"].value
    assert isinstance(data, Mapping)
    assert data["a"].is_secret
    assert not data["b"].is_secret
    assert "status" not in kept
    encoded = base64.b64encode(b"x").decode()
    assert state.from_object({"kind": "Secret", "data": {"k": encoded}}, {})["data"].is_secret


def test_state_contains_the_inputs_and_the_live_object() -> None:
    live = {"kind": "Crd", "spec": {"x-kubernetes-preserve-unknown-fields": True}}
    kept = state.checkpoint({"kind": "Crd"}, live, {}, "v1", "us")
    spec = kept["spec"].value
    assert isinstance(spec, Mapping)
    assert "x_kubernetes_preserve_unknown_fields" in spec
    assert state.split_checkpoint(kept) == ({"kind": "Crd"}, live)
    assert state.text_member(kept, state.FIELD_MANAGER) == "us"
