"""What AWS does at the launch of an instance and moto doesn't, added to moto's own methods at start-up.

An instance of a fleet, of a launch template or of `RunInstances` has everything that its node needs from its first
moment: user data, instance profile, security groups, a private DNS name of its region, and an address that no other
instance had a moment ago.
"""

from __future__ import annotations

import ipaddress
import threading
from collections.abc import Iterable, Mapping
from typing import Any

from localcloud.aws.compute import capacity, fleets, placement, quotas, repetition, shortages

# AWS reserves the first four addresses of a subnet and the last one.
# https://docs.aws.amazon.com/vpc/latest/userguide/subnet-sizing.html
FIRST_HOST = 4
BY_PARAMETER = "resolve:ssm:"


def install() -> None:
    """Wrap moto's methods. Call this once per process."""
    from moto.ec2.models import EC2Backend
    from moto.ec2.models.instances import Instance
    from moto.ec2.models.subnets import Subnet
    from moto.ec2.responses import instances

    _complete_launches(EC2Backend)
    # RunInstances asks for the profile before the launch.
    instances.filter_iam_instance_profiles = _known_profile  # type: ignore[attr-defined]
    fleets.install()
    placement.install()
    _count_boots(Instance)
    _choose_addresses(Subnet)
    repetition.install()


def _complete_launches(backend: Any) -> None:
    """Apply what moto ignores in a launch template, and set the instance profile before the instance is visible."""
    original = backend.run_instances
    one_by_one = threading.RLock()  # else two launches at once get the last vCPUs of a quota, or one address, both

    def run_instances(
        self: Any, image_id: str, count: int, user_data: Any, security_group_names: list[str], **given: Any
    ) -> Any:
        with one_by_one:
            return launched(self, image_id, count, user_data, security_group_names, **given)

    def launched(
        self: Any, image_id: str, count: int, user_data: Any, security_group_names: list[str], **given: Any
    ) -> Any:
        template = self._get_template_from_args(given["launch_template"]).data if given.get("launch_template") else {}
        asked = {name: given.get(f"iam_instance_profile_{name}") for name in ("name", "arn")}
        profile = _profile(self, asked if any(asked.values()) else _prepared_profile(template, given))
        made = {**_from_template(template, given), "region_name": self.region_name}
        group = placement.wanted(self, template)
        image, subnet = _image(self, image_id or template.get("ImageId")), _subnet(self, made)
        instance_type, zone, market = _wanted(template, made, subnet)
        shortages.refuse(self, instance_type, zone, market)
        quotas.refuse(self, instance_type, market, count)
        if subnet is not None and _free(subnet) < count:
            raise _full(subnet)
        if profile is not None:
            made["iam_instance_profile"] = {"Arn": profile.arn, "Id": profile.id}
        reservation = original(self, image, count, user_data, security_group_names, **made)
        # moto's RunInstances associates the profile of the request with the first instance itself.
        rest = reservation.instances[1:] if any(asked.values()) else reservation.instances
        for instance in rest if profile is not None else ():
            self.associate_iam_instance_profile(instance.id, iam_instance_profile_arn=profile.arn)
        _tag_interfaces(reservation.instances, template, given)
        placement.place(group, reservation.instances)
        return reservation

    backend.run_instances = run_instances


def _from_template(template: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of moto's method with the template's values where the request has none."""
    made = dict(given)
    interfaces = [each for each in template.get("NetworkInterfaces") or [] if int(each.get("DeviceIndex") or 0) == 0]
    first = interfaces[0] if interfaces else {}
    if not made.get("nics"):
        made["subnet_id"] = made.get("subnet_id") or first.get("SubnetId")
        groups = made.get("security_group_ids") or template.get("SecurityGroupIds") or first.get("Groups") or []
        made["security_group_ids"] = list(groups)
    made["metadata_options"] = made.get("metadata_options") or template.get("MetadataOptions") or {}
    market = (template.get("InstanceMarketOptions") or {}).get("MarketType")
    made["instance_market_options"] = made.get("instance_market_options") or market or {}
    return made


def _tag_interfaces(instances: Iterable[Any], template: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Give new network interfaces the tags of the request and of the launch template."""
    from moto.ec2.utils import convert_tag_spec

    prepared = convert_tag_spec(template.get("TagSpecifications") or []).get("network-interface", {})
    tags = {**prepared, **((given.get("tags") or {}).get("network-interface") or {})}
    for instance in instances:
        for interface in instance.nics.values():
            interface.add_tags(tags)


def _image(backend: Any, given: str | None) -> str | None:
    """Return the id of an image that exists; an SSM parameter can name it.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/using-systems-manager-parameter-to-find-AMI.html
    """
    from moto.ec2.exceptions import EC2ClientError
    from moto.ssm.models import ssm_backends

    if given is None:
        return None
    image = given
    if given.startswith(BY_PARAMETER):
        name = given.removeprefix(BY_PARAMETER)
        found = ssm_backends[backend.account_id][backend.region_name].get_parameter(name)
        if found is None:
            raise EC2ClientError("InvalidParameterValue", f"The parameter {name} of ImageId {given} does not exist")
        image = str(found.value)
    backend.describe_images(ami_ids=[image])  # raises EC2's error for an unknown one
    return image


def _subnet(backend: Any, made: Mapping[str, Any]) -> Any:
    """Return moto's subnet of a launch, or None if it names none."""
    interfaces = [nic["SubnetId"] for nic in made.get("nics") or [] if nic.get("SubnetId")]
    named = made.get("subnet_id") or (interfaces[0] if interfaces else None)
    return backend.get_subnet(named) if named else None


def _wanted(template: Mapping[str, Any], made: Mapping[str, Any], subnet: Any) -> tuple[str, str | None, str]:
    """Return the instance type, the zone, if one is named, and the market of a launch."""
    of_template = template.get("InstanceType") if made.get("is_instance_type_default") else None
    zone = subnet.availability_zone if subnet is not None else made.get("placement")
    spot = made.get("instance_market_options") or made.get("lifecycle") == capacity.SPOT
    return (
        str(of_template or made.get("instance_type") or ""),
        str(zone) if zone else None,
        capacity.SPOT if spot else capacity.ON_DEMAND,
    )


def _prepared_profile(template: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return name and ARN of the profile in a launch template or in an Auto Scaling group's launch configuration."""
    profile = template.get("IamInstanceProfile") or {}
    of_configuration = getattr(given.get("launch_config"), "instance_profile_name", None)
    return {"name": profile.get("Name") or of_configuration, "arn": profile.get("Arn")}


def _profile(backend: Any, asked: Mapping[str, Any]) -> Any:
    return _known_profile(backend.account_id, backend.partition, asked["arn"], asked["name"])


def _known_profile(
    account_id: str, partition: str, iam_instance_profile_arn: str | None, iam_instance_profile_name: str | None
) -> Any:
    """Return moto's instance profile, None if none is named; raise EC2's error, which clients know, not IAM's."""
    from moto.ec2.exceptions import EC2ClientError
    from moto.ec2.utils import filter_iam_instance_profiles
    from moto.iam.exceptions import NotFoundException

    arn, name = iam_instance_profile_arn, iam_instance_profile_name
    try:
        return filter_iam_instance_profiles(account_id, partition, arn, name)
    except NotFoundException as error:
        field, kind = ("arn", "ARN") if arn else ("name", "name")
        text = f"Value ({arn or name}) for parameter iamInstanceProfile.{field} is invalid."
        raise EC2ClientError("InvalidParameterValue", f"{text} Invalid IAM Instance Profile {kind}") from error


def _count_boots(instance: Any) -> None:
    """Count the boots of an instance, so that a stop and a start in one moment are noticed, and a reboot is."""
    instance.boots = 1
    for name in ("start", "reboot"):
        setattr(instance, name, _counted(getattr(instance, name)))


def _counted(original: Any) -> Any:
    def wrapped(self: Any) -> Any:
        before = self.state
        result = original(self)
        if original.__name__ == "reboot" or before != "running":
            self.boots += 1
        return result

    wrapped.__name__ = original.__name__
    return wrapped


def _choose_addresses(subnet: Any) -> None:
    subnet.get_available_subnet_ip = _next_address


def _next_address(subnet: Any, instance: Any) -> str:
    """Return a free address that was not used recently; moto would take the one that became free last.

    With moto's choice a new instance would get a terminated one's address, and so its name in Kubernetes.
    """
    network, usable, taken = _addresses(subnet)
    last = getattr(subnet, "_last_address", FIRST_HOST - 1)
    for number in (*range(last + 1, usable.stop), *usable):
        address = str(network[number])
        if address not in taken:
            subnet._last_address = number
            subnet._unused_ips.discard(address)
            subnet._subnet_ips[address] = instance
            return address
    raise _full(subnet)


def _free(subnet: Any) -> int:
    network, usable, taken = _addresses(subnet)
    return len(usable) - sum(ipaddress.ip_address(address) in network for address in taken)


def _addresses(subnet: Any) -> tuple[ipaddress.IPv4Network, range, set[str]]:
    """Return a subnet's network, the numbers of the addresses that instances can have, and the addresses in use."""
    network = ipaddress.IPv4Network(subnet.cidr_block)
    interfaces = list(subnet.ec2_backend.enis.values())
    known = (interface.private_ip_address for interface in interfaces)
    taken = {*subnet._subnet_ips, *(address for address in known if address)}
    return network, range(FIRST_HOST, network.num_addresses - 1), taken


def _full(subnet: Any) -> Exception:
    from moto.ec2.exceptions import EC2ClientError

    error: Exception = EC2ClientError(
        "InsufficientFreeAddressesInSubnet",
        f"There are not enough free addresses in subnet '{subnet.id}' to satisfy the requested number of instances.",
    )
    return error
