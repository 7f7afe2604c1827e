"""Let the addresses of `publicAccessCidrs` reach the Kubernetes API of a stack that can no longer be reached.

    python -m scripts.address [--stack NAME]

After a person's own address has changed, `pulumi up` can't set the key: its preview of the charts needs the cluster
(https://github.com/pulumi/pulumi-kubernetes/blob/master/provider/pkg/provider/provider_construct.go). This sets it by
EKS's API, which is reached from anywhere, and then lets the state follow: EKS refuses an update to what it has already.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import settings
from scripts.destroy import CLUSTER
from scripts.session import Session, UpError, aws_options, read_config
from scripts.toolchain import paths

LIMIT_SECONDS = 1800.0
"""For one update of EKS; minutes are usual."""
ASK_SECONDS = 10.0
"""Between two looks at it, each with a line."""
_KEY = "publicAccessCidrs"
_KEYS = (_KEY, "publicAccessFromAnywhere")


def main() -> int:
    """Change the addresses; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m scripts.address", description=__doc__.partition("\n")[0])
    parser.add_argument("-s", "--stack", help="the stack; without it, the selected one")
    given = parser.parse_args()
    try:
        change(Session(Path(), os.environ), given.stack)
    except UpError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def change(session: Session, stack: str | None) -> None:
    """Let EKS have the addresses of the stack's config, and refresh what the state says of the cluster.

    Raises:
        UpError: the config has no addresses or wrong ones, the stack has no cluster, EKS refused, or a command failed.
    """
    name = stack or session.ask("pulumi", "stack", "--show-name").strip()
    wanted = addresses(paths.CHECKOUT, name)
    options = ("--stack", name)
    resources: Sequence[Mapping[str, Any]] = session.deployment(options).get("resources") or []
    cluster = next((each for each in resources if each.get("type") == CLUSTER), None)
    if cluster is None:
        raise UpError(
            f"the stack {name} has no cluster of its own: run `pulumi up`, which makes it with these addresses; with "
            "clusterName they are for the cluster's owner to set"
        )
    where = aws_options(cluster, resources)
    known = ("--name", str(cluster["id"]), "--output", "json", *where)
    described = json.loads(session.ask("aws", "eks", "describe-cluster", *known))["cluster"]["resourcesVpcConfig"]
    if described["endpointPublicAccess"] and set(described[_KEY]) == set(wanted):
        print(f"EKS has {', '.join(wanted)} already", flush=True)
    else:
        access = f"endpointPublicAccess=true,{_KEY}={','.join(wanted)}"
        asked = session.ask("aws", "eks", "update-cluster-config", *known, "--resources-vpc-config", access)
        update = json.loads(asked)["update"]["id"]
        wait(lambda: json.loads(session.ask("aws", "eks", "describe-update", *known, "--update-id", update))["update"])
    session.run(
        *("pulumi", "refresh", *options, "--yes", "--skip-preview", "--target", str(cluster["urn"])),
        remedy="EKS has the addresses, but the state doesn't: run this again",
    )
    print("the API can be reached from these addresses, and the state has them: `pulumi up` works again", flush=True)


def addresses(folder: Path, stack: str) -> tuple[str, ...]:
    """Return the addresses of the config of a stack, which is in the checkout's folder.

    Raises:
        UpError: there are none, or ones that EKS refuses.
    """
    defaults, config = read_config(folder, "")[1], read_config(folder, stack)[1]
    try:  # the other keys may be secrets, which are encrypted in the file
        read = settings.parse({**defaults, **{key: config[key] for key in _KEYS}}, stack=stack)
    except settings.ConfigurationError as error:
        raise UpError(str(error)) from error
    found = read.cluster.public_access_cidrs
    if not found:
        raise UpError(
            f"{_KEY} of the stack {stack} is empty: set your address by "
            f"pulumi config set --path 'tidewater:{_KEY}[0]' \"$(curl -s https://checkip.amazonaws.com)/32\""
        )
    return found


def wait(ask: Callable[[], Mapping[str, Any]], limit: float = LIMIT_SECONDS) -> None:
    """Wait until EKS has made an update, with a line for each look at it.

    Raises:
        UpError: it failed, or took longer than ``limit`` seconds.
    """
    began = time.monotonic()
    while (update := ask())["status"] == "InProgress":
        waited = time.monotonic() - began
        if waited > limit:
            raise UpError(f"EKS's update {update['id']} is not done after {waited:.0f} s: run this again later")
        print(f"waiting for EKS to change the addresses ({waited:.0f} s)", flush=True)
        time.sleep(ASK_SECONDS)
    if update["status"] != "Successful":
        errors = "; ".join(str(each["errorMessage"]) for each in update.get("errors") or []) or "without a reason"
        raise UpError(f"EKS's update {update['id']} is {update['status']}: {errors}")


if __name__ == "__main__":
    sys.exit(main())
