"""Node group operations: create, describe, list, update, delete. `reconcile` starts and ends the nodes."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from localcloud.aws.eks.errors import in_use, invalid, not_found
from localcloud.aws.eks.model import NAME, Cluster, Json, Nodegroup, nodegroup_json, update_json
from localcloud.aws.eks.nodes import config, user_data
from localcloud.aws.eks.nodes.config import BadNodeConfig, NodeConfig
from localcloud.aws.eks.operations import access_entries
from localcloud.aws.eks.state import ClusterState, Eks, GroupState, checked_tags, page
from localcloud.aws.eks_images import RELEASES, image_of
from localcloud.aws.principals import Principal

DEFAULT_AMI_TYPE = "AL2023_x86_64_STANDARD"
DEFAULT_DISK_GIB = 20
DEFAULT_INSTANCE_TYPE = "t3.medium"
# https://docs.aws.amazon.com/eks/latest/APIReference/API_CreateNodegroup.html#AmazonEKS-CreateNodegroup-request-amiType
# without those of Amazon Linux 2, which has no images since Kubernetes 1.33.
AMI_TYPES = (
    *(
        f"AL2023_{kind}"
        for kind in ("x86_64_STANDARD", "ARM_64_STANDARD", "x86_64_NEURON", "x86_64_NVIDIA", "ARM_64_NVIDIA")
    ),
    *(
        f"BOTTLEROCKET_{arch}{kind}"
        for arch in ("x86_64", "ARM_64")
        for kind in ("", "_FIPS", "_NVIDIA", "_NVIDIA_FIPS")
    ),
    *(f"WINDOWS_{kind}_{year}_x86_64" for kind in ("CORE", "FULL") for year in (2019, 2022, 2025)),
    "CUSTOM",
)
CAPACITY_TYPES = ("ON_DEMAND", "SPOT")
AMOUNTS = ("maxUnavailable", "maxUnavailablePercentage")
UPDATE_STRATEGIES = ("DEFAULT", "MINIMAL")
MOST_UNAVAILABLE = 100
EFFECTS = {"NO_SCHEDULE": "NoSchedule", "NO_EXECUTE": "NoExecute", "PREFER_NO_SCHEDULE": "PreferNoSchedule"}


def create(eks: Eks, caller: Principal, params: Mapping[str, Any]) -> Json:
    """CreateNodegroup."""
    state = eks.find_active(str(params["clusterName"]))
    cluster, name = state.cluster.name, str(params["nodegroupName"])
    if not NAME.fullmatch(name) or len(name) > 63:
        raise invalid(f"The nodegroup name {name!r} must match {NAME.pattern} and have at most 63 characters")
    with state.lock:
        if name in state.groups:
            raise in_use(
                f"NodeGroup already exists with name {name} and cluster name {cluster}",
                clusterName=cluster,
                nodegroupName=name,
            )
        group = _checked(eks, state, name, params)
        _check_node_config(eks, state.cluster, group)
        state.groups[name] = GroupState(group, time.monotonic())
    access_entries.add_node_role(eks, state, group.node_role)
    state.wake.set()
    return {"nodegroup": nodegroup_json(group)}


def describe(eks: Eks, caller: Principal, params: Mapping[str, Any]) -> Json:
    """DescribeNodegroup."""
    return {"nodegroup": nodegroup_json(_find(eks, params)[1].group)}


def list_all(eks: Eks, caller: Principal, params: Mapping[str, Any]) -> Json:
    """ListNodegroups."""
    return page(sorted(eks.find(str(params["clusterName"])).groups), params, "nodegroups")


def delete(eks: Eks, caller: Principal, params: Mapping[str, Any]) -> Json:
    """DeleteNodegroup; the nodes are drained, then terminated."""
    state, found = _find(eks, params)
    with state.lock:
        found.group = replace(found.group, status="DELETING", modified_at=time.time())
    state.wake.set()
    return {"nodegroup": nodegroup_json(found.group)}


def update_config(eks: Eks, caller: Principal, params: Mapping[str, Any]) -> Json:
    """UpdateNodegroupConfig; as on AWS, the update is done before the new nodes are ready."""
    state, found = _find(eks, params)
    _refuse_unsupported(params)
    with state.lock:
        group = _updatable(found.group)
        changed = replace(
            group,
            scaling=_scaling({**group.scaling, **(params.get("scalingConfig") or {})}),
            labels=_updated_labels(group, params.get("labels") or {}),
            taints=_updated_taints(group, params.get("taints") or {}),
            update_config=_update_config(params.get("updateConfig") or group.update_config),
            node_repair_config=params.get("nodeRepairConfig") or group.node_repair_config,
            modified_at=time.time(),
        )
        _check_node_config(eks, state.cluster, changed)
        if (changed.labels, changed.taints) != (group.labels, group.taints):
            found.relabel |= set(found.workers)
            found.removed_labels |= set(group.labels) - set(changed.labels)
            found.removed_taints |= {(taint["key"], taint["effect"]) for taint in kubernetes_taints(group)}
        found.group = changed
        shown = {key: params[key] for key in ("scalingConfig", "labels", "taints", "updateConfig") if key in params}
        update = eks.add_update(state, "ConfigUpdate", shown, nodegroup=group.name)
    state.wake.set()
    return {"update": update_json(update)}


def update_version(eks: Eks, caller: Principal, params: Mapping[str, Any]) -> Json:
    """UpdateNodegroupVersion: nodes of another release are replaced, see `rules.decide`.

    As on EKS, a call without a release moves the group to the newest one. A new launch template alone applies only to
    nodes that are launched later.
    https://docs.aws.amazon.com/eks/latest/APIReference/API_UpdateNodegroupVersion.html
    """
    state, found = _find(eks, params)
    version = str(params.get("version") or found.group.version)
    if version not in (found.group.version, state.cluster.version):
        raise invalid(f"Version {version} is not supported: the cluster has {state.cluster.version}")
    with state.lock:
        before = _updatable(found.group)
        changed = replace(
            before,
            version=version,
            release_version=_release(version, params.get("releaseVersion")),
            status="UPDATING",
            modified_at=time.time(),
        )
        template = params.get("launchTemplate")
        if template:
            changed = replace(changed, launch_template=_next_template(eks, before, template))
            _check_node_config(eks, state.cluster, changed)
        found.group = changed
        shown = {"Version": version, "ReleaseVersion": changed.release_version}
        update = eks.add_update(state, "VersionUpdate", shown, nodegroup=found.group.name)
        state.updates[update.id] = update
        found.update, found.before, found.started_at = update.id, before, time.monotonic()
    state.wake.set()
    return {"update": update_json(update)}


def _updatable(group: Nodegroup) -> Nodegroup:
    """Return the group, if EKS accepts an update of it.

    After a failed creation, a group can only be deleted and made again:
    https://github.com/aws/containers-roadmap/issues/2204 and 764.
    """
    if group.status not in ("ACTIVE", "DEGRADED"):
        raise in_use(
            f"Nodegroup cannot be updated as it is currently not in Active state, but {group.status}",
            clusterName=group.cluster,
            nodegroupName=group.name,
        )
    return group


def kubernetes_taints(group: Nodegroup) -> list[Json]:
    """Return the group's taints in the form of Kubernetes."""
    return [
        {"key": taint["key"], "value": taint.get("value") or "", "effect": EFFECTS[taint["effect"]]}
        for taint in group.taints
    ]


def image(group: Nodegroup) -> str:
    """Return the id of the image of the group's nodes."""
    return image_of(group.ami_type, group.release_version).id


def node_labels(group: Nodegroup) -> dict[str, str]:
    """Return the labels of the group's nodes: the group's own and EKS's."""
    return {
        **group.labels,
        "eks.amazonaws.com/nodegroup": group.name,
        "eks.amazonaws.com/capacityType": group.capacity_type,
        "eks.amazonaws.com/nodegroup-image": image(group),
    }


def node_config(cluster: Cluster, group: Nodegroup, own: bytes) -> NodeConfig:
    """Return what EKS tells the group's nodes, with what the launch template's own user data adds for kubelet.

    https://docs.aws.amazon.com/eks/latest/userguide/launch-templates.html#launch-template-user-data
    """
    listed = ",".join(f"{key}={value}" for key, value in node_labels(group).items())
    told = NodeConfig(
        cluster=cluster.name,
        endpoint=cluster.endpoint or "",
        ca_pem=cluster.ca_pem or "",
        cidr=str(cluster.network_config["serviceIpv4Cidr"]),
        kubelet={"registerWithTaints": kubernetes_taints(group)},
        flags=(f"--node-labels={listed}",),
    )
    added = user_data.parse(own)
    return told if added is None else told.merged(NodeConfig(kubelet=added.kubelet, flags=added.flags))


def _checked(eks: Eks, state: ClusterState, name: str, params: Mapping[str, Any]) -> Nodegroup:
    _refuse_unsupported(params)
    cluster, now, identity = state.cluster, time.time(), str(uuid.uuid4())
    template, data = _template(eks, params["launchTemplate"]) if params.get("launchTemplate") else (None, {})
    types = tuple(str(kind) for kind in params.get("instanceTypes") or ())
    if types and data.get("InstanceType"):
        raise invalid("Instance types can be given in the launch template or in instanceTypes, not in both")
    wanted = types or (() if data.get("InstanceType") else (DEFAULT_INSTANCE_TYPE,))
    chosen = wanted[0] if wanted else str(data["InstanceType"])
    unknown = [kind for kind in {chosen, *wanted} if eks.ec2.instance_type(kind) is None]
    if unknown:
        raise invalid(f"The following supplied instance types do not exist: [{', '.join(sorted(unknown))}]")
    role = str(params["nodeRole"])
    eks.check_role(role, "ec2.amazonaws.com", ("sts:AssumeRole",), "nodeRole")
    return Nodegroup(
        name=name,
        cluster=cluster.name,
        arn=eks.arn("nodegroup", cluster.name, name, identity),
        version=_own_version(cluster, params.get("version")),
        release_version=_release(cluster.version, params.get("releaseVersion")),
        created_at=now,
        modified_at=now,
        node_role=role,
        subnets=_subnets(eks, state, params.get("subnets") or []),
        scaling=_scaling({"minSize": 1, "maxSize": 2, "desiredSize": 2, **(params.get("scalingConfig") or {})}),
        instance_types=wanted,
        instance_type=chosen,
        ami_type=_one_of("amiType", params.get("amiType") or DEFAULT_AMI_TYPE, AMI_TYPES),
        capacity_type=_one_of("capacityType", params.get("capacityType") or "ON_DEMAND", CAPACITY_TYPES),
        disk_size=None if template else int(params.get("diskSize") or DEFAULT_DISK_GIB),
        labels=dict(params.get("labels") or {}),
        taints=_taints(params.get("taints") or []),
        update_config=_update_config(params.get("updateConfig") or {"maxUnavailable": 1}),
        node_repair_config=params.get("nodeRepairConfig"),
        launch_template=template,
        remote_access=params.get("remoteAccess"),
        auto_scaling_group=f"eks-{name}-{identity}",
        tags=checked_tags(params.get("tags")),
    )


def _refuse_unsupported(params: Mapping[str, Any]) -> None:
    if (params.get("warmPoolConfig") or {}).get("enabled"):
        raise invalid("warmPoolConfig is not supported by this cloud: leave it out")


def _check_node_config(eks: Eks, cluster: Cluster, group: Nodegroup) -> None:
    """Refuse labels, taints and user data with which kubelet would not start (aws/containers-roadmap#1451, #2465)."""
    template = group.launch_template or {}
    found = eks.ec2.launch_template(template.get("id"), None, template.get("version")) if template else None
    try:
        config.check(node_config(cluster, group, found["user_data"] if found else b""))
    except BadNodeConfig as error:
        raise invalid(f"nodegroup {group.name}: {error}") from error


def _release(version: str, given: Any) -> str:
    """Return the release that was asked for, or the newest one.

    The message is EKS' own: https://github.com/eksctl-io/eksctl/issues/7976
    """
    if given is not None and given not in RELEASES[version]:
        raise invalid(f"Requested release version {given} is not valid for kubernetes version {version}.")
    return str(given or RELEASES[version][0])


def _own_version(cluster: Cluster, given: Any) -> str:
    """Return the version of a new group: that of its cluster, which is all that EKS accepts."""
    if given not in (None, cluster.version):
        raise invalid(f"Version {given} is not supported: the cluster has {cluster.version}")
    return cluster.version


def _one_of(name: str, given: Any, known: Sequence[str]) -> str:
    if given not in known:
        raise invalid(f"{name} {given!r} is none of {', '.join(known)}")
    return str(given)


def _subnets(eks: Eks, state: ClusterState, given: list[Any]) -> tuple[str, ...]:
    if not given:
        raise invalid("The subnets of the nodegroup must not be empty")
    for identity in given:
        subnet = eks.ec2.subnet(str(identity))
        if subnet is None:
            raise invalid(f"The subnet ID '{identity}' does not exist")
        if subnet.vpc_id != state.cluster.vpc_config["vpcId"]:
            raise invalid(f"The subnet '{identity}' is not in the cluster's VPC")
    return tuple(str(identity) for identity in given)


def _template(eks: Eks, given: Mapping[str, Any]) -> tuple[Json, Mapping[str, Any]]:
    if given.get("id") and given.get("name"):  # EKS' own words: aws-controllers-k8s/community#2645
        raise invalid("Either provide launch template ID or launch template name in the request.")
    found = eks.ec2.launch_template(given.get("id"), given.get("name"), given.get("version"))
    if found is None or not (given.get("id") or given.get("name")):
        raise invalid(f"Launch template {dict(given)} with the given version does not exist")
    return {"id": found["id"], "name": found["name"], "version": found["version"]}, found["data"]


def _next_template(eks: Eks, group: Nodegroup, given: Mapping[str, Any]) -> Json:
    """Return the launch template of an update: another version of the one that the group was created with."""
    found = _template(eks, given)[0]
    if found["id"] != (group.launch_template or {}).get("id"):
        has = (group.launch_template or {}).get("id", "none")
        raise invalid(
            f"Node group {group.name} can't change from launch template {has} to {found['id']}: create another group"
        )
    return found


def _scaling(given: Mapping[str, Any]) -> Json:
    low, high, desired = (int(given[key]) for key in ("minSize", "maxSize", "desiredSize"))
    if low < 0 or high < 1:
        raise invalid(f"scalingConfig: minSize {low} must be at least 0 and maxSize {high} at least 1")
    if low > desired:
        raise invalid(f"Minimum capacity {low} can't be greater than desired size {desired}")
    if desired > high:
        raise invalid(f"desired capacity {desired} can't be greater than max size {high}")
    return {"minSize": low, "maxSize": high, "desiredSize": desired}


def _update_config(given: Mapping[str, Any]) -> Json:
    """Return how nodes are replaced. https://docs.aws.amazon.com/eks/latest/APIReference/API_NodegroupUpdateConfig.html"""
    amounts = [key for key in AMOUNTS if given.get(key) is not None]
    if len(amounts) != 1 or not 1 <= int(given[amounts[0]]) <= MOST_UNAVAILABLE:
        raise invalid(f"updateConfig: one of {' and '.join(AMOUNTS)} must be from 1 to {MOST_UNAVAILABLE}")
    _one_of("updateStrategy", given.get("updateStrategy", "DEFAULT"), UPDATE_STRATEGIES)
    return dict(given)


def _taints(given: list[Any]) -> tuple[Json, ...]:
    for taint in given:
        if taint.get("effect") not in EFFECTS:
            raise invalid(f"taint {taint.get('key')}: effect {taint.get('effect')!r} is none of {', '.join(EFFECTS)}")
    return tuple(dict(taint) for taint in given)


def _updated_labels(group: Nodegroup, change: Mapping[str, Any]) -> dict[str, str]:
    removed = set(change.get("removeLabels") or [])
    kept = {key: value for key, value in group.labels.items() if key not in removed}
    return kept | dict(change.get("addOrUpdateLabels") or {})


def _updated_taints(group: Nodegroup, change: Mapping[str, Any]) -> tuple[Json, ...]:
    gone = [*(change.get("removeTaints") or []), *(change.get("addOrUpdateTaints") or [])]
    keys = {(taint["key"], taint["effect"]) for taint in gone}
    kept = [taint for taint in group.taints if (taint["key"], taint["effect"]) not in keys]
    return _taints([*kept, *(change.get("addOrUpdateTaints") or [])])


def _find(eks: Eks, params: Mapping[str, Any]) -> tuple[ClusterState, GroupState]:
    state = eks.find(str(params["clusterName"]))
    found = state.groups.get(str(params["nodegroupName"]))
    if found is None:
        raise not_found(
            f"No node group found for name: {params['nodegroupName']}.",
            clusterName=state.cluster.name,
            nodegroupName=str(params["nodegroupName"]),
        )
    return state, found
