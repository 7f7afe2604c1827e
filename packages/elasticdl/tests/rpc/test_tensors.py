"""Tensors cross the network to the bit."""

from __future__ import annotations

import pytest
import torch
from elasticdl.errors import ElasticDLError
from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.rpc.tensors import decode, encode


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool]
)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 0, 4)])
def test_a_tensor_comes_back_as_it_was(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = (torch.rand(shape) * 100 - 50).to(dtype)
    back = decode(pb.Tensor.FromString(encode(tensor).SerializeToString()))
    assert back.dtype == dtype
    assert back.shape == tensor.shape
    assert torch.equal(back, tensor)


def test_what_floats_can_hold_comes_back_too() -> None:
    tensor = torch.tensor([float("nan"), float("inf"), -0.0, 1e-45])
    assert encode(decode(encode(tensor))).data == encode(tensor).data


def test_a_view_is_sent_as_its_values() -> None:
    tensor = torch.arange(12.0).reshape(3, 4).t()
    assert torch.equal(decode(encode(tensor)), tensor)


def test_what_was_decoded_may_be_changed() -> None:
    message = encode(torch.zeros(2))
    decode(message).add_(1)
    assert torch.equal(decode(message), torch.zeros(2))


@pytest.mark.parametrize(
    ("message", "named"),
    [
        pytest.param(pb.Tensor(dtype="complex64", shape=[1], data=b"12345678"), "complex64", id="unknown-type"),
        pytest.param(pb.Tensor(dtype="float32", shape=[2], data=b"1234"), "4 bytes instead of 8", id="too-short"),
        pytest.param(pb.Tensor(dtype="float32", shape=[1], data=b"12345678"), "8 bytes instead of 4", id="too-long"),
    ],
)
def test_a_message_that_is_no_tensor_is_refused(message: pb.Tensor, named: str) -> None:
    with pytest.raises(ElasticDLError, match=named):
        decode(message)
