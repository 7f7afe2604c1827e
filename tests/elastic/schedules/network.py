"""Simulated hosts: a network namespace for each worker, and a router that can cut the connection of any two.

    with Network(workers=3) as network:
        etcd = network.start_etcd(binary, folder)
        job.start("w", netns=network.hosts[0].netns, host=network.hosts[0].address)
        network.cut({(0, 1), (0, ETCD)})       # silently, as a broken switch does: packets are dropped
        network.heal()

Each host has the address `10.<x>.<n>.2`, or with ``ipv6`` only `fd00:<x>:<n>::2`, and reaches the others through the
router; etcd runs in the router's namespace. Only IPv4 can be cut.
This needs root. Names contain the process id, so that two runs do not collide. Everything is removed afterwards, even
after a failure.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.elastic.workers import ETCD_FLAGS
from tidewater.elastic.launch.lifeline import bound_to

ETCD = -1
"""In a cut: the router's own side, where etcd is."""
_SECONDS = 60
_FILTER = """
table ip cut {
  chain forward { type filter hook forward priority 0; policy accept; }
  chain input { type filter hook input priority 0; policy accept; }
  chain output { type filter hook output priority 0; policy accept; }
}
"""


@dataclass(frozen=True)
class Host:
    """One simulated host."""

    netns: str
    address: str


class Network:
    """The router and its hosts; a context manager."""

    def __init__(self, workers: int, *, ipv6: bool = False) -> None:
        name = f"tw{os.getpid():x}"
        self._router = f"{name}r"
        self._form = f"fd00:{os.getpid() % 1000}:{{}}::{{}}" if ipv6 else f"10.{128 + os.getpid() % 100}.{{}}.{{}}"
        self._bits, self._more = ("/64", " nodad") if ipv6 else ("/24", "")
        self._forwarding = "net.ipv6.conf.all.forwarding=1" if ipv6 else "net.ipv4.ip_forward=1"
        self.hosts = tuple(Host(f"{name}h{n}", self._form.format(n + 1, 2)) for n in range(workers))
        self._gateways = tuple(self._form.format(n + 1, 1) for n in range(workers))
        self.etcd = f"http://[{self._gateways[0]}]:2379" if ipv6 else f"http://{self._gateways[0]}:2379"
        self._etcd: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def start_etcd(self, binary: Path, folder: Path) -> str:
        """Start etcd in the router's namespace; return its URL."""
        log = folder / "etcd.log"
        with log.open("w") as file:
            self._etcd = subprocess.Popen(
                [
                    *("nsenter", f"--net=/run/netns/{self._router}", str(binary), "--data-dir", str(folder / "etcd")),
                    *("--listen-client-urls", "http://[::]:2379", "--advertise-client-urls", self.etcd, *ETCD_FLAGS),
                ],
                stdout=file,
                stderr=file,
                preexec_fn=bound_to(os.getpid()),
            )
        deadline = time.monotonic() + _SECONDS
        while "ready to serve client requests" not in log.read_text():
            if time.monotonic() > deadline or self._etcd.poll() is not None:
                raise AssertionError(f"etcd does not start:\n{log.read_text()[-2000:]}")
            time.sleep(0.05)
        return self.etcd

    def cut(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Drop all packets between the two of each pair (numbers of hosts, or ``ETCD``)."""
        rules = []
        for one, other in pairs:
            if ETCD in (one, other):
                address = self.hosts[max(one, other)].address
                rules += [f"add rule ip cut input ip saddr {address} drop"]
                rules += [f"add rule ip cut output ip daddr {address} drop"]
            else:
                ends = self.hosts[one].address, self.hosts[other].address
                for source, target in (ends, ends[::-1]):
                    rules.append(f"add rule ip cut forward ip saddr {source} ip daddr {target} drop")
        self._filter("\n".join(rules) + "\n")

    def heal(self) -> None:
        """Restore all connections."""
        self._filter("".join(f"flush chain ip cut {chain}\n" for chain in ("forward", "input", "output")))

    def _make(self) -> None:
        _run(["ip", "netns", "add", self._router])
        _batch(self._router, "link set lo up")
        for number, (host, gateway) in enumerate(zip(self.hosts, self._gateways, strict=True)):
            _run(["ip", "netns", "add", host.netns])
            _batch(
                self._router,
                f"link add h{number} type veth peer name eth0 netns {host.netns}",
                f"address add {gateway}{self._bits} dev h{number}{self._more}",
                f"link set h{number} up",
            )
            _batch(
                host.netns,
                "link set lo up",
                f"address add {host.address}{self._bits} dev eth0{self._more}",
                "link set eth0 up",
                f"route add default via {gateway}",
            )
        inside = ["nsenter", f"--net=/run/netns/{self._router}"]
        _run([*inside, "sysctl", "-q", "-w", self._forwarding])
        self._filter(_FILTER)

    def _remove(self) -> None:
        if self._etcd:
            self._etcd.kill()
            self._etcd.wait()
        for netns in (self._router, *(host.netns for host in self.hosts)):
            if Path(f"/run/netns/{netns}").exists():
                with contextlib.suppress(subprocess.CalledProcessError):  # the links are deleted with their namespaces
                    _run(["ip", "netns", "delete", netns])

    def _filter(self, text: str) -> None:
        _run(["nsenter", f"--net=/run/netns/{self._router}", "nft", "-f", "-"], text)


def _batch(netns: str, *lines: str) -> None:
    _run(["ip", "-n", netns, "-batch", "-"], "\n".join(lines) + "\n")


def _run(argv: Sequence[str], stdin: str = "") -> None:
    subprocess.run(argv, input=stdin, text=True, check=True, timeout=_SECONDS)
