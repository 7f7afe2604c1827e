"""Property values that are unknown, secret or depend on something."""

from __future__ import annotations

from localcloud.standins.algebra import NULL, combine, is_truthy, is_unknown, member, record
from localcloud.standins.values import wrap
from pulumi.provider.experimental.property_value import PropertyValue

UNKNOWN = PropertyValue.computed()


def test_an_unknown_argument_makes_the_result_unknown_and_keeps_what_it_depends_on() -> None:
    result = combine(lambda a, b: a + b, PropertyValue("x", dependencies=["a"]), UNKNOWN.with_dependencies(["b"]))
    assert is_unknown(result)
    assert result.all_dependencies() == {"a", "b"}


def test_a_secret_argument_makes_the_result_secret() -> None:
    assert combine(str.upper, PropertyValue("x", is_secret=True)) == PropertyValue("X", is_secret=True)


def test_none_becomes_null_and_null_becomes_none() -> None:
    assert combine(lambda value: value, NULL).value is None


def test_a_member_of_an_unknown_is_unknown_and_of_nothing_null() -> None:
    assert is_unknown(member(UNKNOWN, "x"))
    assert member(wrap({"a": 1}), "x").value is None
    assert member(NULL, "x").value is None


def test_a_record_leaves_out_what_is_not_set() -> None:
    assert record({"a": NULL, "b": None, "c": "x"}) == PropertyValue({"c": PropertyValue("x")})


def test_truth_is_javascripts() -> None:
    assert [is_truthy(value) for value in (UNKNOWN, wrap([]), wrap({}), wrap("x"), wrap(True))] == [True] * 5
    assert [is_truthy(value) for value in (NULL, wrap(""), wrap(0), wrap(False))] == [False] * 4
