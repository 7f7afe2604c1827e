"""Runs a long command with its output in a log file, a sign of life now and then, and errors that help.

run(["go", "build", "…"], log=cache() / "logs" / "kubelet.log", console=Console())
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from scripts.toolchain import downloads
from scripts.toolchain.errors import StepFailed, Stopped

HEARTBEAT_SECONDS = 20.0
_POLL_SECONDS = 0.5
_TAIL_LINES = 12
_LINE_LENGTH = 240
_REMEDIES = (
    (
        (
            *("UnknownIssuer", "certificate signed by unknown authority", "certificate issuer is unknown"),
            *("unable to get local issuer certificate", "self-signed certificate", "self signed certificate"),
        ),
        "this machine doesn't know the authority that signed a server's certificate, as where a company inspects TLS: "
        "copy the authority's certificate to /usr/local/share/ca-certificates/NAME.crt, run update-ca-certificates, "
        "then run it again",
    ),
    (
        ("Missing dependencies for SOCKS support",),
        "pip can't use a SOCKS proxy: set HTTPS_PROXY to an HTTP proxy, then run it again",
    ),
    (
        (
            *(
                "dial tcp",
                "no such host",
                "Temporary failure",
                "Could not resolve",
                "Network is unreachable",
                "timed out",
            ),
            *("Failed to establish a new connection", "Connection refused", "error sending request"),
        ),
        "the package registry can't be reached: check the network (and HTTPS_PROXY), then run it again",
    ),
    (
        ("No space left on device", "no space left on device", "Disk quota exceeded"),
        "the disk is full: free some space or set TIDEWATER_CACHE to a folder on a larger disk",
    ),
    (
        ("signal: killed", "cannot allocate memory", "Cannot allocate memory"),
        "memory ran out: close what else runs (the build needs about 4 GiB) and run it again",
    ),
    (
        ("THESE PACKAGES DO NOT MATCH THE HASHES", "Hash mismatch", "checksum mismatch", "SECURITY ERROR"),
        "a download isn't what the lock file promises: try again, and if it stays so, don't trust that mirror",
    ),
)


class Console:
    """Prints what the set-up is doing, one whole line at a time, so that logs of CI read well too.

    Steps that run at the same time share one console, each under its own title. `stop` ends all of them.
    """

    def __init__(self, write: Callable[[str], None] | None = None) -> None:
        self._write = write or _write_line
        self._title = ""
        self._stopped = threading.Event()

    def titled(self, title: str) -> Console:
        """Return the console of one step, which begins each line with `title`."""
        console = Console(self._write)
        console._title = title
        console._stopped = self._stopped
        return console

    def say(self, line: str) -> None:
        """Print one line."""
        self._write(f"{self._title}: {line}" if self._title else line)

    def stop(self) -> None:
        """End the commands that run for this console, and let none begin."""
        self._stopped.set()

    def check(self) -> None:
        """Raise `Stopped` if the set-up ends early."""
        if self._stopped.is_set():
            raise Stopped("stopped, because another step failed or the set-up was interrupted")


def _write_line(line: str) -> None:
    # One write: with print() another thread's line could come before the line's end.
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def duration(seconds: float) -> str:
    """`seconds` for people: 0.4 s, 12 s, 6 min 05 s."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def remedy(output: str) -> str:
    """What to do about a command that ended with `output`; "" if nothing is known about it."""
    return next((advice for signs, advice in _REMEDIES if any(sign in output for sign in signs)), "")


def run(
    command: Sequence[str | Path],
    *,
    log: Path,
    console: Console,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: str = "",
) -> None:
    """Runs `command` to its end, its output added to `log`; `env` adds to the environment for downloads.

    Raises:
        StepFailed: it can't be started or ended with an error; carries the log's last lines.
        Stopped: the console was stopped.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    console.check()
    with log.open("ab") as output:
        begin = output.tell()
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**downloads.environment(os.environ), **(env or {})},
                cwd=cwd,
                start_new_session=True,
            )
        except OSError as error:
            raise StepFailed(f"{command[0]} can't be started: {error.strerror}") from error
        try:
            status = _wait(process, stdin, console)
        finally:
            _end(process)
    if status != 0:
        text = log.read_bytes()[begin:].decode(errors="replace")
        raise StepFailed(_failure(command, status, text, log))


def _wait(process: subprocess.Popen[bytes], stdin: str, console: Console) -> int:
    started = time.monotonic()
    beat = HEARTBEAT_SECONDS
    waiting: bytes | None = stdin.encode()
    while True:
        try:
            process.communicate(waiting, timeout=min(_POLL_SECONDS, HEARTBEAT_SECONDS))
            return process.returncode
        except subprocess.TimeoutExpired:
            waiting = None
        console.check()
        spent = time.monotonic() - started
        if spent >= beat:
            console.say(f"… {duration(spent)}")
            beat += HEARTBEAT_SECONDS


def _end(process: subprocess.Popen[bytes]) -> None:
    """Takes the command's children along when the set-up is interrupted."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def _failure(command: Sequence[str | Path], status: int, text: str, log: Path) -> str:
    tail = [line[:_LINE_LENGTH] for line in text.splitlines() if line.strip()][-_TAIL_LINES:]
    name = " ".join([Path(command[0]).name, *map(str, command[1:3])])
    summary = f"`{name} …` ended with status {status}: {remedy(text) or 'see the end of its log'} ({log})"
    return "\n    ".join([summary, *tail])
