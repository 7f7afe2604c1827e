"""The training of examples/elasticjob with an experiment tracker, see docs/training/trackers.md.

with_tensorboard    writes to a folder that all workers can reach
"""
