"""A copy of this checkout with its own one-machine cloud, controlled by the commands that a user types.

The end-to-end tests must not change the cloud or the `Pulumi.local.yaml` of the user who runs them.
They therefore work in a copy, as in a clean clone:

    checkout = Checkout.copy_to(tmp_path)
    checkout.make("up")
    checkout.run(f"pulumi config set workers 3 && {UP}")
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from tests.e2e.inventory import client_of
from tests.e2e.kubectl.kubeconfig import with_token
from tidewater.kube.cluster import LogOptions, Selection
from tidewater.kube.errors import ClusterError
from tidewater.kube.kinds import PODS, Kind
from tidewater.kube.kubeconfig import Access
from tidewater.kube.server import Server, connect

ROOT = Path(__file__).resolve().parents[2]
COMMAND_TIMEOUT_SECONDS = 900
STACK = "local"
UP = "pulumi up --yes --skip-preview"
DESTROY = "pulumi destroy --yes --skip-preview"
"""Without a preview, which would run the program once more. Tests of what a preview does write their command out."""
ADOPT = "python -m scripts.adopt"
SHOWN_LINES = 60
"""Of the output of a command that failed. Reports of whole runs are often cut after some hundred lines."""
SHORT_TRAINING = "--epochs 10"
"""Arguments of the trainer that end within seconds, with the accuracy that the long run reaches too: six processes that
train as fast as they can keep both cores busy, for 20 s instead of the minute that 30 epochs take."""
LONG_TRAINING = "--epochs 1500 --min-step-seconds 0.5 --report-every 1 --checkpoint-every 10"
"""Arguments that don't end within a test. A worker then needs a twentieth of a core, which leaves some for seven."""

PATIENCE_SECONDS = 300
"""So long a test waits for what takes seconds: other modules' clouds may be busy on the same machine."""

COMPANYS_SHELL = {
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9"),
    "PULUMI_CONFIG_PASSPHRASE": "of another backend",
    "PULUMI_BACKEND_URL": "s3://of-a-company",
    "PULUMI_STACK": "prod",
    "AWS_PROFILE": "prod",
    "ETCD_NAME": "of-a-company",
    "KUBECONFIG": "/nonexistent/of-a-company",
}
"""Variables of a person in a company: none of them may reach the cloud or its clients. Nothing listens at the proxy."""
COMPANYS_UMASK = 0o077

T = TypeVar("T")


class CommandFailedError(AssertionError):
    """A command ended with an exit status that the test does not expect."""


@dataclass(frozen=True)
class Output:
    """The exit status and the output of a finished command."""

    command: str
    status: int
    text: str

    def __str__(self) -> str:
        """Return the command and the end of its output, where a command says why it failed."""
        lines = self.text.splitlines()
        left_out = [f"… {len(lines) - SHOWN_LINES} lines"] if len(lines) > SHOWN_LINES else []
        return "\n".join([f"$ {self.command}", *left_out, *lines[-SHOWN_LINES:], f"[exit {self.status}]"])


@dataclass(frozen=True)
class Checkout:
    """A working copy at `path`; its cloud's state lives in `path/.localcloud`."""

    path: Path
    _shells: ClassVar[dict[tuple[Path, str], dict[str, str]]] = {}
    """The environments of activated shells, by checkout and cloud. A job of `elasticjob` has its checkout's."""
    _clients: ClassVar[dict[tuple[Path, str, str], Any]] = {}
    """Clients of AWS, by checkout, cloud and service."""
    _servers: ClassVar[dict[tuple[Path, float], Server]] = {}
    """API servers, by kubeconfig and when it was written."""

    @classmethod
    def copy_to(cls, path: Path) -> Checkout:
        """Copy every file that git tracks or would track into `path`, which must not exist."""
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            check=True,
            capture_output=True,
        ).stdout
        path.mkdir(parents=True)
        archive = subprocess.Popen(
            ["tar", "--null", "--files-from=-", "--ignore-failed-read", "-c"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        extract = subprocess.Popen(["tar", "-x"], cwd=path, stdin=archive.stdout)
        assert archive.stdin is not None
        archive.stdin.write(listed)
        archive.stdin.close()
        assert extract.wait() == 0
        archive.wait()
        return cls(path)

    @property
    def state(self) -> Path:
        """Return the one-machine cloud's state directory."""
        return self.path / ".localcloud"

    def environment(self) -> dict[str, str]:
        """Return the caller's environment without the variables that refer to the caller's cloud and code."""
        dropped = ("LOCALCLOUD_", "PULUMI_", "AWS_", "KUBECONFIG", "PYTHONPATH")
        return {k: v for k, v in os.environ.items() if not k.startswith(dropped)}

    def _known_cloud(self) -> str:
        """Return what identifies the cloud that was started last; empty before the first one."""
        known = self.state / "instance.json"
        return known.read_text() if known.exists() else ""

    def activated(self) -> dict[str, str]:
        """Return the environment of a shell after `. ./activate`; run it once for each cloud."""
        key = self.path, self._known_cloud()
        if key not in self._shells:
            print_it = [sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"]
            made = subprocess.run(
                ["bash", "-c", f". ./activate >/dev/null && exec {shlex.join(print_it)}"],
                cwd=self.path,
                env={**self.environment(), **COMPANYS_SHELL},
                umask=COMPANYS_UMASK,
                text=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                check=True,
            )
            self._shells[key] = json.loads(made.stdout)
        return self._shells[key]

    def start(self, command: str, **more: Any) -> subprocess.Popen[str]:
        """Start `command` in an activated shell, in its own process group."""
        environment = self.activated()
        if command.removeprefix("exec ").startswith("kubectl ") and "kubectl config" not in command:
            environment = {**environment, "KUBECONFIG": str(with_token(self.state / "kubeconfig", environment))}
        return subprocess.Popen(
            ["bash", "-c", command],
            cwd=self.path,
            env=environment,
            umask=COMPANYS_UMASK,
            text=True,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            **more,
        )

    def run(self, command: str, *, expect: int | None = 0, timeout: float = COMMAND_TIMEOUT_SECONDS) -> Output:
        """Run `command` in an activated shell until it ends.

        Raises:
            CommandFailedError: the status isn't `expect` (None: any status is accepted), or it takes too long.
        """
        process = self.start(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            text, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # its children would run on during the next tests
            text, _ = process.communicate()
            output = Output(command, -signal.SIGKILL, text)
            raise CommandFailedError(f"not done within {timeout:.0f} s: {output}") from None
        output = Output(command, process.returncode, text)
        if expect is not None and output.status != expect:
            raise CommandFailedError(str(output))
        return output

    def fails(self, command: str) -> Output:
        """Run `command`, which must end with an exit status other than 0."""
        output = self.run(command, expect=None)
        if output.status == 0:
            raise CommandFailedError(f"succeeded, and should not have:\n{output}")
        return output

    def has_stack(self) -> bool:
        """Return whether the cloud has a stack that is up."""
        return self.run("kubectl get crd elasticjobs.elastic.pytorch.org", expect=None).status == 0

    def configure(self, settings: Mapping[str, str]) -> None:
        """Put these settings into the config that comes with the project; start the cloud, which has Pulumi's state."""
        self.run("localcloud start")
        (self.path / f"Pulumi.{STACK}.yaml").write_bytes((ROOT / f"Pulumi.{STACK}.yaml").read_bytes())
        self.run(f"pulumi stack select --create {STACK}", expect=None)
        pairs = " ".join(f"--plaintext {shlex.quote(f'{key}={value}')}" for key, value in settings.items())
        self.run(f"pulumi config set-all {pairs}")
        self.forget_outputs()

    def bring_up(self, settings: Mapping[str, str]) -> None:
        """Make the stack with these settings as a user would, or change the stack that is there."""
        self.configure(settings)
        if self.has_stack():
            self.run(UP)
        else:
            self.make("up")

    def make(self, target: str, timeout: float = 1800) -> Output:
        """Run `make target` as a user would, without an activated shell."""
        done = subprocess.run(
            ["make", target],
            cwd=self.path,
            env={**self.environment(), **COMPANYS_SHELL},
            umask=COMPANYS_UMASK,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout,
            check=False,
        )
        output = Output(f"make {target}", done.returncode, done.stdout)
        if output.status != 0:
            raise CommandFailedError(str(output))
        return output

    def json(self, command: str) -> Any:
        """Run `command` and parse its standard output as JSON."""
        process = self.start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        text, errors = process.communicate(timeout=COMMAND_TIMEOUT_SECONDS)
        if process.returncode != 0:
            raise CommandFailedError(f"$ {command}\n{text}\n{errors}")
        return json.loads(text)

    def aws(self, command: str) -> Any:
        """Return the output of `aws COMMAND`."""
        return self.json(f"aws --output json {command}")

    def client(self, service: str) -> Any:
        """Return a client for what is asked again and again: each `aws` command takes more than a second of a core."""
        key = self.path, self._known_cloud(), service
        if key not in self._clients:
            self._clients[key] = client_of(self.cloud(), service)
        return self._clients[key]

    def cluster(self) -> Server:
        """Return the API server, for what is asked again and again: each `kubectl` takes a tenth of a second of a core.

        What a person does with kubectl is a command of `run`.
        """
        file = with_token(self.state / "kubeconfig", self.activated())
        key = file, file.stat().st_mtime
        if key not in self._servers:
            self._servers[key] = connect(Access(kubeconfig=str(file)))
        return self._servers[key]

    def asked(self, ask: Callable[[Server], T]) -> T:
        """Return what the API server answers. Raise CommandFailedError, as a `kubectl` would, if it refuses."""
        try:
            return ask(self.cluster())
        except ClusterError as error:
            raise CommandFailedError(str(error)) from None

    def objects(self, kind: Kind, namespace: str = "", labels: str = "") -> list[dict[str, Any]]:
        """Return objects from the API server, oldest first."""
        found = self.asked(lambda server: server.list(kind, Selection(namespace, labels)).items)
        return sorted(found, key=lambda each: str(each["metadata"]["creationTimestamp"]))

    def cloud(self) -> dict[str, str]:
        """Return the variables that clients of the cloud need, including its operator's keys."""
        variables: dict[str, str] = self.json("localcloud env --json")
        return variables

    @cached_property
    def outputs(self) -> dict[str, Any]:
        """Return the stack's outputs with secrets in plain text."""
        found: dict[str, Any] = self.json("pulumi stack output --json --show-secrets")
        return found

    def forget_outputs(self) -> None:
        """Read `outputs` again at the next use, because a configuration change has changed some values."""
        self.__dict__.pop("outputs", None)

    @property
    def namespace(self) -> str:
        """Return the namespace of the training job."""
        return str(self.outputs["namespace"])

    def worker_pods(self) -> list[dict[str, Any]]:
        """Return the worker pods from the API server, oldest first."""
        return self.objects(PODS, self.namespace, str(self.outputs["workerSelector"]))

    def logs(self, pod: str) -> list[dict[str, str]]:
        """Return the logfmt lines that a worker has printed so far, in order, without other lines."""
        try:
            lines = list(self.cluster().log(pod, LogOptions(), self.namespace))
        except ClusterError:
            return []
        return [fields for line in lines if (fields := parse_logfmt(line))]

    @contextmanager
    def followed(self, pods: Iterable[str]) -> Iterator[Callable[[str], list[dict[str, str]]]]:
        """Record the logs of the pods, so that they can be read after the pods are deleted; yield a reader."""
        followers: dict[str, subprocess.Popen[str]] = {}
        files = {pod: self.path / f"{pod}.log" for pod in pods}
        try:
            for pod, file in files.items():
                command = f"exec kubectl logs -n {self.namespace} {pod} --tail=-1 --follow"
                with file.open("w") as out:
                    followers[pod] = self.start(command, stdout=out, stderr=subprocess.DEVNULL)
            # A follower that has printed something is connected, and prints the rest although the pod is deleted.
            wait_until("the logs to be followed", lambda: all(file.stat().st_size for file in files.values()))
            yield lambda pod: [fields for line in files[pod].read_text().splitlines() if (fields := parse_logfmt(line))]
        finally:
            for follower in followers.values():
                follower.kill()
                follower.wait()

    @contextmanager
    def config(self, key: str, value: str) -> Iterator[None]:
        """Set a config key, an item of a list (`KEY[0]`) or one of a map (`KEY.NAME`), within the block.

        The stack's file is restored afterwards.
        """
        file = self.path / f"Pulumi.{STACK}.yaml"
        before = file.read_text()
        path, name = ("--path ", f"tidewater:{key}") if set("[.") & set(key) else ("", key)
        self.run(f"pulumi config set {path}'{name}' -- '{value}'")
        try:
            yield
        finally:
            file.write_text(before)


def parse_logfmt(line: str) -> dict[str, str]:
    """Return the fields of a `key=value key=value` line; {} for any other line."""
    fields = dict(part.split("=", 1) for part in line.split() if "=" in part)
    return fields if "step" in fields or "event" in fields else {}


def wait_until(what: str, probe: Callable[[], T | None], *, seconds: float = PATIENCE_SECONDS) -> T:
    """Call `probe` until it returns a true value, a third of the time at most: what is waited for needs the machine.

    Raises:
        AssertionError: it didn't within `seconds`; the message contains `what`.
    """
    deadline, pause = time.monotonic() + seconds, 0.2
    while (began := time.monotonic()) < deadline:
        if found := probe():
            return found
        time.sleep(max(pause, 2 * (time.monotonic() - began)))
        pause = min(2 * pause, 1)
    raise AssertionError(f"waited {seconds:.0f} s in vain for {what}")
