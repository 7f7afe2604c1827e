"""The images of EKS-optimized nodes: what EC2 describes of them, and SSM's public parameters that name them.

    install()    # once, before the first request

Karpenter turns the alias `al2023@latest` or `al2023@v20260903` into images through these parameters.
Names and paths: https://docs.aws.amazon.com/eks/latest/userguide/retrieve-ami-id.html

Every version of Kubernetes has two releases, so that a change from one to the other (drift) can be tried; they start
the same node, with the kubelet of that version. With the NVIDIA variant, which has the driver, the node shows the GPUs
that its instance type has. arm64 has none: this machine cannot run it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from localcloud.aws.ec2 import AMI

NEWEST: Final = "1.35"
ARCHITECTURE: Final = "x86_64"
VARIANTS: Final = ("standard", "nvidia")
# Of each version of Kubernetes, real ones of EKS, newest first: what it calls recommended.
# https://github.com/awslabs/amazon-eks-ami/releases
RELEASES: Final[Mapping[str, tuple[str, ...]]] = {
    "1.34": ("1.34.10-20260903", "1.34.4-20260304"),
    "1.35": ("1.35.7-20260903", "1.35.4-20260512"),
}
OWNER: Final = "602401143452"
"""The account that publishes EKS's images in most regions."""
PARAMETERS: Final = "/aws/service/eks/optimized-ami"


@dataclass(frozen=True)
class NodeImage:
    """One image: a variant in a release."""

    variant: str
    release: str
    """EKS's release version: the version of kubelet, and the day."""

    @property
    def version(self) -> str:
        """The minor version of Kubernetes."""
        return self.release.partition("-")[0].rpartition(".")[0]

    @property
    def day(self) -> str:
        """The day of the release, as in `20260304`."""
        return self.release.rpartition("-")[2]

    @property
    def name(self) -> str:
        """The image's name in EC2."""
        return f"amazon-eks-node-al2023-{ARCHITECTURE}-{self.variant}-{self.version}-v{self.day}"

    @property
    def id(self) -> str:
        """The image's id: made from the name, but for the recommended one."""
        if (self.variant, self.release) == (VARIANTS[0], RELEASES[NEWEST][0]):
            return AMI
        return f"ami-0{hashlib.sha256(self.name.encode()).hexdigest()[:16]}"


def images() -> tuple[NodeImage, ...]:
    """Return the images of all versions, those of a version's newest release first."""
    releases = [release for listed in RELEASES.values() for release in listed]
    return tuple(NodeImage(variant, release) for release in releases for variant in VARIANTS)


def find(image_id: str) -> NodeImage | None:
    """Return the image with this id, or None."""
    return next((image for image in images() if image.id == image_id), None)


def image_of(ami_type: str, release: str) -> NodeImage:
    """Return the image of a node group's type in a release. Types without an image here get the standard one."""
    return NodeImage("nvidia" if ami_type == "AL2023_x86_64_NVIDIA" else "standard", release)


def has_nvidia_driver(image_id: str) -> bool:
    """Return whether the image is one of the NVIDIA variant."""
    image = find(image_id)
    return image is not None and image.variant == "nvidia"


def parameters() -> Mapping[str, str]:
    """Return SSM's public parameters: path to value."""
    found: dict[str, str] = {}
    for image in images():
        folder = f"{PARAMETERS}/{image.version}/amazon-linux-2023/{ARCHITECTURE}/{image.variant}"
        values = {"image_id": image.id, "image_name": image.name, "release_version": image.release}
        names = [image.name, *(["recommended"] if image.release == RELEASES[image.version][0] else [])]
        found |= {f"{folder}/{name}/{key}": value for name in names for key, value in values.items()}
    return found


def install() -> None:
    """Add the images and the parameters to moto's classes. Call this once per process."""
    from moto.ec2.models.amis import AmiBackend
    from moto.ssm.models import ParameterDict

    _after(AmiBackend, "_load_amis", _add_images)
    _before(ParameterDict, "_check_loading_status", _add_parameters)


def _add_images(ec2: Any) -> None:
    from moto.ec2.models.amis import Ami

    for image in images():
        ec2.amis[image.id] = Ami(
            ec2,
            image.id,
            name=image.name,
            description=f"EKS-optimized Kubernetes node based on Amazon Linux 2023, (k8s: {image.release})",
            owner_id=OWNER,
            owner_alias="amazon",
            public=True,
            virtualization_type="hvm",
            architecture=ARCHITECTURE,
            hypervisor="xen",
            root_device_type="ebs",
            root_device_name="/dev/xvda",
            image_location=f"amazon/{image.name}",
            creation_date=datetime.strptime(image.day, "%Y%m%d").replace(tzinfo=UTC),
        )


def _add_parameters(store: Any, key: str) -> None:
    """Add the parameters to one region's store when the first of them is asked for, as moto does with its own."""
    from moto.ssm.models import Parameter

    if not str(key or "").startswith(PARAMETERS) or getattr(store, "holds_eks_images", False):
        return
    found: dict[str, Any] = {}
    for name, value in parameters().items():
        parameter = Parameter(  # type: ignore[abstract]
            account_id=store.account_id,
            name=name,
            value=value,
            parameter_type="String",
            description=None,
            allowed_pattern=None,
            keyid=None,
            last_modified_date=datetime.now(UTC),
            version=1,
            data_type="text",
        )
        found[name] = [parameter]
    # Not `store.update`: that would ask this function again.
    dict.update(store, found)
    # Last, so that another request at the same time adds the parameters itself instead of missing them.
    store.holds_eks_images = True


def _after(owner: Any, name: str, add: Callable[[Any], None]) -> None:
    original = getattr(owner, name)

    def wrapped(self: Any) -> None:
        original(self)
        add(self)

    setattr(owner, name, wrapped)


def _before(owner: Any, name: str, add: Callable[[Any, str], None]) -> None:
    original = getattr(owner, name)

    def wrapped(self: Any, key: str) -> None:
        add(self, key)
        original(self, key)

    setattr(owner, name, wrapped)
