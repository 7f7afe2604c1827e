"""Who this cloud is: the identity, addresses and paths that everything of one state directory shares.

    instance = Instance.open(Path(".localcloud"))
    instance.endpoint            # http://127.0.0.1:24566

Several clouds can run side by side: names (`lc-<id>`) derive from the state directory's real path, and the subnet
and the port are picked free once and kept in `state/instance.json`, so that endpoints survive a restart.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

from localcloud.errors import CloudError, StaleState

STATE_VERSION = 1
STATE_VARIABLE = "LOCALCLOUD_STATE"
DEFAULT_REGION = "us-west-2"
DEFAULT_ACCOUNT = "123456789012"
FIRST_PORT = 24566
PORT_CHOICES = 400
SUBNET_CHOICES = 256


@dataclass(frozen=True)
class Instance:
    """One cloud: where it keeps its state and under which names and addresses it lives.

    Args:
        id: Six hexadecimal digits that prefix every name it makes on the host.
        state: The directory that owns it.
        subnet: n of 198.18.n.0/30, the link between the host and the cloud's namespace.
        port: TCP port of the AWS endpoint, on loopback and on `host_address`.
    """

    id: str
    state: Path
    subnet: int
    port: int
    region: str = DEFAULT_REGION
    account: str = DEFAULT_ACCOUNT

    @classmethod
    def open(cls, state: Path) -> Instance:
        """Load the instance of `state`, or create it there (safe to call again).

        Raises:
            StaleState: `instance.json` can't be read, or belongs to another version or directory.
        """
        state = state.resolve()
        path = state / "instance.json"
        identity = hashlib.sha256(str(state).encode()).hexdigest()[:6]
        if path.exists():
            return _load(path, state, identity)
        state.mkdir(parents=True, exist_ok=True)
        subnet = _free_subnet(int(identity, 16) % SUBNET_CHOICES)
        instance = cls(identity, state, subnet, _free_port(FIRST_PORT + int(identity, 16) % PORT_CHOICES))
        record = {**asdict(instance), "state": str(state), "version": STATE_VERSION}
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps(record, indent=1) + "\n")
        temporary.replace(path)
        return instance

    @property
    def host_address(self) -> str:
        """The host's side of the link; nodes and pods reach the AWS endpoint here."""
        return f"198.18.{self.subnet}.1"

    @property
    def cloud_address(self) -> str:
        """The cloud namespace's side of the link; API servers listen here."""
        return f"198.18.{self.subnet}.2"

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
        """Short path for unix sockets, whose names may not exceed 107 bytes."""
        return Path(f"/run/lc-{self.id}")

    @property
    def endpoint(self) -> str:
        """The AWS endpoint as the host sees it."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def cloud_endpoint(self) -> str:
        """The same AWS endpoint as nodes and pods see it."""
        return f"http://{self.host_address}:{self.port}"


def default_state() -> Path:
    """The state directory when none is named: `LOCALCLOUD_STATE`, else `.localcloud` in this checkout."""
    named = os.environ.get(STATE_VARIABLE)
    return Path(named) if named else Path(__file__).resolve().parent.parent / ".localcloud"


def _load(path: Path, state: Path, identity: str) -> Instance:
    try:
        record = json.loads(path.read_text())
        version = record.pop("version")
        instance = Instance(**{**record, "state": Path(record["state"])})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StaleState(f"{path} can't be read ({error}): run `python -m localcloud reset --state {state}`") from error
    if version != STATE_VERSION:
        raise StaleState(
            f"{path} has version {version}, this is {STATE_VERSION}: run `python -m localcloud reset --state {state}`"
        )
    if instance.id != identity:
        raise StaleState(
            f"{path} belongs to {instance.state}, not {state} (was it copied?): delete {path} and start again"
        )
    return instance


def _free_subnet(first: int) -> int:
    """A subnet that no route of the host uses, starting the search at `first`."""
    routes = subprocess.run(["ip", "-4", "route", "show"], capture_output=True, text=True, check=False).stdout
    for step in range(SUBNET_CHOICES):
        subnet = (first + step) % SUBNET_CHOICES
        if f"198.18.{subnet}." not in routes:
            return subnet
    raise CloudError("all of 198.18.0.0/16 is in use on this host: stop a cloud that you no longer need")


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
