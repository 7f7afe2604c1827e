"""EC2: VPCs, subnets, route tables and routes."""

from __future__ import annotations

from typing import Any, Final

from localcloud.standins.aws.entry import Call, Entry, Tree, absent_as_none, ignore_absent, tag_map, wait, words
from localcloud.standins.aws.resources.ec2_common import delete, first, tag_specification, update_tags
from localcloud.standins.serve import PluginError


def _vpc_create(call: Call) -> str:
    inputs = call.inputs
    vpc = call.client("ec2").create_vpc(
        CidrBlock=inputs["cidrBlock"],
        InstanceTenancy=inputs["instanceTenancy"],
        TagSpecifications=tag_specification(call, "vpc"),
    )["Vpc"]
    call.id = vpc["VpcId"]
    call.changed = frozenset(name for name in _VPC_ATTRIBUTES if name in inputs)
    _vpc_attributes(call)
    return call.id


_VPC_ATTRIBUTES: Final = {
    "enableDnsSupport": "EnableDnsSupport",
    "enableDnsHostnames": "EnableDnsHostnames",
    "enableNetworkAddressUsageMetrics": "EnableNetworkAddressUsageMetrics",
}


def _vpc_attributes(call: Call) -> None:
    for name, attribute in _VPC_ATTRIBUTES.items():
        if name in call.changed:
            value = {"Value": bool(call.inputs.get(name))}
            call.client("ec2").modify_vpc_attribute(VpcId=call.id, **{attribute: value})


def _vpc_read(call: Call) -> Tree | None:
    vpc = first(call, "describe_vpcs", "Vpcs", VpcIds=[call.id])
    if vpc is None:
        return None
    ec2 = call.client("ec2")

    def attribute(name: str) -> bool:
        answer = ec2.describe_vpc_attribute(VpcId=call.id, Attribute=name)
        return bool(answer.get(name[0].upper() + name[1:], {}).get("Value", False))

    of_vpc = [{"Name": "vpc-id", "Values": [call.id]}]
    main = [*of_vpc, {"Name": "association.main", "Values": ["true"]}]
    default = [*of_vpc, {"Name": "default", "Values": ["true"]}]
    group = [*of_vpc, {"Name": "group-name", "Values": ["default"]}]
    table = (first(call, "describe_route_tables", "RouteTables", Filters=main) or {}).get("RouteTableId")
    return {
        "arn": call.arn("ec2", f"vpc/{call.id}"),
        "cidrBlock": vpc["CidrBlock"],
        "instanceTenancy": vpc.get("InstanceTenancy", "default"),
        "dhcpOptionsId": vpc.get("DhcpOptionsId"),
        "enableDnsSupport": attribute("enableDnsSupport"),
        "enableDnsHostnames": attribute("enableDnsHostnames"),
        "enableNetworkAddressUsageMetrics": attribute("enableNetworkAddressUsageMetrics"),
        "mainRouteTableId": table,
        "defaultRouteTableId": table,
        "defaultNetworkAclId": (first(call, "describe_network_acls", "NetworkAcls", Filters=default) or {}).get(
            "NetworkAclId"
        ),
        "defaultSecurityGroupId": (first(call, "describe_security_groups", "SecurityGroups", Filters=group) or {}).get(
            "GroupId"
        ),
        "ownerId": vpc.get("OwnerId"),
        "tags": tag_map(vpc.get("Tags")),
    }


def _vpc_update(call: Call) -> None:
    _vpc_attributes(call)
    update_tags(call)


def _vpc_delete(call: Call) -> None:
    delete(call, lambda: call.client("ec2").delete_vpc(VpcId=call.id), f"VPC {call.id}")


_SUBNET_ATTRIBUTES: Final = {
    "mapPublicIpOnLaunch": "MapPublicIpOnLaunch",
    "assignIpv6AddressOnCreation": "AssignIpv6AddressOnCreation",
}


def _subnet_create(call: Call) -> str:
    inputs = call.inputs
    place = {"AvailabilityZone": inputs.get("availabilityZone"), "AvailabilityZoneId": inputs.get("availabilityZoneId")}
    subnet = call.client("ec2").create_subnet(
        VpcId=inputs["vpcId"],
        CidrBlock=inputs["cidrBlock"],
        TagSpecifications=tag_specification(call, "subnet"),
        **{key: value for key, value in place.items() if value},
    )["Subnet"]
    call.id = subnet["SubnetId"]
    call.changed = frozenset(name for name in _SUBNET_ATTRIBUTES if inputs.get(name))
    _subnet_attributes(call)
    return call.id


def _subnet_attributes(call: Call) -> None:
    for name, attribute in _SUBNET_ATTRIBUTES.items():
        if name in call.changed:
            value = {"Value": bool(call.inputs.get(name))}
            call.client("ec2").modify_subnet_attribute(SubnetId=call.id, **{attribute: value})


def _subnet_read(call: Call) -> Tree | None:
    subnet = first(call, "describe_subnets", "Subnets", SubnetIds=[call.id])
    if subnet is None:
        return None
    return {
        "arn": subnet.get("SubnetArn") or call.arn("ec2", f"subnet/{call.id}"),
        "vpcId": subnet["VpcId"],
        "cidrBlock": subnet["CidrBlock"],
        "availabilityZone": subnet["AvailabilityZone"],
        "availabilityZoneId": subnet.get("AvailabilityZoneId"),
        "mapPublicIpOnLaunch": bool(subnet.get("MapPublicIpOnLaunch")),
        "assignIpv6AddressOnCreation": bool(subnet.get("AssignIpv6AddressOnCreation")),
        "ownerId": subnet.get("OwnerId"),
        "tags": tag_map(subnet.get("Tags")),
    }


def _subnet_update(call: Call) -> None:
    _subnet_attributes(call)
    update_tags(call)


def _subnet_delete(call: Call) -> None:
    delete(call, lambda: call.client("ec2").delete_subnet(SubnetId=call.id), f"subnet {call.id}")


_TARGETS: Final = {
    "gatewayId": "GatewayId",
    "natGatewayId": "NatGatewayId",
    "vpcPeeringConnectionId": "VpcPeeringConnectionId",
    "transitGatewayId": "TransitGatewayId",
    "networkInterfaceId": "NetworkInterfaceId",
    "egressOnlyGatewayId": "EgressOnlyInternetGatewayId",
    "vpcEndpointId": "VpcEndpointId",
}
_DESTINATIONS: Final = {
    "destinationCidrBlock": "DestinationCidrBlock",
    "destinationIpv6CidrBlock": "DestinationIpv6CidrBlock",
    "destinationPrefixListId": "DestinationPrefixListId",
}


def _route_arguments(inputs: Tree) -> Tree:
    names = {**_TARGETS, **_DESTINATIONS}
    return {names[key]: value for key, value in inputs.items() if key in names and value}


def _table_create(call: Call) -> str:
    table = call.client("ec2").create_route_table(
        VpcId=call.inputs["vpcId"], TagSpecifications=tag_specification(call, "route-table")
    )["RouteTable"]
    return str(table["RouteTableId"])


def _table_read(call: Call) -> Tree | None:
    table = first(call, "describe_route_tables", "RouteTables", RouteTableIds=[call.id])
    if table is None:
        return None
    return {
        "arn": call.arn("ec2", f"route-table/{call.id}"),
        "vpcId": table["VpcId"],
        "ownerId": table.get("OwnerId"),
        "tags": tag_map(table.get("Tags")),
    }


def _table_delete(call: Call) -> None:
    delete(call, lambda: call.client("ec2").delete_route_table(RouteTableId=call.id), f"route table {call.id}")


def _destination(inputs: Tree) -> str:
    for name in _DESTINATIONS:
        if inputs.get(name):
            return str(inputs[name])
    raise PluginError(f"a route needs one of {', '.join(_DESTINATIONS)}")


def _route_create(call: Call) -> str:
    _destination(call.inputs)
    arguments = _route_arguments(call.inputs)
    call.client("ec2").create_route(RouteTableId=call.inputs["routeTableId"], **arguments)
    return _route_id(call.inputs)


def _route_id(inputs: Tree) -> str:
    """Return the id in Terraform's form: the table, then a hash of the destination."""
    import zlib

    return f"r-{inputs['routeTableId']}{zlib.crc32(_destination(inputs).encode())}"


def _route_read(call: Call) -> Tree | None:
    inputs = dict(call.inputs or call.state)
    if "_" in call.id:  # import: TABLE_DESTINATION
        table, _, destination = call.id.partition("_")
        name = "destinationPrefixListId" if destination.startswith("pl-") else "destinationCidrBlock"
        inputs = {"routeTableId": table, name: destination}
        call.id = _route_id(inputs)
    destination = _destination(inputs)
    table = first(call, "describe_route_tables", "RouteTables", RouteTableIds=[inputs["routeTableId"]])
    for route in (table or {}).get("Routes", []):
        if destination in [route.get(key) for key in _DESTINATIONS.values()]:
            found = {name: route.get(key) for name, key in {**_TARGETS, **_DESTINATIONS}.items() if route.get(key)}
            return {**found, **_route_facts(route), "routeTableId": inputs["routeTableId"]}
    return None


def _route_facts(route: Tree) -> Tree:
    return {"origin": route.get("Origin"), "state": route.get("State"), "instanceId": route.get("InstanceId") or ""}


def _route_update(call: Call) -> None:
    call.client("ec2").replace_route(RouteTableId=call.inputs["routeTableId"], **_route_arguments(call.inputs))


def _route_delete(call: Call) -> None:
    arguments = {key: value for key, value in _route_arguments(call.inputs).items() if key.startswith("Destination")}
    table = call.inputs["routeTableId"]
    ignore_absent(lambda: call.client("ec2").delete_route(RouteTableId=table, **arguments))


def _association_create(call: Call) -> str:
    inputs = call.inputs
    target = {"SubnetId": inputs.get("subnetId"), "GatewayId": inputs.get("gatewayId")}
    answer = call.client("ec2").associate_route_table(
        RouteTableId=inputs["routeTableId"], **{key: value for key, value in target.items() if value}
    )
    return str(answer["AssociationId"])


def _association(call: Call) -> Tree | None:
    """Find the association by id, else by table and target: its id changes with the table, unlike the state's."""
    known = call.state or call.inputs
    table_id, target = known.get("routeTableId"), known.get("subnetId") or known.get("gatewayId")
    if "/" in call.id:  # import: SUBNET/TABLE
        target, _, table_id = call.id.partition("/")
    by_id = [{"Name": "association.route-table-association-id", "Values": [call.id]}]
    by_table = [{"Name": "route-table-id", "Values": [table_id or ""]}]
    for filters in (by_id, by_table):
        table = first(call, "describe_route_tables", "RouteTables", Filters=filters)
        for association in (table or {}).get("Associations", []):
            joined = association.get("SubnetId") or association.get("GatewayId")
            if association["RouteTableAssociationId"] == call.id or (joined and joined == target):
                return dict(association)
    return None


def _association_read(call: Call) -> Tree | None:
    association = _association(call)
    if association is None:
        return None
    call.id = association["RouteTableAssociationId"]
    names = {"routeTableId": "RouteTableId", "subnetId": "SubnetId", "gatewayId": "GatewayId"}
    return {name: association[key] for name, key in names.items() if association.get(key)}


def _association_update(call: Call) -> None:
    association = _association(call) or {"RouteTableAssociationId": call.id}
    call.client("ec2").replace_route_table_association(
        AssociationId=association["RouteTableAssociationId"], RouteTableId=call.inputs["routeTableId"]
    )
    call.state = {}  # from now on the inputs say what it joins


def _association_delete(call: Call) -> None:
    association = _association(call)
    if association:
        found = association["RouteTableAssociationId"]
        ignore_absent(lambda: call.client("ec2").disassociate_route_table(AssociationId=found))


def _vpc_ready(call: Call) -> None:
    def available() -> bool:
        vpc: Any = absent_as_none(lambda: call.client("ec2").describe_vpcs(VpcIds=[call.id]))
        return bool(vpc) and vpc["Vpcs"][0]["State"] == "available"

    wait(call, available, f"VPC {call.id} to be available")


ENTRIES: Final = [
    Entry(
        token="aws:ec2/vpc:Vpc",
        covers=words("cidrBlock enableDnsHostnames enableDnsSupport enableNetworkAddressUsageMetrics instanceTenancy"),
        replace_on=words("cidrBlock instanceTenancy"),
        defaults={"enableDnsSupport": True, "instanceTenancy": "default"},
        create=_vpc_create,
        ready=_vpc_ready,
        read=_vpc_read,
        update=_vpc_update,
        delete=_vpc_delete,
    ),
    Entry(
        token="aws:ec2/subnet:Subnet",
        covers=words(
            "vpcId cidrBlock availabilityZone availabilityZoneId mapPublicIpOnLaunch assignIpv6AddressOnCreation"
        ),
        replace_on=words("vpcId cidrBlock availabilityZone availabilityZoneId"),
        computed=words("availabilityZone availabilityZoneId"),
        defaults={"assignIpv6AddressOnCreation": False, "mapPublicIpOnLaunch": False},
        one_of=(words("availabilityZone availabilityZoneId"),),
        create=_subnet_create,
        read=_subnet_read,
        update=_subnet_update,
        delete=_subnet_delete,
    ),
    Entry(
        token="aws:ec2/routeTable:RouteTable",
        covers=words("vpcId"),
        replace_on=words("vpcId"),
        create=_table_create,
        read=_table_read,
        update=update_tags,
        delete=_table_delete,
    ),
    Entry(
        token="aws:ec2/route:Route",
        covers=frozenset({"routeTableId", *_TARGETS, *_DESTINATIONS}),
        replace_on=frozenset({"routeTableId", *_DESTINATIONS}),
        one_of=(frozenset(_TARGETS), frozenset(_DESTINATIONS)),
        tags=False,
        create=_route_create,
        read=_route_read,
        update=_route_update,
        delete=_route_delete,
    ),
    Entry(
        token="aws:ec2/routeTableAssociation:RouteTableAssociation",
        covers=words("routeTableId subnetId gatewayId"),
        replace_on=words("subnetId gatewayId"),
        one_of=(words("subnetId gatewayId"),),
        tags=False,
        create=_association_create,
        read=_association_read,
        update=_association_update,
        delete=_association_delete,
    ),
]
