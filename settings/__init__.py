"""The configuration of a stack, checked as a whole before anything is made.

stack = settings.load()                            # in the program: from Pulumi's configuration
stack = settings.parse(mapping, stack="local")     # anywhere else: the same, as a pure function

model      the frozen tree that everything else reads
parsing    from keys and values to the tree
reader     typed access to keys; collects the mistakes
hardware   facts about instance types
"""

from settings.model import (
    PROJECT,
    Checkpoints,
    Cluster,
    ConfigurationError,
    Dataset,
    Images,
    Network,
    Nodes,
    Settings,
    Training,
    Workers,
)
from settings.parsing import load, parse

__all__ = [
    "PROJECT",
    "Checkpoints",
    "Cluster",
    "ConfigurationError",
    "Dataset",
    "Images",
    "Network",
    "Nodes",
    "Settings",
    "Training",
    "Workers",
    "load",
    "parse",
]
