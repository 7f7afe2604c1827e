"""Everything that training changes, as one value that can be packed, sent, stored and unpacked.

    state = State.fresh(model, lr=2e-3)
    data = state.pack()
    state.unpack(data)

Packed, it holds model, optimizer, step and cursor. There is no random state: whatever is random in training is a
function of the seed, the epoch and the sample (see ``data`` and ``sampler``).
"""

from __future__ import annotations

import hashlib
import io
from typing import Any

import torch
from torch import nn

from trainer.errors import RecordError
from trainer.sampler import Cursor

_VERSION = 1


class State:
    """The training state of one process; ``step`` counts committed steps."""

    def __init__(self, model: nn.Module, *, lr: float, signature: str) -> None:
        self.model = model
        # One fused-like pass over all tensors is not worth its memory here; foreach keeps the order deterministic.
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01)
        self.signature = signature
        self.step = 0
        self.cursor = Cursor()
        self.present = False
        """Whether this is the job's state, rather than the initial values of a process that has just started."""

    def pack(self) -> bytes:
        """The state as bytes that ``torch.load`` reads with ``weights_only``."""
        stream = io.BytesIO()
        torch.save(
            {
                "version": _VERSION,
                "signature": self.signature,
                "step": self.step,
                "cursor": (self.cursor.epoch, self.cursor.offset),
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
            },
            stream,
        )
        return stream.getvalue()

    def unpack(self, data: bytes) -> None:
        """Become the packed state. Raises RecordError if it is of another job's kind; then nothing has changed."""
        fields: dict[str, Any] = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        if fields.get("version") != _VERSION:
            raise RecordError(f"the state has version {fields.get('version')}, this code reads {_VERSION}")
        if fields["signature"] != self.signature:
            raise RecordError(
                f"the state belongs to another kind of training ({fields['signature']}, this worker has "
                f"{self.signature}): model, dataset, seed or batch size differ; give the job a new name"
            )
        self.model.load_state_dict(fields["model"])
        self.optimizer.load_state_dict(fields["optimizer"])
        self.step = int(fields["step"])
        self.cursor = Cursor(*fields["cursor"])
        self.present = True

    def digest(self) -> str:
        """Of all parameters' bits: equal in all workers after every committed step."""
        digest = hashlib.sha256()
        for value in self.model.state_dict().values():
            digest.update(value.detach().cpu().contiguous().view(-1).numpy().tobytes())
        return digest.hexdigest()[:16]


def signature(model: nn.Module, **more: object) -> str:
    """Digest of the model's shapes and of whatever else must be equal in all workers of a job."""
    shapes = [(name, tuple(value.shape), str(value.dtype)) for name, value in model.state_dict().items()]
    return hashlib.sha256(repr((shapes, sorted(more.items()))).encode()).hexdigest()[:16]
