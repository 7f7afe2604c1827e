"""KMS keys, aliases and grants, and CloudWatch log groups."""

from __future__ import annotations

import secrets
from typing import Final

from localcloud.standins.aws.entry import (
    ALL,
    Call,
    Entry,
    Naming,
    Tree,
    absent_as_none,
    ignore_absent,
    own_tags,
    retry,
    tag_map,
    words,
)
from localcloud.standins.serve import PluginError


def _key_create(call: Call) -> str:
    inputs, kms = call.inputs, call.client("kms")
    names = {"description": "Description", "keyUsage": "KeyUsage", "customerMasterKeySpec": "KeySpec"}
    names |= {"policy": "Policy", "bypassPolicyLockoutSafetyCheck": "BypassPolicyLockoutSafetyCheck"}
    arguments = {key: inputs[name] for name, key in names.items() if inputs.get(name)}
    tags = call.tag_list("TagKey", "TagValue")
    create = lambda: kms.create_key(Tags=tags, **arguments)  # noqa: E731
    call.id = retry(call, create, "MalformedPolicyDocumentException", seconds=15)["KeyMetadata"]["KeyId"]
    if inputs.get("enableKeyRotation"):
        _set_rotation(call)
    return call.id


def _set_rotation(call: Call) -> None:
    kms, inputs = call.client("kms"), call.inputs
    if not inputs.get("enableKeyRotation"):
        kms.disable_key_rotation(KeyId=call.id)
        return
    kms.enable_key_rotation(KeyId=call.id)


def _key_read(call: Call) -> Tree | None:
    kms = call.client("kms")
    answer = absent_as_none(lambda: kms.describe_key(KeyId=call.id))
    if not answer or answer["KeyMetadata"].get("KeyState") in ("PendingDeletion", "PendingReplicaDeletion"):
        return None
    key = answer["KeyMetadata"]
    rotation = kms.get_key_rotation_status(KeyId=call.id)
    return {
        "arn": key["Arn"],
        "keyId": key["KeyId"],
        "description": key.get("Description") or "",
        "keyUsage": key.get("KeyUsage"),
        "customerMasterKeySpec": key.get("KeySpec") or key.get("CustomerMasterKeySpec"),
        "multiRegion": bool(key.get("MultiRegion")),
        "isEnabled": bool(key.get("Enabled")),
        "enableKeyRotation": bool(rotation["KeyRotationEnabled"]),
        "policy": kms.get_key_policy(KeyId=call.id, PolicyName="default")["Policy"],
        "tags": tag_map(kms.list_resource_tags(KeyId=call.id).get("Tags"), "TagKey", "TagValue"),
    }


def _key_update(call: Call) -> None:
    kms, inputs, changed = call.client("kms"), call.inputs, call.changed
    if "isEnabled" in changed:
        kms.enable_key(KeyId=call.id)  # first: a disabled key takes no other change
    if "description" in changed:
        kms.update_key_description(KeyId=call.id, Description=inputs.get("description") or "")
    if "policy" in changed and inputs.get("policy"):
        kms.put_key_policy(KeyId=call.id, PolicyName="default", Policy=inputs["policy"])
    if "enableKeyRotation" in changed:
        _set_rotation(call)
    added, removed = call.tag_changes()
    if removed:
        kms.untag_resource(KeyId=call.id, TagKeys=removed)
    if added:
        kms.tag_resource(KeyId=call.id, Tags=[{"TagKey": key, "TagValue": value} for key, value in added.items()])


def _key_delete(call: Call) -> None:
    window = int(call.inputs.get("deletionWindowInDays") or 30)
    act = lambda: call.client("kms").schedule_key_deletion(KeyId=call.id, PendingWindowInDays=window)  # noqa: E731
    ignore_absent(act, "KMSInvalidStateException")


def _alias_create(call: Call) -> str:
    inputs = call.inputs
    name = inputs.get("name") or f"{inputs.get('namePrefix', 'alias/')}{secrets.token_hex(13)}"
    if not name.startswith("alias/"):
        raise PluginError(f"the name of a KMS alias begins with alias/, not {name!r}")
    call.client("kms").create_alias(AliasName=name, TargetKeyId=inputs["targetKeyId"])
    return str(name)


def _alias_read(call: Call) -> Tree | None:
    kms = call.client("kms")
    for page in kms.get_paginator("list_aliases").paginate():
        for alias in page["Aliases"]:
            if alias["AliasName"] == call.id and alias.get("TargetKeyId"):
                arn, key = alias["AliasArn"], alias["TargetKeyId"]
                target = arn.rpartition(":")[0] + f":key/{key}"
                # The program may have given the key's ARN: the same key in the other form is no drift.
                given = call.inputs.get("targetKeyId") or ""
                shown = given if given in (key, target) else key
                return {"arn": arn, "name": call.id, "targetKeyId": shown, "targetKeyArn": target}
    return None


def _alias_update(call: Call) -> None:
    call.client("kms").update_alias(AliasName=call.id, TargetKeyId=call.inputs["targetKeyId"])


def _alias_delete(call: Call) -> None:
    ignore_absent(lambda: call.client("kms").delete_alias(AliasName=call.id))


def _grant_create(call: Call) -> str:
    inputs = call.inputs
    key = inputs["keyId"]
    grant = call.client("kms").create_grant(
        KeyId=key,
        GranteePrincipal=inputs["granteePrincipal"],
        Operations=sorted(inputs["operations"]),
        Name=inputs["name"],
    )
    return f"{key}:{grant['GrantId']}"


def _grant_read(call: Call) -> Tree | None:
    key, _, grant_id = call.id.rpartition(":")  # the key may be an ARN
    grants = absent_as_none(lambda: call.client("kms").list_grants(KeyId=key))
    found = next((each for each in (grants or {}).get("Grants", ()) if each["GrantId"] == grant_id), None)
    if found is None:
        return None
    return {
        "keyId": key,
        "grantId": grant_id,
        "name": found["Name"],
        "granteePrincipal": found["GranteePrincipal"],
        "operations": sorted(found["Operations"]),
    }


def _grant_delete(call: Call) -> None:
    key, _, grant_id = call.id.rpartition(":")
    ignore_absent(lambda: call.client("kms").revoke_grant(KeyId=key, GrantId=grant_id))


def _group_create(call: Call) -> str:
    inputs, logs = call.inputs, call.client("logs")
    name = inputs.get("name") or f"{inputs['namePrefix']}{secrets.token_hex(13)}"
    names = {"kmsKeyId": "kmsKeyId", "logGroupClass": "logGroupClass"}
    arguments: Tree = {key: inputs[given] for given, key in names.items() if inputs.get(given)}
    if call.tags:
        arguments["tags"] = call.tags
    logs.create_log_group(logGroupName=name, **arguments)
    call.id = str(name)
    if inputs.get("retentionInDays"):
        logs.put_retention_policy(logGroupName=name, retentionInDays=int(inputs["retentionInDays"]))
    return call.id


def _log_group(call: Call) -> Tree | None:
    pages = call.client("logs").get_paginator("describe_log_groups").paginate(logGroupNamePrefix=call.id)
    found = [group for page in pages for group in page["logGroups"] if group["logGroupName"] == call.id]
    return found[0] if found else None


def _group_read(call: Call) -> Tree | None:
    group = _log_group(call)
    if group is None:
        return None
    arn = group["arn"].removesuffix(":*")
    tags = call.client("logs").list_tags_for_resource(resourceArn=arn).get("tags")
    return {
        "arn": arn,
        "name": call.id,
        "kmsKeyId": group.get("kmsKeyId") or "",
        "retentionInDays": group.get("retentionInDays") or 0,
        "logGroupClass": group.get("logGroupClass") or "STANDARD",
        "tags": own_tags(tags),
    }


def _group_update(call: Call) -> None:
    logs, inputs = call.client("logs"), call.inputs
    if "retentionInDays" in call.changed:
        if inputs.get("retentionInDays"):
            logs.put_retention_policy(logGroupName=call.id, retentionInDays=int(inputs["retentionInDays"]))
        else:
            logs.delete_retention_policy(logGroupName=call.id)
    if "kmsKeyId" in call.changed:
        if inputs.get("kmsKeyId"):
            logs.associate_kms_key(logGroupName=call.id, kmsKeyId=inputs["kmsKeyId"])
        else:
            logs.disassociate_kms_key(logGroupName=call.id)
    added, removed = call.tag_changes()
    if removed:
        logs.untag_resource(resourceArn=call.state["arn"], tagKeys=removed)
    if added:
        logs.tag_resource(resourceArn=call.state["arn"], tags=added)


def _group_delete(call: Call) -> None:
    if not call.inputs.get("skipDestroy"):
        ignore_absent(lambda: call.client("logs").delete_log_group(logGroupName=call.id))


_NAMES: Final = words("name namePrefix")

ENTRIES: Final = [
    Entry(
        token="aws:kms/key:Key",
        covers=words(
            "description enableKeyRotation deletionWindowInDays policy isEnabled keyUsage customerMasterKeySpec"
            " bypassPolicyLockoutSafetyCheck"
        ),
        replace_on=words("keyUsage customerMasterKeySpec"),
        only={"isEnabled": True},
        defaults={
            "customerMasterKeySpec": "SYMMETRIC_DEFAULT",
            "enableKeyRotation": False,
            "isEnabled": True,
            "keyUsage": "ENCRYPT_DECRYPT",
        },
        computed=words("description policy"),
        documents=words("policy"),
        create=_key_create,
        read=_key_read,
        update=_key_update,
        delete=_key_delete,
    ),
    Entry(
        token="aws:kms/alias:Alias",
        covers=_NAMES | words("targetKeyId"),
        replace_on=_NAMES,
        naming=Naming(longest=256, prefix="alias/"),
        one_of=(_NAMES,),
        tags=False,
        create=_alias_create,
        read=_alias_read,
        update=_alias_update,
        delete=_alias_delete,
    ),
    Entry(
        token="aws:kms/grant:Grant",
        covers=words("keyId granteePrincipal name operations"),
        replace_on=ALL,
        naming=Naming(longest=256),
        tags=False,
        create=_grant_create,
        read=_grant_read,
        delete=_grant_delete,
    ),
    Entry(
        token="aws:cloudwatch/logGroup:LogGroup",
        covers=_NAMES | words("kmsKeyId retentionInDays skipDestroy logGroupClass"),
        replace_on=_NAMES | words("logGroupClass"),
        computed=words("logGroupClass"),
        defaults={"retentionInDays": 0, "skipDestroy": False},
        naming=Naming(longest=512),
        one_of=(_NAMES,),
        create=_group_create,
        read=_group_read,
        update=_group_update,
        delete=_group_delete,
    ),
]
