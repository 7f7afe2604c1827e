"""Print the IAM roles that this stack's config needs for `roleArns`, as a template of CloudFormation.

    python -m scripts.roles [--stack NAME] > roles.json
    aws cloudformation deploy --stack-name NAME-roles --template-file roles.json --capabilities CAPABILITY_NAMED_IAM

They are the roles that the stack would make, and can be made before it: what AWS or Pulumi draws a name for later is a
pattern in their policies. The template's metadata has the value of `roleArns`. Roles that the config's `roleArns` names
keep their names; it may lack some, such as those of new teams.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import settings
from infra.policies import roles
from scripts.policy.scopes import Place
from scripts.policy.stacks import account, print_for_stack
from scripts.policy.stacks import read as read_settings
from scripts.session import Session, UpError, read_config
from scripts.toolchain import paths
from settings import existing
from settings.reader import Reader


def roles_of(stack: str, session: Session) -> str:
    """Return the template for a stack. Raise UpError."""
    wanted = read(paths.CHECKOUT, stack)
    return text(template(wanted, Place.of(wanted, account(wanted, session))))


def read(folder: Path, stack: str) -> settings.Settings:
    """Return the settings of a stack, with the roles that `roleArns` has so far.

    Raises:
        UpError: the config has mistakes.
    """
    wanted = read_settings(folder, stack, roleArns={})
    given = Reader({"roleArns": read_config(folder, stack)[1]["roleArns"]})
    arns = existing.roles(given)
    if given.mistakes:
        raise UpError(str(settings.ConfigurationError(given.mistakes)))
    return replace(wanted, roles=replace(wanted.roles, arns=arns))


def text(template: Mapping[str, Any]) -> str:
    """Return the template without white space: CloudFormation takes 51,200 bytes from a file.

    https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/cloudformation-limits.html
    """
    return json.dumps(template, separators=(",", ":"))


def template(stack: settings.Settings, place: Place) -> dict[str, Any]:
    """Return the template with the roles of a stack."""
    found = roles.of(stack, roles.Names.before(stack, place.account, place.partition))
    arns = {name: roles.arn(stack, name, place.account, place.partition) for name in found}
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": f"Roles of {stack.name}, for roleArns",
        "Metadata": {"roleArns": arns},
        # Names of resources have letters and digits only.
        "Resources": {
            name.replace("-", "X"): {
                "Type": "AWS::IAM::Role",
                "Properties": _properties(stack, place, arns[name], role),
            }
            for name, role in found.items()
        },
    }


def _properties(stack: settings.Settings, place: Place, arn: str, role: roles.Role) -> dict[str, Any]:
    """Return a role as CloudFormation, and with few changes `aws iam create-role`, take it.

    https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/aws-resource-iam-role.html
    """
    path, _, name = arn.partition(":role")[2].rpartition("/")
    boundary = {"PermissionsBoundary": stack.roles.boundary} if stack.roles.boundary else {}
    return {
        "RoleName": name,
        "Path": f"{path}/",
        "Description": f"{stack.name}: {role.who}",
        "AssumeRolePolicyDocument": role.trust,
        "ManagedPolicyArns": [*(place.iam(f"policy/{each}", "aws") for each in role.of_aws), *role.attached],
        "Policies": [{"PolicyName": label, "PolicyDocument": each} for label, each in role.own.items()],
        **boundary,
    }


if __name__ == "__main__":
    sys.exit(print_for_stack("scripts.roles", __doc__.partition("\n")[0], roles_of))
