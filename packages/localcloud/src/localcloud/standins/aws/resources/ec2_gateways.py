"""EC2: the ways out of a VPC: internet and NAT gateways, elastic addresses, endpoints; and a VPC's flow logs."""

from __future__ import annotations

from typing import Final

from localcloud.standins.aws.entry import Call, Entry, Tree, ignore_absent, retry, tag_map, wait, words
from localcloud.standins.aws.resources.ec2_common import delete, first, tag_specification, update_tags
from localcloud.standins.serve import PluginError


def _igw_create(call: Call) -> str:
    ec2 = call.client("ec2")
    gateway = ec2.create_internet_gateway(TagSpecifications=tag_specification(call, "internet-gateway"))
    call.id = gateway["InternetGateway"]["InternetGatewayId"]
    if call.inputs.get("vpcId"):
        ec2.attach_internet_gateway(InternetGatewayId=call.id, VpcId=call.inputs["vpcId"])
    return call.id


def _igw_read(call: Call) -> Tree | None:
    gateway = first(call, "describe_internet_gateways", "InternetGateways", InternetGatewayIds=[call.id])
    if gateway is None:
        return None
    attached = [attachment["VpcId"] for attachment in gateway.get("Attachments", [])]
    return {
        "arn": call.arn("ec2", f"internet-gateway/{call.id}"),
        "vpcId": attached[0] if attached else "",
        "ownerId": gateway.get("OwnerId") or call.clients.account(),
        "tags": tag_map(gateway.get("Tags")),
    }


def _igw_update(call: Call) -> None:
    ec2 = call.client("ec2")
    if "vpcId" in call.changed:
        _igw_detach(call, call.olds.get("vpcId"))
        if call.inputs.get("vpcId"):
            ec2.attach_internet_gateway(InternetGatewayId=call.id, VpcId=call.inputs["vpcId"])
    update_tags(call)


def _igw_detach(call: Call, vpc: str | None) -> None:
    if vpc:
        detach = lambda: call.client("ec2").detach_internet_gateway(InternetGatewayId=call.id, VpcId=vpc)  # noqa: E731
        ignore_absent(lambda: retry(call, detach, "DependencyViolation", seconds=900), "Gateway.NotAttached")


def _igw_delete(call: Call) -> None:
    _igw_detach(call, call.state.get("vpcId") or call.inputs.get("vpcId"))
    act = lambda: call.client("ec2").delete_internet_gateway(InternetGatewayId=call.id)  # noqa: E731
    delete(call, act, f"internet gateway {call.id}")


def _eip_create(call: Call) -> str:
    address = call.client("ec2").allocate_address(
        Domain=call.inputs.get("domain") or "vpc", TagSpecifications=tag_specification(call, "elastic-ip")
    )
    return str(address["AllocationId"])


def _eip_read(call: Call) -> Tree | None:
    address = first(call, "describe_addresses", "Addresses", AllocationIds=[call.id])
    if address is None:
        return None
    public = address["PublicIp"]
    return {
        "arn": call.arn("ec2", f"elastic-ip/{call.id}"),
        "allocationId": call.id,
        "associationId": address.get("AssociationId") or "",
        "domain": address.get("Domain"),
        "publicIp": public,
        "publicDns": f"ec2-{public.replace('.', '-')}.{call.region}.compute.amazonaws.com",
        "privateIp": address.get("PrivateIpAddress") or "",
        "networkInterface": address.get("NetworkInterfaceId") or "",
        "publicIpv4Pool": address.get("PublicIpv4Pool") or "amazon",
        "networkBorderGroup": address.get("NetworkBorderGroup") or call.region,
        "tags": tag_map(address.get("Tags")),
    }


def _eip_delete(call: Call) -> None:
    release = lambda: call.client("ec2").release_address(AllocationId=call.id)  # noqa: E731
    ignore_absent(lambda: retry(call, release, "AuthFailure", "InvalidIPAddress.InUse"))


def _nat_create(call: Call) -> str:
    inputs = call.inputs
    arguments = {
        "SubnetId": inputs["subnetId"],
        "ConnectivityType": inputs["connectivityType"],
        "TagSpecifications": tag_specification(call, "natgateway"),
    }
    for name, key in (("allocationId", "AllocationId"), ("privateIp", "PrivateIpAddress")):
        if inputs.get(name):
            arguments[key] = inputs[name]
    gateway = call.client("ec2").create_nat_gateway(**arguments)
    return str(gateway["NatGateway"]["NatGatewayId"])


def _nat(call: Call) -> Tree | None:
    gateway: Tree | None = first(call, "describe_nat_gateways", "NatGateways", NatGatewayIds=[call.id])
    return None if gateway is None or gateway["State"] in ("deleted", "deleting") else gateway


def _nat_ready(call: Call) -> None:
    def available() -> bool:
        gateway = _nat(call)
        if gateway is None or gateway["State"] == "failed":
            raise PluginError(f"NAT gateway {call.id} failed: {(gateway or {}).get('FailureMessage', 'it is gone')}")
        return bool(gateway["State"] == "available")

    wait(call, available, f"NAT gateway {call.id} to be available")


def _nat_read(call: Call) -> Tree | None:
    gateway = _nat(call)
    if gateway is None:
        return None
    address = (gateway.get("NatGatewayAddresses") or [{}])[0]
    return {
        "subnetId": gateway["SubnetId"],
        "allocationId": address.get("AllocationId") or "",
        "associationId": address.get("AssociationId") or "",
        "connectivityType": gateway.get("ConnectivityType", "public"),
        "networkInterfaceId": address.get("NetworkInterfaceId") or "",
        "privateIp": address.get("PrivateIp") or "",
        "publicIp": address.get("PublicIp") or "",
        "tags": tag_map(gateway.get("Tags")),
    }


def _nat_delete(call: Call) -> None:
    ignore_absent(lambda: call.client("ec2").delete_nat_gateway(NatGatewayId=call.id), "NatGatewayNotFound")

    def gone() -> bool:
        gateway = first(call, "describe_nat_gateways", "NatGateways", "NatGatewayNotFound", NatGatewayIds=[call.id])
        return gateway is None or gateway["State"] == "deleted"

    wait(call, gone, f"NAT gateway {call.id} to be deleted")


def _endpoint_create(call: Call) -> str:
    inputs = call.inputs
    arguments = {
        "VpcId": inputs["vpcId"],
        "ServiceName": inputs["serviceName"],
        "VpcEndpointType": inputs["vpcEndpointType"],
        "TagSpecifications": tag_specification(call, "vpc-endpoint"),
    }
    for name, key in (("routeTableIds", "RouteTableIds"), ("policy", "PolicyDocument")):
        if inputs.get(name):
            arguments[key] = inputs[name]
    return str(call.client("ec2").create_vpc_endpoint(**arguments)["VpcEndpoint"]["VpcEndpointId"])


def _endpoint_read(call: Call) -> Tree | None:
    codes = ("InvalidVpcEndpointId.NotFound", "InvalidVpcEndpoint.NotFound")
    endpoint = first(call, "describe_vpc_endpoints", "VpcEndpoints", *codes, VpcEndpointIds=[call.id])
    if endpoint is None or endpoint.get("State", "").lower() in ("deleted", "deleting"):
        return None
    named = [{"Name": "prefix-list-name", "Values": [endpoint["ServiceName"]]}]
    prefix_list = first(call, "describe_managed_prefix_lists", "PrefixLists", Filters=named)
    return {
        "arn": call.arn("ec2", f"vpc-endpoint/{call.id}"),
        "vpcId": endpoint["VpcId"],
        "serviceName": endpoint["ServiceName"],
        "vpcEndpointType": endpoint.get("VpcEndpointType", "Gateway"),
        "routeTableIds": endpoint.get("RouteTableIds") or [],
        "subnetIds": endpoint.get("SubnetIds") or [],
        "securityGroupIds": [group["GroupId"] for group in endpoint.get("Groups") or []],
        "networkInterfaceIds": endpoint.get("NetworkInterfaceIds") or [],
        "policy": endpoint.get("PolicyDocument"),
        "privateDnsEnabled": bool(endpoint.get("PrivateDnsEnabled")),
        "prefixListId": (prefix_list or {}).get("PrefixListId"),
        "cidrBlocks": [],
        "dnsEntries": [
            {"dnsName": entry.get("DnsName"), "hostedZoneId": entry.get("HostedZoneId")}
            for entry in endpoint.get("DnsEntries") or []
        ],
        "ownerId": endpoint.get("OwnerId") or call.clients.account(),
        "requesterManaged": bool(endpoint.get("RequesterManaged")),
        "state": endpoint.get("State"),
        "tags": tag_map(endpoint.get("Tags")),
    }


def _endpoint_update(call: Call) -> None:
    arguments: Tree = {}
    if "routeTableIds" in call.changed:
        old, new = set(call.olds.get("routeTableIds") or []), set(call.inputs.get("routeTableIds") or [])
        arguments |= {"AddRouteTableIds": sorted(new - old), "RemoveRouteTableIds": sorted(old - new)}
    if "policy" in call.changed:
        policy = call.inputs.get("policy")
        arguments |= {"PolicyDocument": policy} if policy else {"ResetPolicy": True}
    if arguments:
        kept = {key: value for key, value in arguments.items() if value != []}
        call.client("ec2").modify_vpc_endpoint(VpcEndpointId=call.id, **kept)
    update_tags(call)


def _endpoint_delete(call: Call) -> None:
    ignore_absent(lambda: call.client("ec2").delete_vpc_endpoints(VpcEndpointIds=[call.id]))
    wait(call, lambda: _endpoint_read(call) is None, f"VPC endpoint {call.id} to be deleted")


def _flow_log_create(call: Call) -> str:
    inputs = call.inputs
    names = {"logDestination": "LogDestination", "iamRoleArn": "DeliverLogsPermissionArn"}
    names |= {"logDestinationType": "LogDestinationType", "maxAggregationInterval": "MaxAggregationInterval"}
    arguments = {key: inputs[name] for name, key in names.items() if inputs.get(name)}
    answer = call.client("ec2").create_flow_logs(
        ResourceType="VPC",
        ResourceIds=[inputs["vpcId"]],
        TrafficType=inputs["trafficType"],
        TagSpecifications=tag_specification(call, "vpc-flow-log"),
        **arguments,
    )
    for failed in answer.get("Unsuccessful") or ():
        raise PluginError(f"the flow log of {failed['ResourceId']} was not created: {failed['Error']['Message']}")
    return str(answer["FlowLogIds"][0])


def _flow_log_read(call: Call) -> Tree | None:
    found = first(call, "describe_flow_logs", "FlowLogs", FlowLogIds=[call.id])
    if found is None:
        return None
    return {
        "arn": call.arn("ec2", f"vpc-flow-log/{call.id}"),
        "vpcId": found["ResourceId"],
        "trafficType": found["TrafficType"],
        "logDestination": found.get("LogDestination") or "",
        "logDestinationType": found["LogDestinationType"],
        "iamRoleArn": found.get("DeliverLogsPermissionArn") or "",
        "maxAggregationInterval": found["MaxAggregationInterval"],
        "logFormat": found.get("LogFormat") or "",
        "tags": tag_map(found.get("Tags")),
    }


def _flow_log_delete(call: Call) -> None:
    ignore_absent(lambda: call.client("ec2").delete_flow_logs(FlowLogIds=[call.id]), "InvalidFlowLogId.NotFound")


ENTRIES: Final = [
    Entry(
        token="aws:ec2/flowLog:FlowLog",
        covers=words("vpcId trafficType logDestination logDestinationType iamRoleArn maxAggregationInterval"),
        replace_on=words("vpcId trafficType logDestination logDestinationType iamRoleArn maxAggregationInterval"),
        defaults={"logDestinationType": "cloud-watch-logs", "maxAggregationInterval": 600},
        create=_flow_log_create,
        read=_flow_log_read,
        update=update_tags,
        delete=_flow_log_delete,
    ),
    Entry(
        token="aws:ec2/internetGateway:InternetGateway",
        covers=words("vpcId"),
        create=_igw_create,
        read=_igw_read,
        update=_igw_update,
        delete=_igw_delete,
    ),
    Entry(
        token="aws:ec2/eip:Eip",
        covers=words("domain"),
        replace_on=words("domain"),
        create=_eip_create,
        read=_eip_read,
        update=update_tags,
        delete=_eip_delete,
    ),
    Entry(
        token="aws:ec2/natGateway:NatGateway",
        covers=words("subnetId allocationId connectivityType privateIp"),
        replace_on=words("subnetId allocationId connectivityType privateIp"),
        computed=words("privateIp"),
        defaults={"connectivityType": "public"},
        create=_nat_create,
        ready=_nat_ready,
        read=_nat_read,
        update=update_tags,
        delete=_nat_delete,
    ),
    Entry(
        token="aws:ec2/vpcEndpoint:VpcEndpoint",
        covers=words("vpcId serviceName vpcEndpointType routeTableIds policy"),
        replace_on=words("vpcId serviceName"),
        computed=words("routeTableIds policy"),
        defaults={"vpcEndpointType": "Gateway"},
        only={"vpcEndpointType": "Gateway"},
        documents=words("policy"),
        create=_endpoint_create,
        read=_endpoint_read,
        update=_endpoint_update,
        delete=_endpoint_delete,
    ),
]
