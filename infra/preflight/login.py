"""Whether the `aws` that the cluster's kubeconfig starts logs in to the account of the provider. Pure, but for `run`.

Pulumi's provider reads credentials by itself, and makes the cluster with them. Charts, and all Kubernetes objects, log
in with the `aws` on PATH instead (`aws eks get-token`). It may be of version 1, have another session or read other
files. `get-token` signs its answer without asking AWS, so it would not notice.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

import settings

LIMIT_SECONDS = 60
SHOWN = "`aws sts get-caller-identity`"
PURPOSE = "with which the cluster's kubeconfig logs in"
INSTALL = "install version 2: https://docs.aws.amazon.com/cli/latest/userguide/getting-started-install.html"


@dataclass(frozen=True)
class Ended:
    """How a run of `aws` has ended. `status`: None if it was still running after LIMIT_SECONDS."""

    status: int | None
    out: str = ""
    error: str = ""


Run = Callable[[tuple[str, ...]], Ended]
"""Runs `aws` with arguments. Raises OSError if it can't be started."""


def run(arguments: tuple[str, ...]) -> Ended:
    """Run the `aws` on PATH, without input. See `Run`."""
    try:
        done = subprocess.run(
            ("aws", *arguments),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Ended(None)
    return Ended(done.returncode, done.stdout, done.stderr)


@dataclass(frozen=True)
class Login:
    """The accounts of the provider and of `aws`; why there is none of `aws`, in words; and the provider's ARN."""

    provider: str
    aws: str = ""
    error: str = ""
    caller: str = ""


def command(stack: settings.Settings, *words: str) -> tuple[str, ...]:
    """Return the arguments of `aws` for a command, with the region and the profile that the kubeconfig has."""
    # The option, as pulumi-eks has it in the kubeconfig: keys of the shell come before AWS_PROFILE.
    profile = ("--profile", stack.profile) if stack.profile else ()
    return ("--region", stack.region, *words, "--output", "json", *profile)


def look(stack: settings.Settings, provider: str, aws: Run) -> Login:
    """Return in which account `aws` is, with the profile that the kubeconfig has; `provider` is the provider's."""
    try:
        ended = aws(command(stack, "sts", "get-caller-identity"))
        if ended.status == 0 and (account := _account(ended.out)):
            return Login(provider, aws=account)
        version = aws(("--version",)) if ended.status else Ended(0)
    except OSError as error:
        reason = "is not on PATH" if isinstance(error, FileNotFoundError) else f"can't be started ({error.strerror})"
        return Login(provider, error=f"the command, {PURPOSE}, {reason}; {INSTALL}")
    return Login(provider, error=_failure(stack, ended, f"{version.out}{version.error}"))


def mistakes(stack: settings.Settings, login: Login) -> list[str]:
    """Return why the Kubernetes objects of the stack could not be made."""
    if login.error:
        return [f"aws: {login.error}"]
    if login.aws == login.provider:
        return []
    profile = f" (profile = {stack.profile})" if stack.profile else ""
    return [
        f"aws: the command, {PURPOSE}, is in the account {login.aws}, and the provider in {login.provider}{profile}; "
        "set tidewater:profile to a profile of the account that you mean, and look which files `aws` reads: "
        "`aws configure list`"
    ]


def _account(out: str) -> str:
    """Return the account in the answer; empty if it is another answer."""
    try:
        return str(json.loads(out)["Account"])
    except (ValueError, KeyError, TypeError):
        return ""


def _failure(stack: settings.Settings, ended: Ended, version: str) -> str:
    if ended.status is None:
        return (
            f"{SHOWN}, {PURPOSE}, did not end within {LIMIT_SECONDS} s; the profile may wait for a code (mfa_serial) "
            "or for another program (credential_process); run it by hand"
        )
    if ended.status == 0:
        return f"{SHOWN}, {PURPOSE}, named no account; `aws` on PATH must be the AWS CLI"
    said = (ended.error or ended.out).strip().splitlines()
    line = f"{SHOWN}, {PURPOSE}, ended with exit status {ended.status}" + (f": {said[-1].strip(' .')}" if said else "")
    if old := re.match(r"aws-cli/(1\.[\d.]+)", version):
        return f"{line}. It is version {old[1]}, which has neither `aws login` nor `aws sso login`; {INSTALL}"
    profile = f" --profile {stack.profile}" if stack.profile else ""
    return f"{line}. Log in again: `aws login{profile}`, or `aws sso login{profile}`"
