"""Cluster operations: create, describe, list, update, delete, and their updates and tags."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from localcloud.aws.eks import reconcile
from localcloud.aws.eks.errors import in_use, invalid, not_found, refused
from localcloud.aws.eks.model import NAME, PLATFORM_VERSION, VERSIONS, Cluster, Json, cluster_json, update_json
from localcloud.aws.eks.operations import access_entries
from localcloud.aws.eks.state import ClusterState, Eks, checked_tags, new_id, page
from localcloud.aws.principals import Principal
from localcloud.kube.control_plane_config import SERVICE_CIDR

LOG_TYPES = ("api", "audit", "authenticator", "controllerManager", "scheduler")
MODES = ("API", "API_AND_CONFIG_MAP", "CONFIG_MAP")
_IN_PROGRESS = {"CREATING": "CreateCluster", "UPDATING": "UpdateClusterVersion"}
_SUPPORTED = "STANDARD_SUPPORT"
UNSUPPORTED = ("outpostConfig", "remoteNetworkConfig", "computeConfig", "storageConfig", "zonalShiftConfig")


def create(eks: Eks, caller: Principal, params: Mapping[str, Any]) -> Json:
    """CreateCluster; the control plane is ready some seconds after the reply."""
    name = str(params["name"])
    if not NAME.fullmatch(name):
        raise invalid(f"The cluster name {name!r} must match {NAME.pattern}", clusterName=name)
    with eks.lock:
        if name in eks.clusters:
            raise in_use(f"Cluster already exists with name: {name}", clusterName=name)
        cluster = _checked(eks, caller, name, params)
        state = ClusterState(cluster)
        eks.clusters[name] = state
    try:
        _make_network(eks, state)
    except Exception:
        del eks.clusters[name]
        raise
    if cluster.authentication_mode != "CONFIG_MAP" and cluster.access_config["bootstrapClusterCreatorAdminPermissions"]:
        access_entries.add_creator(eks, state, caller)
    threading.Thread(target=reconcile.run, args=(eks, state), name=f"cluster-{name}", daemon=True).start()
    return {"cluster": cluster_json(state.cluster)}


def describe(eks: Eks, caller: Principal, params: Mapping[str, Any]) -> Json:
    """DescribeCluster."""
    state = eks.find(str(params["name"]))
    view = cluster_json(state.cluster)
    if state.cluster.endpoint:
        view["endpoint"] = state.cluster.endpoint
        view["certificateAuthority"] = {"data": access_entries.encoded(state.cluster.ca_pem or "")}
    return {"cluster": view}


def list_all(eks: Eks, caller: Principal, params: Mapping[str, Any]) -> Json:
    """ListClusters."""
    return page(sorted(eks.clusters), params, "clusters")


def delete(eks: Eks, caller: Principal, params: Mapping[str, Any]) -> Json:
    """DeleteCluster; node groups must be deleted first."""
    name = str(params["name"])
    state = eks.find(name)
    with state.lock:
        if state.cluster.deletion_protection:
            raise refused(
                f"Cluster {name} has deletion protection: turn it off with update-cluster-config first",
                clusterName=name,
            )
        if state.groups:
            raise in_use("Cluster has nodegroups attached", clusterName=name, nodegroupName=next(iter(state.groups)))
        if running := _IN_PROGRESS.get(state.cluster.status):
            raise in_use(f"Cluster {name} has operation {running} in progress", clusterName=name)
        state.change(status="DELETING")
    state.wake.set()
    return describe(eks, caller, params)


def update_config(eks: Eks, caller: Principal, params: Mapping[str, Any]) -> Json:
    """UpdateClusterConfig; one kind of change per call, as on AWS."""
    name = str(params["name"])
    state = eks.find_active(name)
    _refuse_unsupported(params)
    given = [key for key in _UPDATES if key in params]
    if len(given) != 1:
        raise invalid(f"Exactly one kind of update is allowed per call, got {given or 'none'}", clusterName=name)
    with state.lock:
        kind, changes, shown = _UPDATES[given[0]](eks, state.cluster, params[given[0]])
        if replace(state.cluster, **changes) == state.cluster:
            raise invalid(f"Cluster is already at the desired configuration with {shown}", clusterName=name)
        state.change(**changes)
        update = eks.add_update(state, kind, shown)
    return {"update": update_json(update)}


def update_version(eks: Eks, caller: Principal, params: Mapping[str, Any]) -> Json:
    """UpdateClusterVersion: to the next minor version. The nodes keep theirs until their groups are updated.

    https://docs.aws.amazon.com/eks/latest/userguide/update-cluster.html
    """
    state, version = eks.find(str(params["name"])), _version(eks, params["version"])
    with state.lock:  # of two calls at once only one may see the cluster as ACTIVE
        current = eks.find_active(state.cluster.name).cluster.version
        if version == current:
            raise invalid(f"Cluster is already at version {version}", clusterName=state.cluster.name)
        if VERSIONS.index(version) != VERSIONS.index(current) + 1:
            raise invalid(f"Unsupported Kubernetes minor version update from {current} to {version}")
        state.change(status="UPDATING")
        update = eks.add_update(state, "VersionUpdate", {"Version": version})
        state.updates[update.id] = update
    eks.pool.submit(reconcile.upgrade, state, version, update.id)
    return {"update": update_json(update)}


def describe_versions(eks: Eks, caller: Principal, params: Mapping[str, Any]) -> Json:
    """DescribeClusterVersions. This cloud supports its versions for as long as it has their programs.

    https://docs.aws.amazon.com/eks/latest/APIReference/API_ClusterVersionInformation.html
    """
    wanted = params.get("clusterVersions") or VERSIONS
    wanted = [wanted] if isinstance(wanted, str) else wanted  # from a query with one value
    if params.get("versionStatus") not in (None, _SUPPORTED):
        wanted = ()
    newest_only = str(params.get("defaultOnly", "false")).lower() == "true"
    there = VERSIONS[-1:] if newest_only else reversed(VERSIONS)
    listed = [_version_json(each) for each in there if each in wanted]
    return page(listed, params, "clusterVersions")


def _version_json(version: str) -> Json:
    day = 24 * 3600
    return {
        "clusterVersion": version,
        "clusterType": "eks",
        "defaultPlatformVersion": PLATFORM_VERSION,
        "defaultVersion": version == VERSIONS[-1],
        "endOfStandardSupportDate": time.time() + 400 * day,
        "endOfExtendedSupportDate": time.time() + 800 * day,
        "status": "standard-support",
        "versionStatus": _SUPPORTED,
    }


def describe_update(eks: Eks, caller: Principal, params: Mapping[str, Any]) -> Json:
    """DescribeUpdate; that of a node group or an addon is found with its name only."""
    state = eks.find(str(params["name"]))
    update = state.updates.get(str(params["updateId"]))
    if update is None or (update.nodegroup, update.addon) != _owner(params):
        raise not_found(f"No update found for ID: {params['updateId']}", clusterName=state.cluster.name)
    return {"update": update_json(update)}


def list_updates(eks: Eks, caller: Principal, params: Mapping[str, Any]) -> Json:
    """ListUpdates of the cluster, or of the node group or addon that the call names."""
    state = eks.find(str(params["name"]))
    wanted = _owner(params)
    found = [update.id for update in list(state.updates.values()) if (update.nodegroup, update.addon) == wanted]
    return page(found, params, "updateIds")


def _owner(params: Mapping[str, Any]) -> tuple[str | None, str | None]:
    return params.get("nodegroupName"), params.get("addonName")


def _checked(eks: Eks, caller: Principal, name: str, params: Mapping[str, Any]) -> Cluster:
    _refuse_unsupported(params)
    version = _version(eks, params.get("version"))
    role = str(params["roleArn"])
    eks.check_role(role, "eks.amazonaws.com", ("sts:AssumeRole",), "roleArn")
    access = dict(params.get("accessConfig") or {})
    mode = access.setdefault("authenticationMode", "CONFIG_MAP")
    access.setdefault("bootstrapClusterCreatorAdminPermissions", True)
    if mode not in MODES:
        raise invalid(f"authenticationMode {mode!r} is none of {', '.join(MODES)}", clusterName=name)
    return Cluster(
        name=name,
        arn=eks.arn("cluster", name),
        version=version,
        role_arn=role,
        created_at=time.time(),
        creator_arn=caller.identity_arn,
        vpc_config=_vpc_config(eks, params.get("resourcesVpcConfig") or {}, name),
        network_config=_network_config(params.get("kubernetesNetworkConfig") or {}),
        logging=_logging(params.get("logging") or {}),
        access_config=access,
        encryption_config=list(params.get("encryptionConfig") or []),
        upgrade_policy=dict(params.get("upgradePolicy") or {"supportType": "EXTENDED"}),
        oidc_issuer=f"https://oidc.eks.{eks.settings.region}.amazonaws.com/id/{new_id(32).upper()}",
        index=eks.free_index(),
        interfaces=(),
        self_managed_addons=bool(params.get("bootstrapSelfManagedAddons", True)),
        deletion_protection=bool(params.get("deletionProtection", False)),
        tags=checked_tags(params.get("tags")),
    )


def _refuse_unsupported(params: Mapping[str, Any]) -> None:
    for key in UNSUPPORTED:
        value = params.get(key)
        if value and value != {"enabled": False} and value != {"blockStorage": {"enabled": False}}:
            raise invalid(f"{key} is not supported by this cloud: leave it out")


def _version(eks: Eks, version: Any) -> str:
    wanted = VERSIONS[-1] if version is None else str(version)
    if wanted not in VERSIONS:
        raise invalid(f"unsupported Kubernetes version {version}: supported are {', '.join(VERSIONS)}")
    if wanted not in eks.machine.kubernetes_versions():
        raise invalid(
            f"Kubernetes {wanted} is not installed: run `python3 -m scripts.toolchain previous`, "
            "activate the shell again, and start the cloud anew"
        )
    return wanted


def _network_config(given: Mapping[str, Any]) -> Json:
    cidr, family = given.get("serviceIpv4Cidr") or SERVICE_CIDR, given.get("ipFamily") or "ipv4"
    if cidr != SERVICE_CIDR or family != "ipv4":
        raise invalid(
            f"kubernetesNetworkConfig: serviceIpv4Cidr {cidr} with ipFamily {family} is not supported: "
            f"this cloud has {SERVICE_CIDR} with ipv4"
        )
    return {"serviceIpv4Cidr": cidr, "ipFamily": family, "elasticLoadBalancing": {"enabled": False}}


def _logging(given: Mapping[str, Any]) -> Json:
    enabled: set[str] = set()
    for entry in given.get("clusterLogging") or []:
        unknown = set(entry.get("types") or []) - set(LOG_TYPES)
        if unknown:
            raise invalid(f"logging: unknown log types {sorted(unknown)}: available are {', '.join(LOG_TYPES)}")
        enabled = enabled | set(entry["types"]) if entry.get("enabled") else enabled - set(entry["types"])
    parts = [(True, [name for name in LOG_TYPES if name in enabled])]
    parts.append((False, [name for name in LOG_TYPES if name not in enabled]))
    return {"clusterLogging": [{"types": types, "enabled": on} for on, types in parts if types]}


def _vpc_config(eks: Eks, given: Mapping[str, Any], name: str) -> Json:
    subnets = [str(identity) for identity in given.get("subnetIds") or []]
    found = {identity: eks.ec2.subnet(identity) for identity in subnets}
    for identity, subnet in found.items():
        if subnet is None:
            raise invalid(f"The subnet ID '{identity}' does not exist", clusterName=name)
    known = [subnet for subnet in found.values() if subnet is not None]
    if len({subnet.vpc_id for subnet in known}) > 1:
        raise invalid("Subnets specified must belong to the same VPC", clusterName=name)
    if len({subnet.zone for subnet in known}) < 2:
        raise invalid("Subnets specified must be in at least two different AZs", clusterName=name)
    groups = [str(identity) for identity in given.get("securityGroupIds") or []]
    for identity in groups:
        if not eks.ec2.security_group_exists(identity):
            raise invalid(f"The security group '{identity}' does not exist", clusterName=name)
    return {
        "subnetIds": subnets,
        "securityGroupIds": groups,
        "vpcId": known[0].vpc_id,
        **_endpoint_access(given, {"endpointPublicAccess": True, "endpointPrivateAccess": False}),
    }


def _endpoint_access(given: Mapping[str, Any], current: Mapping[str, Any]) -> Json:
    public = bool(given.get("endpointPublicAccess", current["endpointPublicAccess"]))
    private = bool(given.get("endpointPrivateAccess", current["endpointPrivateAccess"]))
    if not public and not private:
        raise invalid("Private and public endpoint access cannot be false")
    cidrs = given.get("publicAccessCidrs") or current.get("publicAccessCidrs") or ["0.0.0.0/0"]
    return {
        "endpointPublicAccess": public,
        "endpointPrivateAccess": private,
        "publicAccessCidrs": list(cidrs) if public else [],
    }


def _make_network(eks: Eks, state: ClusterState) -> None:
    """Create the cluster's security group, and network interfaces in two of its subnets."""
    cluster = state.cluster
    tags = {"Name": f"eks-cluster-sg-{cluster.name}", f"kubernetes.io/cluster/{cluster.name}": "owned"}
    group = eks.ec2.create_security_group(
        f"eks-cluster-sg-{cluster.name}-{new_id(9)}",
        "EKS created security group applied to ENI that is attached to EKS Control Plane master nodes, "
        "as well as any managed workloads.",
        cluster.vpc_config["vpcId"],
        {**tags, "aws:eks:cluster-name": cluster.name},
    )
    groups = [group, *cluster.vpc_config["securityGroupIds"]]
    zones: dict[str, str] = {}
    for identity in cluster.vpc_config["subnetIds"]:
        subnet = eks.ec2.subnet(identity)
        if subnet is not None:
            zones.setdefault(subnet.zone, identity)
    interfaces = tuple(
        eks.ec2.create_interface(subnet, groups, f"Amazon EKS {cluster.name}", {"aws:eks:cluster-name": cluster.name})
        for subnet in list(zones.values())[:2]
    )
    state.change(interfaces=interfaces, vpc_config={**cluster.vpc_config, "clusterSecurityGroupId": group})


def _update_logging(eks: Eks, cluster: Cluster, given: Json) -> tuple[str, Json, Json]:
    merged = {"clusterLogging": [*cluster.logging["clusterLogging"], *(given.get("clusterLogging") or [])]}
    return "LoggingUpdate", {"logging": _logging(merged)}, {"ClusterLogging": given}


def _update_vpc(eks: Eks, cluster: Cluster, given: Json) -> tuple[str, Json, Json]:
    for key in ("subnetIds", "securityGroupIds"):
        if given.get(key) is not None and list(given[key]) != cluster.vpc_config[key]:
            raise invalid(f"resourcesVpcConfig.{key} can't be changed in this cloud: replace the cluster")
    config = {**cluster.vpc_config, **_endpoint_access(given, cluster.vpc_config)}
    return "EndpointAccessUpdate", {"vpc_config": config}, given


def _update_access(eks: Eks, cluster: Cluster, given: Json) -> tuple[str, Json, Json]:
    mode, current = given.get("authenticationMode"), cluster.authentication_mode
    allowed = {"CONFIG_MAP": MODES, "API_AND_CONFIG_MAP": ("API", "API_AND_CONFIG_MAP"), "API": ("API",)}[current]
    if mode not in allowed:
        raise invalid(f"Unsupported authentication mode update from {current} to {mode}", clusterName=cluster.name)
    config = {**cluster.access_config, "authenticationMode": mode}
    return "AccessConfigUpdate", {"access_config": config}, {"AuthenticationMode": mode}


def _update_policy(eks: Eks, cluster: Cluster, given: Json) -> tuple[str, Json, Json]:
    return "UpgradePolicyUpdate", {"upgrade_policy": dict(given)}, {"UpgradePolicy": given.get("supportType")}


def _update_protection(eks: Eks, cluster: Cluster, given: bool) -> tuple[str, Json, Json]:
    return "DeletionProtectionUpdate", {"deletion_protection": bool(given)}, {"DeletionProtection": given}


_UPDATES: Mapping[str, Any] = {
    "logging": _update_logging,
    "resourcesVpcConfig": _update_vpc,
    "accessConfig": _update_access,
    "upgradePolicy": _update_policy,
    "deletionProtection": _update_protection,
}
