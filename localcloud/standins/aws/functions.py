"""The functions (invokes) that the stand-in answers."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from localcloud.standins.aws.entry import Call, Tree, absent_as_none, words
from localcloud.standins.aws.resources import eks
from localcloud.standins.serve import PluginError


@dataclass(frozen=True)
class Function:
    """A function: what it accepts, and how it answers."""

    arguments: frozenset[str]
    answer: Callable[[Call], Tree]


def _region(call: Call) -> Tree:
    region = call.region
    wanted = call.inputs.get("endpoint")
    if wanted:
        region = wanted.split(".")[1]
    found = call.client("ec2").describe_regions(RegionNames=[region])["Regions"]
    if not found:
        raise PluginError(f"there is no AWS region {region}")
    host = found[0].get("Endpoint") or f"ec2.{region}.amazonaws.com"
    return {"id": region, "name": region, "region": region, "endpoint": host, "description": region}


def _caller(call: Call) -> Tree:
    me = call.client("sts").get_caller_identity()
    return {"id": me["Account"], "accountId": me["Account"], "arn": me["Arn"], "userId": me["UserId"]}


def _partition(call: Call) -> Tree:
    partition, suffix = ("aws-cn", "amazonaws.com.cn") if call.region.startswith("cn-") else ("aws", "amazonaws.com")
    reverse = ".".join(reversed(suffix.split(".")))
    return {"id": partition, "partition": partition, "dnsSuffix": suffix, "reverseDnsPrefix": reverse}


def _filters(call: Call) -> list[Tree]:
    return [{"Name": item["name"], "Values": item["values"]} for item in call.inputs.get("filters") or []]


def _zones(call: Call) -> Tree:
    arguments: Tree = {"Filters": _filters(call)}
    if call.inputs.get("allAvailabilityZones"):
        arguments["AllAvailabilityZones"] = True
    found = call.client("ec2").describe_availability_zones(**arguments)["AvailabilityZones"]
    state = call.inputs.get("state")
    barred = {*(call.inputs.get("excludeNames") or []), *(call.inputs.get("excludeZoneIds") or [])}
    zones = sorted(
        (zone["ZoneName"], zone.get("ZoneId", ""), zone.get("GroupName") or call.region)
        for zone in found
        if state in (None, zone.get("State")) and not barred & {zone["ZoneName"], zone.get("ZoneId")}
    )
    return {
        "id": call.region,
        "region": call.region,
        "names": [name for name, _, _ in zones],
        "zoneIds": [zone_id for _, zone_id, _ in zones],
        "groupNames": sorted({group for _, _, group in zones}),
        **{name: value for name, value in call.inputs.items() if name != "region"},
    }


def _policy_document(call: Call) -> Tree:
    inputs = call.inputs
    document: Tree = {"Version": inputs.get("version") or "2012-10-17"}
    if inputs.get("policyId"):
        document["Id"] = inputs["policyId"]
    document["Statement"] = _merged(inputs)
    # Terraform's own form: two spaces, and a list of one written as its member.
    text = json.dumps(document, indent=2)
    return {
        **inputs,
        "id": str(zlib.crc32(text.encode())),
        "json": text,
        "minifiedJson": json.dumps(document, separators=(",", ":")),
    }


def _merged(inputs: Tree) -> list[Tree]:
    """The statements of the sources, the own ones, and the overrides; a later one replaces one of the same Sid."""
    own = [_statement(statement) for statement in inputs.get("statements") or []]
    parts = [*_parsed(inputs, "sourcePolicyDocuments"), *own, *_parsed(inputs, "overridePolicyDocuments")]
    merged: list[Tree] = []
    for statement in parts:
        sid = statement.get("Sid")
        place = next((index for index, other in enumerate(merged) if sid and other.get("Sid") == sid), None)
        if place is None:
            merged.append(statement)
        else:
            merged[place] = statement
    return merged


def _parsed(inputs: Tree, name: str) -> list[Tree]:
    found: list[Tree] = []
    for text in inputs.get(name) or []:
        statements = json.loads(text).get("Statement", []) if text else []
        found.extend(statements if isinstance(statements, list) else [statements])
    return found


def _statement(given: Tree) -> Tree:
    statement: Tree = {"Sid": given["sid"]} if given.get("sid") else {}
    statement["Effect"] = given.get("effect") or "Allow"
    lists = {"actions": "Action", "notActions": "NotAction", "resources": "Resource", "notResources": "NotResource"}
    for name, key in lists.items():
        if given.get(name):
            statement[key] = _one_or_many(sorted(given[name], reverse=True))
    for name, key in (("principals", "Principal"), ("notPrincipals", "NotPrincipal")):
        if given.get(name):
            statement[key] = _principals(given[name])
    conditions: Tree = {}
    for item in given.get("conditions") or []:
        conditions.setdefault(item["test"], {}).setdefault(item["variable"], []).extend(item["values"])
    if conditions:
        statement["Condition"] = {
            test: {variable: _one_or_many(values) for variable, values in variables.items()}
            for test, variables in conditions.items()
        }
    return statement


def _one_or_many(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else values


def _principals(given: list[Tree]) -> Any:
    grouped: dict[str, list[str]] = {}
    for item in given:
        grouped.setdefault(item["type"], []).extend(item["identifiers"])
    if grouped == {"*": ["*"]}:
        return "*"
    return {kind: _one_or_many(sorted(identifiers, reverse=True)) for kind, identifiers in grouped.items()}


def _addon_version(call: Call) -> Tree:
    inputs = call.inputs
    names = {"addonName": inputs["addonName"], "kubernetesVersion": inputs["kubernetesVersion"]}
    found = call.client("eks").describe_addon_versions(**names)["addons"]
    for addon in found:
        for version in addon["addonVersions"]:
            default = any(fit.get("defaultVersion") for fit in version.get("compatibilities") or [])
            if inputs.get("mostRecent") or default:
                return {**inputs, "id": inputs["addonName"], "region": call.region, "version": version["addonVersion"]}
    raise PluginError(f"no version of EKS addon {inputs['addonName']} fits Kubernetes {inputs['kubernetesVersion']}")


def _cluster(call: Call) -> Tree:
    call.id = call.inputs["name"]
    found = eks.read_cluster(Call(call.clients, inputs={"region": call.region}, id=call.id))
    if found is None:
        raise PluginError(f"there is no EKS cluster {call.id}")
    single = {
        key: [found[key]] for key in ("kubernetesNetworkConfig", "accessConfig", "upgradePolicy") if found.get(key)
    }
    plural = {
        "id": call.id,
        "region": call.region,
        "certificateAuthorities": [found["certificateAuthority"]],
        "kubernetesNetworkConfigs": single.get("kubernetesNetworkConfig", []),
        "accessConfigs": single.get("accessConfig", []),
        "upgradePolicies": single.get("upgradePolicy", []),
    }
    dropped = {"certificateAuthority", "kubernetesNetworkConfig", "accessConfig", "upgradePolicy", "encryptionConfig"}
    return {key: value for key, value in {**found, **plural}.items() if key not in dropped}


def _cluster_auth(call: Call) -> Tree:
    """A token as `aws eks get-token` makes it: a presigned GetCallerIdentity, valid for 15 minutes."""
    name = call.inputs["name"]
    sts = call.client("sts")

    def add_cluster(request: Any, **_: Any) -> None:
        request.headers.add_header("x-k8s-aws-id", name)

    sts.meta.events.register("before-sign.sts.GetCallerIdentity", add_cluster, unique_id="cluster")
    try:
        url = sts.generate_presigned_url("get_caller_identity", ExpiresIn=60, HttpMethod="GET")
    finally:
        sts.meta.events.unregister("before-sign.sts.GetCallerIdentity", unique_id="cluster")
    token = "k8s-aws-v1." + base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")
    return {"id": name, "name": name, "region": call.region, "token": token}


def _instance_type(call: Call) -> Tree:
    name = call.inputs["instanceType"]
    codes = ("InvalidInstanceType",)
    found = absent_as_none(lambda: call.client("ec2").describe_instance_types(InstanceTypes=[name]), *codes)
    if not found or not found["InstanceTypes"]:
        raise PluginError(f"there is no EC2 instance type {name}")
    facts = found["InstanceTypes"][0]
    cpu, network = facts.get("VCpuInfo") or {}, facts.get("NetworkInfo") or {}
    accelerators = (facts.get("GpuInfo") or {}).get("Gpus") or []
    return {
        "id": name,
        "instanceType": name,
        "region": call.region,
        "currentGeneration": bool(facts.get("CurrentGeneration")),
        "defaultVcpus": cpu.get("DefaultVCpus", 0),
        "defaultCores": cpu.get("DefaultCores", 0),
        "memorySize": (facts.get("MemoryInfo") or {}).get("SizeInMiB", 0),
        "supportedArchitectures": (facts.get("ProcessorInfo") or {}).get("SupportedArchitectures") or [],
        "supportedUsagesClasses": facts.get("SupportedUsageClasses") or [],
        "efaSupported": bool(network.get("EfaSupported")),
        "efaMaximumInterfaces": (network.get("EfaInfo") or {}).get("MaximumEfaInterfaces", 0),
        "maximumNetworkInterfaces": network.get("MaximumNetworkInterfaces", 0),
        "maximumIpv4AddressesPerInterface": network.get("Ipv4AddressesPerInterface", 0),
        "bareMetal": bool(facts.get("BareMetal")),
        "gpuses": [
            {
                "count": gpu.get("Count", 0),
                "manufacturer": gpu.get("Manufacturer", ""),
                "memorySize": (gpu.get("MemoryInfo") or {}).get("SizeInMiB", 0),
                "name": gpu.get("Name", ""),
            }
            for gpu in accelerators
        ],
        "totalGpuMemory": (facts.get("GpuInfo") or {}).get("TotalGpuMemoryInMiB", 0),
    }


def _offerings(call: Call) -> Tree:
    kind = call.inputs.get("locationType") or "region"
    pages = call.client("ec2").get_paginator("describe_instance_type_offerings")
    found = [
        offering
        for page in pages.paginate(LocationType=kind, Filters=_filters(call))
        for offering in page["InstanceTypeOfferings"]
    ]
    found.sort(key=lambda offering: (offering["Location"], offering["InstanceType"]))
    return {
        "id": call.region,
        "region": call.region,
        "instanceTypes": [offering["InstanceType"] for offering in found],
        "locations": [offering["Location"] for offering in found],
        "locationTypes": [kind for _ in found],
        **{name: value for name, value in call.inputs.items() if name != "region"},
    }


def _offering(call: Call) -> Tree:
    found = _offerings(call)
    available = found["instanceTypes"]
    preferred = call.inputs.get("preferredInstanceTypes") or []
    chosen = next((kind for kind in preferred if kind in available), available[0] if len(available) == 1 else None)
    if chosen is None:
        raise PluginError("getInstanceTypeOffering: no instance type, or more than one, fits the filters")
    return {**call.inputs, "id": chosen, "region": call.region, "instanceType": chosen}


def _parameter(call: Call) -> Tree:
    name = call.inputs["name"]
    answer = absent_as_none(
        lambda: call.client("ssm").get_parameter(Name=name, WithDecryption=call.inputs.get("withDecryption", True)),
        "ParameterNotFound",
    )
    if not answer:
        raise PluginError(f"there is no SSM parameter {name}")
    found = answer["Parameter"]
    value = found["Value"]
    shown = {"insecureValue": value} if found["Type"] != "SecureString" else {}
    facts = {"arn": found["ARN"], "type": found["Type"], "value": value, "version": found["Version"]}
    return {"id": name, "name": name, "region": call.region, "withDecryption": True, **facts, **shown}


_OFFERING_ARGUMENTS: Final = words("filters locationType")

FUNCTIONS: Final = {
    "aws:index/getRegion:getRegion": Function(words("endpoint id name"), _region),
    "aws:index/getCallerIdentity:getCallerIdentity": Function(words("id"), _caller),
    "aws:index/getPartition:getPartition": Function(words("id"), _partition),
    "aws:index/getAvailabilityZones:getAvailabilityZones": Function(
        words("allAvailabilityZones excludeNames excludeZoneIds filters state"), _zones
    ),
    "aws:iam/getPolicyDocument:getPolicyDocument": Function(
        words("overridePolicyDocuments policyId sourcePolicyDocuments statements version"), _policy_document
    ),
    "aws:eks/getAddonVersion:getAddonVersion": Function(
        words("addonName kubernetesVersion mostRecent"), _addon_version
    ),
    "aws:eks/getCluster:getCluster": Function(words("name tags"), _cluster),
    "aws:eks/getClusterAuth:getClusterAuth": Function(words("name"), _cluster_auth),
    "aws:ec2/getInstanceType:getInstanceType": Function(words("instanceType"), _instance_type),
    "aws:ec2/getInstanceTypeOffering:getInstanceTypeOffering": Function(
        _OFFERING_ARGUMENTS | words("preferredInstanceTypes"), _offering
    ),
    "aws:ec2/getInstanceTypeOfferings:getInstanceTypeOfferings": Function(_OFFERING_ARGUMENTS, _offerings),
    "aws:ssm/getParameter:getParameter": Function(words("name withDecryption"), _parameter),
}
