"""A real API server for tests of the command line: with an empty namespace.

with started(folder) as plane:
    plane.kubeconfig("admin")
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import control_plane
from tidewater.kube.kubeconfig import Access
from tidewater.kube.server import Server, connect

NAMESPACE = "training"


@dataclass(frozen=True)
class Plane:
    """A running API server."""

    folder: Path
    inner: control_plane.Plane

    def server(self) -> Server:
        """Return access with all rights."""
        return connect(Access(kubeconfig=str(self.kubeconfig("admin"))))

    def kubeconfig(self, user: str) -> Path:
        """Write a kubeconfig of `user`: admin has all rights, any other user has none."""
        content = json.loads(self.inner.kubeconfig(user, with_rights=user == "admin").read_text())
        content["contexts"][0]["context"]["namespace"] = NAMESPACE
        file = self.folder / f"kubeconfig-{user}"
        file.write_text(json.dumps(content))
        return file


@contextlib.contextmanager
def started(folder: Path) -> Iterator[Plane]:
    """Start an API server and wait until it answers; always end it."""
    inner = control_plane.Plane(folder, ["admin"])
    with pytest.MonkeyPatch.context() as environment:
        for name, value in control_plane.NO_PROXY.items():
            environment.setenv(name, value)
        try:
            inner.start()
            inner.apply(
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
                # There is no controller manager to make the account, without which no pod is admitted.
                {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": NAMESPACE}},
            )
            yield Plane(folder, inner)
        finally:
            inner.end()
