"""torch's tensors as messages, and back, to the bit.

message = encode(torch.ones(2, 3))
decode(message)                        # a tensor of its own, which may be changed
"""

from __future__ import annotations

import math

import torch

from elasticdl.errors import ElasticDLError
from elasticdl.rpc import elasticdl_pb2 as pb

_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float32,
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
    )
}


def encode(tensor: torch.Tensor) -> pb.Tensor:
    """Return the message of a tensor, which may be on any device and need not be contiguous."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    content = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    return pb.Tensor(dtype=str(tensor.dtype).removeprefix("torch."), shape=list(tensor.shape), data=content)


def decode(message: pb.Tensor) -> torch.Tensor:
    """Return the tensor of a message.

    Raises:
        ElasticDLError: its type is unknown, or it has more or fewer values than its shape says.
    """
    dtype = _DTYPES.get(message.dtype)
    if dtype is None:
        raise ElasticDLError(f"a tensor of type {message.dtype!r} was received", f"Use one of {', '.join(_DTYPES)}.")
    expected = math.prod(message.shape) * dtype.itemsize
    if len(message.data) != expected:
        raise ElasticDLError(
            f"a tensor of shape {list(message.shape)} came with {len(message.data)} bytes instead of {expected}",
            "Both sides must run the same version of elasticdl.",
        )
    if not expected:
        return torch.empty(tuple(message.shape), dtype=dtype)
    return torch.frombuffer(bytearray(message.data), dtype=dtype).reshape(tuple(message.shape))
