"""Names on the command line, checked before anything is sent.

    name: Annotated[str, typer.Argument(callback=naming.job)]

A name becomes part of a URL: an empty one would turn one job into all jobs of the namespace. The rule is that of the
API server, and kubectl also checks it first:
https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#names
"""

from __future__ import annotations

import re

from tidewater.cli.errors import UsageError
from tidewater.kube.kubeconfig import NAMESPACE_RULE, is_namespace

_SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_LONGEST_SUBDOMAIN = 253


def job(name: str | None) -> str | None:
    """Return NAME, or None if the command line has none.

    Raises:
        UsageError: no object can have that name.
    """
    if name is None or (len(name) <= _LONGEST_SUBDOMAIN and _SUBDOMAIN.fullmatch(name)):
        return name
    wrong = f"NAME {name!r} can't be the name of a job" if name else "NAME is empty"
    raise UsageError(
        wrong,
        "A name has lower-case letters, digits, '-' and '.', with a letter or digit at both ends. "
        "`tidewater job list` prints the names of the jobs.",
    )


def new_job(name: str) -> str:
    """Return NAME of a job to create, or an empty string: the command itself reports that.

    Raises:
        UsageError: no object can have that name.
    """
    return (job(name) or "") if name else ""


def jobs(names: list[str]) -> list[str]:
    """Return NAMES if every one is a name: a command does all of its work, or nothing.

    Raises:
        UsageError: no object can have one of the names.
    """
    for name in names:
        job(name)
    return names


def namespace(name: str) -> str:
    """Return --namespace; empty means the namespace of the kubeconfig.

    Raises:
        UsageError: no namespace can have that name.
    """
    if name and not is_namespace(name):
        raise UsageError(
            f"--namespace {name!r} can't be the name of a namespace",
            f"A name has {NAMESPACE_RULE}. `kubectl get namespaces` prints the names.",
        )
    return name
