"""A tf.Example is read as protobuf itself wrote it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from elasticdl.data.examples.fields import decode as decode_any
from elasticdl.data.examples.tf_example import decode
from elasticdl.errors import DamagedData
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

Field = descriptor_pb2.FieldDescriptorProto


def example_class(packed: bool) -> Any:
    """Return protobuf's class of tensorflow/core/example/example.proto, numbers packed or one by one."""
    file = descriptor_pb2.FileDescriptorProto(name=f"example_{packed}.proto", package=f"p{packed}", syntax="proto3")

    def message(parent: Any, name: str, *fields: tuple[str, int, int, str]) -> Any:
        made = parent.add(name=name)
        for title, number, kind, of in fields:
            label = Field.LABEL_OPTIONAL if of.startswith(".") and not of.endswith("Entry") else Field.LABEL_REPEATED
            field = made.field.add(name=title, number=number, type=kind, label=label)
            if of:
                field.type_name = f".p{packed}{of}"
            elif kind != Field.TYPE_BYTES:
                field.options.packed = packed
        return made

    message(file.message_type, "BytesList", ("value", 1, Field.TYPE_BYTES, ""))
    message(file.message_type, "FloatList", ("value", 1, Field.TYPE_FLOAT, ""))
    message(file.message_type, "Int64List", ("value", 1, Field.TYPE_INT64, ""))
    feature = message(
        file.message_type,
        "Feature",
        ("bytes_list", 1, Field.TYPE_MESSAGE, ".BytesList"),
        ("float_list", 2, Field.TYPE_MESSAGE, ".FloatList"),
        ("int64_list", 3, Field.TYPE_MESSAGE, ".Int64List"),
    )
    feature.oneof_decl.add(name="kind")
    for field in feature.field:
        field.oneof_index = 0
    features = message(file.message_type, "Features", ("feature", 1, Field.TYPE_MESSAGE, ".Features.FeatureEntry"))
    entry = features.nested_type.add(name="FeatureEntry")
    entry.field.add(name="key", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    value = entry.field.add(name="value", number=2, type=Field.TYPE_MESSAGE, label=Field.LABEL_OPTIONAL)
    value.type_name = f".p{packed}.Feature"
    entry.options.map_entry = True
    message(file.message_type, "Example", ("features", 1, Field.TYPE_MESSAGE, ".Features"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"p{packed}.Example"))


CLASSES = {packed: example_class(packed) for packed in (True, False)}


@pytest.mark.parametrize("packed", [True, False])
@given(
    floats=st.lists(st.floats(width=32, allow_nan=False), max_size=20),
    integers=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20),
    texts=st.lists(st.binary(max_size=20), max_size=5),
    name=st.text(st.characters(codec="utf-8"), max_size=10),
)
def test_what_protobuf_wrote_is_read(
    packed: bool, floats: list[float], integers: list[int], texts: list[bytes], name: str
) -> None:
    example = CLASSES[packed]()
    example.features.feature["f"].float_list.value.extend(floats)
    example.features.feature["i"].int64_list.value.extend(integers)
    example.features.feature["b" + name].bytes_list.value.extend(texts)
    found = decode(example.SerializeToString())
    assert set(found) == {"f", "i", "b" + name}
    assert found["f"].dtype == np.float32
    assert found["i"].dtype == np.int64
    assert (found["f"].tolist(), found["i"].tolist(), found["b" + name]) == (floats, integers, texts)


def test_an_image_as_elasticdls_tools_wrote_it_is_decoded_as_any_record() -> None:
    example = CLASSES[True]()
    example.features.feature["image"].float_list.value.extend(range(784))
    example.features.feature["label"].int64_list.value.append(7)
    found = decode_any(example.SerializeToString())
    assert (found["image"].shape, found["image"][783], found["label"].tolist()) == ((784,), 783.0, [7])


def test_a_feature_without_values_is_an_empty_list() -> None:
    example = CLASSES[True]()
    example.features.feature["empty"].SetInParent()
    assert decode(example.SerializeToString()) == {"empty": []}


def test_fields_of_a_later_protocol_are_passed_over() -> None:
    example = CLASSES[True]()
    example.features.feature["i"].int64_list.value.append(1)
    unknown = bytes([9 << 3, 5, 10 << 3 | 1, *range(8), 11 << 3 | 5, *range(4), 12 << 3 | 2, 1, 0])
    assert decode(unknown + example.SerializeToString())["i"].tolist() == [1]


def test_a_record_that_is_cut_off_is_an_error() -> None:
    example = CLASSES[True]()
    example.features.feature["i"].int64_list.value.extend([1, -1])
    whole = example.SerializeToString()
    for length in range(1, len(whole)):
        with pytest.raises(DamagedData, match=r"is no tf\.Example"):
            decode(whole[:length])


@pytest.mark.parametrize("record", [b"text,of,csv", b"\xff" * 12, b"\x0a\x03\x0a\x01\x0a", b"\x08\x01\x0b"])
def test_something_else_is_an_error(record: bytes) -> None:
    with pytest.raises(DamagedData, match=f"a record of {len(record)} bytes is no tf.Example"):
        decode(record)
