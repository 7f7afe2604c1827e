"""Rules that AWS enforces and moto doesn't, added to moto's own methods at start-up.

    install()    # once, before the first request

A program must be able to test how it destroys its stack: a deletion in the wrong order, or a resource that is left in
a VPC, must fail as it does on AWS. moto deletes silently in these cases.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any

from localcloud.aws import ecr_rules, eks_images, s3_rules
from localcloud.aws.compute import launch_rules, listings
from localcloud.aws.events import bus, states
from localcloud.aws.files import efs_rules, fsx_rules
from localcloud.aws.requests import outgoing

# moto recognizes only keys of twenty capital letters and digits; other access keys can have another form.
_ANY_ACCESS_KEY = re.compile(r"AWS.*?(?:Credential=| )(?P<access_key>[^/:=\s]+)[:/]")


def install() -> None:
    """Wrap moto's methods. Call this once per process."""
    from moto.core.responses import BaseResponse
    from moto.ec2.models import EC2Backend
    from moto.iam.responses import IamResponse
    from moto.s3.models import FakeBucket

    _list_profiles_of_a_path(IamResponse)
    _before(EC2Backend, "delete_subnet", _refuse_used_subnet)
    _before(EC2Backend, "delete_vpc", _refuse_used_vpc)
    _before(EC2Backend, "delete_security_group", _refuse_used_group)
    _before(EC2Backend, "detach_internet_gateway", _refuse_mapped_gateway)
    _before(EC2Backend, "release_address", _refuse_used_address)
    _keep_rule_descriptions()
    _free_what_gateways_held(EC2Backend)
    _route_endpoints(EC2Backend)
    _drop_interfaces_of_terminated(EC2Backend)
    BaseResponse.access_key_regex = _ANY_ACCESS_KEY
    _carry_out_what_was_decided(BaseResponse)
    FakeBucket.get_permission = _neutral  # type: ignore[method-assign]
    ecr_rules.install()
    efs_rules.install()
    eks_images.install()
    fsx_rules.install()
    launch_rules.install()
    listings.install()
    bus.install()
    states.install()
    s3_rules.install()


def _carry_out_what_was_decided(response: Any) -> None:
    """Make moto use the gateway's operation and region. moto would otherwise search the request for them itself.

    It does so with requests that no gateway has decided: this process may serve another account without these rules.
    """
    from moto.moto_server.werkzeug_app import BackendRequest

    own_action, own_region = response._get_action, response.get_region_from_url
    own_form = BackendRequest.want_form_data_parsed.fget  # type: ignore[attr-defined]

    def action(self: Any) -> str:
        operation = outgoing.decided(self.normalized_request.environ)
        if operation is None:
            return str(own_action(self))
        self.uri_match = dict(operation.labels)
        return operation.name

    def region(self: Any, request: Any, url: str) -> str:
        operation = outgoing.decided(request.environ)
        return str(own_region(self, request, url)) if operation is None else operation.region

    def is_form(request: Any) -> bool:
        operation = outgoing.decided(request.environ)
        return bool(own_form(request)) if operation is None else isinstance(operation.body, tuple)

    response._get_action = action
    response.get_region_from_url = region
    BackendRequest.want_form_data_parsed = property(is_form)  # type: ignore[assignment,method-assign]


def _before(owner: Any, name: str, check: Callable[..., None]) -> None:
    original = getattr(owner, name)

    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        check(self, *args, **kwargs)
        return original(self, *args, **kwargs)

    setattr(owner, name, wrapped)


def _neutral(self: Any, action: str, resource: str) -> Any:
    """Turn off moto's check of bucket policies: the gateway enforces them, and moto's check gets conditions wrong."""
    from moto.iam.access_control import PermissionResult

    return PermissionResult.NEUTRAL


def _violation(kind: str, name: str) -> Exception:
    from moto.ec2.exceptions import DependencyViolationError

    error: Exception = DependencyViolationError(f"The {kind} '{name}' has dependencies and cannot be deleted.")
    return error


def _refuse_used_subnet(ec2: Any, subnet_id: str) -> None:
    if any(eni.subnet.id == subnet_id for eni in list(ec2.enis.values())):
        raise _violation("subnet", subnet_id)


def _refuse_used_vpc(ec2: Any, vpc_id: str) -> None:
    gateways = [gateway for gateway in list(ec2.internet_gateways.values()) if gateway.vpc]
    endpoints = [end for end in list(ec2.vpc_end_points.values()) if end.vpc_id == vpc_id and end.state != "deleted"]
    groups = [group for group in list(ec2.groups.get(vpc_id, {}).values()) if group.name != "default"]
    if endpoints or groups or any(gateway.vpc.id == vpc_id for gateway in gateways):
        raise _violation("vpc", vpc_id)


def _refuse_used_group(ec2: Any, name: str | None = None, group_id: str | None = None) -> None:
    if group_id is None:
        return
    used = any(group.id == group_id for eni in list(ec2.enis.values()) for group in eni.group_set)
    group = ec2.get_security_group_from_id(group_id)
    others = [] if group is None else list(ec2.groups[group.vpc_id].values())
    named = any(
        rule.source_group.get("GroupId") == group_id
        for other in others
        if other.id != group_id
        for rule in (*other.ingress_rules, *other.egress_rules)
    )
    if used or named:
        from moto.ec2.exceptions import DependencyViolationError

        raise DependencyViolationError(f"resource {group_id} has a dependent object")


def _refuse_mapped_gateway(ec2: Any, internet_gateway_id: str, vpc_id: str) -> None:
    from moto.ec2.exceptions import DependencyViolationError

    subnets = {subnet.id for zone in ec2.subnets.values() for subnet in zone.values() if subnet.vpc_id == vpc_id}
    for eni in list(ec2.enis.values()):
        if eni.subnet.id in subnets and eni.public_ip:
            raise DependencyViolationError(
                f"Network {vpc_id} has some mapped public address(es). Please unmap those public address(es) "
                "before detaching the gateway."
            )


def _refuse_used_address(ec2: Any, address: str | None = None, allocation_id: str | None = None) -> None:
    from moto.ec2.exceptions import EC2ClientError

    for found in list(ec2.addresses):
        if allocation_id and found.allocation_id == allocation_id and found.association_id:
            raise EC2ClientError(
                "InvalidIPAddress.InUse",
                f"The address with allocation id [{allocation_id}] is in use and can't be freed",
            )


def _keep_rule_descriptions() -> None:
    """Keep the descriptions of rules that name a group or a prefix list; moto keeps only those of rules with a CIDR."""
    from moto.ec2.models.security_groups import SecurityGroupRule

    original = SecurityGroupRule.__init__

    def wrapped(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        source = kwargs.get("source_group") or kwargs.get("prefix_list_id") or (args[6] if len(args) > 6 else None)
        if source and source.get("Description") and not self.ip_range:
            self.ip_range = {"Description": source["Description"]}

    SecurityGroupRule.__init__ = wrapped  # type: ignore[method-assign]


def _list_profiles_of_a_path(response: Any) -> None:
    """Apply the path of ListInstanceProfiles, which moto ignores: Karpenter deletes unused profiles of its own path."""
    original = response.list_instance_profiles

    def list_instance_profiles(self: Any) -> Any:
        answer, prefix = original(self), self._get_param("PathPrefix", "/")
        found = list(answer.result["InstanceProfiles"])
        answer.result["InstanceProfiles"] = [profile for profile in found if profile.path.startswith(prefix)]
        return answer

    response.list_instance_profiles = list_instance_profiles


def _free_what_gateways_held(backend: Any) -> None:
    """Release a deleted NAT gateway's address and interface, so that its subnet and address can be deleted."""
    original = backend.delete_nat_gateway

    def wrapped(self: Any, nat_gateway_id: str) -> Any:
        gateway = self.nat_gateways.get(nat_gateway_id)
        if gateway is None:
            from moto.ec2.exceptions import EC2ClientError

            raise EC2ClientError("NatGatewayNotFound", f"The Nat Gateway {nat_gateway_id} was not found")
        interface = self.enis.get(gateway._eni.id)
        for address in list(self.addresses):
            if interface is not None and address.eni is interface:
                self.disassociate_address(association_id=address.association_id)
        if interface is not None:
            self.delete_network_interface(interface.id)
        return original(self, nat_gateway_id)

    backend.delete_nat_gateway = wrapped


def _route_endpoints(backend: Any) -> None:
    """Add and remove a gateway endpoint's routes with the endpoint, and forget deleted endpoints."""
    from moto.ec2.exceptions import EC2ClientError

    modify, delete = backend.modify_vpc_endpoint, backend.delete_vpc_endpoints

    def unroute(self: Any, endpoint: Any, tables: list[str]) -> None:
        for table in tables:
            with contextlib.suppress(EC2ClientError):
                self.delete_route(table, endpoint.destination_prefix_list_id)

    def modified(self: Any, vpc_id: str, *args: Any, **kwargs: Any) -> None:
        endpoint = self.describe_vpc_endpoints(vpc_end_point_ids=[vpc_id])[0]
        before = list(endpoint.route_table_ids)
        modify(self, vpc_id, *args, **kwargs)
        after = list(endpoint.route_table_ids)
        unroute(self, endpoint, [table for table in before if table not in after])
        for table in after:
            if table not in before:
                self.create_route(
                    table, None, gateway_id=vpc_id, destination_prefix_list_id=endpoint.destination_prefix_list_id
                )

    def deleted(self: Any, vpce_ids: list[str] | None = None) -> None:
        for identity in vpce_ids or []:
            endpoint = self.vpc_end_points.get(identity)
            if endpoint is not None and endpoint.vpc_endpoint_type.lower() == "gateway":
                unroute(self, endpoint, list(endpoint.route_table_ids))
                endpoint.route_table_ids = []
        delete(self, vpce_ids)
        for identity in vpce_ids or []:
            self.vpc_end_points.pop(identity, None)

    backend.modify_vpc_endpoint = modified
    backend.delete_vpc_endpoints = deleted


def _drop_interfaces_of_terminated(backend: Any) -> None:
    """Delete a terminated instance's primary network interface with it."""
    original = backend.terminate_instances

    def wrapped(self: Any, instance_ids: list[str]) -> Any:
        result = original(self, instance_ids)
        for instance, _ in result:
            for interface in list(instance.nics.values()):
                if interface.id in self.enis and interface.description == "Primary network interface":
                    interface.delete()
        return result

    backend.terminate_instances = wrapped
