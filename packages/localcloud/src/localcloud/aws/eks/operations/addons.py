"""Addon operations: what the API stores and returns. `localcloud.kube` installs the addons."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from localcloud.aws.eks.errors import in_use, invalid, not_found
from localcloud.aws.eks.model import VERSIONS, Addon, Json, addon_json, update_json
from localcloud.aws.eks.operations import pod_identities
from localcloud.aws.eks.state import ClusterState, Eks, checked_tags, page
from localcloud.aws.principals import Principal

NAMESPACE = "kube-system"


def create(eks: Eks, caller: Principal, params: Mapping[str, Any]) -> Json:
    """CreateAddon."""
    state = eks.find_active(str(params["clusterName"]))
    cluster, name = state.cluster.name, str(params["addonName"])
    version, now = _version(eks, name, params.get("addonVersion"), state.cluster.version), time.time()
    configuration = params.get("configurationValues")
    parsed(configuration)
    with state.lock:
        if name in state.addons:
            raise in_use("Addon already exists.", clusterName=cluster, addonName=name)
        addon = Addon(
            name=name,
            cluster=cluster,
            arn=eks.arn("addon", cluster, name, str(uuid.uuid4())),
            version=version,
            created_at=now,
            modified_at=now,
            configuration=configuration,
            service_account_role=params.get("serviceAccountRoleArn"),
            associations=(),
            tags=checked_tags(params.get("tags")),
        )
        addon = replace(addon, associations=_associate(eks, state, addon, params.get("podIdentityAssociations") or []))
        state.addons[name] = addon
        state.removed_addons.discard(name)
    _install(eks, state, addon)
    return {"addon": addon_json(addon)}


def describe(eks: Eks, caller: Principal, params: Mapping[str, Any]) -> Json:
    """DescribeAddon."""
    return {"addon": addon_json(_find(eks, params)[1])}


def list_all(eks: Eks, caller: Principal, params: Mapping[str, Any]) -> Json:
    """ListAddons."""
    return page(sorted(eks.find(str(params["clusterName"])).addons), params, "addons")


def update(eks: Eks, caller: Principal, params: Mapping[str, Any]) -> Json:
    """UpdateAddon: change version, configuration and pod identities."""
    state, addon = _find(eks, params)
    version = params.get("addonVersion") or addon.version
    if version != addon.version:
        version = _version(eks, addon.name, version, state.cluster.version)
    configuration = params.get("configurationValues", addon.configuration)
    parsed(configuration)
    with state.lock:
        addon = replace(
            addon,
            version=version,
            configuration=configuration,
            service_account_role=params.get("serviceAccountRoleArn", addon.service_account_role),
            status="UPDATING",
            modified_at=time.time(),
        )
        if params.get("podIdentityAssociations") is not None:
            _dissociate(state, addon)
            addon = replace(addon, associations=_associate(eks, state, addon, params["podIdentityAssociations"]))
        state.addons[addon.name] = addon
        record = eks.add_update(state, "AddonUpdate", {"AddonVersion": version}, addon=addon.name)
        state.updates[record.id] = record
    _install(eks, state, addon)
    return {"update": update_json(record)}


def delete(eks: Eks, caller: Principal, params: Mapping[str, Any]) -> Json:
    """DeleteAddon; with `preserve` the software stays installed and EKS stops managing it."""
    state, addon = _find(eks, params)
    with state.lock:
        del state.addons[addon.name]
        _dissociate(state, addon)
        if str(params.get("preserve", "false")).lower() != "true":
            state.removed_addons.add(addon.name)
            eks.pool.submit(_remove, state, addon.name)
    return {"addon": addon_json(replace(addon, status="DELETING"))}


def versions(eks: Eks, caller: Principal, params: Mapping[str, Any]) -> Json:
    """DescribeAddonVersions."""
    wanted = params.get("addonName")
    kubernetes = params.get("kubernetesVersion")
    if kubernetes not in (None, *VERSIONS):
        return {"addons": []}
    found = {name: numbers for name, numbers in eks.machine.addon_versions().items() if wanted in (None, name)}
    if wanted is not None and not found:
        raise invalid(f"Addon {wanted} specified is not supported", addonName=str(wanted))
    for_versions = (kubernetes,) if kubernetes else VERSIONS
    listed = [_versions_json(name, numbers, for_versions) for name, numbers in sorted(found.items())]
    return page(listed, params, "addons")


def configuration_schema(eks: Eks, caller: Principal, params: Mapping[str, Any]) -> Json:
    """DescribeAddonConfiguration; the schema accepts any object."""
    version = _version(eks, str(params["addonName"]), params.get("addonVersion"), None)
    schema = {"$schema": "http://json-schema.org/draft-06/schema#", "type": "object"}
    return {"addonName": params["addonName"], "addonVersion": version, "configurationSchema": json.dumps(schema)}


def refresh(state: ClusterState) -> bool:
    """Update the addons' status from the installed software; return whether any addon is not ACTIVE yet.

    What is still being installed says nothing yet, and neither does anything while the API server is being replaced.
    """
    software, moving = state.software, False
    for name, addon in list(state.addons.items()):
        if software is None or addon.status in ("CREATE_FAILED", "UPDATE_FAILED"):
            continue
        if name in state.installing or state.cluster.status == "UPDATING":
            moving = True
            continue
        seen = software.status(name)
        issue = {"code": "InsufficientNumberOfReplicas", "message": f"{name} is unhealthy: too few of its pods run"}
        status = {"CREATING": addon.status if addon.status != "ACTIVE" else "DEGRADED"}.get(seen, seen)
        moving = moving or status != "ACTIVE"
        issues = (issue,) if status == "DEGRADED" else ()
        with state.lock:
            if state.addons.get(name) is addon and name not in state.installing:
                state.addons[name] = replace(addon, status=status, issues=issues)
                if status != "UPDATING":
                    _end_updates(state, name, "Successful")
    return moving


def parsed(configuration: str | None) -> Json:
    """Return the configuration values as an object; raise the API's error if they are not one."""
    if not configuration:
        return {}
    try:
        values = json.loads(configuration)
    except ValueError:
        import yaml

        try:
            values = yaml.safe_load(configuration)
        except yaml.YAMLError as error:
            raise invalid(f"ConfigurationValue provided in request is neither JSON nor YAML: {error}") from error
    if not isinstance(values, dict):
        raise invalid(f"ConfigurationValue provided in request is not an object: {configuration}")
    return values


def _end_updates(state: ClusterState, name: str, status: str, *errors: Json) -> None:
    for update in list(state.updates.values()):
        if update.addon == name and update.status == "InProgress":
            state.updates[update.id] = replace(update, status=status, errors=errors)


def _install(eks: Eks, state: ClusterState, addon: Addon) -> None:
    def work() -> None:
        from localcloud.errors import CloudError

        try:
            if state.software is not None and addon.name in state.addons:
                state.software.install(addon.name, addon.version, parsed(addon.configuration))
        except CloudError as error:
            failed = "UPDATE_FAILED" if addon.status == "UPDATING" else "CREATE_FAILED"
            issue = {"code": "ConfigurationConflict", "message": str(error)}
            with state.lock:
                if addon.name in state.addons:
                    state.addons[addon.name] = replace(state.addons[addon.name], status=failed, issues=(issue,))
                    _end_updates(state, addon.name, "Failed", _update_error(issue, addon.name))
        finally:
            with state.lock:
                state.installing.remove(addon.name)
        state.wake.set()

    with state.lock:
        state.installing.append(addon.name)
    eks.pool.submit(work)


def _update_error(issue: Json, name: str) -> Json:
    return {"errorCode": issue["code"], "errorMessage": issue["message"], "resourceIds": [name]}


def _remove(state: ClusterState, name: str) -> None:
    if state.software is not None and name in state.removed_addons:
        state.software.remove(name)


def _associate(eks: Eks, state: ClusterState, addon: Addon, wanted: list[Any]) -> tuple[str, ...]:
    made = [
        pod_identities.add(eks, state, (NAMESPACE, item["serviceAccount"]), item["roleArn"], owner_arn=addon.arn)
        for item in wanted
    ]
    return tuple(association.arn for association in made)


def _dissociate(state: ClusterState, addon: Addon) -> None:
    for identity, association in list(state.associations.items()):
        if association.owner_arn == addon.arn:
            del state.associations[identity]


def fitting(name: str, numbers: list[str], kubernetes: str | None) -> list[str]:
    """Return the versions of an addon that go with a version of Kubernetes; kube-proxy has the cluster's own."""
    if name != "kube-proxy" or kubernetes is None:
        return numbers
    return [number for number in numbers if number.startswith(f"v{kubernetes}.")]


def _versions_json(name: str, numbers: list[str], kubernetes: Sequence[str]) -> Json:
    fits = {version: fitting(name, numbers, version) for version in kubernetes}
    compatible = {
        number: [
            {"clusterVersion": version, "platformVersions": ["*"], "defaultVersion": number == listed[0]}
            for version, listed in fits.items()
            if number in listed
        ]
        for number in numbers
    }
    return {
        "addonName": name,
        "type": "storage" if "csi" in name else "networking",
        "addonVersions": [
            {
                "addonVersion": number,
                "architecture": ["amd64", "arm64"],
                "compatibilities": compatibilities,
                "requiresConfiguration": False,
                "requiresIamPermissions": name == "vpc-cni" or "csi" in name,
            }
            for number, compatibilities in compatible.items()
            if compatibilities
        ],
        "publisher": "eks",
        "owner": "aws",
    }


def _version(eks: Eks, name: str, version: Any, kubernetes: str | None) -> str:
    known = eks.machine.addon_versions()
    if name not in known:
        raise invalid(
            f"Addon {name} specified is not supported: available are {', '.join(sorted(known))}", addonName=name
        )
    fits = fitting(name, known[name], kubernetes)
    if version is not None and version not in fits:
        raise invalid(
            f"Addon version {version} specified is not supported: {name} has {', '.join(fits)}", addonName=name
        )
    return str(version or fits[0])


def _find(eks: Eks, params: Mapping[str, Any]) -> tuple[ClusterState, Addon]:
    state, name = eks.find(str(params["clusterName"])), str(params["addonName"])
    addon = state.addons.get(name)
    if addon is None:
        raise not_found(
            f"No addon: {name} found in cluster: {state.cluster.name}", clusterName=state.cluster.name, addonName=name
        )
    return state, addon
