"""The Pricing API, which moto lacks: GetProducts for EC2's On-Demand instances.

    PricingService()        # a `gateway.Service` for calls that are signed for `pricing`

The products have the attributes that AWS gives them (https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/
using-price-list-query-api.html); the prices are those of `prices`.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from werkzeug.wrappers import Response

from localcloud.aws import replies
from localcloud.aws.access import Authorized
from localcloud.aws.compute import prices

SERVICE_CODE: Final = "AmazonEC2"
MAX_RESULTS: Final = 100
# AWS's codes of the On-Demand offer and of its hourly rate.
OFFER: Final = "JRTCKXETXF"
RATE: Final = "6YS6EN2CT7"
PUBLISHED: Final = "2026-01-01T00:00:00Z"


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
        wanted = {str(each["Field"]).lower(): str(each["Value"]) for each in params.get("Filters") or []}
        found = [product for product in products(wanted.get("regioncode", "")) if matches(product, wanted)]
        try:
            page = _page([json.dumps(product) for product in found], params)
        except ValueError:
            return replies.json_error(400, "InvalidNextTokenException", "The NextToken is not one of this API")
        return Response(json.dumps({"FormatVersion": "aws_v1", **page}), content_type="application/x-amz-json-1.1")


def products(region: str) -> Iterator[Mapping[str, Any]]:
    """Yield the products of a region: its instance types with Linux, On-Demand."""
    from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES

    for offering in INSTANCE_TYPE_OFFERINGS["region"].get(region, []):
        name = str(offering["InstanceType"])
        if name in INSTANCE_TYPES:
            yield product(name, region, INSTANCE_TYPES[name])


def product(name: str, region: str, size: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an instance type in the form of the price list."""
    metal = bool(size.get("BareMetal"))
    attributes = {
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
    family = "Compute Instance (bare metal)" if metal else "Compute Instance"
    return {
        "product": {"productFamily": family, "attributes": attributes, "sku": sku},
        "serviceCode": SERVICE_CODE,
        "terms": {"OnDemand": {term: offer}},
        "version": PUBLISHED[:10].replace("-", ""),
        "publicationDate": PUBLISHED,
    }


def matches(found: Mapping[str, Any], wanted: Mapping[str, str]) -> bool:
    """Return whether a product has these values; `wanted` has the fields' names in lower case."""
    own = {key.lower(): value for key, value in found["product"]["attributes"].items()}
    own |= {"productfamily": found["product"]["productFamily"], "sku": found["product"]["sku"]}
    return all(own.get(field) == value for field, value in wanted.items())


def _page(items: list[str], params: Mapping[str, Any]) -> dict[str, Any]:
    token = params.get("NextToken")
    start = int(base64.b64decode(token, validate=True)) if token else 0
    end = start + min(int(params.get("MaxResults") or MAX_RESULTS), MAX_RESULTS)
    following = {"NextToken": base64.b64encode(str(end).encode()).decode()} if end < len(items) else {}
    return {"PriceList": items[start:end], **following}
