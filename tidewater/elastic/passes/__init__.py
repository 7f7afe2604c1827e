"""What the passes of a model need to succeed on one worker.

compiled  what torch.compile changes in the names of a model's state
device    batches on the device that computes with them
memory    smaller micro-batches when memory does not suffice
norms     batch normalization of a single sample
warmup    the first passes of a worker, before it joins
"""
