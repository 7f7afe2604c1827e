"""The environment variables from the driver to the workers, and the numbers that both need.

It does not import torch, so that the driver can import it.
"""

from __future__ import annotations

GLOBAL_BATCH = 96
"""Samples per step of all workers together; a multiple of 1, 2 and 3 workers."""
SMALL, LARGE, DIVIDED = "small", "large", "divided"
LARGE_WIDTH, LARGE_LAYERS = 1856, 8
"""27.6 million parameters in square layers of 13.8 MB each: DistributedDataParallel fills a bucket up to 25 MB."""
DIVIDED_BATCH, MICRO_BATCH, SHARDS = 16, 4, 2
"""Of a model that the processes of each worker divide: texts in a step of all workers together, and in one pass of a
process; and the number of these processes."""

HOST = "127.0.0.1"
"""Where everything runs."""

TORCHFT_GROUP_SECONDS, TORCHFT_SECONDS, TORCHFT_QUORUM_SECONDS = 5, 30, 60
"""Of torchft's process group, as in its example; of its other requests; and of the quorum, which is its default."""

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
MODEL = "BENCH_MODEL"
"""`small`, a convolutional network, or `large`, a network with gradients of several buckets."""
DEVICE_SECONDS = "BENCH_DEVICE_SECONDS"
"""Time that one accelerator would take for a whole batch. A worker waits for its share of it."""
PLAIN_PORT = "BENCH_PLAIN_PORT"
"""Port and number of workers, PORT,WORKERS: plain training takes turns with the system's, in the same processes."""
PAIRS = "BENCH_PAIRS"
"""Directory for the records of when the steps of both began and ended."""

GATE_FORMAT = "<q"
GATE_BYTES = 8
OPEN = 2**62
"""A number of steps that no job reaches."""
