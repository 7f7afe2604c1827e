"""The Service Quotas API for the quotas of EC2 and of its networks, which moto lacks.

    QuotaService(account)      # a `gateway.Service` for calls that are signed for `servicequotas`

What it says is what launches are held to (`quotas`). A request for more is granted at once; on AWS that can take days.
https://docs.aws.amazon.com/servicequotas/2019-06-24/apireference/Welcome.html
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from werkzeug.wrappers import Response

from localcloud.aws import replies
from localcloud.aws.access import Authorized
from localcloud.aws.compute import capacity, quotas
from localcloud.aws.compute.quotas import Quota
from localcloud.aws.pages import page

SERVICES: Final = {
    quotas.EC2: "Amazon Elastic Compute Cloud (Amazon EC2)",
    quotas.VPC: "Amazon Virtual Private Cloud (Amazon VPC)",
}
MAX_RESULTS: Final = 100

Answer = Mapping[str, Any]


class _Wrong(Exception):
    """A call that AWS refuses: the code and the message of its error."""


class QuotaService:
    """`gateway.Service` for the Service Quotas API."""

    def __init__(self, account: str) -> None:
        self._account = account
        self._answers: Mapping[str, Callable[[str, Answer], Answer]] = {
            "GetAWSDefaultServiceQuota": lambda region, params: {"Quota": self._default(region, _named(params))},
            "GetServiceQuota": lambda region, params: {"Quota": self._own(region, _named(params))},
            "ListAWSDefaultServiceQuotas": lambda region, params: _listed(params, region, self._default),
            "ListServiceQuotas": lambda region, params: _listed(params, region, self._own),
            "RequestServiceQuotaIncrease": self._increase,
        }

    def handle(self, call: Authorized) -> Response:
        """Answer one call."""
        name, region, params = call.operation.name, call.operation.region, call.operation.params
        if name not in self._answers:
            return replies.json_error(400, "IllegalArgumentException", f"{name} is not supported by this cloud")
        try:
            answer = self._answers[name](region, params)
        except _Wrong as wrong:
            return replies.json_error(400, *wrong.args)
        return Response(json.dumps(answer), content_type="application/x-amz-json-1.1")

    def _default(self, region: str, quota: Quota) -> Answer:
        return _described(quota, region, "", quota.default)

    def _own(self, region: str, quota: Quota) -> Answer:
        return _described(quota, region, self._account, quotas.value(self._ec2(region), quota.code))

    def _increase(self, region: str, params: Answer) -> Answer:
        quota, wanted, ec2 = _named(params), _number(params, "DesiredValue"), self._ec2(region)
        if wanted <= quotas.value(ec2, quota.code):
            raise _Wrong("IllegalArgumentException", "The desired value must be greater than the quota's value.")
        quotas.grant(ec2, {quota.code: wanted})
        found = {key: text for key, text in self._own(region, quota).items() if isinstance(text, str)}
        names = ("ServiceCode", "ServiceName", "QuotaCode", "QuotaName", "QuotaArn", "Unit")
        requested = {"Id": uuid.uuid4().hex, "DesiredValue": wanted, "Status": "APPROVED", "GlobalQuota": False}
        return {"RequestedQuota": {**{name: found[name] for name in names}, **requested}}

    def _ec2(self, region: str) -> Any:
        from moto.ec2.models import ec2_backends

        return ec2_backends[self._account][region]


def _named(params: Answer) -> Quota:
    quota = quotas.QUOTAS.get(str(params.get("QuotaCode")))
    if quota is None or params.get("ServiceCode") != quota.service:
        raise _Wrong(
            "NoSuchResourceException", "The request failed because the specified service or quota does not exist."
        )
    return quota


def _listed(params: Answer, region: str, described: Callable[[str, Quota], Answer]) -> Answer:
    service = params.get("ServiceCode")
    if service not in SERVICES:
        raise _Wrong("NoSuchResourceException", "The request failed because the specified service does not exist.")
    size = int(_number({"MaxResults": MAX_RESULTS, **params}, "MaxResults"))
    if not 1 <= size <= MAX_RESULTS:
        raise _Wrong("IllegalArgumentException", f"MaxResults {size} is not from 1 to {MAX_RESULTS}.")
    wanted = params.get("QuotaCode")
    listed = [each for code, each in quotas.QUOTAS.items() if each.service == service and wanted in (None, code)]
    try:
        found, following = page(listed, params.get("NextToken"), size)
    except ValueError as error:
        raise _Wrong("InvalidPaginationTokenException", "Invalid input was provided.") from error
    answer = {"Quotas": [described(region, quota) for quota in found]}
    return {**answer, "NextToken": following} if following else answer


def _number(params: Answer, name: str) -> float:
    try:
        return float(params[name])
    except (KeyError, TypeError, ValueError) as error:
        raise _Wrong("IllegalArgumentException", f"{name} is missing or no number.") from error


def _described(quota: Quota, region: str, account: str, value: float) -> Answer:
    return {
        "ServiceCode": quota.service,
        "ServiceName": SERVICES[quota.service],
        "QuotaArn": f"arn:aws:servicequotas:{region}:{account}:{quota.service}/{quota.code}",
        "QuotaCode": quota.code,
        "QuotaName": quota.name,
        "Value": value,
        "Unit": "None",
        "Adjustable": True,
        "GlobalQuota": False,
        **({"UsageMetric": _usage(quota)} if quota.usage_class else {}),
    }


def _usage(quota: Quota) -> Answer:
    market = "Spot" if quota.market == capacity.SPOT else "OnDemand"
    return {
        "MetricNamespace": "AWS/Usage",
        "MetricName": "ResourceCount",
        "MetricDimensions": {
            "Class": f"{quota.usage_class}/{market}",
            "Resource": "vCPU",
            "Service": "EC2",
            "Type": "Resource",
        },
        "MetricStatisticRecommendation": "Maximum",
    }
