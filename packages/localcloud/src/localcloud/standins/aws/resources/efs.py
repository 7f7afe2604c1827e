"""EFS: file systems, mount targets, access points and policies."""

from __future__ import annotations

import secrets
from typing import Any, Final

from localcloud.standins.aws.entry import (
    ALL,
    Call,
    Entry,
    Tree,
    absent_as_none,
    ignore_absent,
    retry,
    tag_map,
    wait,
    words,
)
from localcloud.standins.serve import PluginError


def _pascal(value: Any) -> Any:
    if isinstance(value, dict):
        return {key[0].upper() + key[1:]: _pascal(item) for key, item in value.items() if item is not None}
    return [_pascal(item) for item in value] if isinstance(value, list) else value


def _camel(value: Any) -> Any:
    if isinstance(value, dict):
        return {key[0].lower() + key[1:]: _camel(item) for key, item in value.items()}
    return [_camel(item) for item in value] if isinstance(value, list) else value


def _one(call: Call, operation: str, key: str, **arguments: Any) -> Any:
    answer = absent_as_none(lambda: getattr(call.client("efs"), operation)(**arguments))
    return answer[key][0] if answer and answer[key] else None


def _update_tags(call: Call) -> None:
    changed, removed = call.tag_changes()
    efs = call.client("efs")
    if removed:
        efs.untag_resource(ResourceId=call.id, TagKeys=removed)
    if changed:
        efs.tag_resource(ResourceId=call.id, Tags=[{"Key": key, "Value": value} for key, value in changed.items()])


def _wait_until(call: Call, operation: str, key: str, what: str, **arguments: Any) -> None:
    def available() -> bool:
        found = _one(call, operation, key, **arguments)
        if found is None or found["LifeCycleState"] == "error":
            raise PluginError(f"{what} {call.id} is {'gone' if found is None else 'in error'}")
        return bool(found["LifeCycleState"] == "available")

    wait(call, available, f"{what} {call.id} to be available")


_SYSTEM: Final = {
    "performanceMode": "PerformanceMode",
    "throughputMode": "ThroughputMode",
    "provisionedThroughputInMibps": "ProvisionedThroughputInMibps",
    "encrypted": "Encrypted",
    "kmsKeyId": "KmsKeyId",
}


def _system_create(call: Call) -> str:
    inputs, efs = call.inputs, call.client("efs")
    token = inputs.get("creationToken") or f"terraform-{secrets.token_hex(13)}"
    arguments = {key: inputs[name] for name, key in _SYSTEM.items() if inputs.get(name)}
    call.id = efs.create_file_system(CreationToken=token, Tags=call.tag_list(), **arguments)["FileSystemId"]
    _system_ready(call)
    return call.id


def _system_ready(call: Call) -> None:
    _wait_until(call, "describe_file_systems", "FileSystems", "file system", FileSystemId=call.id)


def read_system(call: Call) -> Tree | None:
    """Return a file system by `call.id`; None if there is none."""
    system = _one(call, "describe_file_systems", "FileSystems", FileSystemId=call.id)
    if system is None:
        return None
    size = system.get("SizeInBytes") or {}
    found = {
        "arn": system["FileSystemArn"],
        "creationToken": system["CreationToken"],
        "name": system.get("Name") or "",
        "dnsName": f"{call.id}.efs.{call.region}.amazonaws.com",
        "ownerId": system["OwnerId"],
        "numberOfMountTargets": system.get("NumberOfMountTargets", 0),
        "availabilityZoneId": system.get("AvailabilityZoneId") or "",
        "sizeInBytes": [
            {
                "value": size.get("Value", 0),
                "valueInIa": size.get("ValueInIA", 0),
                "valueInStandard": size.get("ValueInStandard", 0),
            }
        ],
        "tags": tag_map(system.get("Tags")),
    }
    return found | {name: system.get(key) for name, key in _SYSTEM.items() if system.get(key) is not None}


def _system_update(call: Call) -> None:
    if {"throughputMode", "provisionedThroughputInMibps"} & set(call.changed):
        names = ("throughputMode", "provisionedThroughputInMibps")
        throughput = {_SYSTEM[name]: call.inputs[name] for name in names if call.inputs.get(name)}
        call.client("efs").update_file_system(FileSystemId=call.id, **throughput)
        _system_ready(call)
    _update_tags(call)


def _system_delete(call: Call) -> None:
    act = lambda: call.client("efs").delete_file_system(FileSystemId=call.id)  # noqa: E731
    ignore_absent(lambda: retry(call, act, "FileSystemInUse"))
    gone = lambda: _one(call, "describe_file_systems", "FileSystems", FileSystemId=call.id) is None  # noqa: E731
    wait(call, gone, f"file system {call.id} to be deleted")


def _target_create(call: Call) -> str:
    inputs = call.inputs
    names = {"ipAddress": "IpAddress", "securityGroups": "SecurityGroups"}
    arguments = {key: inputs[name] for name, key in names.items() if inputs.get(name)}
    create = lambda: call.client("efs").create_mount_target(  # noqa: E731
        FileSystemId=inputs["fileSystemId"], SubnetId=inputs["subnetId"], **arguments
    )
    return str(retry(call, create, "IncorrectFileSystemLifeCycleState")["MountTargetId"])


def _target_ready(call: Call) -> None:
    _wait_until(call, "describe_mount_targets", "MountTargets", "mount target", MountTargetId=call.id)


def _target_read(call: Call) -> Tree | None:
    target = _one(call, "describe_mount_targets", "MountTargets", MountTargetId=call.id)
    if target is None:
        return None
    groups = call.client("efs").describe_mount_target_security_groups(MountTargetId=call.id)["SecurityGroups"]
    system, zone = target["FileSystemId"], target.get("AvailabilityZoneName") or ""
    domain = f"{system}.efs.{call.region}.amazonaws.com"
    return {
        "fileSystemId": system,
        "fileSystemArn": call.arn("elasticfilesystem", f"file-system/{system}"),
        "subnetId": target["SubnetId"],
        "ipAddress": target.get("IpAddress"),
        "securityGroups": groups,
        "networkInterfaceId": target.get("NetworkInterfaceId"),
        "ownerId": target.get("OwnerId"),
        "availabilityZoneId": target.get("AvailabilityZoneId"),
        "availabilityZoneName": zone,
        "dnsName": domain,
        "mountTargetDnsName": f"{zone}.{domain}",
    }


def _target_update(call: Call) -> None:
    call.client("efs").modify_mount_target_security_groups(
        MountTargetId=call.id, SecurityGroups=call.inputs.get("securityGroups") or []
    )


def _target_delete(call: Call) -> None:
    ignore_absent(lambda: call.client("efs").delete_mount_target(MountTargetId=call.id))
    gone = lambda: _one(call, "describe_mount_targets", "MountTargets", MountTargetId=call.id) is None  # noqa: E731
    wait(call, gone, f"mount target {call.id} to be deleted")


def _point_create(call: Call) -> str:
    inputs = call.inputs
    arguments = {
        _pascal({name: 0}).popitem()[0]: _ints(_pascal(inputs[name]))
        for name in ("posixUser", "rootDirectory")
        if inputs.get(name)
    }
    point = call.client("efs").create_access_point(
        ClientToken=secrets.token_hex(16), FileSystemId=inputs["fileSystemId"], Tags=call.tag_list(), **arguments
    )
    return str(point["AccessPointId"])


def _ints(value: Any) -> Any:
    """Return the value with floats converted to the integers that EFS expects."""
    if isinstance(value, dict):
        return {key: _ints(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_ints(item) for item in value]
    return int(value) if isinstance(value, float) else value


def _point_ready(call: Call) -> None:
    _wait_until(call, "describe_access_points", "AccessPoints", "access point", AccessPointId=call.id)


def _point_read(call: Call) -> Tree | None:
    point = _one(call, "describe_access_points", "AccessPoints", AccessPointId=call.id)
    if point is None or point.get("LifeCycleState") == "deleted":
        return None
    return {
        "arn": point["AccessPointArn"],
        "fileSystemId": point["FileSystemId"],
        "fileSystemArn": call.arn("elasticfilesystem", f"file-system/{point['FileSystemId']}"),
        "ownerId": point.get("OwnerId"),
        "posixUser": _camel(point["PosixUser"]) if point.get("PosixUser") else None,
        "rootDirectory": _camel(point.get("RootDirectory") or {"Path": "/"}),
        "tags": tag_map(point.get("Tags")),
    }


def _point_delete(call: Call) -> None:
    ignore_absent(lambda: call.client("efs").delete_access_point(AccessPointId=call.id))
    wait(call, lambda: _point_read(call) is None, f"access point {call.id} to be deleted")


def _policy_put(call: Call) -> None:
    inputs = call.inputs
    put = lambda: call.client("efs").put_file_system_policy(  # noqa: E731
        FileSystemId=inputs["fileSystemId"],
        Policy=inputs["policy"],
        BypassPolicyLockoutSafetyCheck=bool(inputs.get("bypassPolicyLockoutSafetyCheck")),
    )
    retry(call, put, "InvalidPolicyException", seconds=10)


def _policy_create(call: Call) -> str:
    _policy_put(call)
    return str(call.inputs["fileSystemId"])


def _policy_read(call: Call) -> Tree | None:
    answer = absent_as_none(
        lambda: call.client("efs").describe_file_system_policy(FileSystemId=call.id), "PolicyNotFound"
    )
    return {"fileSystemId": call.id, "policy": answer["Policy"]} if answer else None


def _policy_delete(call: Call) -> None:
    ignore_absent(lambda: call.client("efs").delete_file_system_policy(FileSystemId=call.id))


def _backup_put(call: Call, status: str) -> None:
    system = call.inputs["fileSystemId"]
    call.client("efs").put_backup_policy(FileSystemId=system, BackupPolicy={"Status": status})


def _backup_create(call: Call) -> str:
    _backup_put(call, call.inputs["backupPolicy"]["status"])
    return str(call.inputs["fileSystemId"])


def _backup_update(call: Call) -> None:
    _backup_put(call, call.inputs["backupPolicy"]["status"])


def _backup_read(call: Call) -> Tree | None:
    answer = absent_as_none(lambda: call.client("efs").describe_backup_policy(FileSystemId=call.id), "PolicyNotFound")
    if not answer:
        return None
    settled = {"ENABLING": "ENABLED", "DISABLING": "DISABLED"}
    status = answer["BackupPolicy"]["Status"]
    return {"fileSystemId": call.id, "backupPolicy": {"status": settled.get(status, status)}}


def _backup_delete(call: Call) -> None:
    ignore_absent(lambda: _backup_put(call, "DISABLED"))


ENTRIES: Final = [
    Entry(
        token="aws:efs/fileSystem:FileSystem",
        covers=frozenset({"creationToken", *_SYSTEM}),
        replace_on=words("creationToken performanceMode encrypted kmsKeyId"),
        computed=words("creationToken performanceMode kmsKeyId encrypted"),
        defaults={"throughputMode": "bursting"},
        create=_system_create,
        read=read_system,
        update=_system_update,
        delete=_system_delete,
    ),
    Entry(
        token="aws:efs/mountTarget:MountTarget",
        covers=words("fileSystemId subnetId ipAddress securityGroups"),
        replace_on=words("fileSystemId subnetId ipAddress"),
        computed=words("ipAddress securityGroups"),
        tags=False,
        create=_target_create,
        ready=_target_ready,
        read=_target_read,
        update=_target_update,
        delete=_target_delete,
    ),
    Entry(
        token="aws:efs/accessPoint:AccessPoint",
        covers=words("fileSystemId posixUser rootDirectory"),
        replace_on=ALL,
        create=_point_create,
        ready=_point_ready,
        read=_point_read,
        update=_update_tags,
        delete=_point_delete,
    ),
    Entry(
        token="aws:efs/fileSystemPolicy:FileSystemPolicy",
        covers=words("fileSystemId policy bypassPolicyLockoutSafetyCheck"),
        replace_on=words("fileSystemId"),
        documents=words("policy"),
        tags=False,
        create=_policy_create,
        read=_policy_read,
        update=_policy_put,
        delete=_policy_delete,
    ),
    Entry(
        token="aws:efs/backupPolicy:BackupPolicy",
        covers=words("fileSystemId backupPolicy"),
        replace_on=words("fileSystemId"),
        tags=False,
        create=_backup_create,
        read=_backup_read,
        update=_backup_update,
        delete=_backup_delete,
    ),
]
