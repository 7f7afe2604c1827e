"""What the passes of a model need to succeed on one worker.

device   batches on the device that computes with them
memory   smaller micro-batches when memory does not suffice
norms    batch normalization of a single sample
warmup   the first passes of a worker, before it joins
"""
