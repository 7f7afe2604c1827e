"""Runs the host's tools for namespaces (`ip`, `nft`, `nsenter`); an error names the command that failed."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from localcloud.kube.errors import KubeError

TIMEOUT_SECONDS = 30


def run(argv: Sequence[str], *, stdin: str | None = None) -> str:
    """Run a command to its end.

    Returns:
        What it wrote to stdout.

    Raises:
        KubeError: It is missing, failed or did not end; the message has its output.
    """
    try:
        done = subprocess.run(
            list(argv), input=stdin, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
        )
    except FileNotFoundError as error:
        raise KubeError(f"{argv[0]} is not installed: run `make up`, which installs it") from error
    except subprocess.TimeoutExpired as error:
        raise KubeError(f"`{' '.join(argv)}` did not end within {TIMEOUT_SECONDS} s") from error
    if done.returncode != 0:
        raise KubeError(f"`{' '.join(argv)}` failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def succeeds(argv: Sequence[str]) -> bool:
    """Return whether a command ends with status 0."""
    try:
        run(argv)
    except KubeError:
        return False
    return True
