"""An inventory of the AWS resources of the stack's types, and of what a cloud uses on this host.

Two inventories are compared to show that `pulumi destroy` leaves nothing:

    before = aws_inventory(checkout.cloud())
    ...
    assert aws_inventory(checkout.cloud()) == before
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import boto3
from localcloud.host import cgroups

Inventory = dict[str, frozenset[str]]


def client_of(cloud: Mapping[str, str], service: str) -> Any:
    """Return a client of a service, with the keys of the cloud's operator."""
    connect: Any = boto3.client  # its type lists every service by name
    return connect(
        service,
        endpoint_url=cloud["AWS_ENDPOINT_URL"],
        region_name=cloud["AWS_REGION"],
        aws_access_key_id=cloud["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=cloud["AWS_SECRET_ACCESS_KEY"],
    )


def _ids(client: Any, operation: str, items: str, key: str, **arguments: Any) -> frozenset[str]:
    found = getattr(client, operation)(**arguments)[items]
    return frozenset(str(item[key]) if key else str(item) for item in found)


def _live_instances(ec2: Any) -> frozenset[str]:
    reservations = ec2.describe_instances()["Reservations"]
    return frozenset(
        instance["InstanceId"]
        for reservation in reservations
        for instance in reservation["Instances"]
        if instance["State"]["Name"] not in ("terminated", "shutting-down")
    )


def _live_nat_gateways(ec2: Any) -> frozenset[str]:
    gateways = ec2.describe_nat_gateways()["NatGateways"]
    return frozenset(g["NatGatewayId"] for g in gateways if g["State"] not in ("deleted", "deleting"))


def _live_keys(kms: Any) -> frozenset[str]:
    aliases = kms.list_aliases()["Aliases"]
    # AWS creates these keys when a service first encrypts something without a customer's key.
    managed = {a.get("TargetKeyId") for a in aliases if a["AliasName"].startswith("alias/aws/")}
    keys = [key["KeyId"] for key in kms.list_keys()["Keys"] if key["KeyId"] not in managed]
    described = (kms.describe_key(KeyId=key)["KeyMetadata"] for key in keys)
    return frozenset(k["KeyId"] for k in described if k["KeyState"] != "PendingDeletion")


def aws_inventory(cloud: Mapping[str, str]) -> Inventory:
    """Return the ids of all resources in the account of a cloud, by type.

    KMS keys that are pending deletion and terminated instances are left out: AWS lists both
    for a while.
    """
    ec2, iam, efs, eks, s3, kms, logs, sqs, events = (
        client_of(cloud, name) for name in ("ec2", "iam", "efs", "eks", "s3", "kms", "logs", "sqs", "events")
    )
    listings: dict[str, Callable[[], frozenset[str]]] = {
        "vpcs": lambda: _ids(ec2, "describe_vpcs", "Vpcs", "VpcId"),
        "subnets": lambda: _ids(ec2, "describe_subnets", "Subnets", "SubnetId"),
        "interfaces": lambda: _ids(ec2, "describe_network_interfaces", "NetworkInterfaces", "NetworkInterfaceId"),
        "security groups": lambda: _ids(ec2, "describe_security_groups", "SecurityGroups", "GroupId"),
        "route tables": lambda: _ids(ec2, "describe_route_tables", "RouteTables", "RouteTableId"),
        "internet gateways": lambda: _ids(ec2, "describe_internet_gateways", "InternetGateways", "InternetGatewayId"),
        "addresses": lambda: _ids(ec2, "describe_addresses", "Addresses", "AllocationId"),
        "endpoints": lambda: _ids(ec2, "describe_vpc_endpoints", "VpcEndpoints", "VpcEndpointId"),
        "launch templates": lambda: _ids(ec2, "describe_launch_templates", "LaunchTemplates", "LaunchTemplateId"),
        "nat gateways": lambda: _live_nat_gateways(ec2),
        "instances": lambda: _live_instances(ec2),
        "roles": lambda: _ids(iam, "list_roles", "Roles", "RoleName"),
        "policies": lambda: _ids(iam, "list_policies", "Policies", "Arn", Scope="Local"),
        "instance profiles": lambda: _ids(iam, "list_instance_profiles", "InstanceProfiles", "InstanceProfileName"),
        "file systems": lambda: _ids(efs, "describe_file_systems", "FileSystems", "FileSystemId"),
        "clusters": lambda: _ids(eks, "list_clusters", "clusters", ""),
        "buckets": lambda: _ids(s3, "list_buckets", "Buckets", "Name"),
        "keys": lambda: _live_keys(kms),
        "key aliases": lambda: _ids(kms, "list_aliases", "Aliases", "AliasName"),
        "log groups": lambda: _ids(logs, "describe_log_groups", "logGroups", "logGroupName"),
        "queues": lambda: frozenset(sqs.list_queues().get("QueueUrls", ())),
        "event rules": lambda: _ids(events, "list_rules", "Rules", "Name"),
    }
    return {kind: listing() for kind, listing in listings.items()}


def added(before: Inventory, after: Inventory) -> Inventory:
    """Return what is in `after` but not in `before`, by type; {} if nothing was added."""
    more = {kind: after[kind] - before[kind] for kind in after}
    return {kind: ids for kind, ids in more.items() if ids}


def host_leftovers(instance: str, state: Path) -> list[str]:
    """Return the namespaces, links, mounts, cgroups and processes on this host that belong to a cloud.

    Args:
        instance: the cloud's id, as in `instance.json` of its state directory.
        state: that state directory.
    """
    namespaces = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True)
    left = [f"namespace {line}" for line in namespaces.stdout.splitlines() if instance in line]
    left += [f"link {line}" for line in links.stdout.splitlines() if f"lc{instance}" in line]
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    left += [f"mount {m}" for m in mounts if str(state) in m or f"lc-{instance}" in m]
    left += [f"cgroup {path}" for path in cgroups.folders(f"lc-{instance}")]
    return left + [f"process {line}" for line in processes_of(instance, state)]


def processes_of(instance: str, state: Path) -> list[str]:
    """Return `PID command line` of every process that names the cloud's state or run directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # the process has ended since it was listed
        if f"{state}/" in command or f"lc-{instance}" in command:
            found.append(f"{entry.name} {command.strip()}")
    return found
