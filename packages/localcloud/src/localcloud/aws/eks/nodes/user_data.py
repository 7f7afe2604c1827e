"""Find the NodeConfig in an instance's user data, as AL2023's nodeadm does at every boot.

    config = parse(user_data)      # None if the instance isn't meant to be a node

User data is a NodeConfig as YAML or JSON, or a MIME multipart document with such parts, which are merged in their
order. Both the document and a part can be compressed with gzip and encoded in Base64. Other parts, such as shell
scripts, are not run on this cloud.
https://github.com/awslabs/amazon-eks-ami/blob/main/nodeadm/internal/configprovider/userdata.go
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import email
import json
import zlib
from collections.abc import Mapping
from functools import reduce
from typing import Any

import yaml

from localcloud.aws.eks.nodes.config import BadNodeConfig, NodeConfig

GROUP = "node.eks.aws"
MEDIA_TYPE = f"application/{GROUP}"
STRATEGIES = ("", "RAID0", "Mount")
GZIP_MAGIC = b"\x1f\x8b"
# EC2 accepts 16 KiB (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/user-data.html). This is for what is
# compressed in it.
MAX_BYTES = 1 << 20


def parse(user_data: bytes) -> NodeConfig | None:
    """Return the NodeConfig, or None if there is none.

    Raises:
        BadNodeConfig: There is one that can't be read.
    """
    text = _plain(user_data)
    message: Any = email.message_from_bytes(text)
    if message.get_content_maintype() == "multipart":
        if not message.is_multipart():
            raise BadNodeConfig("its user data is MIME multipart without a part: check the boundary")
        parts = [part for part in message.get_payload() if part.get_content_type() == MEDIA_TYPE]
        found = [_decoded(_plain(part.get_payload(decode=True))) for part in parts]
        return reduce(NodeConfig.merged, found) if found else None
    if GROUP.encode() not in text:
        return None
    return _decoded(text)


def _plain(data: bytes) -> bytes:
    with contextlib.suppress(binascii.Error):  # it may not be encoded
        data = base64.b64decode(b"".join(data.split()), validate=True)
    if not data.startswith(GZIP_MAGIC):
        return data
    stream = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        text = stream.decompress(data, MAX_BYTES)
    except zlib.error as error:
        raise BadNodeConfig(f"its user data is not valid gzip: {error}") from error
    if not stream.eof:
        raise BadNodeConfig(f"its user data in gzip is cut off, or longer than {MAX_BYTES} bytes")
    return text


def _decoded(text: bytes) -> NodeConfig:
    document = _document(text)
    group = str(document.get("apiVersion")).partition("/")[0]
    if group != GROUP or document.get("kind") != "NodeConfig":
        raise BadNodeConfig(
            f"its user data has the kind {document.get('kind')!r} of {document.get('apiVersion')!r}, "
            f"not NodeConfig of {GROUP}/v1alpha1"
        )
    spec = _mapping(document, "spec")
    cluster, kubelet = _mapping(spec, "cluster"), _mapping(spec, "kubelet")
    strategy = _string(_mapping(_mapping(spec, "instance"), "localStorage"), "strategy")
    if strategy not in STRATEGIES:  # these instances have no disks of their own, and a strategy changes nothing
        raise BadNodeConfig(
            f"its NodeConfig's localStorage.strategy {strategy!r} is none of {', '.join(STRATEGIES[1:])}"
        )
    return NodeConfig(
        cluster=_string(cluster, "name"),
        endpoint=_string(cluster, "apiServerEndpoint"),
        ca_pem=_certificate(_string(cluster, "certificateAuthority")),
        cidr=_string(cluster, "cidr"),
        kubelet=_mapping(kubelet, "config"),
        flags=_strings(kubelet, "flags"),
        named_by_instance_id=_mapping(spec, "featureGates").get("InstanceIdNodeName") is True,
    )


def _document(text: bytes) -> Mapping[str, Any]:
    try:
        found = next(iter(yaml.safe_load_all(text)), None)
        # Kubernetes reads YAML as JSON: keys are strings, and there are no dates.
        found = json.loads(json.dumps(found, default=str))
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:  # the last one: deep nesting
        raise BadNodeConfig(f"its NodeConfig is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(found, dict):
        raise BadNodeConfig("its NodeConfig is not a mapping")
    return found


def _mapping(parent: Mapping[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = _of_type(parent, name, dict, {})
    return found


def _string(parent: Mapping[str, Any], name: str) -> str:
    found: str = _of_type(parent, name, str, "")
    return found


def _strings(parent: Mapping[str, Any], name: str) -> tuple[str, ...]:
    found: list[Any] = _of_type(parent, name, list, [])
    if not all(isinstance(each, str) for each in found):
        raise BadNodeConfig(f"its NodeConfig's {name} {found!r} must be strings")
    return tuple(found)


def _of_type(parent: Mapping[str, Any], name: str, kind: type, empty: Any) -> Any:
    found = parent.get(name)
    if found is None:
        return empty
    if not isinstance(found, kind):
        raise BadNodeConfig(f"its NodeConfig's {name} {found!r} has the wrong type: it must be a {kind.__name__}")
    return found


def _certificate(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode()
    except ValueError as error:
        raise BadNodeConfig("its NodeConfig's certificateAuthority is not PEM in Base64") from error
