"""Commands that print what a stack of a config needs, before it is made: the stack, its settings and its account.

sys.exit(print_for_stack("scripts.policy", "Print the policies.", lambda stack, session: "..."))
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import settings
from scripts.session import Session, UpError, read_config


def print_for_stack(module: str, description: str, text: Callable[[str, Session], str]) -> int:
    """Print the text for the stack that the command line names, or the selected one; return the exit status.

    Args:
        module: Of the command.
        description: Of the command, in its help.
        text: Gets the name of the stack. Raises UpError.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("-s", "--stack", help="the stack; without it, the selected one")
    given = parser.parse_args()
    session = Session(Path(), os.environ)
    try:
        found = text(given.stack or session.ask("pulumi", "stack", "--show-name").strip(), session)
    except UpError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(found)
    return 0


def read(folder: Path, stack: str, **instead: Any) -> settings.Settings:
    """Return the settings of a stack, with its config in the checkout's folder, and `instead` of some of its values.

    Raises:
        UpError: they have mistakes.
    """
    config = read_config(folder, stack)[1]
    # A secret is encrypted in the file, and the policy needs none: neither the script's arguments nor credentials.
    plain = {key: "" if isinstance(value, dict) and "secure" in value else value for key, value in config.items()}
    try:
        return settings.parse({**plain, **instead}, stack=stack)
    except settings.ConfigurationError as error:
        raise UpError(str(error)) from error


def account(wanted: settings.Settings, session: Session) -> str:
    """Return the account of the stack.

    Raises:
        UpError: the config doesn't name one, and `aws` doesn't either.
    """
    if len(wanted.allowed_accounts) == 1:
        return wanted.allowed_accounts[0]
    profile = ("--profile", wanted.profile) if wanted.profile else ()
    asked = ("sts", "get-caller-identity", "--query", "Account", "--output", "text", "--region", wanted.region)
    return session.ask("aws", *asked, *profile).strip()
