"""An etcd in a folder of its own, which lasts as long as the command.

with started(program()) as etcd:
    …etcd.url…
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tidewater.cli.errors import CliError
from tidewater.elastic.launch.lifeline import bound_to

HOST = "127.0.0.1"
START_SECONDS = 30.0
_POLL_SECONDS = 0.05
_ANSWER_SECONDS = 1.0
_LOG_LINES = 5
# The folder is removed when the command has ended, even after SIGKILL: then the pipe to this shell closes. etcd may
# still write for a moment.
_REMOVER = 'trap "" INT TERM HUP; cat; for again in 1 2 3 4 5; do rm -rf -- "$1" && exit; sleep 0.2; done'


@dataclass(frozen=True)
class Etcd:
    """An etcd that runs. `process` is None if another program has started it."""

    url: str
    process: subprocess.Popen[bytes] | None = None
    folder: Path | None = None

    @property
    def end(self) -> str:
        """Return how it has ended, with its last words; empty while it runs."""
        if self.process is None or self.folder is None or self.process.poll() is None:
            return ""
        said = _log(self.folder).read_text(errors="replace").splitlines()[-_LOG_LINES:]
        return "\n".join([f"etcd has ended with exit code {self.process.returncode}; its last lines:", *said])


def program() -> Path:
    """Return the etcd of PATH.

    Raises:
        CliError: there is none.
    """
    found = shutil.which("etcd")
    if found is None:
        raise CliError(
            "the workers need an etcd, and PATH has no program `etcd`",
            "Debian and Ubuntu have the package etcd-server (`apt-get install etcd-server`); without root, unpack a "
            "release from https://github.com/etcd-io/etcd/releases into a folder of PATH. For one that runs, give "
            "--etcd http://HOST:2379 before the script.",
        )
    return Path(found)


def existing(url: str) -> Etcd:
    """Return the etcd that was started by another program.

    Raises:
        CliError: it does not answer.
    """
    for each in url.split(","):
        address = urlsplit(each.strip())
        if not address.hostname:
            continue
        with contextlib.suppress(OSError, ValueError):
            socket.create_connection((address.hostname, address.port or 2379), timeout=_ANSWER_SECONDS).close()
            return Etcd(url)
    raise CliError(f"no etcd can be reached at {url}", "Without --etcd the command starts one itself.")


@contextmanager
def started(binary: Path) -> Iterator[Etcd]:
    """Start an etcd with one member and wait until it serves. It ends with this process in any case.

    Raises:
        CliError: it has ended at once, or does not serve in time.
    """
    with removed_at_the_end() as folder:
        client, peer = (f"http://{HOST}:{port}" for port in _free_ports(2))
        flags = {
            "data-dir": folder / "data",
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"default={peer}",
        }
        with _log(folder).open("wb") as log:
            process = subprocess.Popen(
                [binary, *(f"--{name}={value}" for name, value in flags.items())],
                env={name: value for name, value in os.environ.items() if not name.startswith("ETCD_")},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
                preexec_fn=bound_to(os.getpid()),
            )
        try:
            etcd = Etcd(client, process, folder)
            _wait_for(etcd)
            yield etcd
        finally:
            process.kill()
            process.wait()


def _wait_for(etcd: Etcd) -> None:
    deadline = time.monotonic() + START_SECONDS
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while time.monotonic() < deadline:
        if etcd.end:
            raise CliError(etcd.end, "Is this etcd 3.4 or later? `etcd --version` says it.")
        with contextlib.suppress(OSError):
            direct.open(f"{etcd.url}/health", timeout=_ANSWER_SECONDS).close()
            return
        time.sleep(_POLL_SECONDS)
    raise CliError(f"etcd does not serve {etcd.url} within {START_SECONDS:g} s", "Is the disk busy or full?")


@contextmanager
def removed_at_the_end() -> Iterator[Path]:
    """Yield a new folder, which is removed when this process or the block ends."""
    folder = Path(tempfile.mkdtemp(prefix="tidewater-run-"))
    remover = subprocess.Popen(
        ["/bin/sh", "-c", _REMOVER, "remover", folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield folder
    finally:
        remover.communicate()


def _log(folder: Path) -> Path:
    return folder / "etcd.log"


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.create_server((HOST, 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]
