"""NodeConfigs are found in user data of every form that nodeadm accepts."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Callable

import pytest
from localcloud.aws.eks.nodes.config import BadNodeConfig, NodeConfig
from localcloud.aws.eks.nodes.user_data import parse

PLAIN = b"""---
apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  cluster:
    name: demo
    apiServerEndpoint: https://example.com
    certificateAuthority: Y2VydGlmaWNhdGU=
    cidr: 10.100.0.0/16
  kubelet:
    config:
      maxPods: 120
      logging: {verbosity: 5}
    flags:
      - --v=2
      - --node-labels=foo=bar,nodegroup=test
"""
LATER = b"""---
apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  kubelet:
    config:
      maxPods: 150
      logging: {flushFrequency: 3s}
      podsPerCore: 20
    flags:
      - --node-labels=foo=baz
"""
CONFIG = NodeConfig(
    cluster="demo",
    endpoint="https://example.com",
    ca_pem="certificate",
    cidr="10.100.0.0/16",
    kubelet={"maxPods": 120, "logging": {"verbosity": 5}},
    flags=("--v=2", "--node-labels=foo=bar,nodegroup=test"),
)


def multipart(*parts: bytes, kind: bytes = b"application/node.eks.aws") -> bytes:
    opened = b"".join(b"--//\nContent-Type: " + kind + b"\n\n" + part + b"\n" for part in parts)
    return b'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="//"\n\n' + opened + b"--//--\n"


@pytest.mark.parametrize(
    "encoded",
    [
        pytest.param(lambda text: text, id="as it is"),
        pytest.param(multipart, id="in MIME"),
        pytest.param(lambda text: multipart(text).replace(b"\n", b"\r\n"), id="in MIME with CRLF"),
        pytest.param(gzip.compress, id="compressed"),
        pytest.param(lambda text: gzip.compress(multipart(text)), id="MIME, compressed"),
        pytest.param(lambda text: multipart(base64.b64encode(gzip.compress(text))), id="a compressed part in Base64"),
        pytest.param(lambda text: base64.encodebytes(multipart(text)), id="encoded twice"),
    ],
)
def test_a_node_config_is_found_however_it_is_encoded(encoded: Callable[[bytes], bytes]) -> None:
    assert parse(encoded(PLAIN)) == CONFIG


def test_several_node_configs_are_merged_in_their_order() -> None:
    merged = parse(multipart(PLAIN, LATER))
    assert merged is not None
    assert (merged.cluster, merged.endpoint) == ("demo", "https://example.com")
    assert merged.kubelet == {"maxPods": 150, "logging": {"verbosity": 5, "flushFrequency": "3s"}, "podsPerCore": 20}
    assert merged.flags == ("--v=2", "--node-labels=foo=bar,nodegroup=test", "--node-labels=foo=baz")


def test_other_parts_are_ignored() -> None:
    script = multipart(b"#!/bin/bash\necho", kind=b"text/x-shellscript")
    assert parse(script) is None
    both = script.replace(b"--//--\n", b"--//\nContent-Type: application/node.eks.aws\n\n" + PLAIN + b"\n--//--\n")
    assert parse(both) == CONFIG


@pytest.mark.parametrize(
    "text",
    [b"", b"#!/bin/bash\nyum install -y nginx\n", b"#cloud-config\npackages: [nginx]\n"],
    ids=["empty", "script", "cloud-config"],
)
def test_user_data_of_other_instances_has_no_node_config(text: bytes) -> None:
    assert parse(text) is None


def test_a_node_may_join_its_local_disks() -> None:
    assert parse(PLAIN + b"  instance: {localStorage: {strategy: RAID0}}\n") == CONFIG


def test_the_name_of_the_node_can_be_the_instance_id() -> None:
    gated = parse(PLAIN + b"  featureGates: {InstanceIdNodeName: true}\n")
    assert gated is not None
    assert gated.named_by_instance_id


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (PLAIN.replace(b"kind: NodeConfig", b"kind: Node"), "kind 'Node'"),
        (PLAIN.replace(b"name: demo", b"name: [demo]"), r"name \['demo'\]"),
        (PLAIN.replace(b"- --v=2", b"- 2"), "must be strings"),
        (PLAIN.replace(b"Y2VydGlmaWNhdGU=", b"no"), "certificateAuthority"),
        (PLAIN.replace(b"spec:", b"spec"), "is not YAML"),
        (PLAIN + b"  x: " + b"[" * 5000, "is not YAML"),
        (multipart(b"- apiVersion"), "not a mapping"),
        (b'Content-Type: multipart/mixed; boundary="x"\n\nnothing', "boundary"),
        (gzip.compress(PLAIN)[:20] + b"x" * 9, "gzip"),
        (PLAIN + b"  instance: {localStorage: {strategy: RAID5}}\n", "'RAID5' is none of RAID0, Mount"),
    ],
    ids=["kind", "name", "flags", "certificate", "yaml", "nesting", "mapping", "boundary", "gzip", "disks"],
)
def test_a_node_config_that_cannot_be_read_says_why(text: bytes, reason: str) -> None:
    with pytest.raises(BadNodeConfig, match=reason):
        parse(text)
