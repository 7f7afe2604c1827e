"""What the checks look at: the tools of this machine, its environment and working directory, and the cluster.

place.tools.run("kubectl", "version", "--client")
place.cluster.list(NODES)
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

from tidewater.cli.session import Clock
from tidewater.kube.cluster import ALL_NAMESPACES, Cluster, Object, Selection
from tidewater.kube.errors import Forbidden
from tidewater.kube.kinds import Kind
from tidewater.kube.kubeconfig import Access

_ANSWER_SECONDS = 20.0
"""For a tool that hangs. The checks' own limits are shorter."""


@dataclass(frozen=True)
class Ended:
    """How a tool has ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def reason(self) -> str:
        """Return the last line of what it wrote about its failure."""
        lines = (self.stderr.strip() or self.stdout.strip()).splitlines()
        return lines[-1] if lines else f"exit code {self.code}"


class Tools(Protocol):
    """The programs on PATH."""

    def has(self, name: str) -> bool:
        """Return whether there is such a program."""

    def run(self, name: str, *arguments: str) -> Ended:
        """Run a program and return how it has ended; exit code 127 if it can't be started."""


class RealTools:
    """The programs on this process's PATH."""

    def has(self, name: str) -> bool:
        """See ``Tools.has``."""
        return shutil.which(name) is not None

    def run(self, name: str, *arguments: str) -> Ended:
        """See ``Tools.run``."""
        try:
            done = subprocess.run(
                [name, *arguments],
                check=False,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_ANSWER_SECONDS,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return Ended(127, "", str(error))
        return Ended(done.returncode, done.stdout, done.stderr)


@dataclass(frozen=True)
class Place:
    """Where the checks are made."""

    tools: Tools
    environment: Mapping[str, str]
    directory: Path
    access: Access
    connect: Callable[[Access], Cluster]
    clock: Clock

    @cached_property
    def cluster(self) -> Cluster:
        """Return the cluster.

        Raises:
            NoKubeconfig: there is none.
        """
        return self.connect(self.access)

    def everywhere(self, kind: Kind, labels: str = "") -> Sequence[Object]:
        """Return the objects of all namespaces; those of the user's own one if the rights go no further.

        Raises:
            ClusterError: the API server does not answer, or refuses both.
        """
        try:
            return self.cluster.list(kind, Selection(ALL_NAMESPACES, labels=labels)).items
        except Forbidden:
            return self.cluster.list(kind, Selection(labels=labels)).items

    @property
    def deploys(self) -> bool:
        """Return whether the stack is deployed from here: the working directory holds its program."""
        program = self.directory / "Pulumi.yaml"
        return program.is_file() and "name: tidewater\n" in program.read_text()
