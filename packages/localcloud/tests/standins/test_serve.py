"""What the server adds to the SDK's."""

from __future__ import annotations

import pytest
from localcloud.standins.serve import repair_requests
from pulumi.provider.experimental import provider as sdk


@pytest.mark.parametrize(
    ("urn", "token", "name"),
    [
        ("urn:pulumi:s::p::aws:ec2/vpc:Vpc::v", "aws:ec2/vpc:Vpc", "v"),
        ("urn:pulumi:s::p::a:b:C$d:e:F$aws:ec2/vpc:Vpc::v", "aws:ec2/vpc:Vpc", "v"),
        ("urn:pulumi:s::p::kubernetes:core/v1:ConfigMap::a::b", "kubernetes:core/v1:ConfigMap", "a::b"),
    ],
    ids=["top", "child of components", "name with colons"],
)
def test_a_request_has_the_resources_own_type_and_name(urn: str, token: str, name: str) -> None:
    repair_requests()
    request = sdk.CreateRequest(urn, {}, timeout=0, preview=False)
    assert (request.type, request.name) == (token, name)
