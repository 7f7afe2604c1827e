"""The project's data: texts in which each word follows from the one before it."""

from __future__ import annotations

from collections.abc import Mapping

import torch


def texts(settings: Mapping[str, int]) -> list[dict[str, torch.Tensor]]:
    """Return the texts, as ids of words with labels."""
    count, words, length = settings["texts"], settings["words"], settings["length"]
    step = torch.randint(1, 4, (count, 1))
    ids = (torch.randint(words, (count, 1)) + step * torch.arange(length)) % words
    return [{"input_ids": each, "labels": each} for each in ids]
