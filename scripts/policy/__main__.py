"""Print the least IAM policies with which this stack's config can be deployed, changed and destroyed, as JSON.

    python -m scripts.policy [--stack NAME] > policies.json

Each member is one managed policy. The identity that deploys needs all of them. The account in the ARNs is that of
`allowedAccountIds`, if it names one, else that in which `aws` is now.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import settings
from scripts.policy import documents, scopes
from scripts.session import Session, UpError, read_config
from scripts.toolchain import paths


def main() -> int:
    """Print the policies; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m scripts.policy", description=__doc__.partition("\n")[0])
    parser.add_argument("-s", "--stack", help="the stack; without it, the selected one")
    given = parser.parse_args()
    session = Session(Path(), os.environ)
    try:
        name = given.stack or session.ask("pulumi", "stack", "--show-name").strip()
        wanted = read(paths.CHECKOUT, name)
        found = documents.policies(wanted, scopes.Place.of(wanted, account(wanted, session)))
    except UpError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(json.dumps(found, indent=2))
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


if __name__ == "__main__":
    sys.exit(main())
