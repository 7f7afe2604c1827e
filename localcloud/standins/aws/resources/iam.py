"""IAM: roles, policies and what binds them. IAM is global: its resources have no region."""

from __future__ import annotations

import json
import secrets
from typing import Any, Final
from urllib.parse import unquote

from localcloud.standins.aws.entry import ALL, Call, Entry, Naming, Tree, absent_as_none, ignore_absent, tag_map, words
from localcloud.standins.aws.resources.eks import timestamp
from localcloud.standins.serve import PluginError


def _name(inputs: Tree, key: str = "name") -> str:
    return inputs.get(key) or f"{inputs.get('namePrefix', 'terraform-')}{secrets.token_hex(13)}"


def document(value: Any) -> str:
    """A policy as JSON text: IAM answers with an encoded one, boto3 with a decoded one."""
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
    for name, key in (("description", "Description"), ("permissionsBoundary", "PermissionsBoundary")):
        if inputs.get(name):
            arguments[key] = inputs[name]
    role = iam.create_role(
        RoleName=_name(inputs), AssumeRolePolicyDocument=inputs["assumeRolePolicy"], Tags=call.tag_list(), **arguments
    )["Role"]
    call.id = role["RoleName"]
    for policy in inputs.get("inlinePolicies") or []:
        iam.put_role_policy(RoleName=call.id, PolicyName=policy["name"], PolicyDocument=policy["policy"])
    for arn in inputs.get("managedPolicyArns") or []:
        iam.attach_role_policy(RoleName=call.id, PolicyArn=arn)
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
    # These two are the role's only when it declares them; otherwise they belong to resources of their own.
    if call.inputs.get("managedPolicyArns") is not None:
        found["managedPolicyArns"] = _attached(iam, call.id)
    if call.inputs.get("inlinePolicies") is not None:
        names = iam.list_role_policies(RoleName=call.id)["PolicyNames"]
        policies = [iam.get_role_policy(RoleName=call.id, PolicyName=name) for name in names]
        found["inlinePolicies"] = [
            {"name": policy["PolicyName"], "policy": document(policy["PolicyDocument"])} for policy in policies
        ]
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
    if "managedPolicyArns" in changed:
        old, new = set(call.olds.get("managedPolicyArns") or []), set(inputs.get("managedPolicyArns") or [])
        for arn in sorted(new - old):
            iam.attach_role_policy(RoleName=call.id, PolicyArn=arn)
        for arn in sorted(old - new):
            iam.detach_role_policy(RoleName=call.id, PolicyArn=arn)
    if "inlinePolicies" in changed:
        wanted = {policy["name"]: policy["policy"] for policy in inputs.get("inlinePolicies") or []}
        for policy in call.olds.get("inlinePolicies") or []:
            if policy["name"] not in wanted:
                iam.delete_role_policy(RoleName=call.id, PolicyName=policy["name"])
        for name, text in wanted.items():
            iam.put_role_policy(RoleName=call.id, PolicyName=name, PolicyDocument=text)
    _update_tags(call, "role", RoleName=call.id)


def _role_delete(call: Call) -> None:
    iam, inputs = call.client("iam"), call.inputs
    force = inputs.get("forceDetachPolicies")
    if absent_as_none(lambda: iam.get_role(RoleName=call.id)) is None:
        return
    for profile in iam.list_instance_profiles_for_role(RoleName=call.id)["InstanceProfiles"]:
        iam.remove_role_from_instance_profile(InstanceProfileName=profile["InstanceProfileName"], RoleName=call.id)
    if force or inputs.get("managedPolicyArns"):
        for arn in _attached(iam, call.id):
            iam.detach_role_policy(RoleName=call.id, PolicyArn=arn)
    if force or inputs.get("inlinePolicies"):
        for name in iam.list_role_policies(RoleName=call.id)["PolicyNames"]:
            iam.delete_role_policy(RoleName=call.id, PolicyName=name)
    ignore_absent(lambda: iam.delete_role(RoleName=call.id))


def _policy_create(call: Call) -> str:
    inputs = call.inputs
    note = {"Description": inputs["description"]} if inputs.get("description") else {}
    policy = call.client("iam").create_policy(
        PolicyName=_name(inputs), Path=inputs["path"], PolicyDocument=inputs["policy"], Tags=call.tag_list(), **note
    )
    return str(policy["Policy"]["Arn"])


def _policy_read(call: Call) -> Tree | None:
    iam = call.client("iam")
    answer = absent_as_none(lambda: iam.get_policy(PolicyArn=call.id))
    if not answer:
        return None
    policy = answer["Policy"]
    version = iam.get_policy_version(PolicyArn=call.id, VersionId=policy["DefaultVersionId"])["PolicyVersion"]
    return {
        "arn": call.id,
        "name": policy["PolicyName"],
        "path": policy["Path"],
        "policyId": policy["PolicyId"],
        "attachmentCount": policy.get("AttachmentCount", 0),
        "description": policy.get("Description") or "",
        "policy": document(version["Document"]),
        "tags": tag_map(policy.get("Tags")),
    }


def _policy_update(call: Call) -> None:
    iam = call.client("iam")
    if "policy" in call.changed:
        versions = iam.list_policy_versions(PolicyArn=call.id)["Versions"]
        if len(versions) >= 5:  # AWS keeps five
            spare = [version for version in versions if not version["IsDefaultVersion"]]
            oldest = min(spare, key=lambda version: version["CreateDate"])
            iam.delete_policy_version(PolicyArn=call.id, VersionId=oldest["VersionId"])
        iam.create_policy_version(PolicyArn=call.id, PolicyDocument=call.inputs["policy"], SetAsDefault=True)
    _update_tags(call, "policy", PolicyArn=call.id)


def _policy_delete(call: Call) -> None:
    iam = call.client("iam")
    found = absent_as_none(lambda: iam.list_policy_versions(PolicyArn=call.id)) or {"Versions": []}
    for version in found["Versions"]:
        if not version["IsDefaultVersion"]:
            iam.delete_policy_version(PolicyArn=call.id, VersionId=version["VersionId"])
    ignore_absent(lambda: iam.delete_policy(PolicyArn=call.id))


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


def _profile_create(call: Call) -> str:
    inputs, iam = call.inputs, call.client("iam")
    name = _name(inputs)
    iam.create_instance_profile(InstanceProfileName=name, Path=inputs["path"], Tags=call.tag_list())
    if inputs.get("role"):
        iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=inputs["role"])
    return name


def _profile_read(call: Call) -> Tree | None:
    answer = absent_as_none(lambda: call.client("iam").get_instance_profile(InstanceProfileName=call.id))
    if not answer:
        return None
    profile = answer["InstanceProfile"]
    return {
        "arn": profile["Arn"],
        "name": profile["InstanceProfileName"],
        "path": profile["Path"],
        "uniqueId": profile["InstanceProfileId"],
        "createDate": timestamp(profile["CreateDate"]),
        "role": profile["Roles"][0]["RoleName"] if profile["Roles"] else "",
        "tags": tag_map(profile.get("Tags")),
    }


def _profile_update(call: Call) -> None:
    iam = call.client("iam")
    if "role" in call.changed:
        for role, act in (
            (call.olds.get("role"), iam.remove_role_from_instance_profile),
            (call.inputs.get("role"), iam.add_role_to_instance_profile),
        ):
            if role:
                act(InstanceProfileName=call.id, RoleName=role)
    _update_tags(call, "instance_profile", InstanceProfileName=call.id)


def _profile_delete(call: Call) -> None:
    iam, found = call.client("iam"), _profile_read(call)
    if found is None:
        return
    if found["role"]:
        iam.remove_role_from_instance_profile(InstanceProfileName=call.id, RoleName=found["role"])
    ignore_absent(lambda: iam.delete_instance_profile(InstanceProfileName=call.id))


def _oidc_create(call: Call) -> str:
    inputs = call.inputs
    answer = call.client("iam").create_open_id_connect_provider(
        Url=inputs["url"],
        ClientIDList=inputs["clientIdLists"],
        ThumbprintList=inputs.get("thumbprintLists") or [],
        Tags=call.tag_list(),
    )
    return str(answer["OpenIDConnectProviderArn"])


def _oidc_read(call: Call) -> Tree | None:
    iam = call.client("iam")
    answer = absent_as_none(lambda: iam.get_open_id_connect_provider(OpenIDConnectProviderArn=call.id))
    if not answer:
        return None
    url = answer["Url"]
    return {
        "arn": call.id,
        "url": url if url.startswith("https://") else f"https://{url}",
        "clientIdLists": answer.get("ClientIDList") or [],
        "thumbprintLists": answer.get("ThumbprintList") or [],
        "tags": tag_map(answer.get("Tags")),
    }


def _oidc_update(call: Call) -> None:
    iam, arn = call.client("iam"), {"OpenIDConnectProviderArn": call.id}
    if "thumbprintLists" in call.changed:
        thumbprints = call.inputs.get("thumbprintLists")
        if not thumbprints:
            raise PluginError("thumbprintLists cannot be emptied")
        iam.update_open_id_connect_provider_thumbprint(**arn, ThumbprintList=thumbprints)
    if "clientIdLists" in call.changed:
        old, new = set(call.olds.get("clientIdLists") or []), set(call.inputs["clientIdLists"])
        for client in sorted(new - old):
            iam.add_client_id_to_open_id_connect_provider(**arn, ClientID=client)
        for client in sorted(old - new):
            iam.remove_client_id_from_open_id_connect_provider(**arn, ClientID=client)
    _update_tags(call, "open_id_connect_provider", **arn)


def _oidc_delete(call: Call) -> None:
    act = lambda: call.client("iam").delete_open_id_connect_provider(OpenIDConnectProviderArn=call.id)  # noqa: E731
    ignore_absent(act)


_NAMES: Final = words("name namePrefix")

ENTRIES: Final = [
    Entry(
        token="aws:iam/role:Role",
        covers=_NAMES
        | words(
            "assumeRolePolicy description forceDetachPolicies inlinePolicies managedPolicyArns maxSessionDuration path"
            " permissionsBoundary"
        ),
        replace_on=_NAMES | words("path"),
        defaults={"path": "/", "maxSessionDuration": 3600, "forceDetachPolicies": False},
        computed=words("inlinePolicies managedPolicyArns"),
        documents=words("assumeRolePolicy"),
        naming=Naming(longest=64),
        one_of=(_NAMES,),
        create=_role_create,
        read=_role_read,
        update=_role_update,
        delete=_role_delete,
    ),
    Entry(
        token="aws:iam/policy:Policy",
        covers=_NAMES | words("path description policy"),
        replace_on=_NAMES | words("path description"),
        defaults={"path": "/"},
        documents=words("policy"),
        naming=Naming(longest=128),
        one_of=(_NAMES,),
        create=_policy_create,
        read=_policy_read,
        update=_policy_update,
        delete=_policy_delete,
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
    Entry(
        token="aws:iam/instanceProfile:InstanceProfile",
        covers=_NAMES | words("path role"),
        replace_on=_NAMES | words("path"),
        defaults={"path": "/"},
        naming=Naming(longest=128),
        one_of=(_NAMES,),
        create=_profile_create,
        read=_profile_read,
        update=_profile_update,
        delete=_profile_delete,
    ),
    Entry(
        token="aws:iam/openIdConnectProvider:OpenIdConnectProvider",
        covers=words("url clientIdLists thumbprintLists"),
        replace_on=words("url"),
        create=_oidc_create,
        read=_oidc_read,
        update=_oidc_update,
        delete=_oidc_delete,
    ),
]
