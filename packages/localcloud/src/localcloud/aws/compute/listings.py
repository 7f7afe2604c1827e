"""EC2's lists as AWS gives them: in pages, with the filters that moto ignores, with prices, and lists moto lacks.

    install()    # once, before the first request

Clients such as Karpenter read these lists to choose instance types, and to find instances that are not well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from math import isfinite
from typing import Any, Final

from localcloud.aws.compute import prices
from localcloud.aws.pages import page

ALL: Final = 1_000_000
LINUX: Final = "Linux/UNIX"
# The fields that the lists' filters are about.
OFFERING_FILTERS: Final = {"location": "Location", "instance-type": "InstanceType"}
SPOT_FILTERS: Final = {
    "availability-zone": "AvailabilityZone",
    "instance-type": "InstanceType",
    "product-description": "ProductDescription",
    "spot-price": "SpotPrice",
}
# The items of a page if the call doesn't say how many.
PAGES: Final = {
    "describe_instance_types": ("InstanceTypes", 100),
    "describe_instance_type_offerings": ("InstanceTypeOfferings", 1000),
    "describe_spot_price_history": ("SpotPriceHistory", 1000),
    "describe_launch_templates": ("LaunchTemplates", 200),
}


def install() -> None:
    """Wrap moto's methods. Call this once per process."""
    from moto.ec2 import utils
    from moto.ec2.models import EC2Backend
    from moto.ec2.models.instance_types import InstanceTypeOfferingBackend
    from moto.ec2.models.route_tables import RouteTable
    from moto.ec2.responses.elastic_block_store import ElasticBlockStore
    from moto.ec2.responses.instances import InstanceResponse
    from moto.ec2.responses.launch_templates import LaunchTemplates
    from moto.ec2.responses.spot_instances import SpotInstances

    SpotInstances.describe_spot_price_history = describe_spot_price_history  # type: ignore[method-assign]
    for owner in (InstanceResponse, LaunchTemplates, SpotInstances):
        for name in PAGES:
            if name in vars(owner):
                _in_pages(owner, name, *PAGES[name])
    InstanceResponse.describe_capacity_reservations = describe_capacity_reservations  # type: ignore[attr-defined]
    ElasticBlockStore.get_ebs_default_kms_key_id = default_disk_key  # type: ignore[attr-defined]
    _filter_statuses(EC2Backend)
    _filter_gateways_by_tags(EC2Backend)
    _filter_tables_by_the_state_of_routes(RouteTable)
    utils.filter_dict_attribute_mapping["instance-lifecycle"] = "lifecycle"
    utils.instance_value_in_filter_values = is_wanted  # type: ignore[assignment]
    InstanceTypeOfferingBackend.matches_filters = offering_matches  # type: ignore[assignment,method-assign]


def default_disk_key(self: Any) -> Any:
    """Answer GetEbsDefaultKmsKeyId, which moto lacks: the customer's key, if one was set, else the alias of AWS's.

    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_GetEbsDefaultKmsKeyId.html
    """
    from moto.core.responses import ActionResult
    from moto.kms.models import kms_backends

    ec2, alias = self.ec2_backend, "alias/aws/ebs"
    keys, found = kms_backends[ec2.account_id][ec2.region_name], ec2.default_kms_key_id
    # moto sets its key for AWS's alias as the default, as soon as a disk is encrypted with it.
    of_aws = not found or (keys.alias_exists(alias) and keys.describe_key(alias).arn == found)
    return ActionResult({"KmsKeyId": alias if of_aws else found})


def describe_spot_price_history(self: Any) -> Any:
    """DescribeSpotPriceHistory: the price of every instance type in every zone that offers it, unchanged for an hour.

    moto asks 0.00001 USD for everything, and knows neither other products nor their filter.
    """
    from moto.core.responses import ActionResult

    filters, products = self._filters_from_querystring(), self._get_param("ProductDescriptions", [])
    zone = self._get_param("AvailabilityZone")
    # On AWS the product has another name in accounts from before there were VPCs.
    known = not products or any(each.startswith(LINUX) for each in products)
    offerings = self.ec2_backend.describe_spot_price_history(self._get_param("InstanceTypes", []), {})
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    history = [
        {
            "InstanceType": offering["InstanceType"],
            "ProductDescription": LINUX,
            "SpotPrice": f"{prices.spot(prices.on_demand_of(offering['InstanceType'])):.6f}",
            "AvailabilityZone": offering["Location"],
            "Timestamp": hour,
        }
        for offering in (offerings if known else [])
        if zone in (None, offering["Location"]) and isfinite(prices.on_demand_of(offering["InstanceType"]))
    ]
    history = [each for each in history if matches(each, filters, SPOT_FILTERS, "DescribeSpotPriceHistory")]
    return ActionResult({"SpotPriceHistory": history})


def describe_capacity_reservations(self: Any) -> Any:
    """DescribeCapacityReservations: the account has none."""
    from moto.core.responses import ActionResult
    from moto.ec2.exceptions import EC2ClientError

    self.error_on_dryrun()
    for identity in self._get_param("CapacityReservationIds", []):
        raise EC2ClientError("InvalidCapacityReservationId.NotFound", f"The capacity reservation {identity} is unknown")
    return ActionResult({"CapacityReservations": []})


def is_wanted(value: Any, wanted: Sequence[str]) -> bool:
    """Return whether a value, or one of several, has one of a filter's values; `*` and `?` are wildcards.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Using_Filtering.html#Filtering_Resources_CLI
    """
    values = [str(each).lower() if isinstance(each, bool) else str(each) for each in _listed(value) if each is not None]
    return any(_pattern(pattern).match(each) for pattern in wanted for each in values)


@lru_cache(maxsize=1024)
def _pattern(text: str) -> re.Pattern[str]:
    from moto.ec2.utils import simple_aws_filter_to_re

    return re.compile(simple_aws_filter_to_re(text))


def matches(item: Mapping[str, Any], filters: Mapping[str, Any], names: Mapping[str, str], operation: str) -> bool:
    """Return whether an item of a list matches all filters; `names` has the field of each filter."""
    from moto.ec2.exceptions import FilterNotImplementedError

    for name in filters:
        if name not in names:
            raise FilterNotImplementedError(name, operation)
    return all(is_wanted(item[names[name]], _listed(wanted)) for name, wanted in filters.items())


def offering_matches(_: Any, offering: Mapping[str, Any], filters: Mapping[str, Any], __: str) -> bool:
    """Return whether an offering of an instance type matches the filters; moto knows no wildcards in them."""
    return matches(offering, filters, OFFERING_FILTERS, "DescribeInstanceTypeOfferings")


def status_matches(values: Mapping[str, Sequence[str]], filters: Mapping[str, Sequence[str]]) -> bool:
    """Return whether an instance's status has one of the wanted values for each filter."""
    return all(set(values.get(name, ())) & set(wanted) for name, wanted in filters.items())


def _in_pages(owner: Any, name: str, key: str, default: int) -> None:
    original: Callable[[Any], Any] = getattr(owner, name)

    def wrapped(self: Any) -> Any:
        from moto.ec2.exceptions import EC2ClientError

        self.error_on_dryrun()
        size, token = self._get_int_param("MaxResults", default), self._get_param("NextToken")
        self.params = {**self.params, "MaxResults": ALL}  # moto would cut the list off
        answer = original(self)
        try:
            answer.result[key], following = page(answer.result[key], token, size)
        except ValueError as error:
            raise EC2ClientError("InvalidParameterValue", f"The token '{token}' is invalid") from error
        if following:
            answer.result["NextToken"] = following
        return answer

    wrapped.__name__ = name
    setattr(owner, name, wrapped)


def _filter_statuses(backend: Any) -> None:
    """Apply the filters of DescribeInstanceStatus; moto knows only those of the instance's state.

    Karpenter asks for instances that are impaired or have a scheduled event. No instance here is, or has one.
    """
    original = backend.describe_instance_status

    def describe_instance_status(
        self: Any, instance_ids: list[str], include_all_instances: bool, filters: list[dict[str, Any]]
    ) -> Any:
        found = original(self, instance_ids, include_all_instances, filters)
        wanted = {
            each["name"]: each["values"] for each in filters or [] if not each["name"].startswith("instance-state")
        }
        return [instance for instance in found if status_matches(_status(instance), wanted)]

    backend.describe_instance_status = describe_instance_status


def _filter_tables_by_the_state_of_routes(table: Any) -> None:
    """Give route tables the filter `route.state`: a route leads nowhere once its NAT gateway is deleted."""
    original = table.get_filter_value

    def wrapped(self: Any, filter_name: str, method_name: str | None = None) -> Any:
        if filter_name != "route.state":
            return original(self, filter_name, method_name)
        targets = [each.nat_gateway for each in self.routes]
        return ["blackhole" if gateway and gateway.state == "deleted" else "active" for gateway in targets]

    table.get_filter_value = wrapped


def _filter_gateways_by_tags(backend: Any) -> None:
    """Apply DescribeNatGateways' filters of tags, which moto ignores."""
    original = backend.describe_nat_gateways

    def describe_nat_gateways(self: Any, filters: Mapping[str, Any] | None, nat_gateway_ids: Any) -> Any:
        wanted = {name[len("tag:") :]: each for name, each in (filters or {}).items() if name.startswith("tag:")}
        return [
            gateway
            for gateway in original(self, filters, nat_gateway_ids)
            if all(
                {each["key"]: each["value"] for each in gateway.get_tags()}.get(key) in wanted[key] for key in wanted
            )
        ]

    backend.describe_nat_gateways = describe_nat_gateways


def _status(instance: Any) -> Mapping[str, Sequence[str]]:
    found: dict[str, Sequence[str]] = {"availability-zone": (str(instance.availability_zone),)}
    for name, status in (("instance-status", instance.instance_status), ("system-status", instance.system_status)):
        found[f"{name}.status"] = (status["Status"],)
        found[f"{name}.reachability"] = tuple(detail["Status"] for detail in status.get("Details", ()))
    return found


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]
