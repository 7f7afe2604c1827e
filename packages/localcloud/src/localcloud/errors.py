"""The errors localcloud raises on purpose; each message names the thing at fault and the remedy.

The tree:

    CloudError
    ├── NotRoot            namespaces, mounts and cgroups need root
    ├── MissingRight       root lacks capabilities, as in a container
    ├── PortInUse          another process listens on the instance's port
    ├── DiskFull           the state directory's file system has no room
    ├── KernelFeature      namespaces, mounts, veth, overlay, nft, cgroups or inotify: missing, refused or too few
    ├── ToolMissing        LOCALCLOUD_TOOLS is not set, or something is missing there
    ├── ForeignState       the state directory was not made by localcloud
    ├── StaleState         the state directory was made by another version of localcloud
    ├── NotRunning         there is no cloud in the state directory, or no daemon answers for it
    └── ProcessFailed      a supervised process could not be started
"""

from __future__ import annotations


class CloudError(Exception):
    """Base of everything localcloud reports to its user as one line."""


class NotRoot(CloudError):
    """The user lacks the rights to make namespaces."""


class MissingRight(CloudError):
    """Root lacks capabilities, as in a container."""


class PortInUse(CloudError):
    """Another process listens on the instance's port."""


class DiskFull(CloudError):
    """The state directory's file system is (nearly) full."""


class KernelFeature(CloudError):
    """The kernel lacks or refuses something that nodes need."""


class ToolMissing(CloudError):
    """LOCALCLOUD_TOOLS is not set, or its folder lacks something."""


class ForeignState(CloudError):
    """The state directory was not made by localcloud; nothing in it may be changed."""


class StaleState(CloudError):
    """The state directory was made by another version of localcloud."""


class NotRunning(CloudError):
    """There is no cloud in the state directory, or no daemon answers for it."""


class ProcessFailed(CloudError):
    """A supervised process could not be started."""
