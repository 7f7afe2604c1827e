"""The errors localcloud raises on purpose; each message names the thing at fault and the remedy.

The tree:

    CloudError
    ├── NotRoot            namespaces, mounts and cgroups need root
    ├── PortInUse          another process listens on the instance's port
    ├── DiskFull           the state directory's file system has no room
    ├── KernelFeature      namespaces, veth, overlay or nft missing from the kernel
    ├── StaleState         the state directory was written by something else
    ├── NotRunning         no daemon answers for this state directory
    └── ProcessFailed      a supervised process could not be started
"""

from __future__ import annotations


class CloudError(Exception):
    """Base of everything localcloud reports to its user as one line."""


class NotRoot(CloudError):
    """The user lacks the rights to make namespaces."""


class PortInUse(CloudError):
    """Somebody else listens on the instance's port."""


class DiskFull(CloudError):
    """The state directory's file system is (nearly) full."""


class KernelFeature(CloudError):
    """The kernel lacks something that nodes are made of."""


class StaleState(CloudError):
    """The state directory isn't one of ours, or of another version."""


class NotRunning(CloudError):
    """No daemon answers for this state directory."""


class ProcessFailed(CloudError):
    """A supervised process could not be started."""
