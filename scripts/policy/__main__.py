"""Print the least IAM policies with which this stack's config can be deployed, changed and destroyed, as JSON.

    python -m scripts.policy [--stack NAME] > policies.json

Each member is one managed policy. The identity that deploys needs all of them. The account in the ARNs is that of
`allowedAccountIds`, if it names one, else that in which `aws` is now.
"""

from __future__ import annotations

import json
import sys

from scripts.policy import documents, scopes
from scripts.policy.stacks import account, print_for_stack, read
from scripts.session import Session
from scripts.toolchain import paths


def policies(stack: str, session: Session) -> str:
    """Return the policies of a stack. Raise UpError."""
    wanted = read(paths.CHECKOUT, stack)
    return json.dumps(documents.policies(wanted, scopes.Place.of(wanted, account(wanted, session))), indent=2)


if __name__ == "__main__":
    sys.exit(print_for_stack("scripts.policy", __doc__.partition("\n")[0], policies))
