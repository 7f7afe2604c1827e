"""The part of `parsing` for the VPC: one that the stack makes, or one that is there.

networks.network(read).existing      # None, or the VPC and the subnets that `vpcId` and `privateSubnetIds` name
networks.proxy(read)                 # None, or the proxy that `httpProxy` and `noProxy` describe
"""

from __future__ import annotations

import ipaddress
import re

from settings import hardware
from settings.reader import Reader
from settings.vpcs import DIRECT, ExistingVpc, Network, Proxy

REGION = r"[a-z]{2}(-[a-z]+)+-\d"
DEFAULTS = {"vpcCidr": "10.0.0.0/16", "availabilityZones": "2", "natGateways": "single", "vpcFlowLogs": "0"}
"""What `Pulumi.yaml` gives the keys of the stack's own VPC: the engine fills it in, also where it means nothing."""

_LABELS = r"[a-z0-9-]+(\.[a-z0-9-]+)*"
_PROXY = rf"http://{_LABELS}:(?P<port>[1-9]\d{{0,4}})"
_ADDRESSES = r"[\d.]+(/\d+)?"
_VPC, _SUBNET = r"vpc-[0-9a-f]{8,17}", r"subnet-[0-9a-f]{8,17}"
MOST_SUBNETS = 16
"""https://docs.aws.amazon.com/eks/latest/APIReference/API_VpcConfigRequest.html"""


def network(read: Reader) -> Network:
    """Return the VPC. Whether AWS has an existing one as the stack needs it is for `infra.preflight`."""
    cidr = read.cidr("vpcCidr")
    if cidr is not None and not (cidr.is_private and 16 <= cidr.prefixlen <= 20):
        read.wrong("vpcCidr", str(cidr), "must be a private range from /16 to /20, for example 10.0.0.0/16")
    if cidr is not None and cidr.overlaps(ipaddress.IPv4Network("172.20.0.0/16")):
        read.wrong("vpcCidr", str(cidr), "overlaps 172.20.0.0/16, which Kubernetes uses for its services")
    existing = _existing(read)
    return Network(
        cidr="" if existing else str(cidr),
        zones=_zones(read),
        nat_per_zone=read.choice("natGateways", ("single", "perZone")) == "perZone",
        flow_log_days=read.choice_of_integers("vpcFlowLogs", (*hardware.FLOW_LOG_DAYS, *hardware.LOG_RETENTION_DAYS)),
        existing=existing,
    )


def _existing(read: Reader) -> ExistingVpc | None:
    vpc = read.text("vpcId", f"({_VPC})?", "the id of a VPC such as vpc-0123456789abcdef0, or empty")
    subnets = read.texts("privateSubnetIds", _SUBNET, "the id of a subnet such as subnet-0123456789abcdef0")
    if not vpc:
        if subnets and read.are_right("vpcId"):
            read.wrong(
                "privateSubnetIds",
                ", ".join(subnets),
                "need vpcId, the VPC that they are in; set it too, or remove them",
            )
        return None
    if read.are_right("privateSubnetIds") and not 2 <= len(subnets) <= MOST_SUBNETS:
        remedy = f"needs from 2 to {MOST_SUBNETS} subnets in privateSubnetIds, in two zones or more: EKS needs two"
        read.wrong("vpcId", vpc, remedy)
    for key, default in DEFAULTS.items():
        value = str(read.config.get(key, default))
        if value != default and read.are_right(key):
            read.wrong(key, value, f"is for a VPC that the stack makes, and vpcId names one that is there; {_UNSET}")
    return ExistingVpc(vpc, subnets)


_UNSET = "remove it, or remove vpcId and privateSubnetIds"


def _zones(read: Reader) -> int | tuple[str, ...]:
    text = read.text("availabilityZones", r"\S.*", "a count from 2 to 4, or names with commas between them")
    if not text:
        return 2
    if re.fullmatch(r"\d+", text):
        if not 2 <= int(text) <= 4:
            read.wrong("availabilityZones", text, "must be from 2 to 4: EKS needs two zones")
        return int(text)
    names = tuple(name.strip() for name in text.split(","))
    region = str(read.config.get("region", ""))
    strangers = [name for name in names if not re.fullmatch(re.escape(region) + "[a-z]", name)]
    if strangers and re.fullmatch(REGION, region):
        read.wrong("availabilityZones", text, f"{', '.join(strangers)}: not a zone of the region {region!r}")
    elif not 2 <= len(names) <= 4 or len(set(names)) != len(names):
        read.wrong("availabilityZones", text, "must name 2 to 4 zones, each once: EKS needs two")
    return names


def proxy(read: Reader) -> Proxy | None:
    """Return the proxy, before AWS is asked for what is near the nodes. No message shows a password."""
    url = read.text("httpProxy", r"[\s\S]*", _FORM)
    direct = read.texts("noProxy", rf"\.?{_LABELS}|{_ADDRESSES}", f"{_DIRECT} (without * and port)")
    for each in (each for each in direct if re.fullmatch(_ADDRESSES, each)):
        try:
            ipaddress.IPv4Network(each)
        except ValueError as error:
            read.wrong("noProxy", each, f"must be {_DIRECT}; {error}")
    if "@" in url:
        remedy = "the nodes' user data and the pods would show it; name a proxy that asks for none"
        read.mistake(f"httpProxy: has a user or a password, and {remedy}")
    elif url and not ((found := re.fullmatch(_PROXY, url)) and int(found["port"]) < 1 << 16):
        read.wrong("httpProxy", url, f"must be {_FORM}")
    elif direct and not url and read.are_right("httpProxy", "noProxy"):
        read.wrong("noProxy", ", ".join(direct), "is what is reached without a proxy; set httpProxy too, or remove it")
    return Proxy(url, DIRECT).with_direct(*direct) if url else None


_FORM = "http://HOST:PORT, such as http://proxy.example.com:3128, or empty"
_DIRECT = "a name such as example.com, an IPv4 address, or a network such as 10.0.0.0/8"
