"""The functions for single things of a network answer as the official plug-in's, and refuse as they do."""

from __future__ import annotations

import pytest

from packages.localcloud.tests.standins.aws.harness import Engine
from packages.localcloud.tests.standins.aws.networks import S3, Ids, make_network

VPC, SUBNET = "aws:ec2/getVpc:getVpc", "aws:ec2/getSubnet:getSubnet"
TABLE, ENDPOINT = "aws:ec2/getRouteTable:getRouteTable", "aws:ec2/getVpcEndpoint:getVpcEndpoint"


@pytest.fixture
def there(engine: Engine, request: pytest.FixtureRequest) -> Ids:
    return make_network(engine, request.node.name)


def test_a_vpc_has_its_ranges_and_its_dns_settings(engine: Engine, there: Ids) -> None:
    found = engine.invoke(VPC, id=there.vpc)
    assert (found["enableDnsSupport"], found["enableDnsHostnames"]) == (True, True)
    ranges = [(each["cidrBlock"], each["state"]) for each in found["cidrBlockAssociations"]]
    assert (found["cidrBlock"], ranges) == ("10.9.0.0/16", [("10.9.0.0/16", "associated")])
    plain = engine.create("aws:ec2/vpc:Vpc", "plain", {"cidrBlock": "10.0.0.0/16"}).id
    assert engine.invoke(VPC, id=plain)["enableDnsHostnames"] is False


def test_a_subnet_has_its_zone_and_the_addresses_that_are_free(engine: Engine, there: Ids) -> None:
    found = engine.invoke(SUBNET, id=there.subnet)
    assert (found["vpcId"], found["availabilityZone"], found["mapPublicIpOnLaunch"]) == (there.vpc, "us-west-2b", False)
    assert found["availableIpAddressCount"] == 256 - 5


def test_a_route_table_has_its_routes_but_for_the_vpcs_own_and_an_endpoints(engine: Engine, there: Ids) -> None:
    found = engine.invoke(TABLE, subnetId=there.subnet)
    assert found["routeTableId"] == there.table
    assert [(each["cidrBlock"], each["gatewayId"]) for each in found["routes"]] == [("0.0.0.0/0", there.gateway)]


def test_a_subnet_without_a_table_of_its_own_has_no_match_but_its_vpc_has_a_main_one(
    engine: Engine, there: Ids
) -> None:
    place = {"vpcId": there.vpc, "cidrBlock": "10.9.1.0/24"}
    other = engine.create("aws:ec2/subnet:Subnet", "other", place).id
    with pytest.raises(Exception, match="no matching EC2 Route Table found"):
        engine.invoke(TABLE, subnetId=other)
    main = [{"name": "association.main", "values": ["true"]}]
    found = engine.invoke(TABLE, vpcId=there.vpc, filters=main)
    assert (found["routeTableId"] != there.table, found["routes"]) == (True, [])
    default = [{"name": "route.destination-cidr-block", "values": ["0.0.0.0/0"]}]
    assert engine.invoke(TABLE, routeTableId=there.table, filters=default)["id"] == there.table
    with pytest.raises(Exception, match="no matching EC2 Route Table found"):
        engine.invoke(TABLE, routeTableId=found["id"], filters=default)


def test_an_endpoint_is_found_by_its_service_and_its_kind(engine: Engine, there: Ids) -> None:
    asked = {"vpcId": there.vpc, "serviceName": S3, "state": "available"}
    gateway = [{"name": "vpc-endpoint-type", "values": ["Gateway"]}]
    found = engine.invoke(ENDPOINT, **asked, filters=gateway)
    assert (found["id"], found["routeTableIds"]) == (there.endpoint, [there.table])
    for more in ({"filters": [{"name": "vpc-endpoint-type", "values": ["Interface"]}]}, {"state": "pending"}):
        with pytest.raises(Exception, match="no matching EC2 VPC Endpoint found"):
            engine.invoke(ENDPOINT, **{**asked, **more})


def test_what_is_not_there_has_no_match_and_what_is_there_twice_is_refused(engine: Engine, there: Ids) -> None:
    for token, what, id_ in ((VPC, "VPC", "vpc-00000000"), (SUBNET, "Subnet", "subnet-00000000")):
        with pytest.raises(Exception, match=f"no matching EC2 {what} found"):
            engine.invoke(token, id=id_)
    engine.create("aws:ec2/subnet:Subnet", "second", {"vpcId": there.vpc, "cidrBlock": "10.9.1.0/24"})
    with pytest.raises(Exception, match="multiple EC2 Subnets matched"):
        engine.invoke(SUBNET, vpcId=there.vpc)
