"""Checks of the AWS account, with the AWS CLI: who is logged in, where, and whether GPU instances may be started.

They are skipped where no AWS account is used: neither to deploy the stack nor to log in to the cluster.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial

from tidewater.cli.doctor.machine import logs_in_with_aws
from tidewater.cli.doctor.place import Ended, Place
from tidewater.cli.doctor.results import Result, fine, fix, note, skipped, unchecked
from tidewater.cli.parallel import at_once

QUOTAS = {
    "L-DB2E81BA": "On-Demand G and VT",
    "L-3819A6DF": "Spot G and VT",
    "L-417A185B": "On-Demand P",
}
"""Codes of EC2's quotas for GPU instances, in vCPUs:
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-on-demand-instances.html#ec2-on-demand-instances-limits"""

_REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
_NOT_USED = "no AWS account is used from here"
_QUOTA_SECONDS = 10.0


def credentials(place: Place) -> Result:
    """Check that AWS accepts the credentials."""
    if not _used(place):
        return skipped(_NOT_USED)
    if not place.tools.has("aws"):
        return unchecked("the AWS CLI is not installed")
    ended = place.tools.run("aws", "sts", "get-caller-identity", "--output", "json")
    if ended.code != 0:
        return fix(
            f"AWS does not accept the credentials, or there are none: {ended.reason}",
            "Log in: `aws configure`, `aws sso login`, or AWS_PROFILE.",
        )
    return fine(str(json.loads(ended.stdout)["Arn"]))


def region(place: Place) -> Result:
    """Check that a region is set."""
    if not _used(place):
        return skipped(_NOT_USED)
    named = next((place.environment[name] for name in _REGION_VARIABLES if place.environment.get(name)), "")
    found = named or place.tools.run("aws", "configure", "get", "region").stdout.strip()
    if found:
        return fine(found)
    return note("no region is set", "Set one: `aws configure set region us-west-2`. A stack has its own: key `region`.")


def quotas(place: Place) -> Result:
    """Check that the account may start GPU instances. Training on CPUs needs none."""
    calls = [partial(_quota, place, code) for code in QUOTAS]
    found = dict(zip(QUOTAS, at_once(calls, seconds=_QUOTA_SECONDS), strict=True))
    vcpus = {code: _vcpus(ended) for code, ended in found.items() if isinstance(ended, Ended)}
    return quota_result({code: count for code, count in vcpus.items() if count is not None})


def quota_result(vcpus: Mapping[str, int]) -> Result:
    """Return what quotas mean; `vcpus` are those that could be read, by code."""
    if not vcpus:
        return unchecked("the quotas for GPU instances could not be read")
    text = ", ".join(f"{QUOTAS[code]}: {count} vCPUs" for code, count in vcpus.items())
    if any(vcpus.values()):
        return fine(text)
    return note(
        f"no GPU instance can be started ({text})",
        f"Request vCPUs: `aws service-quotas request-service-quota-increase --service-code ec2 "
        f"--quota-code {next(iter(vcpus))} --desired-value 32`; it may take days.",
    )


def _quota(place: Place, code: str) -> Ended:
    where = ("--service-code", "ec2", "--quota-code", code, "--query", "Quota.Value", "--output", "text")
    return place.tools.run("aws", "service-quotas", "get-service-quota", *where)


def _vcpus(ended: Ended) -> int | None:
    try:
        return int(float(ended.stdout)) if ended.code == 0 else None
    except ValueError:
        return None


def _used(place: Place) -> bool:
    return place.deploys or logs_in_with_aws(place)
