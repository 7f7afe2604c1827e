"""Commands of `torchx` in an activated shell, and what they print.

session = Session(checkout)
app = session.run("utils.echo --image localcloud/shell:1 --msg hello")
session.wait_for(app, "SUCCEEDED")
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.checkout import PATIENCE_SECONDS, Checkout, Output, wait_until
from tests.e2e.elasticjob import Job

HERE = Path(__file__).parent
SPACE = "training"
_HANDLE = re.compile(r"^tidewater://\S+$", re.MULTILINE)
_OF_JOB = {"RUNNING": "Running", "SUCCEEDED": "Succeeded", "FAILED": "Failed", "CANCELLED": "Suspended"}
"""TorchX's state → that of the ElasticJob."""


def _state(said: str) -> str:
    (state,) = re.findall(r"State: (\w+)", said)
    return str(state)


@dataclass(frozen=True)
class App:
    """An application that was submitted."""

    handle: str
    job: Job

    @property
    def id(self) -> str:
        """Return the name of its ElasticJob."""
        return self.job.name

    def node_of(self, pod: str) -> str:
        """Return the node that one of its pods runs on."""
        return str(next(each for each in self.job.pods() if each["metadata"]["name"] == pod)["spec"]["nodeName"])


@dataclass(frozen=True)
class Session:
    """A shell in a copy of the folder `project`, with a kubeconfig for the stack's namespace."""

    checkout: Checkout
    folder: Path = field(init=False)

    def __post_init__(self) -> None:
        """Make the folder and choose the namespace."""
        object.__setattr__(self, "folder", self.checkout.path / "project")
        shutil.copytree(HERE / "project", self.folder)
        self.checkout.run(f"kubectl config set-context --current --namespace={SPACE}")

    def torchx(self, command: str, *, expect: int | None = 0, folder: Path | None = None) -> Output:
        """Run `torchx COMMAND` in the session's folder, or in another one."""
        return self.checkout.run(f"cd {folder or self.folder} && torchx {command}", expect=expect)

    def run(self, component: str, options: str = "", *, folder: Path | None = None) -> App:
        """Submit a component, with options of `torchx run`."""
        return self.app(self.torchx(f"run --scheduler tidewater {options} {component}", folder=folder).text)

    def app(self, printed: str) -> App:
        """Return the application with the handle in this output."""
        (handle,) = set(_HANDLE.findall(printed))
        return App(handle, Job(self.checkout.path, handle.rpartition(":")[2], SPACE))

    def status(self, app: App) -> str:
        """Return what `torchx status` prints."""
        return self.torchx(f"status {app.handle}").text

    def state(self, app: App) -> str:
        """Return the state in what `torchx status` prints."""
        return _state(self.status(app))

    def wait_for(self, app: App, state: str) -> str:
        """Wait until `torchx status` says this; return all that it prints.

        It is asked only when the job is so far: each command of TorchX takes seconds of a core.
        """
        wait_until(f"{app.id} to be {_OF_JOB[state]}", lambda: app.job.status().get("state") == _OF_JOB[state])

        def said() -> str:
            text = self.status(app)
            return text if _state(text) == state else ""

        return wait_until(f"TorchX to say that {app.id} is {state}", said)

    def log(self, app: App, more: str = "", options: str = "") -> list[str]:
        """Return what `torchx log` prints of an application, or of a role or replica (`/role/0`), without colours."""
        text = self.torchx(f"log {options} {app.handle}{more} 2>/dev/null").text
        return re.sub(r"\x1b\[\d*m", "", text).splitlines()

    def delete(self, app: App) -> None:
        """Delete an application and wait until its pods are gone: the next one needs their room."""
        self.torchx(f"delete {app.handle}")
        wait_until(f"no pods of {app.id}", lambda: not app.job.pods())

    def jobs(self) -> set[str]:
        """Return the names of all ElasticJobs in the namespace."""
        listed = self.checkout.json(f"kubectl get elasticjobs -n {SPACE} -o json")["items"]
        return {each["metadata"]["name"] for each in listed}

    @contextmanager
    def watched(self, app: App) -> Iterator[Watch]:
        """Ask TorchX for the state of an application once a second within the block."""
        file = self.checkout.path / f"{app.id}.states"
        with file.open("w") as out:
            process = self.checkout.start(f"exec torchx-python {HERE / 'watch.py'} {app.handle}", stdout=out)
        try:
            yield Watch(file, process)
        finally:
            process.kill()
            process.wait()


@dataclass(frozen=True)
class Watch:
    """What TorchX has said of an application, once a second."""

    file: Path
    process: subprocess.Popen[str]

    def said(self) -> list[dict[str, Any]]:
        """Return all of it in order: `state`, `msg`, `restarts`, and the state of each replica."""
        return [json.loads(line) for line in self.file.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def states(self) -> list[str]:
        """Return the states in order, each once as long as it lasted."""
        every = [each["state"] for each in self.said()]
        return [state for state, before in zip(every, [None, *every], strict=False) if state != before]

    def await_end(self) -> dict[str, Any]:
        """Wait until the application has ended; return what TorchX said last."""
        assert self.process.wait(PATIENCE_SECONDS) == 0
        return self.said()[-1]
