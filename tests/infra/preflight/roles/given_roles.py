"""IAM roles that are there before a stack, for `roleArns`.

arns = make(iam, template(stack, place))      # the roles that `python -m scripts.roles` prints
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests import graph


def arns_for(**changes: Any) -> dict[str, str]:
    """Return `roleArns` for a stack that sets only these keys."""
    return {name: f"arn:aws:iam::{graph.ACCOUNT}:role/given-{name}" for name in graph.parsed(**changes).role_names}


def make(iam: Any, template: Mapping[str, Any]) -> dict[str, str]:
    """Make the roles of a template with a client of IAM, as CloudFormation does; return `roleArns`."""
    for each in template["Resources"].values():
        given = dict(each["Properties"])
        attached, own, name = given.pop("ManagedPolicyArns"), given.pop("Policies"), given["RoleName"]
        trust = json.dumps(given.pop("AssumeRolePolicyDocument"))
        iam.create_role(**given, AssumeRolePolicyDocument=trust)
        for arn in attached:
            iam.attach_role_policy(RoleName=name, PolicyArn=arn)
        for policy in own:
            document = json.dumps(policy["PolicyDocument"])
            iam.put_role_policy(RoleName=name, PolicyName=policy["PolicyName"], PolicyDocument=document)
    arns: dict[str, str] = template["Metadata"]["roleArns"]
    return arns
