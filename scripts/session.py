"""One checkout's cloud and stack, as the make targets drive them: subprocesses in the environment of `activate`."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from scripts.toolchain import paths, shell
from scripts.toolchain.errors import SetupError

STACK = "local"
# Kinds of resources that identify a cloud, each with the question that lists those that exist.
_WITNESSES = (
    ("aws:ec2/vpc:Vpc", "ec2 describe-vpcs --query Vpcs[].VpcId"),
    ("aws:iam/role:Role", "iam list-roles --query Roles[].RoleName"),
)

RECORD = "pulumi:index:Stash"
"""The type of notes for later updates, such as where the stack is (`infra.preflight.place`)."""


class UpError(Exception):
    """A step of `make up` or `make down` failed; the message says which one, and what to do."""


def exit_status(target: str, work: Callable[[], None]) -> int:
    """Do the work of a make target; return the exit status. Errors and an interruption become a line on stderr."""
    try:
        work()
    except (UpError, SetupError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"interrupted; `make {target}` goes on where it stopped", file=sys.stderr)
        return 130
    return 0


@dataclass(frozen=True)
class Session:
    """Where commands run, and in which environment."""

    state: Path
    environ: Mapping[str, str]

    @classmethod
    def open(cls) -> Session:
        """Return the session of this checkout; open it again after the cloud was started."""
        place = shell.prepare(shell.default_state(), os.environ.get(shell.STANDINS_VARIABLE))
        environ = shell.environment(os.environ, place).applied_to(os.environ)
        return cls(place.state, {**environ, "PYTHONPATH": paths.IMPORTS})

    def run(self, *command: str, remedy: str) -> None:
        """Run `command` with its output on the terminal.

        Raises:
            UpError: it ended with an error; the message ends with `remedy`.
        """
        status = subprocess.run(command, cwd=paths.CHECKOUT, env=self.environ, check=False).returncode
        if status != 0:
            raise UpError(f"`{' '.join(command)}` ended with status {status}: {remedy}")

    def ask(self, *command: str) -> str:
        """Return what `command` prints.

        Raises:
            UpError: it ended with an error; carries what it printed on stderr.
        """
        done = subprocess.run(
            command, cwd=paths.CHECKOUT, env=self.environ, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise UpError(f"`{' '.join(command)}` ended with status {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def start_cloud(self, *options: str) -> Session:
        """Start the one-machine cloud unless it runs, and return a session that knows its address and keys."""
        said = self.ask(sys.executable, "-m", "localcloud", "start", *options)
        # After the blank line come the variables that `activate` sets, for a person who starts the cloud by hand.
        print(said.split("\n\n")[0].strip().removesuffix("; to use it:"), flush=True)
        return Session.open()

    def select_stack(self) -> None:
        """Create the stack if it doesn't exist."""
        self.ask("pulumi", "stack", "select", "--create", STACK)

    def exported(self, stack: Sequence[str] = ("--stack", STACK)) -> dict[str, Any]:
        """Return the stack's state as `pulumi stack import` takes it."""
        state: dict[str, Any] = json.loads(self.ask("pulumi", "stack", "export", *stack))
        return state

    def deployment(self, stack: Sequence[str] = ("--stack", STACK)) -> dict[str, Any]:
        """Return what the state is about: its `resources`, and its `pending_operations`."""
        recorded: dict[str, Any] = self.exported(stack)["deployment"]
        return recorded

    def resources(self) -> list[dict[str, Any]]:
        """Return the resources in the stack's state."""
        return self.deployment().get("resources") or []

    def outputs(self) -> dict[str, Any]:
        """Return the stack's outputs, secrets in plain text."""
        shown: dict[str, Any] = json.loads(self.ask("pulumi", "stack", "output", "--json", "--show-secrets"))
        return shown


def read_config(folder: Path, stack: str) -> tuple[str, Mapping[str, Any]]:
    """Return the project's name, and the configuration of a stack: its own values over the project's defaults."""
    project = yaml.safe_load((folder / "Pulumi.yaml").read_text())
    found = {key: described.get("default") for key, described in project["config"].items()}
    own = folder / f"Pulumi.{stack}.yaml"
    if own.is_file():
        prefix = f"{project['name']}:"
        values = (yaml.safe_load(own.read_text()) or {}).get("config") or {}
        found |= {key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)}
    return project["name"], found


def identifiers(resources: Sequence[Mapping[str, Any]], kind: str) -> list[str]:
    """Return the ids that the state records for AWS resources of one type (`aws:ec2/vpc:Vpc`)."""
    return [str(resource["id"]) for resource in resources if resource.get("type") == kind and resource.get("id")]


def aws_options(resource: Mapping[str, Any], resources: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the options of the AWS CLI for the region and the profile of a resource's provider."""
    # A provider that is to be replaced by one of another region has the same URN as that one.
    urn, _, id_ = str(resource.get("provider", "")).rpartition("::")
    same = [each for each in resources if each["urn"] == urn]
    provider = min(same, key=lambda each: each.get("id") != id_, default={})
    inputs = provider.get("inputs") or {}
    return [text for key in ("region", "profile") if inputs.get(key) for text in (f"--{key}", str(inputs[key]))]


def release_dead_locks(session: Session) -> None:
    """Unlock the stack if the update that locked it was killed on this machine; leave other locks."""
    folder = session.state / "pulumi" / ".pulumi" / "locks"
    locks = [json.loads(path.read_text()) for path in folder.rglob("*.json")]
    if locks and all(lock["hostname"] == socket.gethostname() and not is_alive(lock["pid"]) for lock in locks):
        print("an earlier update was killed: releasing its lock on the stack", flush=True)
        session.ask("pulumi", "cancel", "--yes", "--stack", STACK)


def is_alive(pid: int) -> bool:
    """Whether there is a process with this id."""
    return Path(f"/proc/{pid}").exists()


def only_records(deployment: Mapping[str, Any]) -> bool:
    """Return whether the state has notes for the next update, but nothing that was made or was being made.

    An update that is refused at its beginning leaves that: the record of the stack's place, which no setting could
    correct any more.
    """
    custom = [each["type"] for each in deployment.get("resources") or [] if each.get("custom")]
    made = [kind for kind in custom if kind != RECORD and not kind.startswith("pulumi:providers:")]
    return RECORD in custom and not made and not deployment.get("pending_operations")


def forget_if_lost(session: Session) -> None:
    """Remove the stack's state if it describes nothing, or if the one-machine cloud that it describes is gone.

    That cloud keeps AWS in memory. After a restart of the machine the state names resources that nothing can read,
    update or delete. If the cloud has none of them, each in its own region, it is not the cloud of this state.

    Raises:
        UpError: the state is about another account, such as one on AWS.
    """
    deployment = session.deployment()
    if only_records(deployment):
        _forget(session)
        return
    resources = deployment.get("resources") or []
    recorded = [
        (each, query) for kind, query in _WITNESSES for each in resources if each.get("type") == kind and each.get("id")
    ]
    if not recorded:
        return
    refuse_other_accounts(session, [each for each, _ in recorded])
    existing: dict[tuple[str, ...], set[str]] = {}
    for each, query in recorded:
        question = (*query.split(), *aws_options(each, resources))
        if question not in existing:
            existing[question] = set(json.loads(session.ask("aws", *question, "--output", "json")))
        if each["id"] in existing[question]:
            return
    print("the cloud of this stack is gone (was it stopped?): forgetting the stack's state, starting anew", flush=True)
    _forget(session)


def _forget(session: Session) -> None:
    session.ask("pulumi", "stack", "rm", STACK, "--yes", "--force", "--preserve-config")
    session.select_stack()


def refuse_other_accounts(session: Session, resources: Sequence[Mapping[str, Any]]) -> None:
    """Refuse to go on with a state that is not about this cloud: the resources in it would be orphaned.

    Raises:
        UpError: the state names other accounts only.
    """
    arns = [str((each.get("outputs") or {}).get("arn", "")).split(":") for each in resources]
    accounts = {arn[4] for arn in arns if len(arn) > 5}
    here = session.ask("aws", "sts", "get-caller-identity", "--query", "Account", "--output", "text").strip()
    if accounts and here not in accounts:
        raise UpError(
            f"the state of the stack {STACK} is about the AWS account {', '.join(sorted(accounts))}, and that of the "
            f"one-machine cloud is {here}: use `pulumi up` and `pulumi destroy` with credentials of the former"
        )
