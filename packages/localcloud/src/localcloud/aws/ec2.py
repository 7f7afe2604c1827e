"""Access to EC2 for EKS: instances of node groups, network interfaces and security groups.

The daemon uses moto's backend (`MotoEc2`); tests pass a fake that keeps state.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from typing_extensions import override

from localcloud.errors import CloudError

AMI = "ami-0e15c10ca1c10ad00"


@dataclass(frozen=True)
class Subnet:
    """The properties of a subnet that EKS needs."""

    id: str
    vpc_id: str
    zone: str


@dataclass(frozen=True)
class InstanceType:
    """The size of an instance type, and its NVIDIA GPUs."""

    name: str
    vcpus: int
    memory_mib: int
    gpus: int = 0


@dataclass(frozen=True)
class Ec2Instance:
    """An instance that runs or is stopped.

    Args:
        vpc_id: Empty if it has no subnet.
        boots: How often it has booted.
        profile_arn: Of its instance profile.
        image: The id of its image.
    """

    id: str
    private_ip: str
    private_dns_name: str
    subnet: str
    zone: str
    vpc_id: str
    instance_type: str
    running: bool = True
    boots: int = 1
    user_data: bytes = b""
    profile_arn: str | None = None
    image: str = ""


class LaunchRefused(CloudError):
    """EC2 doesn't launch an instance now: there is no capacity, or no address. The message starts with EC2's code."""


@dataclass(frozen=True)
class LaunchSpec:
    """The instance that a node group launches."""

    subnet: str
    instance_type: str
    image: str
    security_groups: tuple[str, ...]
    launch_template: Mapping[str, str] | None
    spot: bool
    tags: Mapping[str, str]


class Ec2(Protocol):
    """The EC2 operations that EKS needs."""

    def subnet(self, identity: str) -> Subnet | None:
        """Return the subnet, or None."""

    def security_group_exists(self, identity: str) -> bool:
        """Return whether the security group exists."""

    def instance_type(self, name: str) -> InstanceType | None:
        """Return the size of the instance type, or None."""

    def launch_template(self, identity: str | None, name: str | None, version: str | None) -> Mapping[str, Any] | None:
        """Return the launch template's `id`, `name`, `version`, `data` and `user_data`, or None."""

    def create_security_group(self, name: str, description: str, vpc_id: str, tags: Mapping[str, str]) -> str:
        """Create a group that lets its members connect to each other; return its id."""

    def delete_security_group(self, identity: str) -> None:
        """Delete the group, unless something still uses it."""

    def create_interface(self, subnet: str, groups: Sequence[str], description: str, tags: Mapping[str, str]) -> str:
        """Create a network interface that a service manages; return its id."""

    def delete_interface(self, identity: str) -> None:
        """Delete the network interface, if it exists."""

    def run(self, spec: LaunchSpec) -> Ec2Instance:
        """Run one instance; raise LaunchRefused if EC2 can't launch it now."""

    def terminate(self, identity: str) -> None:
        """Terminate the instance, if it exists."""

    def instances(self) -> dict[str, Ec2Instance]:
        """Return the instances that run or are stopped, by their ids."""


class MotoEc2(Ec2):
    """`Ec2` backed by moto in this process."""

    def __init__(self, account: str, region: str) -> None:
        self._account = account
        self._region = region

    @property
    def _backend(self) -> Any:
        from moto.ec2.models import ec2_backends

        return ec2_backends[self._account][self._region]

    @override
    def subnet(self, identity: str) -> Subnet | None:
        for zone in list(self._backend.subnets.values()):
            if identity in zone:
                found = zone[identity]
                return Subnet(found.id, found.vpc_id, found.availability_zone)
        return None

    @override
    def security_group_exists(self, identity: str) -> bool:
        return self._backend.get_security_group_from_id(identity) is not None

    @override
    def instance_type(self, name: str) -> InstanceType | None:
        from moto.ec2.models.instance_types import INSTANCE_TYPES

        found = INSTANCE_TYPES.get(name)
        if found is None:
            return None
        gpus = (found.get("GpuInfo") or {}).get("Gpus") or []
        return InstanceType(
            name,
            int(found["VCpuInfo"]["DefaultVCpus"]),
            int(found["MemoryInfo"]["SizeInMiB"]),
            sum(int(each["Count"]) for each in gpus if each["Manufacturer"] == "NVIDIA"),
        )

    @override
    def launch_template(self, identity: str | None, name: str | None, version: str | None) -> Mapping[str, Any] | None:
        for template in list(self._backend.launch_templates.values()):
            if identity not in (None, template.id) or name not in (None, template.name):
                continue
            number = {
                None: template.default_version_number,
                "$Default": template.default_version_number,
                "$Latest": template.latest_version_number,
            }.get(version, version)
            if not 1 <= int(number or 0) <= len(template.versions):
                return None
            found = template.get_version(int(number or 0))
            return {
                "id": template.id,
                "name": template.name,
                "version": str(number),
                "data": found.data,
                "user_data": _decoded(found.data.get("UserData")),
            }
        return None

    @override
    def create_security_group(self, name: str, description: str, vpc_id: str, tags: Mapping[str, str]) -> str:
        group = self._backend.create_security_group(name, description, vpc_id=vpc_id, tags=dict(tags))
        self._backend.authorize_security_group_ingress(
            group.id, "-1", None, None, [], source_groups=[{"GroupId": group.id}], vpc_id=vpc_id
        )
        return str(group.id)

    @override
    def delete_security_group(self, identity: str) -> None:
        from moto.ec2.exceptions import EC2ClientError

        try:
            self._backend.delete_security_group(group_id=identity)
        except EC2ClientError:
            # Like EKS, leave a group that something else uses.
            return

    @override
    def create_interface(self, subnet: str, groups: Sequence[str], description: str, tags: Mapping[str, str]) -> str:
        found = self._backend.get_subnet(subnet)
        address = found.get_available_subnet_ip(None)
        interface = self._backend.create_network_interface(
            found, address, group_ids=list(groups), description=description, tags=dict(tags)
        )
        interface.requester_managed = True
        interface.status = "in-use"
        return str(interface.id)

    @override
    def delete_interface(self, identity: str) -> None:
        interface = self._backend.enis.get(identity)
        if interface is not None:
            interface.delete()

    @override
    def run(self, spec: LaunchSpec) -> Ec2Instance:
        from moto.ec2.exceptions import EC2ClientError

        try:
            reservation = self._run(spec)
        except EC2ClientError as error:
            raise LaunchRefused(f"{error.code} - {error.message}") from error
        return _seen(reservation.instances[0])

    def _run(self, spec: LaunchSpec) -> Any:
        chosen = spec.launch_template
        template = {"LaunchTemplateId": chosen["id"], "Version": chosen["version"]} if chosen else {}
        return self._backend.run_instances(
            spec.image,
            1,
            None,
            [],
            instance_type=spec.instance_type,
            is_instance_type_default=False,
            subnet_id=spec.subnet,
            security_group_ids=list(spec.security_groups),
            launch_template=template,
            instance_market_options="spot" if spec.spot else {},
            metadata_options={"HttpTokens": "required", "HttpPutResponseHopLimit": 2},
            tags={"instance": dict(spec.tags), "volume": dict(spec.tags)},
        )

    @override
    def terminate(self, identity: str) -> None:
        instance = self._backend.get_instance_by_id(identity)
        if instance is not None and instance.state != "terminated":
            self._backend.terminate_instances([identity])

    @override
    def instances(self) -> dict[str, Ec2Instance]:
        return {
            str(instance.id): _seen(instance)
            for reservation in list(self._backend.reservations.values())
            for instance in list(reservation.instances)
            if instance.state in ("running", "stopped") and 0 in instance.nics
        }


def _seen(instance: Any) -> Ec2Instance:
    return Ec2Instance(
        id=str(instance.id),
        private_ip=str(instance.private_ip),
        private_dns_name=str(instance.private_dns_name),
        subnet=str(instance.subnet_id or ""),
        zone=str(instance.availability_zone),
        vpc_id=str(instance.vpc_id or ""),
        instance_type=str(instance.instance_type),
        running=instance.state == "running",
        boots=int(instance.boots),
        user_data=_decoded(instance.user_data),
        profile_arn=(instance.iam_instance_profile or {}).get("Arn"),
        image=str(instance.image_id),
    )


def _decoded(user_data: Any) -> bytes:
    """Return user data as the instance sees it. moto doesn't check that of Auto Scaling's launch configurations."""
    try:
        return base64.b64decode(str(user_data or ""), validate=True)
    except ValueError:  # also text that is not ASCII
        return str(user_data).encode()
