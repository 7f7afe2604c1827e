"""The functions of EKS that the stand-in covers."""

from __future__ import annotations

from typing import Final

from localcloud.standins.aws.entry import Call, Tree, words
from localcloud.standins.aws.resources.eks import read_cluster, read_node_group
from localcloud.standins.aws.resources.eks_access import read_addon, read_entry
from localcloud.standins.serve import PluginError

_NOT_OF_CLUSTERS_HERE: Final = words(
    "computeConfigs controlPlaneScalingConfigs kubeApiServerConfigs kubeControllerManagerConfigs kubeSchedulerConfigs "
    "outpostConfigs remoteNetworkConfigs storageConfigs zonalShiftConfigs"
)


def addon_version(call: Call) -> Tree:
    """The newest or the default version of an addon for a version of Kubernetes."""
    inputs = call.inputs
    names = {"addonName": inputs["addonName"], "kubernetesVersion": inputs["kubernetesVersion"]}
    found = call.client("eks").describe_addon_versions(**names)["addons"]
    for addon in found:
        for version in addon["addonVersions"]:
            default = any(fit.get("defaultVersion") for fit in version.get("compatibilities") or [])
            if inputs.get("mostRecent") or default:
                return {**inputs, "id": inputs["addonName"], "region": call.region, "version": version["addonVersion"]}
    raise PluginError(f"no version of EKS addon {inputs['addonName']} fits Kubernetes {inputs['kubernetesVersion']}")


def clusters(call: Call) -> Tree:
    """The names of all clusters."""
    pages = call.client("eks").get_paginator("list_clusters").paginate()
    return {"id": call.region, "names": [name for page in pages for name in page["clusters"]], "region": call.region}


def cluster(call: Call) -> Tree:
    """One cluster, by its name."""
    call.id = call.inputs["name"]
    found = read_cluster(call)
    if found is None:
        raise PluginError(f"reading EKS Cluster ({call.id}): couldn't find resource")
    found.pop("encryptionConfig")
    several = {"certificateAuthority": "certificateAuthorities", "upgradePolicy": "upgradePolicies"}
    blocks = {name: found.pop(name) for name in ("accessConfig", "kubernetesNetworkConfig", *several)}
    lists = {several.get(name, f"{name}s"): [block] if block else [] for name, block in blocks.items()}
    none: Tree = {name: [] for name in _NOT_OF_CLUSTERS_HERE}
    return {**none, **found, **lists, "id": call.id, "clusterId": "", "region": call.region}


def node_groups(call: Call) -> Tree:
    """The names of a cluster's node groups."""
    cluster = call.inputs["clusterName"]
    pages = call.client("eks").get_paginator("list_nodegroups").paginate(clusterName=cluster)
    names = [name for page in pages for name in page["nodegroups"]]
    return {"id": cluster, "clusterName": cluster, "names": names, "region": call.region}


def node_group(call: Call) -> Tree:
    """One node group."""
    call.id = f"{call.inputs['clusterName']}:{call.inputs['nodeGroupName']}"
    found = read_node_group(call)
    if found is None:
        raise PluginError(f"reading EKS Node Group ({call.id}): couldn't find resource")
    found.pop("nodeRepairConfig", None)
    blocks = {name: found.pop(name, None) for name in ("launchTemplate", "scalingConfig", "updateConfig")}
    lists = {f"{name}s": [block] if block else [] for name, block in blocks.items()}
    return {**found, **lists, "id": call.id, "remoteAccesses": [], "warmPoolConfigs": [], "region": call.region}


def cluster_versions(call: Call) -> Tree:
    """The versions of Kubernetes, with the end of their support."""
    given = {name: value for name, value in call.inputs.items() if value is not None}
    same = {"versionStatus", "clusterType", "defaultOnly", "includeAll"}
    asked = {"clusterVersions" if key not in same else key: value for key, value in given.items() if key != "region"}
    pages = call.client("eks").get_paginator("describe_cluster_versions").paginate(**asked)
    found = [
        {
            "clusterVersion": each["clusterVersion"],
            "clusterType": each["clusterType"],
            "defaultPlatformVersion": each["defaultPlatformVersion"],
            "defaultVersion": each["defaultVersion"],
            "endOfStandardSupportDate": f"{each['endOfStandardSupportDate']:%Y-%m-%dT%H:%M:%SZ}",
            "endOfExtendedSupportDate": f"{each['endOfExtendedSupportDate']:%Y-%m-%dT%H:%M:%SZ}",
            "versionStatus": each["versionStatus"],
        }
        for page in pages
        for each in page["clusterVersions"]
    ]
    return {**given, "region": call.region, "clusterVersions": found}


def addon(call: Call) -> Tree:
    """One addon of a cluster."""
    call.id = f"{call.inputs['clusterName']}:{call.inputs['addonName']}"
    found = read_addon(call)
    if found is None:
        raise PluginError(f"reading EKS Add-On ({call.id}): couldn't find resource")
    return {**found, "id": call.id, "region": call.region}


def access_entry(call: Call) -> Tree:
    """One access entry of a cluster."""
    call.id = f"{call.inputs['clusterName']}:{call.inputs['principalArn']}"
    found = read_entry(call)
    if found is None:
        raise PluginError(f"reading EKS Access Entry ({call.id}): couldn't find resource")
    return {**found, "id": call.id, "tagsAll": found["tags"], "region": call.region}
