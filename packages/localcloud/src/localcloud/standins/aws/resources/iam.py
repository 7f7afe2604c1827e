"""IAM: roles, their policies and attachments. IAM is global: its resources have no region."""

from __future__ import annotations

import json
import secrets
from typing import Any, Final
from urllib.parse import unquote

from localcloud.standins.aws.entry import ALL, Call, Entry, Naming, Tree, absent_as_none, ignore_absent, tag_map, words
from localcloud.standins.aws.resources.eks import timestamp


def _name(inputs: Tree) -> str:
    return inputs.get("name") or f"{inputs.get('namePrefix', 'terraform-')}{secrets.token_hex(13)}"


def document(value: Any) -> str:
    """Return a policy as JSON text: IAM encodes it, and boto3 decodes it."""
    return json.dumps(value) if isinstance(value, dict) else unquote(value or "")


def _update_tags(call: Call, kind: str, **owner: str) -> None:
    changed, removed = call.tag_changes()
    iam = call.client("iam")
    if removed:
        getattr(iam, f"untag_{kind}")(**owner, TagKeys=removed)
    if changed:
        tags = [{"Key": key, "Value": value} for key, value in changed.items()]
        getattr(iam, f"tag_{kind}")(**owner, Tags=tags)


def _role_create(call: Call) -> str:
    inputs, iam = call.inputs, call.client("iam")
    arguments: Tree = {"MaxSessionDuration": int(inputs["maxSessionDuration"]), "Path": inputs["path"]}
    if inputs.get("description"):
        arguments["Description"] = inputs["description"]
    if inputs.get("permissionsBoundary"):
        arguments["PermissionsBoundary"] = inputs["permissionsBoundary"]
    role = iam.create_role(
        RoleName=_name(inputs), AssumeRolePolicyDocument=inputs["assumeRolePolicy"], Tags=call.tag_list(), **arguments
    )["Role"]
    call.id = role["RoleName"]
    return call.id


def _role_read(call: Call) -> Tree | None:
    iam = call.client("iam")
    answer = absent_as_none(lambda: iam.get_role(RoleName=call.id))
    if not answer:
        return None
    role = answer["Role"]
    found = {
        "arn": role["Arn"],
        "name": role["RoleName"],
        "path": role["Path"],
        "uniqueId": role["RoleId"],
        "createDate": timestamp(role["CreateDate"]),
        "description": role.get("Description") or "",
        "assumeRolePolicy": document(role["AssumeRolePolicyDocument"]),
        "maxSessionDuration": role.get("MaxSessionDuration", 3600),
        "permissionsBoundary": (role.get("PermissionsBoundary") or {}).get("PermissionsBoundaryArn") or "",
        "tags": tag_map(role.get("Tags")),
    }
    return found


def _attached(iam: Any, role: str) -> list[str]:
    pages = iam.get_paginator("list_attached_role_policies").paginate(RoleName=role)
    return [policy["PolicyArn"] for page in pages for policy in page["AttachedPolicies"]]


def _role_update(call: Call) -> None:
    inputs, iam, changed = call.inputs, call.client("iam"), call.changed
    if "assumeRolePolicy" in changed:
        iam.update_assume_role_policy(RoleName=call.id, PolicyDocument=inputs["assumeRolePolicy"])
    if changed & {"description", "maxSessionDuration"}:
        duration = int(inputs["maxSessionDuration"])
        iam.update_role(RoleName=call.id, Description=inputs.get("description") or "", MaxSessionDuration=duration)
    if "permissionsBoundary" in changed:
        if inputs.get("permissionsBoundary"):
            iam.put_role_permissions_boundary(RoleName=call.id, PermissionsBoundary=inputs["permissionsBoundary"])
        else:
            iam.delete_role_permissions_boundary(RoleName=call.id)
    _update_tags(call, "role", RoleName=call.id)


def _role_delete(call: Call) -> None:
    iam = call.client("iam")
    if absent_as_none(lambda: iam.get_role(RoleName=call.id)) is None:
        return
    for profile in iam.list_instance_profiles_for_role(RoleName=call.id)["InstanceProfiles"]:
        iam.remove_role_from_instance_profile(InstanceProfileName=profile["InstanceProfileName"], RoleName=call.id)
    ignore_absent(lambda: iam.delete_role(RoleName=call.id))


def _inline_create(call: Call) -> str:
    inputs = call.inputs
    name = _name(inputs)
    call.client("iam").put_role_policy(RoleName=inputs["role"], PolicyName=name, PolicyDocument=inputs["policy"])
    return f"{inputs['role']}:{name}"


def _inline_read(call: Call) -> Tree | None:
    role, _, name = call.id.partition(":")
    answer = absent_as_none(lambda: call.client("iam").get_role_policy(RoleName=role, PolicyName=name))
    return {"role": role, "name": name, "policy": document(answer["PolicyDocument"])} if answer else None


def _inline_update(call: Call) -> None:
    role, _, name = call.id.partition(":")
    call.client("iam").put_role_policy(RoleName=role, PolicyName=name, PolicyDocument=call.inputs["policy"])


def _inline_delete(call: Call) -> None:
    role, _, name = call.id.partition(":")
    ignore_absent(lambda: call.client("iam").delete_role_policy(RoleName=role, PolicyName=name))


def _attachment_create(call: Call) -> str:
    inputs = call.inputs
    call.client("iam").attach_role_policy(RoleName=inputs["role"], PolicyArn=inputs["policyArn"])
    return f"{inputs['role']}-{secrets.token_hex(13)}"


def _attachment_read(call: Call) -> Tree | None:
    role = call.inputs.get("role") or call.state.get("role")
    arn = call.inputs.get("policyArn") or call.state.get("policyArn")
    if not role:  # import: ROLE/POLICY-ARN
        role, _, arn = call.id.partition("/")
        call.id = f"{role}-{arn}"
    attached = absent_as_none(lambda: _attached(call.client("iam"), role)) or []
    return {"role": role, "policyArn": arn} if arn in attached else None


def _attachment_delete(call: Call) -> None:
    inputs = call.inputs
    arguments = {"RoleName": inputs["role"], "PolicyArn": inputs["policyArn"]}
    ignore_absent(lambda: call.client("iam").detach_role_policy(**arguments))


_NAMES: Final = words("name namePrefix")

ENTRIES: Final = [
    Entry(
        token="aws:iam/role:Role",
        covers=_NAMES
        | words("assumeRolePolicy description forceDetachPolicies maxSessionDuration path permissionsBoundary"),
        replace_on=_NAMES | words("path"),
        defaults={"path": "/", "maxSessionDuration": 3600, "forceDetachPolicies": False},
        only={"forceDetachPolicies": False},
        documents=words("assumeRolePolicy"),
        naming=Naming(longest=64),
        one_of=(_NAMES,),
        create=_role_create,
        read=_role_read,
        update=_role_update,
        delete=_role_delete,
    ),
    Entry(
        token="aws:iam/rolePolicy:RolePolicy",
        covers=_NAMES | words("role policy"),
        replace_on=_NAMES | words("role"),
        documents=words("policy"),
        naming=Naming(longest=128),
        one_of=(_NAMES,),
        tags=False,
        create=_inline_create,
        read=_inline_read,
        update=_inline_update,
        delete=_inline_delete,
    ),
    Entry(
        token="aws:iam/rolePolicyAttachment:RolePolicyAttachment",
        covers=words("role policyArn"),
        replace_on=ALL,
        tags=False,
        create=_attachment_create,
        read=_attachment_read,
        delete=_attachment_delete,
    ),
]
