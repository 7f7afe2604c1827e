"""Checkpoints of a job in directories and buckets, for the case that all workers are lost.

    checkpoints = Checkpoints(places("/data/checkpoints/digits,s3://bucket/checkpoints/digits"), keep=2, log=log)
    checkpoints.save(state.history, state.tree())      # copies the tensors and returns; a thread writes
    found = checkpoints.load(lineage)                  # the complete one that counts in all places, or None

The step does not decide which checkpoint counts: see ``lineage``.

A checkpoint has the format of ``torch.distributed.checkpoint``, plus a manifest with the size and sha256 of every file.
``torch.distributed.checkpoint.load`` reads it without this package. A checkpoint is either complete or absent: a
directory gets its name when all files are on disk, and in a bucket the manifest is uploaded last. torch is imported
late, because a worker calls ``finished()`` before it needs torch; ``prepare()`` imports it early.
"""

from __future__ import annotations

from tidewater.elastic.checkpoint.manager import Checkpoints, Found, Unreadable
from tidewater.elastic.checkpoint.option import place, places
from tidewater.elastic.checkpoint.places import Place

__all__ = ["Checkpoints", "Found", "Place", "Unreadable", "place", "places"]
