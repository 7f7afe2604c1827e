"""Checks of this machine: programs, their versions, and the kubeconfig.

A program that is not needed for what is done from here may be absent: the commands need a kubeconfig and nothing else.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass

from tidewater.cli.doctor.place import Place
from tidewater.cli.doctor.results import Result, fine, fix, note
from tidewater.kube import kubeconfig
from tidewater.kube.errors import ErrorWithRemedy

OLDEST_PYTHON = (3, 11)


@dataclass(frozen=True)
class Program:
    """A program, what it is for, and the oldest version that will do."""

    name: str
    purpose: str
    remedy: str
    version_arguments: tuple[str, ...]
    oldest: tuple[int, int]


PULUMI = Program(
    "pulumi",
    "to deploy the stack",
    "Install 3.250 or later: https://www.pulumi.com/docs/install/ (on one machine: `make install`, `. ./activate`).",
    ("version",),
    (3, 250),
)
KUBECTL = Program(
    "kubectl",
    "for `tidewater install | kubectl apply -f -`",
    "Install it: https://kubernetes.io/docs/tasks/tools/ (on one machine: `make install`, `. ./activate`).",
    ("version", "--client"),
    (1, 28),
)
AWS = Program(
    "aws",
    "to log in to EKS",
    "Install it: https://docs.aws.amazon.com/cli/latest/userguide/getting-started-install.html",
    ("--version",),
    (1, 27),
)


def python(place: Place) -> Result:
    """Check the interpreter's version."""
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < OLDEST_PYTHON:
        return fix(f"Python {version} is too old", "Use Python 3.11 or later.")
    return fine(f"Python {version}")


def pulumi(place: Place) -> Result:
    """Check the Pulumi CLI."""
    return program(place, PULUMI, needed=place.deploys)


def kubectl(place: Place) -> Result:
    """Check kubectl."""
    return program(place, KUBECTL, needed=False)


def aws(place: Place) -> Result:
    """Check the AWS CLI."""
    return program(place, AWS, needed=place.deploys or logs_in_with_aws(place))


def program(place: Place, wanted: Program, *, needed: bool) -> Result:
    """Check that a program is installed and not too old; one that is not needed is only worth a note."""
    say = fix if needed else note
    if not place.tools.has(wanted.name):
        return say(f"{wanted.name} is not installed; it is needed {wanted.purpose}", wanted.remedy)
    ended = place.tools.run(wanted.name, *wanted.version_arguments)
    version = re.search(r"(\d+)\.(\d+)(\.\d+)?", ended.stdout + ended.stderr)
    if ended.code != 0 or version is None:
        return say(f"{wanted.name} does not work: {ended.reason}", wanted.remedy)
    if (int(version[1]), int(version[2])) < wanted.oldest:
        oldest = ".".join(map(str, wanted.oldest))
        return say(f"{wanted.name} {version[0]} is older than {oldest}", wanted.remedy)
    return fine(f"{wanted.name} {version[0]}")


def kubeconfig_names_a_cluster(place: Place) -> Result:
    """Check that a kubeconfig names a cluster, and that its login plug-in is installed."""
    connection = kubeconfig.load(place.access, place.environment)  # its errors name the remedy
    plugin = str((connection.user.get("exec") or {}).get("command", ""))
    if plugin and not place.tools.has(plugin):
        return fix(
            f"context {connection.context} logs in with {plugin}, which is not installed",
            f"Install {plugin}, or choose another context with --context.",
        )
    return fine(f"context {connection.context}, namespace {connection.namespace}, {connection.server}")


def logs_in_with_aws(place: Place) -> bool:
    """Return whether the kubeconfig's user logs in with the AWS CLI."""
    try:
        plugin = kubeconfig.load(place.access, place.environment).user.get("exec") or {}
    except ErrorWithRemedy:
        return False
    return str(plugin.get("command", "")).rsplit("/", 1)[-1] == "aws"
