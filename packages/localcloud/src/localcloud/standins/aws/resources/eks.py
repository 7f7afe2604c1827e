"""EKS: clusters and node groups."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any, Final

from localcloud.standins.aws.entry import (
    Call,
    Entry,
    Naming,
    Tree,
    absent_as_none,
    ignore_absent,
    own_tags,
    wait,
    words,
)
from localcloud.standins.serve import PluginError


def update_tags(call: Call, arn: str) -> None:
    """Update an EKS resource's tags from the old to the new."""
    changed, removed = call.tag_changes()
    if removed:
        call.client("eks").untag_resource(resourceArn=arn, tagKeys=removed)
    if changed:
        call.client("eks").tag_resource(resourceArn=arn, tags=changed)


def wait_for_status(call: Call, fetch: Callable[[], Tree | None], what: str) -> None:
    """Wait until `status` is ACTIVE.

    Raises:
        PluginError: the resource failed; the message contains EKS's own.
    """

    def active() -> bool:
        found = fetch()
        if found is None:
            raise PluginError(f"{what} is gone")
        if "FAILED" in found["status"] or found["status"] == "DEGRADED":
            raise PluginError(f"{what} is {found['status']}: {health(found)}")
        return bool(found["status"] == "ACTIVE")

    wait(call, active, f"{what} to be ACTIVE")


def health(found: Tree) -> str:
    """Return the issues that EKS reports, in one line."""
    issues = (found.get("health") or {}).get("issues") or []
    return "; ".join(f"{issue.get('code')}: {issue.get('message')}" for issue in issues) or "no reason given"


def wait_for_update(call: Call, update: Tree, what: str, **owner: str) -> None:
    """Wait until an update that EKS accepted is complete."""

    def through() -> bool:
        found = call.client("eks").describe_update(updateId=update["id"], **owner)["update"]
        if found["status"] in ("Failed", "Cancelled"):
            reasons = "; ".join(f"{e.get('errorCode')}: {e.get('errorMessage')}" for e in found.get("errors") or [])
            raise PluginError(f"update of {what} {found['status']}: {reasons or 'no reason given'}")
        return bool(found["status"] == "Successful")

    wait(call, through, f"the update of {what}")


def timestamp(value: Any) -> str:
    """Return a time in Terraform's format."""
    return value.strftime("%Y-%m-%dT%H:%M:%SZ") if hasattr(value, "strftime") else str(value or "")


def request_token(arguments: Tree) -> str:
    """Return the `clientRequestToken` of a create call: equal for equal arguments.

    A resource that an `up` was creating when it was killed is not in the state. With the same token the next `up` gets
    that resource instead of the error "already exists". (The official plug-in sends a new token with every call; there
    the user must import such a resource.) Node groups send no token: the engine uses a new seed for automatic names in
    every `up`, so the next one asks for a group of another name.
    """
    return hashlib.sha256(json.dumps(arguments, sort_keys=True).encode()).hexdigest()


_VPC_CONFIG: Final = words("subnetIds securityGroupIds endpointPublicAccess endpointPrivateAccess publicAccessCidrs")
_PLAIN: Final = words(
    "version bootstrapSelfManagedAddons kubernetesNetworkConfig accessConfig upgradePolicy deletionProtection"
)


def _cluster_create(call: Call) -> str:
    inputs = call.inputs
    arguments: Tree = {
        "name": inputs["name"],
        "roleArn": inputs["roleArn"],
        "resourcesVpcConfig": _vpc_arguments(inputs["vpcConfig"]),
        **{name: inputs[name] for name in _PLAIN if inputs.get(name) is not None},
    }
    if inputs.get("encryptionConfig"):
        arguments["encryptionConfig"] = [inputs["encryptionConfig"]]
    if inputs.get("enabledClusterLogTypes"):
        arguments["logging"] = _logging(inputs["enabledClusterLogTypes"])
    if call.tags:
        arguments["tags"] = call.tags
    made = call.client("eks").create_cluster(**arguments, clientRequestToken=request_token(arguments))
    return str(made["cluster"]["name"])


def _vpc_arguments(config: Tree) -> Tree:
    return {name: value for name, value in config.items() if name in _VPC_CONFIG and value is not None}


_LOG_TYPES: Final = ("api", "audit", "authenticator", "controllerManager", "scheduler")


def _logging(enabled: list[str]) -> Tree:
    disabled = [name for name in _LOG_TYPES if name not in enabled]
    setup = [{"types": enabled, "enabled": True}, {"types": disabled, "enabled": False}]
    return {"clusterLogging": [part for part in setup if part["types"]]}


def _cluster(call: Call) -> Tree | None:
    answer = absent_as_none(lambda: call.client("eks").describe_cluster(name=call.id))
    return answer["cluster"] if answer else None


def _cluster_ready(call: Call) -> None:
    wait_for_status(call, lambda: _cluster(call), f"EKS cluster {call.id}")


def read_cluster(call: Call) -> Tree | None:
    """Return a cluster's outputs."""
    cluster = _cluster(call)
    if cluster is None:
        return None
    vpc = cluster.get("resourcesVpcConfig") or {}
    network, inputs = cluster.get("kubernetesNetworkConfig") or {}, call.inputs
    setups = (cluster.get("logging") or {}).get("clusterLogging") or []
    encryption = cluster.get("encryptionConfig") or []
    found = {
        "arn": cluster["arn"],
        "name": cluster["name"],
        "roleArn": cluster["roleArn"],
        "version": cluster["version"],
        "status": cluster["status"],
        "endpoint": cluster.get("endpoint"),
        "platformVersion": cluster.get("platformVersion"),
        "createdAt": timestamp(cluster.get("createdAt")),
        "certificateAuthority": {"data": (cluster.get("certificateAuthority") or {}).get("data")},
        "identities": [{"oidcs": [{"issuer": (cluster.get("identity") or {}).get("oidc", {}).get("issuer")}]}],
        "enabledClusterLogTypes": [kind for setup in setups if setup.get("enabled") for kind in setup["types"]],
        "accessConfig": _without_none(cluster.get("accessConfig") or {}),
        "kubernetesNetworkConfig": network,
        "encryptionConfig": encryption[0] if encryption else None,
        "upgradePolicy": cluster.get("upgradePolicy"),
        "deletionProtection": cluster.get("deletionProtection"),
        "vpcConfig": {key: value for key, value in vpc.items() if value is not None},
        "tags": own_tags(cluster.get("tags")),
    }
    # EKS doesn't return what only creation can set.
    bootstrap = (inputs.get("accessConfig") or {}).get("bootstrapClusterCreatorAdminPermissions")
    if bootstrap is not None:
        found["accessConfig"]["bootstrapClusterCreatorAdminPermissions"] = bootstrap
    return found


def _without_none(values: Tree) -> Tree:
    return {key: value for key, value in values.items() if value is not None}


def _cluster_update(call: Call) -> None:
    eks, inputs, changed = call.client("eks"), call.inputs, call.changed

    def apply(operation: Callable[..., Any], **arguments: Any) -> None:
        update = operation(name=call.id, **arguments)["update"]
        wait_for_update(call, update, f"EKS cluster {call.id}", name=call.id)
        _cluster_ready(call)

    if "version" in changed:
        apply(eks.update_cluster_version, version=inputs["version"])
    if "accessConfig" in changed:
        mode = (inputs.get("accessConfig") or {}).get("authenticationMode")
        apply(eks.update_cluster_config, accessConfig={"authenticationMode": mode})
    if "enabledClusterLogTypes" in changed:
        apply(eks.update_cluster_config, logging=_logging(inputs.get("enabledClusterLogTypes") or []))
    if "vpcConfig" in changed:
        for arguments in _vpc_updates(call.olds.get("vpcConfig") or {}, inputs["vpcConfig"]):
            apply(eks.update_cluster_config, resourcesVpcConfig=arguments)
    for name in ("upgradePolicy", "deletionProtection"):
        if name in changed and inputs.get(name) is not None:
            apply(eks.update_cluster_config, **{name: inputs[name]})
    if "tags" in changed:
        update_tags(call, call.state["arn"])


def _vpc_updates(old: Tree, new: Tree) -> list[Tree]:
    """Split a change: EKS accepts one kind at a time, subnets and groups first, then the endpoints."""
    placing = ("subnetIds", "securityGroupIds")
    access = ("endpointPublicAccess", "endpointPrivateAccess", "publicAccessCidrs")
    updates = []
    for names in (placing, access):
        if any(old.get(name) != new.get(name) for name in names):
            updates.append({name: new[name] for name in names if new.get(name) is not None})
    return [update for update in updates if update]


def _cluster_delete(call: Call) -> None:
    ignore_absent(lambda: call.client("eks").delete_cluster(name=call.id))
    wait(call, lambda: _cluster(call) is None, f"EKS cluster {call.id} to be deleted")


_GROUP_PLAIN: Final = words(
    "scalingConfig updateConfig instanceTypes amiType capacityType labels taints launchTemplate"
    " nodeRepairConfig version releaseVersion"
)


def _group_create(call: Call) -> str:
    inputs = call.inputs
    arguments: Tree = {
        "clusterName": inputs["clusterName"],
        "nodegroupName": inputs["nodeGroupName"],
        "nodeRole": inputs["nodeRoleArn"],
        "subnets": inputs["subnetIds"],
        **{name: inputs[name] for name in _GROUP_PLAIN if inputs.get(name) not in (None, [], {})},
    }
    if inputs.get("diskSize"):
        arguments["diskSize"] = int(inputs["diskSize"])
    if call.tags:
        arguments["tags"] = call.tags
    group = call.client("eks").create_nodegroup(**arguments)["nodegroup"]
    return f"{group['clusterName']}:{group['nodegroupName']}"


def _group_names(call: Call) -> Tree:
    cluster, _, name = call.id.partition(":")
    return {"clusterName": cluster, "nodegroupName": name}


def _group(call: Call) -> Tree | None:
    answer = absent_as_none(lambda: call.client("eks").describe_nodegroup(**_group_names(call)))
    return answer["nodegroup"] if answer else None


def _group_ready(call: Call) -> None:
    wait_for_status(call, lambda: _group(call), f"EKS node group {call.id}")


def read_node_group(call: Call) -> Tree | None:
    """Return a node group's outputs."""
    group = _group(call)
    if group is None:
        return None
    resources = group.get("resources") or {}
    found = {
        "arn": group["nodegroupArn"],
        "clusterName": group["clusterName"],
        "nodeGroupName": group["nodegroupName"],
        "nodeRoleArn": group.get("nodeRole"),
        "subnetIds": group.get("subnets") or [],
        "status": group["status"],
        "version": group.get("version"),
        "releaseVersion": group.get("releaseVersion"),
        "scalingConfig": group.get("scalingConfig"),
        "updateConfig": group.get("updateConfig"),
        "instanceTypes": group.get("instanceTypes") or [],
        "amiType": group.get("amiType"),
        "capacityType": group.get("capacityType"),
        "diskSize": group.get("diskSize") or 0,
        "labels": group.get("labels") or {},
        "taints": group.get("taints") or [],
        "launchTemplate": group.get("launchTemplate"),
        "nodeRepairConfig": group.get("nodeRepairConfig"),
        "resources": [
            {
                "autoscalingGroups": [{"name": asg.get("name")} for asg in resources.get("autoScalingGroups") or []],
                "remoteAccessSecurityGroupId": resources.get("remoteAccessSecurityGroup") or "",
            }
        ],
        "tags": own_tags(group.get("tags")),
    }
    return _without_none(found)


def _group_update(call: Call) -> None:
    eks, inputs, changed = call.client("eks"), call.inputs, call.changed
    names, what = _group_names(call), f"EKS node group {call.id}"
    owner = {"name": names["clusterName"], "nodegroupName": names["nodegroupName"]}
    if changed & {"version", "releaseVersion", "launchTemplate"}:
        wanted: Tree = {key: inputs[key] for key in ("version", "releaseVersion", "launchTemplate") if key in changed}
        if inputs.get("forceUpdateVersion"):
            wanted["force"] = True
        update = eks.update_nodegroup_version(**names, **{key: value for key, value in wanted.items() if value})
        wait_for_update(call, update["update"], what, **owner)
    arguments = _group_config(call.olds, inputs, changed)
    if arguments:
        update = eks.update_nodegroup_config(**names, **arguments)
        wait_for_update(call, update["update"], what, **owner)
    if "tags" in changed:
        update_tags(call, call.state["arn"])


def _group_config(olds: Tree, news: Tree, changed: frozenset[str]) -> Tree:
    """Return the arguments of `update_nodegroup_config` for the changed inputs."""
    arguments: Tree = {
        name: news[name]
        for name in ("scalingConfig", "updateConfig", "nodeRepairConfig")
        if name in changed and news.get(name)
    }
    if "labels" in changed:
        old, new = olds.get("labels") or {}, news.get("labels") or {}
        arguments["labels"] = _non_empty(
            addOrUpdateLabels={key: value for key, value in new.items() if old.get(key) != value},
            removeLabels=sorted(set(old) - set(new)),
        )
    if "taints" in changed:
        old_taints, new_taints = olds.get("taints") or [], news.get("taints") or []
        kept = {(taint["key"], taint["effect"]) for taint in new_taints}
        arguments["taints"] = _non_empty(
            addOrUpdateTaints=[taint for taint in new_taints if taint not in old_taints],
            removeTaints=[taint for taint in old_taints if (taint["key"], taint["effect"]) not in kept],
        )
    return arguments


def _non_empty(**values: Any) -> Tree:
    return {key: value for key, value in values.items() if value}


def _group_delete(call: Call) -> None:
    ignore_absent(lambda: call.client("eks").delete_nodegroup(**_group_names(call)))

    def gone() -> bool:
        group = _group(call)
        if group is not None and group["status"] == "DELETE_FAILED":
            raise PluginError(f"EKS node group {call.id} could not be deleted: {health(group)}")
        return group is None

    wait(call, gone, f"EKS node group {call.id} to be deleted")


ENTRIES: Final = [
    Entry(
        token="aws:eks/cluster:Cluster",
        covers=_PLAIN | words("name roleArn vpcConfig encryptionConfig enabledClusterLogTypes"),
        replace_on=words(
            "name roleArn bootstrapSelfManagedAddons encryptionConfig"
            " accessConfig.bootstrapClusterCreatorAdminPermissions"
            " kubernetesNetworkConfig.ipFamily kubernetesNetworkConfig.serviceIpv4Cidr"
        ),
        computed=words("version accessConfig kubernetesNetworkConfig upgradePolicy deletionProtection"),
        defaults={"bootstrapSelfManagedAddons": True},
        naming=Naming(longest=100),
        create=_cluster_create,
        ready=_cluster_ready,
        read=read_cluster,
        update=_cluster_update,
        delete=_cluster_delete,
    ),
    Entry(
        token="aws:eks/nodeGroup:NodeGroup",
        covers=_GROUP_PLAIN | words("clusterName nodeGroupName nodeRoleArn subnetIds diskSize forceUpdateVersion"),
        replace_on=words(
            "clusterName nodeGroupName nodeRoleArn subnetIds instanceTypes amiType capacityType diskSize"
            " launchTemplate.id launchTemplate.name"
        ),
        computed=words(
            "amiType capacityType diskSize instanceTypes version releaseVersion updateConfig nodeRepairConfig"
        ),
        ordered=words("instanceTypes"),
        naming=Naming(property="nodeGroupName", longest=63, prefix_property="nodeGroupNamePrefix"),
        create=_group_create,
        ready=_group_ready,
        read=read_node_group,
        update=_group_update,
        delete=_group_delete,
    ),
]
