"""The configuration of a stack, which is checked as a whole before Pulumi changes anything.

stack = settings.load()                            # in the program: from Pulumi's configuration
stack = settings.parse(mapping, stack="local")     # anywhere else: the same, as a pure function

model      the configuration as a tree of frozen dataclasses
vpcs       the part of `model` for the VPC
existing   the part of `model` and of `parsing` for the cluster that was there before
images     the part of `model` and of `parsing` for container images, and from where nodes pull them
parsing    makes that tree from keys and values
nodes      the part of `model` and of `parsing` for the workers and all nodes
networks   the part of `parsing` for the VPC
teams      the part of `parsing` for the teams that share the cluster
machines   the part of `parsing` for what the worker nodes have in common
code       the part of `parsing` for the script and the folder of people's training code
requirements   the part of `parsing` for the packages of people's scripts
reader     typed access to keys; collects the mistakes
hardware   facts about AWS, and the form in which `infra.preflight` adds those about instance types
prices     what a stack costs by the hour, from a table of one day
versions   which node image and which addons go with a Kubernetes version
"""

from settings.existing import ExistingCluster, Lustre
from settings.images import ImageCache, Images
from settings.model import (
    PROJECT,
    Checkpoints,
    Cluster,
    ConfigurationError,
    Dataset,
    Disk,
    Machines,
    Monitoring,
    Roles,
    Settings,
    Training,
)
from settings.nodes import Nodes, Pool, Surge, Window, Workers
from settings.parsing import load, parse
from settings.teams import Team
from settings.vpcs import ExistingVpc, Network, Proxy, Subnet
from tidewater.project.folder import Code
from tidewater.project.lock import Packages

__all__ = [
    "PROJECT",
    "Checkpoints",
    "Cluster",
    "Code",
    "ConfigurationError",
    "Dataset",
    "Disk",
    "ExistingCluster",
    "ExistingVpc",
    "ImageCache",
    "Images",
    "Lustre",
    "Machines",
    "Monitoring",
    "Network",
    "Nodes",
    "Packages",
    "Pool",
    "Proxy",
    "Roles",
    "Settings",
    "Subnet",
    "Surge",
    "Team",
    "Training",
    "Window",
    "Workers",
    "load",
    "parse",
]
