"""Pods get credentials only for the role that their service account is associated with."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from localcloud.aws import webhooks
from localcloud.aws.eks.errors import EksError
from localcloud.aws.eks.operations import pod_identities
from localcloud.aws.principals import Role

from packages.localcloud.tests.aws import fakes
from packages.localcloud.tests.aws.fakes import World


def associate(world: World, account: str = "trainer", **more: Any) -> dict[str, Any]:
    association: dict[str, Any] = world.call(
        "CreatePodIdentityAssociation",
        clusterName="demo",
        namespace="tidewater",
        serviceAccount=account,
        roleArn=world.pod_role,
        **more,
    )["association"]
    return association


def accept(world: World, account: str = "trainer") -> None:
    """Make the cluster accept the token of a pod."""
    world.machine.planes[0].client.review = {
        "authenticated": True,
        "user": {
            "username": f"system:serviceaccount:tidewater:{account}",
            "extra": {"authentication.kubernetes.io/pod-name": ["worker-0"]},
        },
    }


def distrust(world: World) -> None:
    """Accept the token, but remove EKS from the role's trust policy."""
    accept(world)
    world.principals.roles[world.pod_role] = Role(world.pod_role, fakes.trust("ec2.amazonaws.com"))


def admit(world: World, pod: dict[str, Any], namespace: str = "tidewater") -> list[dict[str, Any]]:
    request = {"apiVersion": "admission.k8s.io/v1", "request": {"uid": "1", "namespace": namespace, "object": pod}}
    answer = webhooks.review(world.eks, "demo", "http://198.18.0.1:1", request)["response"]
    assert answer["allowed"]
    changes: list[dict[str, Any]] = json.loads(base64.b64decode(answer.get("patch", "W10=")))
    return changes


def pod(account: str = "trainer", **container: Any) -> dict[str, Any]:
    return {"spec": {"serviceAccountName": account, "containers": [{"name": "c", **container}]}}


def test_a_token_of_an_associated_account_is_exchanged_for_the_roles_credentials(world: World) -> None:
    made = associate(world)
    accept(world)
    answer = pod_identities.assume_role(world.eks, "demo", "jwt")
    assert answer["podIdentityAssociation"]["associationId"] == made["associationId"]
    assert answer["subject"] == {"namespace": "tidewater", "serviceAccount": "trainer"}
    role, session = world.principals.assumed[0]
    assert role == world.pod_role
    assert session.startswith("eks-demo-worker-0-")
    assert len(session) <= 64


@pytest.mark.parametrize(
    ("prepare", "code"),
    [
        (lambda world: None, "InvalidTokenException"),
        (lambda world: accept(world, "other"), "ResourceNotFoundException"),
        (
            distrust,
            "AccessDeniedException",
        ),
    ],
    ids=["the cluster refuses the token", "no association", "the role no longer trusts EKS"],
)
def test_other_tokens_are_refused(world: World, prepare: Any, code: str) -> None:
    associate(world)
    prepare(world)
    with pytest.raises(EksError) as caught:
        pod_identities.assume_role(world.eks, "demo", "jwt")
    assert caught.value.code == code
    assert world.principals.assumed == []


def test_a_role_that_does_not_trust_eks_cannot_be_associated(world: World) -> None:
    with pytest.raises(EksError, match=r"pods\.eks\.amazonaws\.com"):
        world.call(
            "CreatePodIdentityAssociation",
            clusterName="demo",
            namespace="n",
            serviceAccount="s",
            roleArn=world.node_role,
        )


def test_a_service_account_can_have_only_one_association(world: World) -> None:
    made = associate(world)
    with pytest.raises(EksError, match=made["associationId"]) as caught:
        associate(world)
    assert caught.value.code == "ResourceInUseException"


def test_associations_can_be_listed_by_account_changed_and_deleted(world: World) -> None:
    made, _ = associate(world), associate(world, "other")
    listed = world.call("ListPodIdentityAssociations", clusterName="demo", serviceAccount="trainer")["associations"]
    assert [found["associationId"] for found in listed] == [made["associationId"]]
    world.call("DeletePodIdentityAssociation", clusterName="demo", associationId=made["associationId"])
    with pytest.raises(EksError, match=made["associationId"]):
        world.call("DescribePodIdentityAssociation", clusterName="demo", associationId=made["associationId"])


def test_pods_of_an_associated_account_get_variables_and_token(world: World) -> None:
    associate(world)
    changes = {change["path"]: change["value"] for change in admit(world, pod())}
    names = {entry["name"]: entry["value"] for entry in changes["/spec/containers/0/env"]}
    assert names["AWS_CONTAINER_CREDENTIALS_FULL_URI"] == "http://169.254.170.23/v1/credentials"
    assert names["AWS_ENDPOINT_URL"] == "http://198.18.0.1:1"
    source = changes["/spec/volumes"][0]["projected"]["sources"][0]["serviceAccountToken"]
    assert source["audience"] == "pods.eks.amazonaws.com"
    mount = changes["/spec/containers/0/volumeMounts"][0]["mountPath"]
    assert names["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"] == f"{mount}/{source['path']}"


def test_variables_that_a_pod_sets_itself_are_kept(world: World) -> None:
    associate(world)
    own = {"name": "AWS_REGION", "value": "eu-west-1"}
    changes = {change["path"]: change["value"] for change in admit(world, pod(env=[own]))}
    regions = [entry for entry in changes["/spec/containers/0/env"] if entry["name"] == "AWS_REGION"]
    assert regions == [own]


def test_other_pods_are_not_changed(world: World) -> None:
    associate(world)
    assert admit(world, pod("other")) == []
    assert admit(world, pod(), namespace="elsewhere") == []
    assert admit(world, {"spec": {"containers": []}}) == []
