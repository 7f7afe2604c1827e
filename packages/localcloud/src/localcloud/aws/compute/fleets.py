"""Launch the instances of a fleet as EC2 does: from its launch template, in the order of its strategy, with errors.

    install()    # once, before the first request; called by `launch_rules`

EC2 tries the overrides one after the other. When the launch of one is refused, for want of capacity or for another
reason, this is an error in the answer of an instant fleet, not an HTTP error, and the next override is tried.
https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateFleet.html
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-fleet-allocation-strategy.html
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from localcloud.aws.compute import capacity, prices

# What EC2 calls the error of a type that the zone doesn't have when a fleet launches it.
UNSUPPORTED_IN_FLEET: Final = "InvalidFleetConfiguration"
FLEET_TAG: Final = "aws:ec2:fleet-id"
DIVERSIFIED: Final = "diversified"
PRIORITIZED: Final = ("prioritized", "capacity-optimized-prioritized")


def install() -> None:
    """Replace moto's launch of a fleet's instances."""
    from moto.ec2.models.fleets import Fleet
    from moto.ec2.models.spot_requests import SpotInstanceRequest
    from moto.ec2.responses.fleets import Fleets

    _keep_tags(Fleet)
    _launch_in_order(Fleet)
    _launch_spot_from_template(SpotInstanceRequest)
    _answer_with_errors(Fleets)


def ordered(overrides: Sequence[Mapping[str, Any]], strategy: str) -> list[int]:
    """Return the overrides in the order in which EC2 tries them, as indices.

    Args:
        overrides: Each has `InstanceType`, and `Priority` if the request has one: the lowest number is the highest.
        strategy: Of the fleet's market. The strategies that weigh capacity are by price here: capacity is unlimited.
    """

    def rank(index: int) -> tuple[float, int]:
        override = overrides[index]
        if strategy in PRIORITIZED:
            given = override.get("Priority")
            return (float(given) if given is not None else float("inf"), index)
        return (prices.on_demand_of(str(override["InstanceType"])), index)

    if strategy == DIVERSIFIED:
        return list(range(len(overrides)))
    return sorted(range(len(overrides)), key=rank)


def _keep_tags(fleet: Any) -> None:
    """Remember the tags of the request; moto forgets those of volumes and of network interfaces."""
    from moto.ec2.utils import convert_tag_spec

    original = fleet.__init__

    def initialized(self: Any, *args: Any, **kwargs: Any) -> None:
        given = kwargs.get("tag_specifications", args[-1] if args else None)
        self.requested_tags = convert_tag_spec(given or [])
        original(self, *args, **kwargs)

    fleet.__init__ = initialized


def _launch_in_order(fleet: Any) -> None:
    def create_on_demand_requests(self: Any, weight_to_add: float) -> None:
        def launch(spec: Any) -> None:
            reservation = _run(self.ec2_backend, spec, self.id)
            self.on_demand_instances += [
                {"id": reservation.id, "instance": instance, "launch_spec": spec} for instance in reservation.instances
            ]

        _launch(self, weight_to_add, capacity.ON_DEMAND, _strategy(self.on_demand_options), launch)

    def create_spot_requests(self: Any, weight_to_add: float) -> Any:
        _launch(self, weight_to_add, capacity.SPOT, _strategy(self.spot_options), lambda spec: _request(self, spec))
        return self.spot_requests

    fleet.create_on_demand_requests = create_on_demand_requests
    fleet.create_spot_requests = create_spot_requests


def _launch(fleet: Any, weight: float, market: str, strategy: str, launch: Callable[[Any], None]) -> None:
    """Launch instances one by one until the fleet has the weight, or no override is left."""
    from moto.ec2.exceptions import EC2ClientError

    for spec in fleet.launch_specs:
        requested = {kind: tags for kind, tags in fleet.requested_tags.items() if kind != "fleet"}
        spec.tag_specifications |= {
            kind: {**spec.tag_specifications.get(kind, {}), **tags} for kind, tags in requested.items()
        }
        if "InstanceRequirements" in (spec.overrides or {}):
            raise EC2ClientError(
                "UnsupportedOperation", "InstanceRequirements are not supported by this cloud: name instance types"
            )
    given = [{"InstanceType": spec.instance_type, **(spec.overrides or {})} for spec in fleet.launch_specs]
    left = [fleet.launch_specs[index] for index in ordered(given, strategy)]
    added = 0.0
    while added < weight and left:
        spec = left[0]
        try:
            launch(spec)
        except EC2ClientError as error:
            errors, found = vars(fleet).setdefault("errors", []), _error(spec, market, error)
            errors += [] if found in errors else [found]
            left.remove(spec)
            continue
        added += spec.weighted_capacity
        if strategy == DIVERSIFIED:
            left.append(left.pop(0))
    fleet.fulfilled_capacity += added


def _request(fleet: Any, spec: Any) -> None:
    fleet.spot_requests += fleet.ec2_backend.request_spot_instances(
        price=spec.spot_price,
        image_id=spec.image_id,
        count=1,
        spot_instance_type="one-time" if fleet.fleet_type == "instant" else "persistent",
        valid_from=None,
        valid_until=None,
        launch_group=None,
        availability_zone_group=None,
        key_name=spec.key_name,
        security_groups=spec.group_set,
        user_data=spec.user_data,
        instance_type=spec.instance_type,
        placement=None,
        kernel_id=None,
        ramdisk_id=None,
        monitoring_enabled=spec.monitoring_enabled,
        subnet_id=spec.subnet_id,
        spot_fleet_id=fleet.id,
        tags=spec.tag_specifications,
        launch_spec=spec,
    )


def _launch_spot_from_template(spot_request: Any) -> None:
    """Launch a Spot request of a fleet with its launch template; moto applies only a few fields of it."""
    launch_one = spot_request.launch_instance

    def launch_instance(self: Any) -> Any:
        spec = self.launch_spec
        if spec is None or not spec.launch_template_spec:
            return launch_one(self)
        reservation = _run(self.ec2_backend, spec, self.spot_fleet_id, instance_market_options="spot")
        return reservation.instances[0]

    spot_request.launch_instance = launch_instance


def _run(backend: Any, spec: Any, fleet: str, **more: Any) -> Any:
    """Run one instance of a fleet: `spec` is its launch template merged with one of its overrides."""
    named, overrides = spec.launch_template_spec, spec.overrides or {}
    zone = overrides.get("AvailabilityZone") or (overrides.get("Placement") or {}).get("AvailabilityZone")
    tags = {**spec.tag_specifications}
    tags["instance"] = {**tags.get("instance", {}), FLEET_TAG: fleet}
    return backend.run_instances(
        spec.image_id,
        1,
        spec.user_data,
        [],
        instance_type=spec.instance_type,
        is_instance_type_default=False,
        subnet_id=spec.subnet_id,
        placement=zone,
        launch_template={key: named[key] for key in ("LaunchTemplateId", "Version") if key in named},
        tags=tags,
        **more,
    )


def _answer_with_errors(fleets: Any) -> None:
    original = fleets.create_fleet

    def create_fleet(self: Any) -> Any:
        answer = original(self)
        fleet = self.ec2_backend.get_fleet(answer.result["FleetId"])
        errors = vars(fleet).get("errors")
        if errors and fleet.fleet_type == "instant":
            answer.result["Errors"] = errors
        return answer

    fleets.create_fleet = create_fleet


def _error(spec: Any, market: str, error: Any) -> dict[str, Any]:
    launched = {"LaunchTemplateSpecification": spec.launch_template_spec}
    if spec.overrides:
        launched["Overrides"] = spec.overrides
    return {
        "LaunchTemplateAndOverrides": launched,
        "Lifecycle": market,
        "ErrorCode": UNSUPPORTED_IN_FLEET if error.code == capacity.UNSUPPORTED else error.code,
        "ErrorMessage": error.message,
    }


def _strategy(options: Mapping[str, Any] | None) -> str:
    return str((options or {}).get("AllocationStrategy") or "")
