"""Logging in: access entries, their policies, and the tokens of `aws eks get-token`."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from localcloud.aws.eks import token
from localcloud.aws.eks.errors import EksError
from localcloud.aws.eks.token import BadToken
from localcloud.aws.principals import Principal
from localcloud.errors import CloudError

from packages.localcloud.tests.aws import fakes
from packages.localcloud.tests.aws.fakes import ACCOUNT, World

USER = f"arn:aws:iam::{ACCOUNT}:user/ann"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/team/admin"
ADMIN = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
UNSIGNED = base64.urlsafe_b64encode(b"http://x/?Action=GetCallerIdentity").decode()
VIEW = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSViewPolicy"


@pytest.fixture
def world(world: World) -> World:
    world.principals.keys["ANN"] = Principal(USER, USER, ACCOUNT, "ann's secret", ())
    session = f"arn:aws:sts::{ACCOUNT}:assumed-role/admin/bob"
    world.principals.keys["BOB"] = Principal(session, ROLE, ACCOUNT, "bob's secret", ())
    return world


def entry(world: World, **params: Any) -> None:
    world.call("CreateAccessEntry", **{"clusterName": "demo", "principalArn": USER, **params})


def associate(world: World, policy: str, **scope: Any) -> None:
    """Associate the entry with a policy, by default on the whole cluster."""
    asked: dict[str, Any] = {"clusterName": "demo", "principalArn": USER, "policyArn": policy}
    world.call("AssociateAccessPolicy", **asked, accessScope={"type": "cluster", **scope})


def made_token(key: str = "ANN", secret: str = "ann's secret", cluster: str = "demo", action: str = "") -> str:
    url = f"https://sts.us-west-2.amazonaws.com/?Action={action or 'GetCallerIdentity'}&Version=2011-06-15"
    request = AWSRequest("GET", url, headers={"x-k8s-aws-id": cluster})
    SigV4QueryAuth(Credentials(key, secret), "sts", "us-west-2", expires=60).add_auth(request)
    encoded = base64.urlsafe_b64encode(str(request.prepare().url).encode()).decode().rstrip("=")
    return token.PREFIX + encoded


def login(world: World, value: str, **later: float) -> token.Identity:
    now = datetime.now(UTC) + timedelta(**later)
    return token.authenticate(world.eks.clusters["demo"], world.principals, value, now)


def test_a_user_with_an_entry_logs_in_with_its_arn_as_name(world: World) -> None:
    entry(world, kubernetesGroups=["devs"])
    assert login(world, made_token()).username == USER
    assert login(world, made_token()).groups == ("devs",)


def test_a_role_session_logs_in_with_its_roles_entry(world: World) -> None:
    entry(world, principalArn=ROLE)
    found = login(world, made_token("BOB", "bob's secret"))
    assert found.username == f"arn:aws:sts::{ACCOUNT}:assumed-role/admin/bob"


def test_a_token_is_valid_for_fifteen_minutes(world: World) -> None:
    entry(world)
    value = made_token()
    assert login(world, value, minutes=14).username == USER
    with pytest.raises(BadToken, match="expired"):
        login(world, value, minutes=16)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (made_token, "no access entry"),
        (lambda: made_token(secret="guessed"), "signature does not match"),
        (lambda: made_token(cluster="other"), "signature does not match"),
        (lambda: made_token(key="NOBODY"), "unknown access key"),
        (lambda: made_token(action="GetSessionToken"), "not a presigned GetCallerIdentity"),
        (lambda: token.PREFIX + "###", "base64url"),
        (lambda: token.PREFIX + UNSIGNED, "does not cover"),
    ],
    ids=["no entry", "wrong secret", "another cluster", "unknown key", "another call", "garbage", "unsigned"],
)
def test_a_bad_token_is_refused_with_the_reason(world: World, value: Callable[[], str], reason: str) -> None:
    if reason != "no access entry":
        entry(world)
    with pytest.raises(BadToken, match=reason):
        login(world, value())


def test_the_webhook_ignores_other_tokens_and_gives_a_reason_for_a_refusal(world: World) -> None:
    def review(value: str) -> dict[str, Any]:
        request = {"apiVersion": "authentication.k8s.io/v1", "spec": {"token": value}}
        status: dict[str, Any] = token.review(world.eks, "demo", request)["status"]
        return status

    assert review("eyJhbGciOi") == {"authenticated": False}
    assert "no access entry" in review(made_token())["error"]
    entry(world)
    assert review(made_token())["user"]["username"] == USER


def test_an_associated_policy_creates_a_binding_for_the_entrys_group(world: World) -> None:
    entry(world)
    associate(world, ADMIN)
    bindings = bindings_for(world, USER)
    assert [(binding["kind"], binding["roleRef"]["name"]) for binding in bindings] == [
        ("ClusterRoleBinding", "cluster-admin")
    ]
    assert bindings[0]["subjects"][0]["name"] in login(world, made_token()).groups


def test_a_namespace_scope_binds_only_in_its_namespaces_and_follows_changes(world: World) -> None:
    entry(world)
    for namespaces in (["a", "b"], ["b"]):
        associate(world, VIEW, type="namespace", namespaces=namespaces)
        assert [binding["metadata"]["namespace"] for binding in bindings_for(world, USER)] == namespaces


@pytest.mark.parametrize("operation", ["DisassociateAccessPolicy", "DeleteAccessEntry"])
def test_bindings_are_deleted_with_the_association_or_the_entry(world: World, operation: str) -> None:
    entry(world)
    associate(world, VIEW)
    world.call(operation, clusterName="demo", principalArn=USER, policyArn=VIEW)
    assert bindings_for(world, USER) == []


def test_bindings_are_deleted_once_an_update_has_brought_the_api_server_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry(world)
    associate(world, VIEW)
    client, asked = world.machine.planes[0].client, iter([True, True])
    answer = client.get

    def away(path: str) -> Any:
        if next(asked, False):
            raise CloudError("the API server does not answer")
        return answer(path)

    monkeypatch.setattr(client, "get", away)
    world.eks.clusters["demo"].change(status="UPDATING")
    world.call("DeleteAccessEntry", clusterName="demo", principalArn=USER)
    assert bindings_for(world, USER) == []


def test_the_creator_is_administrator_unless_this_is_turned_off(world: World) -> None:
    assert world.call("ListAccessEntries", clusterName="demo")["accessEntries"] == [fakes.OPERATOR.identity_arn]
    access = {"authenticationMode": "API", "bootstrapClusterCreatorAdminPermissions": False}
    world.cluster("closed", accessConfig=access)
    assert world.call("ListAccessEntries", clusterName="closed")["accessEntries"] == []


def test_config_map_mode_has_no_access_entries(world: World) -> None:
    world.cluster("old", accessConfig={"authenticationMode": "CONFIG_MAP"})
    with pytest.raises(EksError, match="authentication mode must be set to one of"):
        world.call("ListAccessEntries", clusterName="old")


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"principalArn": "ann"}, "principalArn is invalid"),
        ({"type": "ROBOT"}, "ROBOT"),
        ({"kubernetesGroups": ["system:masters"]}, "system:masters"),
        ({"type": "EC2_LINUX", "username": "x"}, "EC2_LINUX"),
    ],
    ids=["principal", "type", "reserved group", "username of a node"],
)
def test_a_bad_entry_is_refused_with_the_parameter_at_fault(world: World, params: dict[str, Any], text: str) -> None:
    with pytest.raises(EksError, match=text):
        entry(world, **params)


@pytest.mark.parametrize(
    ("policy", "scope", "text"),
    [
        ("arn:aws:iam::aws:policy/AdministratorAccess", {"type": "cluster"}, "AdministratorAccess"),
        (VIEW, {"type": "world"}, "world"),
        (VIEW, {"type": "namespace"}, "namespaces"),
    ],
    ids=["policy", "scope", "no namespaces"],
)
def test_a_bad_association_is_refused_with_the_parameter_at_fault(
    world: World, policy: str, scope: dict[str, Any], text: str
) -> None:
    entry(world)
    with pytest.raises(EksError, match=text):
        associate(world, policy, **scope)


def bindings_for(world: World, principal: str) -> list[dict[str, Any]]:
    objects = world.machine.planes[0].client.objects.values()
    mine = [item for item in objects if item["kind"].endswith("Binding")]
    return [item for item in mine if item["subjects"][0]["name"].endswith(principal)]
