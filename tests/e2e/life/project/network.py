"""The project's model: a tiny GPT-2 from its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import GPT2Config, GPT2LMHeadModel


def built(settings: Mapping[str, int]) -> Any:
    """Return the model with random weights."""
    words, length, width = settings["words"], settings["length"], settings["width"]
    return GPT2LMHeadModel(GPT2Config(vocab_size=words, n_positions=length, n_embd=width, n_layer=2, n_head=2))
