"""The Pricing API, which moto lacks: GetProducts for EC2's On-Demand instances.

    PricingService()        # a `gateway.Service` for calls that are signed for `pricing`

The products have the attributes that AWS gives them (https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/
using-price-list-query-api.html); the prices are those of `prices`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from werkzeug.wrappers import Response

from localcloud.aws import replies
from localcloud.aws.access import Authorized
from localcloud.aws.compute import prices
from localcloud.aws.pages import page

SERVICE_CODE: Final = "AmazonEC2"
MAX_RESULTS: Final = 100
# AWS's codes of the On-Demand offer and of its hourly rate.
OFFER: Final = "JRTCKXETXF"
RATE: Final = "6YS6EN2CT7"
PUBLISHED: Final = "2026-01-01T00:00:00Z"

Filter = Mapping[str, Any]
FILTER: Final = "TERM_MATCH"
"""https://docs.aws.amazon.com/aws-cost-management/latest/APIReference/API_pricing_Filter.html"""


class PricingService:
    """`gateway.Service` for the Pricing API; its endpoints are in few regions, and it answers for all of them."""

    def handle(self, call: Authorized) -> Response:
        """Answer one call."""
        name, params = call.operation.name, call.operation.params
        if name != "GetProducts":
            return replies.json_error(400, "InvalidParameterException", f"{name} is not supported by this cloud")
        if params.get("ServiceCode") != SERVICE_CODE:
            return replies.json_error(
                400, "InvalidParameterException", f"this cloud has prices of the ServiceCode {SERVICE_CODE} only"
            )
        filters = params.get("Filters") or []
        for other in {str(each.get("Type")) for each in filters} - {FILTER}:
            message = f"filters of the Type {other} are not covered by the one-machine cloud: use {FILTER}"
            return replies.json_error(400, "InvalidParameterException", message)
        found = [json.dumps(each) for each in products(filters) if matches(attributes(each), filters)]
        try:
            size = min(int(params.get("MaxResults") or MAX_RESULTS), MAX_RESULTS)
            listed, following = page(found, params.get("NextToken"), size)
        except ValueError:
            return replies.json_error(400, "InvalidNextTokenException", "The NextToken is not one of this API")
        answer = {"FormatVersion": "aws_v1", "PriceList": listed, **({"NextToken": following} if following else {})}
        return Response(json.dumps(answer), content_type="application/x-amz-json-1.1")


def products(filters: Sequence[Filter]) -> Iterator[Mapping[str, Any]]:
    """Yield instance types with Linux, On-Demand: of the regions that the filters allow."""
    from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES

    regional = [each for each in filters if str(each["Field"]).lower() == "regioncode"]
    for region, offerings in INSTANCE_TYPE_OFFERINGS["region"].items():
        if matches({"regioncode": region}, regional):
            names = (str(offering["InstanceType"]) for offering in offerings)
            yield from (product(name, region, INSTANCE_TYPES[name]) for name in names if name in INSTANCE_TYPES)


def product(name: str, region: str, size: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an instance type in the form of the price list."""
    metal = bool(size.get("BareMetal"))
    own = {
        "capacitystatus": "Used",
        "instanceType": name,
        "instanceFamily": name.partition(".")[0],
        "marketoption": "OnDemand",
        "memory": f"{int(size['MemoryInfo']['SizeInMiB']) / prices.MIB_PER_GIB:g} GiB",
        "operatingSystem": "Linux",
        "preInstalledSw": "NA",
        "regionCode": region,
        "servicecode": SERVICE_CODE,
        "tenancy": "Dedicated" if metal else "Shared",
        "vcpu": str(size["VCpuInfo"]["DefaultVCpus"]),
    }
    sku = hashlib.sha256(f"{region} {name}".encode()).hexdigest()[:16].upper()
    family = "Compute Instance (bare metal)" if metal else "Compute Instance"
    return {
        "product": {"productFamily": family, "attributes": own, "sku": sku},
        "serviceCode": SERVICE_CODE,
        "terms": {"OnDemand": _offers(name, sku)},
        "version": PUBLISHED[:10].replace("-", ""),
        "publicationDate": PUBLISHED,
    }


def _offers(name: str, sku: str) -> Mapping[str, Any]:
    term, rate = f"{sku}.{OFFER}", f"{sku}.{OFFER}.{RATE}"
    price = {
        "unit": "Hrs",
        "beginRange": "0",
        "endRange": "Inf",
        "description": f"{name} Linux On-Demand, a price of this cloud",
        "rateCode": rate,
        "appliesTo": [],
        "pricePerUnit": {"USD": f"{prices.on_demand_of(name):.10f}"},
    }
    offer = {
        "sku": sku,
        "offerTermCode": OFFER,
        "effectiveDate": PUBLISHED,
        "termAttributes": {},
        "priceDimensions": {rate: price},
    }
    return {term: offer}


def attributes(found: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the fields of a product that filters can name, their names in lower case."""
    own = {key.lower(): value for key, value in found["product"]["attributes"].items()}
    return own | {"productfamily": found["product"]["productFamily"], "sku": found["product"]["sku"]}


def matches(own: Mapping[str, str], filters: Sequence[Filter]) -> bool:
    """Return whether fields have the values of all filters."""
    return all(own.get(str(each["Field"]).lower()) == str(each["Value"]) for each in filters)
