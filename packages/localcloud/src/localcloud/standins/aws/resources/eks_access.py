"""EKS: addons, access entries with their policies, and pod identity associations."""

from __future__ import annotations

from typing import Final

from localcloud.standins.aws.entry import ALL, Call, Entry, Tree, absent_as_none, ignore_absent, own_tags, wait, words
from localcloud.standins.aws.resources.eks import health, request_token, timestamp, update_tags, wait_for_update
from localcloud.standins.serve import PluginError

_ADDON_OPTIONAL: Final = words("addonVersion configurationValues serviceAccountRoleArn")


def _addon_create(call: Call) -> str:
    inputs = call.inputs
    arguments: Tree = {"clusterName": inputs["clusterName"], "addonName": inputs["addonName"]}
    arguments |= {name: inputs[name] for name in _ADDON_OPTIONAL if inputs.get(name)}
    if inputs.get("resolveConflictsOnCreate"):
        arguments["resolveConflicts"] = inputs["resolveConflictsOnCreate"]
    if call.tags:
        arguments["tags"] = call.tags
    call.client("eks").create_addon(**arguments, clientRequestToken=request_token(arguments))
    return f"{inputs['clusterName']}:{inputs['addonName']}"


def _addon_names(call: Call) -> Tree:
    cluster, _, addon = call.id.partition(":")
    return {"clusterName": cluster, "addonName": addon}


def _addon(call: Call) -> Tree | None:
    answer = absent_as_none(lambda: call.client("eks").describe_addon(**_addon_names(call)))
    return answer["addon"] if answer else None


def _addon_ready(call: Call) -> None:
    """Wait for ACTIVE; DEGRADED is waited out, as coredns is degraded until there are nodes."""
    last: list[Tree] = []

    def active() -> bool:
        addon = _addon(call)
        if addon is None:
            raise PluginError(f"EKS addon {call.id} is gone")
        last[:] = [addon]
        if addon["status"] in ("CREATE_FAILED", "UPDATE_FAILED"):
            raise PluginError(f"EKS addon {call.id} is {addon['status']}: {health(addon)}")
        return bool(addon["status"] == "ACTIVE")

    try:
        wait(call, active, f"EKS addon {call.id} to be ACTIVE")
    except PluginError as error:
        if last and last[0]["status"] == "DEGRADED":
            raise PluginError(f"{error}; it is DEGRADED: {health(last[0])}") from error
        raise


def read_addon(call: Call) -> Tree | None:
    """Return an addon by `call.id`; None if there is none."""
    addon = _addon(call)
    if addon is None:
        return None
    return {
        "arn": addon["addonArn"],
        "addonName": addon["addonName"],
        "addonVersion": addon["addonVersion"],
        "clusterName": addon["clusterName"],
        "configurationValues": addon.get("configurationValues") or "",
        "serviceAccountRoleArn": addon.get("serviceAccountRoleArn") or "",
        "createdAt": timestamp(addon.get("createdAt")),
        "modifiedAt": timestamp(addon.get("modifiedAt")),
        "podIdentityAssociations": [],
        "tags": own_tags(addon.get("tags")),
    }


def _addon_update(call: Call) -> None:
    inputs, eks = call.inputs, call.client("eks")
    if call.changed & _ADDON_OPTIONAL:
        arguments = {name: inputs[name] for name in _ADDON_OPTIONAL if inputs.get(name)}
        if "configurationValues" in call.changed:
            arguments.setdefault("configurationValues", "")
        if inputs.get("resolveConflictsOnUpdate"):
            arguments["resolveConflicts"] = inputs["resolveConflictsOnUpdate"]
        names = _addon_names(call)
        update = eks.update_addon(**names, **arguments)["update"]
        owner = {"name": names["clusterName"], "addonName": names["addonName"]}
        wait_for_update(call, update, f"EKS addon {call.id}", **owner)
    if "tags" in call.changed:
        update_tags(call, call.state["arn"])


def _addon_delete(call: Call) -> None:
    keep = {"preserve": True} if call.inputs.get("preserve") else {}
    ignore_absent(lambda: call.client("eks").delete_addon(**_addon_names(call), **keep))
    wait(call, lambda: _addon(call) is None, f"EKS addon {call.id} to be deleted")


def _entry_create(call: Call) -> str:
    inputs = call.inputs
    arguments: Tree = {"clusterName": inputs["clusterName"], "principalArn": inputs["principalArn"]}
    arguments["type"] = inputs["type"]
    if inputs.get("kubernetesGroups"):
        arguments["kubernetesGroups"] = inputs["kubernetesGroups"]
    if inputs.get("userName"):
        arguments["username"] = inputs["userName"]
    if call.tags:
        arguments["tags"] = call.tags
    call.client("eks").create_access_entry(**arguments, clientRequestToken=request_token(arguments))
    return f"{inputs['clusterName']}:{inputs['principalArn']}"


def _entry_names(call: Call) -> Tree:
    cluster, _, principal = call.id.partition(":")
    return {"clusterName": cluster, "principalArn": principal}


def read_entry(call: Call) -> Tree | None:
    """Return an access entry by `call.id`; None if there is none."""
    answer = absent_as_none(lambda: call.client("eks").describe_access_entry(**_entry_names(call)))
    if not answer:
        return None
    entry = answer["accessEntry"]
    return {
        "accessEntryArn": entry["accessEntryArn"],
        "clusterName": entry["clusterName"],
        "principalArn": entry["principalArn"],
        "kubernetesGroups": entry.get("kubernetesGroups") or [],
        "userName": entry.get("username"),
        "type": entry.get("type"),
        "createdAt": timestamp(entry.get("createdAt")),
        "modifiedAt": timestamp(entry.get("modifiedAt")),
        "tags": own_tags(entry.get("tags")),
    }


def _entry_update(call: Call) -> None:
    inputs = call.inputs
    if call.changed & {"kubernetesGroups", "userName"}:
        arguments = {"kubernetesGroups": inputs.get("kubernetesGroups") or []}
        if inputs.get("userName"):
            arguments["username"] = inputs["userName"]
        call.client("eks").update_access_entry(**_entry_names(call), **arguments)
    if "tags" in call.changed:
        update_tags(call, call.state["accessEntryArn"])


def _entry_delete(call: Call) -> None:
    ignore_absent(lambda: call.client("eks").delete_access_entry(**_entry_names(call)))


def _policy_create(call: Call) -> str:
    inputs = call.inputs
    names = {name: inputs[name] for name in ("clusterName", "principalArn", "policyArn")}
    scope = {key: value for key, value in inputs["accessScope"].items() if value}
    call.client("eks").associate_access_policy(**names, accessScope=scope)
    return "#".join(names.values())


def _policy_names(call: Call) -> Tree:
    cluster, principal, policy = ([*call.id.split("#"), "", ""])[:3]
    return {"clusterName": cluster, "principalArn": principal, "policyArn": policy}


def _policy_read(call: Call) -> Tree | None:
    names = _policy_names(call)
    owner = {"clusterName": names["clusterName"], "principalArn": names["principalArn"]}
    answer = absent_as_none(lambda: call.client("eks").list_associated_access_policies(**owner)) or {}
    for policy in answer.get("associatedAccessPolicies") or []:
        if policy["policyArn"] == names["policyArn"]:
            times = {key: timestamp(policy.get(key)) for key in ("associatedAt", "modifiedAt")}
            return {**names, **times, "accessScope": policy["accessScope"]}
    return None


def _policy_delete(call: Call) -> None:
    ignore_absent(lambda: call.client("eks").disassociate_access_policy(**_policy_names(call)))


_IDENTITY_PLAIN: Final = words("namespace serviceAccount roleArn targetRoleArn disableSessionTags")


def _identity_create(call: Call) -> str:
    inputs = call.inputs
    arguments = {name: inputs[name] for name in _IDENTITY_PLAIN if inputs.get(name) is not None}
    if call.tags:
        arguments["tags"] = call.tags
    arguments["clusterName"] = inputs["clusterName"]
    token = request_token(arguments)
    answer = call.client("eks").create_pod_identity_association(**arguments, clientRequestToken=token)
    return str(answer["association"]["associationId"])


def _identity_names(call: Call) -> Tree:
    cluster = call.inputs.get("clusterName") or call.state.get("clusterName")
    if "," in call.id:  # import: CLUSTER,ASSOCIATION
        cluster, _, call.id = call.id.partition(",")
    if not cluster:
        raise PluginError("the import id of a pod identity association is CLUSTER,ASSOCIATION-ID")
    return {"clusterName": cluster, "associationId": call.id}


def _identity_read(call: Call) -> Tree | None:
    names = _identity_names(call)
    answer = absent_as_none(lambda: call.client("eks").describe_pod_identity_association(**names))
    if not answer:
        return None
    found = answer["association"]
    return {
        **names,
        **{name: found[name] for name in _IDENTITY_PLAIN if found.get(name) is not None},
        "associationArn": found["associationArn"],
        "externalId": found.get("externalId"),
        "tags": own_tags(found.get("tags")),
    }


def _identity_update(call: Call) -> None:
    changeable = call.changed & {"roleArn", "targetRoleArn", "disableSessionTags"}
    if changeable:
        arguments = {name: call.inputs[name] for name in changeable if call.inputs.get(name) is not None}
        call.client("eks").update_pod_identity_association(**_identity_names(call), **arguments)
    if "tags" in call.changed:
        update_tags(call, call.state["associationArn"])


def _identity_delete(call: Call) -> None:
    ignore_absent(lambda: call.client("eks").delete_pod_identity_association(**_identity_names(call)))


ENTRIES: Final = [
    Entry(
        token="aws:eks/addon:Addon",
        covers=_ADDON_OPTIONAL
        | words("clusterName addonName preserve resolveConflictsOnCreate resolveConflictsOnUpdate"),
        replace_on=words("clusterName addonName"),
        computed=words("addonVersion configurationValues"),
        documents=words("configurationValues"),
        create=_addon_create,
        ready=_addon_ready,
        read=read_addon,
        update=_addon_update,
        delete=_addon_delete,
    ),
    Entry(
        token="aws:eks/accessEntry:AccessEntry",
        covers=words("clusterName principalArn kubernetesGroups type userName"),
        replace_on=words("clusterName principalArn type"),
        computed=words("kubernetesGroups userName"),
        defaults={"type": "STANDARD"},
        create=_entry_create,
        read=read_entry,
        update=_entry_update,
        delete=_entry_delete,
    ),
    Entry(
        token="aws:eks/accessPolicyAssociation:AccessPolicyAssociation",
        covers=words("clusterName principalArn policyArn accessScope"),
        replace_on=ALL,
        tags=False,
        create=_policy_create,
        read=_policy_read,
        delete=_policy_delete,
    ),
    Entry(
        token="aws:eks/podIdentityAssociation:PodIdentityAssociation",
        covers=_IDENTITY_PLAIN | words("clusterName"),
        replace_on=words("clusterName namespace serviceAccount"),
        computed=words("disableSessionTags"),
        create=_identity_create,
        read=_identity_read,
        update=_identity_update,
        delete=_identity_delete,
    ),
]
