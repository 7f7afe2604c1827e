"""Rules for the EKS control plane and its addons."""

from __future__ import annotations

import json

from tests.security.changes import drop, put, unset
from tests.security.rules.rule import Finding, Rule, each, each_in, must
from tests.security.stack import Resource, Stack

CLUSTER = "aws:eks/cluster:Cluster"
ADDON = "aws:eks/addon:Addon"
LOGS = {"api", "audit", "authenticator", "controllerManager", "scheduler"}
EVERYWHERE = {"0.0.0.0/0", "::/0"}

SUPPORTED = {"1.34", "1.35", "1.36"}
"""In standard support in November 2026; 1.34 until 2026-12-02.
https://docs.aws.amazon.com/eks/latest/userguide/kubernetes-versions.html"""


def _logs(cluster: Resource) -> str | None:
    missing = LOGS - set(cluster.get("enabledClusterLogTypes") or ())
    return must(not missing, f"no log of {', '.join(sorted(missing))}")


def _addresses(cluster: Resource) -> str | None:
    given = cluster.get("vpcConfig.publicAccessCidrs")
    if not given:  # EKS then lets every address in
        return must(not cluster.get("vpcConfig.endpointPublicAccess"), "the public API names no addresses")
    return must(not EVERYWHERE & set(given), "the API is open to every address")


def _private_api(stack: Stack) -> list[Finding]:
    clusters = stack.of(CLUSTER)
    public = [Finding(each.urn, "public API") for each in clusters if each.get("vpcConfig.endpointPublicAccess")]
    private = "nodes reach the API over the internet"
    return public + [Finding(each.urn, private) for each in clusters if not each.get("vpcConfig.endpointPrivateAccess")]


def _secrets(stack: Stack, cluster: Resource) -> str | None:
    config = cluster.get("encryptionConfig") or {}
    encrypted = "secrets" in config.get("resources", ()) and stack.has_key(config.get("provider", {}).get("keyArn"))
    return must(encrypted, "secrets are not encrypted with the stack's key")


def _is_cni(addon: Resource) -> bool:
    return bool(addon.get("addonName") == "vpc-cni")


def _enforces(stack: Stack, cluster: Resource) -> str | None:
    addons = [addon for addon in stack.attached(ADDON, "clusterName", cluster) if _is_cni(addon)]
    values = [json.loads(addon.get("configurationValues") or "{}") for addon in addons]
    on = [each for each in values if str(each.get("enableNetworkPolicy")).lower() == "true"]
    return must(on, "the VPC CNI does not enforce NetworkPolicies")


RULES = (
    Rule(
        "CKV_AWS_37",
        "the control plane writes all five logs",
        each(CLUSTER, _logs),
        (put(CLUSTER, "enabledClusterLogTypes", sorted(LOGS - {"audit"})), unset(CLUSTER, "enabledClusterLogTypes")),
    ),
    Rule(
        "CKV_AWS_38",
        "the API is not open to every address",
        each(CLUSTER, _addresses),
        (
            put(CLUSTER, "vpcConfig.publicAccessCidrs", ["0.0.0.0/0"]),
            unset(CLUSTER, "vpcConfig.publicAccessCidrs"),
        ),
    ),
    Rule(
        "CKV_AWS_39",
        "the API is reached from the VPC only",
        _private_api,
        (put(CLUSTER, "vpcConfig.endpointPrivateAccess", False),),
    ),
    Rule(
        "CKV_AWS_58",
        "Kubernetes secrets are encrypted with a customer's key",
        each_in(CLUSTER, _secrets),
        (
            unset(CLUSTER, "encryptionConfig"),
            put(CLUSTER, "encryptionConfig.resources", []),
            put(CLUSTER, "encryptionConfig.provider.keyArn", "arn:aws:kms:us-west-2:1:key/other"),
        ),
    ),
    Rule(
        "CKV_AWS_339",
        "the Kubernetes version is supported",
        each(CLUSTER, lambda found: must(found.get("version") in SUPPORTED, f"version {found.get('version')}")),
        (put(CLUSTER, "version", "1.29"), unset(CLUSTER, "version")),
    ),
    Rule(
        "eks_cluster_deletion_protection_enabled",
        "the cluster can't be deleted by mistake",
        each(CLUSTER, lambda found: must(found.get("deletionProtection"), "no deletion protection")),
        (put(CLUSTER, "deletionProtection", False),),
    ),
    Rule(
        "eks_cluster_network_policy_enabled",
        "the VPC CNI enforces NetworkPolicies",
        each_in(CLUSTER, _enforces),
        (
            drop(ADDON, _is_cni),
            put(ADDON, "configurationValues", '{"enableNetworkPolicy":"false"}', _is_cni),
            unset(ADDON, "configurationValues", _is_cni),
        ),
    ),
    Rule(
        "TW_API_ACCESS",
        "only access entries give access, and no ConfigMap that may lock everyone out",
        each(CLUSTER, lambda found: must(found.get("accessConfig.authenticationMode") == "API", "not by entries only")),
        (put(CLUSTER, "accessConfig.authenticationMode", "API_AND_CONFIG_MAP"),),
        own_source="https://docs.aws.amazon.com/eks/latest/userguide/setting-up-access-entries.html",
    ),
)
