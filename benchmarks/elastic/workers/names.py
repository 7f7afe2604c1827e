"""The environment variables from the driver to the workers, and the numbers that both need.

It does not import torch, so that the driver can import it.
"""

from __future__ import annotations

GLOBAL_BATCH = 96
"""Samples per step of all workers together; a multiple of 1, 2 and 3 workers."""

HOST = "127.0.0.1"
"""Where everything runs."""

OUT = "BENCH_OUT"
"""Directory for the records of committed steps."""
NODE = "BENCH_NODE"
"""Number of the node, from 0."""
DATA = "BENCH_DATA"
"""The digits, as numpy's .npz."""
GATE = "BENCH_GATE"
"""File with the number of the step at which training must stop."""
CHECKPOINTS = "BENCH_CHECKPOINTS"
"""Directory for torchrun's checkpoints."""
CHECKPOINT_EVERY = "BENCH_CHECKPOINT_EVERY"
"""Steps from one checkpoint to the next."""
WIDTH = "BENCH_WIDTH"
"""Channels of the network's first layer, which determine the amount of computation."""
DEVICE_SECONDS = "BENCH_DEVICE_SECONDS"
"""Time for which each step waits, in place of an accelerator."""
BESIDE = "BENCH_BESIDE"
"""Port and number of workers, PORT,WORKERS: plain training takes turns with the system's, in the same processes."""
PAIRS = "BENCH_PAIRS"
"""Directory for the records of when the steps of both began and ended."""

GATE_FORMAT = "<q"
GATE_BYTES = 8
OPEN = 2**62
"""A number of steps that no job reaches."""
