"""`python -m scripts.sweep STACK`: which stack's leftovers, in which account, and whether to delete them."""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Sequence
from pathlib import Path

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from scripts.session import read_config
from scripts.sweep import account
from scripts.sweep.model import Clients, Leftover, Stack

CHECKOUT = Path(__file__).resolve().parents[2]


def main(arguments: Sequence[str]) -> int:
    """Run the command; return 0 if nothing is left, else 1."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.sweep",
        description="List what a destroyed stack has left in its AWS account; with --delete, ask and delete it.",
    )
    parser.add_argument("stack", help="the stack's name, as in `pulumi stack ls`")
    parser.add_argument("--delete", action="store_true", help="ask, then delete what is listed")
    parser.add_argument("--yes", action="store_true", help="delete without asking")
    parser.add_argument("--region", help="default: the stack's, from Pulumi.STACK.yaml or Pulumi.yaml")
    parser.add_argument("--profile", help="default: the stack's; without one, the default credentials")
    given = parser.parse_args(arguments)
    project, config = read_config(CHECKOUT, given.stack)
    stack = Stack(project, given.stack)
    region = given.region or str(config["region"])
    profile = given.profile or str(config["profile"]) or None
    try:
        session = boto3.Session(profile_name=profile, region_name=region)
        number = session.client("sts").get_caller_identity()["Account"]
        print(f"account {number}, region {region}, stack {stack.stack} ({stack.name})")
        clients: Clients = functools.cache(session.client)
        if there := account.living(clients, stack):
            print(f"error: {there}; run `pulumi destroy --stack {stack.stack}` first")
            return 1
        return sweep(clients, stack, wanted=given.delete or given.yes, asks=not given.yes)
    except (BotoCoreError, ClientError) as error:
        print(f"error: AWS can't be asked: {error}", file=sys.stderr)
        return 1


def sweep(clients: Clients, stack: Stack, *, wanted: bool, asks: bool) -> int:
    """List what is left; delete it if that is wanted, and agreed to where `asks`. Return the exit status."""
    found = account.look(clients, stack)
    print("\n".join(listed(found)))
    if not found.things:
        return 1 if found.problems or found.strangers else 0
    if not wanted:
        print(f"Nothing was deleted. To delete {_these(found.things)}: python -m scripts.sweep {stack.stack} --delete")
        return 1
    if asks and not agreed(found.things):
        print("Nothing was deleted.")
        return 1
    problems = account.delete(clients, found.things)
    left = account.look(clients, stack)
    for problem in problems:
        print(f"not deleted: {problem}", file=sys.stderr)
    if left.things:
        print(f"Still left: {', '.join(thing.id for thing in left.things)}")
        print("AWS may need some minutes to release what was in use; then run the same command again.")
        return 1
    print(f"Deleted {_these(found.things)}.")
    print("\n".join(listed(left)))
    return 1 if left.problems or left.strangers else 0


def listed(found: account.Found) -> list[str]:
    """Return the lines that tell a person what was found."""
    widths = [max((len(text) for text in column), default=0) for column in _columns(found.things)]
    lines = [f"{thing.kind:{widths[0]}}  {thing.id:{widths[1]}}  {thing.about}".rstrip() for thing in found.things]
    if found.strangers:
        lines.append(
            "In the stack's VPC, and not the stack's. AWS deletes nothing that they keep. Delete them in this order, "
            "then run `pulumi destroy`:"
        )
        lines += [f"  {each} keeps {', '.join(each.keeps)}" for each in found.strangers]
    if found.others:
        lines.append("Also has the stack's tags, and is left alone:")
        lines += [f"  {arn}" for arn in found.others]
        lines.append("`pulumi destroy` deletes what Pulumi knows of it. Delete the rest yourself: AWS made it, and")
        lines.append("its answer to Pulumi was lost. Some of it may only be going.")
    if not lines:
        lines.append("Nothing was found." if found.problems else "Nothing is left.")
    return [*lines, *(f"warning: {problem}" for problem in found.problems)]


def agreed(things: Sequence[Leftover]) -> bool:
    """Ask the person at the terminal; anything but `yes` is a no, and so is the end of the input."""
    try:
        return input(f"Delete {_these(things)}? This can't be undone. Type yes: ").strip() == "yes"
    except EOFError:
        return False


def _columns(things: Sequence[Leftover]) -> tuple[list[str], list[str]]:
    return [thing.kind for thing in things], [thing.id for thing in things]


def _these(things: Sequence[Leftover]) -> str:
    return "the one thing above" if len(things) == 1 else f"these {len(things)} things"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
