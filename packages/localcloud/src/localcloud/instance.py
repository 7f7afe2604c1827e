"""The identity of one cloud: the names, addresses, paths and operator that all parts of one state directory share.

    instance = Instance.create(Path(".localcloud"))   # `localcloud start`
    instance = Instance.load(Path(".localcloud"))     # every other command: makes nothing
    instance.endpoint                                 # http://127.0.0.1:24566

Several clouds can run on one machine: names (`lc-<id>`) derive from the state directory's real path; the subnet and
the port are chosen once and kept in `state/instance.json`, so that endpoints survive a restart.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import socket
import string
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from localcloud.errors import CloudError, ForeignState, NotRunning, StaleState

STATE_VERSION = 1
STATE_VARIABLE = "LOCALCLOUD_STATE"
DEFAULT_REGION = "us-west-2"
DEFAULT_ACCOUNT = "123456789012"
NETWORK = "198.18"  # RFC 2544: reserved for tests between networks, so no host on the internet has these addresses
FIRST_PORT = 24566
PORT_CHOICES = 400
SUBNET_CHOICES = 256
_DRAFT = "instance.json.draft"


@dataclass(frozen=True)
class Credentials:
    """An access key of AWS's form."""

    access_key: str
    secret_key: str = field(repr=False)

    @classmethod
    def random(cls) -> Credentials:
        """Return a new key pair: AKIA and 16 characters, and a secret of 40."""
        key = "AKIA" + "".join(secrets.choice(string.ascii_uppercase + "234567") for _ in range(16))
        return cls(key, secrets.token_urlsafe(30))


@dataclass(frozen=True)
class Instance:
    """One cloud: where it keeps its state and under which names and addresses it lives.

    Args:
        id: Six hexadecimal digits that prefix every name it makes on the host.
        state: The directory that owns it.
        subnet: n of 198.18.n.0/30, the link between the host and the cloud's namespace.
        port: TCP port of the AWS endpoint, on loopback and on `cloud_address`.
    """

    id: str
    state: Path
    subnet: int
    port: int
    region: str = DEFAULT_REGION
    account: str = DEFAULT_ACCOUNT

    @classmethod
    def load(cls, state: Path) -> Instance:
        """Load the instance of `state`, and change nothing there.

        Raises:
            NotRunning: There is nothing at `state`, or an empty folder.
            ForeignState: What is there was not made by localcloud for this path.
            StaleState: localcloud made it, in another version.
        """
        state = _resolved(state)
        path = state / "instance.json"
        return cls._from_record(_own_record(state, path), path, state)

    @classmethod
    def create(cls, state: Path) -> Instance:
        """Load the instance of `state`, or make it where there is nothing or an empty folder.

        The operator's credentials are made if they are missing, as after `reset`.

        Raises:
            ForeignState: What is there was not made by localcloud for this path.
            StaleState: localcloud made it, in another version.
        """
        state = _resolved(state)
        with contextlib.suppress(NotRunning):
            cls.load(state)
        state.mkdir(parents=True, exist_ok=True)
        with _locked(state):  # two starts at once agree on one instance
            try:
                instance = cls.load(state)
            except NotRunning:
                instance = cls._new(state)
            if not instance.credentials_file.exists():
                _write(instance.credentials_file, asdict(Credentials.random()))
        return instance

    @classmethod
    def named(cls, state: Path) -> Instance:
        """Return the instance of a directory with an unreadable record. Only its names on this host are valid."""
        state = _resolved(state)
        return cls(_identity(state), state, subnet=0, port=0)

    @classmethod
    def _new(cls, state: Path) -> Instance:
        identity = _identity(state)
        subnet = _free_subnet(int(identity, 16) % SUBNET_CHOICES)
        instance = cls(identity, state, subnet, _free_port(FIRST_PORT + int(identity, 16) % PORT_CHOICES))
        instance._save()
        return instance

    def _save(self) -> None:
        _write(self.state / "instance.json", {**asdict(self), "state": str(self.state), "version": STATE_VERSION})

    def in_region(self, region: str) -> Instance:
        """Record another region, which the next start is to have; return the instance with it."""
        moved = replace(self, region=region)
        moved._save()
        return moved

    @classmethod
    def _from_record(cls, record: dict[str, Any], path: Path, state: Path) -> Instance:
        remedy = f"run `localcloud reset --state {state}`"
        version = record.pop("version", None)
        if version != STATE_VERSION:
            raise StaleState(f"{path} has version {version}, this is {STATE_VERSION}: {remedy}")
        try:
            return cls(**{**record, "state": state})
        except TypeError as error:
            raise StaleState(f"{path} can't be read ({error}): {remedy}") from error

    @property
    def kubeconfig(self) -> Path:
        """Where kubectl finds the clusters."""
        return self.state / "kubeconfig"

    @property
    def credentials_file(self) -> Path:
        """Where the operator's credentials are kept, readable by their owner only."""
        return self.state / "operator.json"

    def credentials(self) -> Credentials:
        """Return the operator's credentials.

        Raises:
            NotRunning: There are none before the first start, or after a reset.
            StaleState: The file can't be read.
        """
        if not self.credentials_file.exists():
            raise NotRunning(f"no localcloud was started in {self.state}: run `localcloud start --state {self.state}`")
        try:
            return Credentials(**json.loads(self.credentials_file.read_text()))
        except (ValueError, TypeError) as error:
            raise StaleState(
                f"{self.credentials_file} can't be read ({error}): "
                f"delete it and run `localcloud start --state {self.state}`, which makes a new one"
            ) from error

    @property
    def host_address(self) -> str:
        """The host's side of the link; nodes and pods reach nothing here."""
        return f"{NETWORK}.{self.subnet}.1"

    @property
    def cloud_address(self) -> str:
        """The cloud namespace's side of the link; API servers, the AWS endpoint and the webhooks listen here."""
        return f"{NETWORK}.{self.subnet}.2"

    @property
    def netns(self) -> str:
        """Name of the cloud's network namespace."""
        return f"lc-{self.id}"

    @property
    def veth(self) -> str:
        """Name of the link's interface on the host."""
        return f"lc{self.id}h"

    @property
    def cgroup(self) -> str:
        """Name of the cgroup under which every node has its own."""
        return f"lc-{self.id}"

    @property
    def run_dir(self) -> Path:
        """Short path for unix sockets: their names may not exceed 107 bytes."""
        return Path(f"/run/lc-{self.id}")

    @property
    def endpoint(self) -> str:
        """The AWS endpoint as the host sees it."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def cloud_endpoint(self) -> str:
        """The same AWS endpoint as nodes and pods see it."""
        return f"http://{self.cloud_address}:{self.port}"


def default_state() -> Path:
    """The state directory when none is named: `LOCALCLOUD_STATE`, else `.localcloud` in this checkout."""
    named = os.environ.get(STATE_VARIABLE)
    return Path(named) if named else Path(__file__).resolve().parents[4] / ".localcloud"


def _identity(state: Path) -> str:
    return hashlib.sha256(str(state).encode()).hexdigest()[:6]


def _resolved(state: Path) -> Path:
    try:
        return state.resolve()
    except RuntimeError as error:  # a link that leads to itself
        raise ForeignState(f"{state} can't be used as a state directory: {error}") from error


def _own_record(state: Path, path: Path) -> dict[str, Any]:
    """Return what `instance.json` holds, which must name this directory and its id.

    Any other content may be another program's file of the same name.
    """
    if not state.exists() or (state.is_dir() and all(entry.name == _DRAFT for entry in state.iterdir())):
        raise NotRunning(f"there is no localcloud in {state}: start one with `localcloud start --state {state}`")
    foreign = f"{state} is not a state directory of localcloud"
    if not path.is_file():
        why = "it has no instance.json" if state.is_dir() else "it is not a folder"
        raise ForeignState(f"{foreign} ({why}): choose another one with --state or {STATE_VARIABLE}")
    try:
        record = json.loads(path.read_text())
    except ValueError:
        record = None
    if not isinstance(record, dict) or "id" not in record or "state" not in record:
        raise ForeignState(f"{foreign} ({path} is not localcloud's): choose another one, or delete it yourself")
    if record["state"] != str(state) or record["id"] != _identity(state):
        raise ForeignState(
            f"{path} belongs to {record['state']}, not {state}: if it was copied or moved, delete {state} yourself"
        )
    return record


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _write(path: Path, record: dict[str, Any]) -> None:
    """Write a file as a whole, readable by its owner only."""
    draft = path.with_name(_DRAFT)
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600)
    draft.write_text(json.dumps(record, indent=1) + "\n")
    draft.replace(path)


def _free_subnet(first: int) -> int:
    """A subnet that no route of the host uses, starting the search at `first`."""
    routes = subprocess.run(["ip", "-4", "route", "show"], capture_output=True, text=True, check=False).stdout
    for step in range(SUBNET_CHOICES):
        subnet = (first + step) % SUBNET_CHOICES
        if f"{NETWORK}.{subnet}." not in routes:
            return subnet
    raise CloudError(f"all of {NETWORK}.0.0/16 is in use on this host: stop a cloud that you no longer need")


def _free_port(first: int) -> int:
    for port in range(first, first + PORT_CHOICES):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise CloudError(f"no free port between {first} and {first + PORT_CHOICES}: stop a cloud that you no longer need")
