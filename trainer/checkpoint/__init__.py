"""Checkpoints of a job, in directories and buckets, for when all workers are gone.

    checkpoints = Checkpoints(places("/data/checkpoints/digits,s3://bucket/checkpoints/digits"), keep=2, log=log)
    checkpoints.save(120, state.tree())      # copies the tensors and returns; a thread writes
    found = checkpoints.load()               # the newest that is whole, over all places, or None

A checkpoint is what ``torch.distributed.checkpoint`` writes, beside a manifest with the size and sha256 of every file:
``torch.distributed.checkpoint.load`` reads it without any of this. It is there whole or not at all: a directory gets
its name when all of it is on disk, in a bucket the manifest goes up last. Nothing here imports torch before it has to,
since a worker asks ``finished()`` before it pays for that; ``prepare()`` is for paying in time.
"""

from __future__ import annotations

from trainer.checkpoint.manager import Checkpoints, Found, Unreadable
from trainer.checkpoint.option import place, places
from trainer.checkpoint.places import Place

__all__ = ["Checkpoints", "Found", "Place", "Unreadable", "place", "places"]
