"""Each rule names its field. What they accept and refuse, a real API server shows (test_refusals_e2e)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.elasticjob.test_schema import Node, nodes, whole


def rules() -> Iterator[tuple[str, Node, Node]]:
    """Yield every rule with the path and the schema of what it is about."""
    for path, node in nodes(whole()):
        for rule in node.get("x-kubernetes-validations", ()):
            yield path, node, rule


def follow(node: Node, path: str) -> Node:
    """Return the schema of a field by its path."""
    for name in path.removeprefix(".").split("."):
        node = node["additionalProperties"] if "additionalProperties" in node else node["properties"][name]
    return node


def sentence(rule: dict[str, Any]) -> str:
    return str(rule.get("message") or rule["messageExpression"].partition(".format(")[0].strip('"'))


def test_the_field_at_fault_exists() -> None:
    for _, node, rule in rules():
        if "fieldPath" in rule:
            assert follow(node, rule["fieldPath"])["type"]


def test_a_sentence_names_its_field() -> None:
    for path, _, rule in rules():
        named = (path + rule.get("fieldPath", "")).rpartition(".")[2]
        assert named in sentence(rule), rule
        assert sentence(rule).endswith("."), rule


def test_a_rule_is_one_line() -> None:
    for _, _, rule in rules():
        assert not any("\n" in text for text in rule.values())


def test_what_a_rule_iterates_over_is_bounded() -> None:
    """The API server estimates the cost with the most elements there can be."""
    spec = whole()["properties"]["spec"]
    worker = follow(spec, ".replicaSpecs.Worker")
    containers = follow(worker, ".template.spec.containers")
    assert spec["properties"]["replicaSpecs"]["maxProperties"] <= 8
    assert spec["properties"]["sizes"]["maxItems"] <= 64
    assert containers["maxItems"] <= 64
    assert containers["items"]["properties"]["name"]["maxLength"] <= 63


def test_no_rule_adds_up_text_with_numbers() -> None:
    """To the API server the text of a number has no maximum length, so it would refuse the definition for its cost."""
    for _, _, rule in rules():
        assert "+ string(" not in rule.get("messageExpression", "")
