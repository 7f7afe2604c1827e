"""The job that installs the packages of people's scripts on the shared file system, and how workers see them.

The folder is named after the lock, so another lock has another folder, and the workers move to it as to changed code.
Those of earlier locks stay: workers may use them, and a return to one of them installs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

import settings
from tidewater.contract import labels
from workloads.filling import job
from workloads.manifests import BUNDLE, DATA_DIRECTORY, DATA_MOUNT, PACKAGES_DIRECTORY, Manifest, Text

MINUTES = 60
"""How long the job may take: 5 GB of wheels from an index, written to EFS as small files, take half of it."""


def folder(packages: settings.Packages) -> str:
    """Return the folder of the packages, from the root of the file system."""
    return f"packages/{packages.digest}"


def mount(packages: settings.Packages) -> Manifest:
    """Return the volume mount of a worker, which may only read them there."""
    name = DATA_MOUNT["name"]
    return {"name": name, "mountPath": PACKAGES_DIRECTORY, "subPath": folder(packages), "readOnly": True}


def filling(packages: settings.Packages, code_uri: Text) -> job.Filling:
    """Return what installs the packages."""
    name = f"packages-{packages.digest}"
    own = labels.component(labels.COMPONENT_PACKAGES, instance=packages.digest)
    out = f"{DATA_DIRECTORY}/{folder(packages)}"
    command = ["python3", BUNDLE, "packages", "--bundle", BUNDLE, "--out", out]
    return job.Filling(name, own, command, code_uri, MINUTES)


@dataclass(frozen=True)
class InstalledArgs:
    """The training settings, the packages, and the installer's address."""

    training: settings.Training
    packages: settings.Packages
    code_uri: Text
    mounts: pulumi.ResourceOptions
    """Of what mounts the file system."""


class Installed(pulumi.ComponentResource):
    """The job, for which Pulumi waits until it has succeeded."""

    def __init__(self, name: str, args: InstalledArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:workloads:Installed", name, None, opts)
        opts = pulumi.ResourceOptions.merge(args.mounts, pulumi.ResourceOptions(parent=self))
        job.register(args.training, filling(args.packages, args.code_uri), opts=opts)
        self.register_outputs({})
