"""Property values on their way from and to the engine."""

from __future__ import annotations

from typing import Any

import pulumi
import pytest
from google.protobuf import struct_pb2
from localcloud.standins.values import UNKNOWN, asset_hash, from_plain, repair_property_value, to_plain
from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.runtime import rpc

repair_property_value()


def struct(**fields: Any) -> struct_pb2.Struct:
    made = struct_pb2.Struct()
    made.update(fields)
    return made


def asset(**fields: str) -> dict[str, str]:
    return {rpc._special_sig_key: rpc._special_asset_sig, **fields}


def test_an_unknown_is_read_and_written_as_unknown() -> None:
    values = PropertyValue.unmarshal_map(struct(a=rpc.UNKNOWN, b={"c": rpc.UNKNOWN}))
    assert to_plain(values) == {"a": UNKNOWN, "b": {"c": UNKNOWN}}
    assert PropertyValue.marshal_map(values) == struct(a=rpc.UNKNOWN, b={"c": rpc.UNKNOWN})


def test_an_asset_is_read_and_written_with_its_hash() -> None:
    sent = struct(source=asset(path="/x.zip", hash="abc"))
    values = PropertyValue.unmarshal_map(sent)
    assert isinstance(values["source"].value, pulumi.FileAsset)
    assert asset_hash(values["source"].value) == "abc"
    assert PropertyValue.marshal_map(values) == sent


@pytest.mark.parametrize(
    ("signature", "kind"),
    [(rpc._special_asset_sig, pulumi.Asset), (rpc._special_archive_sig, pulumi.Archive)],
    ids=["asset", "archive"],
)
def test_an_asset_known_by_its_hash_alone_is_read(signature: str, kind: type) -> None:
    value = PropertyValue.unmarshal_map(struct(source={rpc._special_sig_key: signature, "hash": "abc"}))["source"]
    assert isinstance(value.value, kind)
    assert asset_hash(value.value) == "abc"


def test_numbers_that_are_whole_are_ints_and_nulls_are_left_out() -> None:
    assert to_plain(PropertyValue.unmarshal_map(struct(a=1.0, b=1.5, c=None))) == {"a": 1, "b": 1.5}


def test_plain_members_named_secret_are_secret() -> None:
    assert from_plain({"a": "x", "b": None}, secret={"a"}) == {"a": PropertyValue("x", is_secret=True)}
