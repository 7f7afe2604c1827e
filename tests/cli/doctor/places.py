"""A place for the checks: tools that answer what a test says, an empty directory, a cluster in memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.cli.top.fakes import FakeClock, FakeCluster
from tidewater.cli.doctor.place import Ended, Place
from tidewater.kube.kubeconfig import Access

ANSWERS = {
    "kubectl version --client": "Client Version: v1.34.4",
    "pulumi version": "v3.250.0",
    "aws --version": "aws-cli/2.31.0 Python/3.13.7",
}


class FakeTools:
    """Programs and what they print, by their command line. Those that answer nothing are not installed."""

    def __init__(self, answers: Mapping[str, str | Ended]) -> None:
        self._answers = answers

    def has(self, name: str) -> bool:
        return any(line.split()[0] == name for line in self._answers)

    def run(self, name: str, *arguments: str) -> Ended:
        found = self._answers.get(" ".join([name, *arguments]), Ended(1, "", f"{name}: unknown"))
        return found if isinstance(found, Ended) else Ended(0, found, "")


class Surroundings:
    """Makes places."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.answers: dict[str, str | Ended] = dict(ANSWERS)
        self.environment = {"HOME": str(directory)}
        self.cluster = FakeCluster()
        self.clock = FakeClock()

    def kubeconfig(self, **user: Any) -> None:
        """Write a kubeconfig with a user that logs in as given."""
        config = {
            "current-context": "test",
            "clusters": [{"name": "c", "cluster": {"server": "https://cluster.test"}}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "c", "user": "u", "namespace": "training"}}],
        }
        (self.directory / "kubeconfig").write_text(yaml.safe_dump(config))
        self.environment["KUBECONFIG"] = str(self.directory / "kubeconfig")

    def program(self) -> None:
        """Let the working directory be a checkout, from which the stack is deployed."""
        (self.directory / "Pulumi.yaml").write_text("name: tidewater\nruntime: python\n")

    @property
    def place(self) -> Place:
        return Place(
            tools=FakeTools(self.answers),
            environment=self.environment,
            directory=self.directory,
            access=Access(),
            connect=lambda access: self.cluster,
            clock=self.clock,
        )
