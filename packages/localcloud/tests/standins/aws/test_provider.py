"""What all types have in common: checks, names, default tags, replacement, secrets, and errors that name the input."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import pulumi
import pytest
from botocore.exceptions import ClientError
from localcloud.standins.aws.clients import Clients, Settings, decode_config
from localcloud.standins.aws.entry import Call, absent_as_none
from localcloud.standins.aws.provider import AwsProvider
from localcloud.standins.aws.resources import s3_objects
from localcloud.standins.serve import InitFailed, PluginError
from localcloud.standins.values import UNKNOWN, from_plain, to_plain
from pulumi.provider.experimental import provider as sdk
from pulumi.provider.experimental.property_value import PropertyValue

from packages.localcloud.tests.aws.fakes import ACCOUNT, REGION, trust
from packages.localcloud.tests.standins.aws.conftest import make_engine
from packages.localcloud.tests.standins.aws.harness import CheckFailed, Engine, Resource, Tree

VPC, BUCKET, ROLE = "aws:ec2/vpc:Vpc", "aws:s3/bucket:Bucket", "aws:iam/role:Role"
LOGS = "aws:cloudwatch/logGroup:LogGroup"


@pytest.mark.parametrize(
    ("token", "inputs", "property", "words"),
    [
        (
            VPC,
            {"cidrBlok": "10.0.0.0/16"},
            "cidrBlok",
            "aws:ec2/vpc:Vpc has no input cidrBlok; did you mean cidrBlock?",
        ),
        (VPC, {"ipv4IpamPoolId": "x"}, "ipv4IpamPoolId", "not covered by the stand-in"),
        (
            "aws:ec2/placementGroup:PlacementGroup",
            {"strategy": "spread"},
            "strategy",
            "strategy 'spread' of aws:ec2/placementGroup:PlacementGroup is not covered by the stand-in for pulumi-aws, "
            "only 'cluster' is",
        ),
        (
            "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup",
            {"vpcId": "vpc-1", "ingress": [{"protocol": "-1", "fromPort": 0, "toPort": 0}]},
            "ingress",
            "is not covered by the stand-in for pulumi-aws, only [] is",
        ),
        (VPC, {"tags": ["a"]}, "tags", "must be a map"),
        (VPC, {"enableDnsSupport": "maybe"}, "enableDnsSupport", "must be true or false, not 'maybe'"),
        ("aws:ec2/subnet:Subnet", {"cidrBlock": "10.0.0.0/24"}, "vpcId", "missing required property vpcId"),
        (
            "aws:eks/nodeGroup:NodeGroup",
            {"clusterName": "c", "nodeRoleArn": "r", "subnetIds": ["s"], "scalingConfig": {"desired": 1}},
            "scalingConfig.desired",
            "scalingConfig has no input desired",
        ),
        (ROLE, {"assumeRolePolicy": "{}", "name": "a", "namePrefix": "b"}, "name", "exclude each other"),
        (ROLE, {"assumeRolePolicy": "{}", "region": "us-west-2"}, "region", "has no input region"),
    ],
    ids=[
        "unknown",
        "not covered",
        "strategy",
        "rules",
        "list for map",
        "text for switch",
        "missing",
        "nested",
        "both",
        "global",
    ],
)
def test_a_wrong_input_is_refused_by_name(
    engine: Engine, token: str, inputs: dict[str, Any], property: str, words: str
) -> None:
    with pytest.raises(CheckFailed) as caught:
        engine.check(token, "r", inputs)
    assert words in caught.value.failures[property]


@pytest.mark.parametrize(
    ("token", "words"),
    [
        ("aws:sns/topic:Topic", "aws:sns/topic:Topic is not covered by the stand-in"),
        ("aws:ec2/securityGroupRule:SecurityGroupRule", "SecurityGroupRule is not covered by the stand-in"),
        ("aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule", "SecurityGroupEgressRule is not covered"),
        (
            "aws:ec2/vcp:Vcp",
            "is not covered by the stand-in for pulumi-aws; did you mean aws:ec2/vpc:Vpc?",
        ),
    ],
)
def test_an_unknown_type_and_function_is_refused_by_name(engine: Engine, token: str, words: str) -> None:
    with pytest.raises(PluginError) as caught:
        engine.check(token, "r", {})
    assert words in str(caught.value)
    with pytest.raises(PluginError):
        engine.invoke(token)


WITHDRAWN = {
    "aws:ec2/securityGroup:SecurityGroup": "ingress egress",
    "aws:ec2/routeTable:RouteTable": "routes",
    "aws:ec2/placementGroup:PlacementGroup": "partitionCount spreadLevel",
    "aws:ec2/vpcEndpoint:VpcEndpoint": "subnetIds securityGroupIds privateDnsEnabled",
    "aws:efs/fileSystem:FileSystem": "availabilityZoneName lifecyclePolicies protection",
    "aws:eks/cluster:Cluster": "computeConfig remoteNetworkConfig storageConfig zonalShiftConfig",
    "aws:eks/nodeGroup:NodeGroup": "remoteAccess",
    "aws:eks/addon:Addon": "podIdentityAssociations",
    "aws:kms/key:Key": "multiRegion rotationPeriodInDays",
    "aws:cloudwatch/eventRule:EventRule": "roleArn scheduleExpression",
    "aws:cloudwatch/eventTarget:EventTarget": "input inputPath roleArn",
    "aws:s3/bucketObjectv2:BucketObjectv2": "content contentBase64",
}


@pytest.mark.parametrize(("token", "name"), [(token, name) for token, all in WITHDRAWN.items() for name in all.split()])
def test_an_input_that_no_program_of_this_project_sets_is_refused_by_name(
    engine: Engine, token: str, name: str
) -> None:
    with pytest.raises(CheckFailed) as caught:
        engine.check(token, "r", {name: "x"})
    assert f"input {name} of {token} is not covered by the stand-in for pulumi-aws; see" in caught.value.failures[name]


def test_an_input_of_an_older_state_that_is_not_covered_any_more_is_no_change(engine: Engine) -> None:
    system = {"encrypted": True, "throughputMode": "bursting"}
    protected = {**system, "protection": {"replicationOverwrite": "ENABLED"}, "lifecyclePolicies": []}
    kept = Resource("aws:efs/fileSystem:FileSystem", "r", "fs-1", protected, {})
    assert not engine.diff(kept, system).changes


@pytest.mark.parametrize("source", [pulumi.FileArchive("code"), pulumi.RemoteAsset("https://example.test"), "code.txt"])
def test_an_object_is_made_from_a_file_or_text_only(source: Any) -> None:
    with pytest.raises(PluginError, match="is not covered by the stand-in for pulumi-aws: give a FileAsset"):
        s3_objects.body(source)


def test_an_automatic_name_is_kept(engine: Engine) -> None:
    first = engine.check(BUCKET, "Data", {})
    assert first["bucket"].startswith("data-")
    assert len(first["bucket"]) == len("data-") + 7
    assert engine.check(BUCKET, "Data", {}, first)["bucket"] == first["bucket"]
    given = engine.check(BUCKET, "Data", {"bucket": "mine"}, first)
    assert given["bucket"] == "mine"
    assert engine.check(BUCKET, "Data", {}, given)["bucket"] != "mine"


def test_a_name_that_is_too_long_is_an_error(engine: Engine) -> None:
    with pytest.raises(CheckFailed) as caught:
        engine.check(BUCKET, "x" * 60, {})
    assert "longer than 63 characters; give bucket" in caught.value.failures["bucket"]


def test_a_fixed_name_is_deleted_before_it_is_replaced(engine: Engine) -> None:
    policy = json.dumps(trust("ec2.amazonaws.com"))
    fixed = engine.create(ROLE, "r", {"name": "fixed-role", "assumeRolePolicy": policy})
    automatic = engine.create(ROLE, "r", {"assumeRolePolicy": policy})
    change = {"assumeRolePolicy": policy, "path": "/x/"}
    assert engine.diff(fixed, {**change, "name": "fixed-role"}).delete_before_replace
    assert not engine.diff(automatic, change).delete_before_replace
    for resource in (fixed, automatic):
        engine.delete(resource)


def test_default_tags_are_added_and_own_tags_win(endpoint: str) -> None:
    engine = make_engine(endpoint, defaultTags=json.dumps({"tags": {"stack": "s", "owner": "all"}}))
    vpc = engine.create(VPC, "v", {"cidrBlock": "10.0.0.0/16", "tags": {"owner": "me"}})
    assert vpc.outputs["tagsAll"] == {"stack": "s", "owner": "me"}
    assert engine.refresh(vpc)
    assert not engine.diff(vpc, {"cidrBlock": "10.0.0.0/16", "tags": {"owner": "me"}}).changes
    engine.delete(vpc)


def test_a_tag_added_outside_pulumi_is_drift_even_without_own_tags(engine: Engine, clients: Clients) -> None:
    vpc = engine.create(VPC, "v", {"cidrBlock": "10.0.0.0/16"})
    clients.get("ec2").create_tags(Resources=[vpc.id], Tags=[{"Key": "a", "Value": "b"}])
    engine.refresh(vpc)
    assert engine.diff(vpc, {"cidrBlock": "10.0.0.0/16"}).diffs == ["tags"]
    engine.update(vpc, {"cidrBlock": "10.0.0.0/16"})
    engine.refresh(vpc)
    assert vpc.outputs["tags"] == {}
    engine.delete(vpc)


def test_a_key_scheduled_for_deletion_by_hand_leaves_the_state_until_that_is_cancelled(
    engine: Engine, clients: Clients
) -> None:
    kms, key = clients.get("kms"), engine.create("aws:kms/key:Key", "k", {"deletionWindowInDays": 7})
    kms.schedule_key_deletion(KeyId=key.id, PendingWindowInDays=7)
    assert not engine.refresh(key)
    assert engine.import_("aws:kms/key:Key", "k", key.id) is None
    kms.cancel_key_deletion(KeyId=key.id)  # these two are what the refusal to make another key names
    kms.enable_key(KeyId=key.id)
    assert engine.refresh(key)
    assert engine.import_("aws:kms/key:Key", "k", key.id)
    engine.delete(key)


def test_a_bucket_with_objects_is_deleted_only_with_force_destroy(engine: Engine, clients: Clients) -> None:
    s3 = clients.get("s3")
    bucket = engine.create(BUCKET, "full", {})
    s3.put_bucket_versioning(Bucket=bucket.id, VersioningConfiguration={"Status": "Enabled"})
    for _ in range(2):
        s3.put_object(Bucket=bucket.id, Key="k", Body=b"x")
    s3.delete_object(Bucket=bucket.id, Key="k")
    with pytest.raises(Exception, match="is not empty, and forceDestroy is not set"):
        engine.delete(bucket)
    engine.update(bucket, {"forceDestroy": True})
    engine.delete(bucket)
    assert absent_as_none(lambda: s3.head_bucket(Bucket=bucket.id)) is None


def test_an_equivalent_policy_is_no_change(engine: Engine) -> None:
    document = trust("ec2.amazonaws.com")
    role = engine.create(ROLE, "r", {"assumeRolePolicy": json.dumps(document)})
    turned = json.dumps({key: document[key] for key in reversed(document)}, indent=4)
    assert not engine.diff(role, {"assumeRolePolicy": turned}).changes
    engine.delete(role)


def test_a_document_may_be_given_as_an_object(engine: Engine) -> None:
    checked = engine.check(ROLE, "r", {"assumeRolePolicy": trust("ec2.amazonaws.com")})
    assert json.loads(checked["assumeRolePolicy"]) == trust("ec2.amazonaws.com")


def test_an_unknown_value_is_a_change_and_replaces_like_any_other(engine: Engine) -> None:
    subnet = engine.create("aws:ec2/vpc:Vpc", "v", {"cidrBlock": "10.0.0.0/16"})
    diff = engine.diff(subnet, {"cidrBlock": UNKNOWN})
    assert diff.replaces == ["cidrBlock"]
    engine.delete(subnet)


def test_secrets_stay_secret(engine: Engine) -> None:
    tags = PropertyValue({"token": PropertyValue("hush", is_secret=True)})
    urn = f"urn:pulumi:s::p::{BUCKET}::b"
    checked = asyncio.run(engine.provider.check(sdk.CheckRequest(urn, {}, {"tags": tags}, b"x"))).inputs
    assert checked is not None
    assert checked["tags"].is_secret
    made = asyncio.run(engine.provider.create(sdk.CreateRequest(urn, checked, 60, preview=False)))
    assert made.properties["tags"].is_secret
    assert made.properties["tagsAll"].is_secret
    assert not made.properties["arn"].is_secret
    read = asyncio.run(engine.provider.read(sdk.ReadRequest(urn, made.resource_id or "", made.properties, checked)))
    assert read.inputs["tags"].is_secret
    assert read.properties["tagsAll"].is_secret
    asyncio.run(engine.provider.delete(sdk.DeleteRequest(urn, made.resource_id or "", made.properties, 60)))


def test_a_resource_that_does_not_become_ready_is_kept_in_the_state(clients: Clients) -> None:
    urn = "urn:pulumi:s::p::aws:ec2/natGateway:NatGateway::n"

    class Failing(Clients):
        def get(self, service: str, region: str | None = None) -> Any:
            client = super().get(service, region)
            return _FailedGateways(client) if service == "ec2" else client

    failing = AwsProvider()
    failing._clients = Failing(clients.settings)
    inputs = from_plain({"subnetId": "subnet-0", "connectivityType": "public", "allocationId": "eipalloc-1"})
    with pytest.raises(InitFailed) as caught:
        asyncio.run(failing.create(sdk.CreateRequest(urn, inputs, 5, preview=False)))
    assert caught.value.resource_id == "nat-1"
    assert "no more addresses" in str(caught.value)


@contextlib.contextmanager
def failing(engine: Engine, **operations: str) -> Iterator[Any]:
    """Fail the operations, SERVICE_OPERATION, with their messages; yield what pytest caught of the InitFailed."""
    assert engine.provider._clients is not None
    hooks: list[tuple[Any, str, Callable[..., None]]] = []
    for name, message in operations.items():
        service, _, operation = name.partition("_")

        def fail(message: str = message, **_: Any) -> None:
            raise ConnectionError(message)

        events = engine.provider._clients.get(service).meta.events
        hooks.append((events, f"before-call.{service}.{operation}", fail))
        events.register(*hooks[-1][1:])
    with pytest.raises(InitFailed, match=next(iter(operations.values()))) as caught:
        yield caught
    for events, *hook in hooks:
        events.unregister(*hook)


@pytest.mark.parametrize(
    ("token", "inputs", "operation", "missing"),
    [
        (VPC, {"cidrBlock": "10.7.0.0/16", "enableDnsHostnames": True}, "ec2_ModifyVpcAttribute", "enableDnsHostnames"),
        (BUCKET, {"tags": {"a": "b"}}, "s3_PutBucketTagging", "tags"),
        (LOGS, {"name": "half", "retentionInDays": 365}, "logs_PutRetentionPolicy", "retentionInDays"),
    ],
)
def test_what_is_half_made_when_a_later_call_fails_is_kept_and_the_next_update_completes_it(
    engine: Engine, token: str, inputs: Tree, operation: str, missing: str
) -> None:
    with failing(engine, **{operation: "no answer"}) as caught:
        engine.create(token, "half", inputs)
    kept, outputs = (to_plain(found) for found in (caught.value.inputs, caught.value.properties))
    half = Resource(token, "half", caught.value.resource_id, kept, outputs)
    assert engine.diff(half, inputs).diffs == [missing]
    engine.update(half, inputs)
    assert engine.refresh(half)
    assert half.outputs[missing] == inputs[missing]
    engine.delete(half)


def test_what_is_half_made_is_kept_even_if_it_cannot_be_read(engine: Engine) -> None:
    inputs = {"name": "unread", "retentionInDays": 365}
    with failing(engine, logs_PutRetentionPolicy="too many calls", logs_DescribeLogGroups="no answer") as caught:
        engine.create(LOGS, "unread", inputs)
    kept = Resource(LOGS, "unread", caught.value.resource_id, inputs, to_plain(caught.value.properties))
    assert engine.refresh(kept)
    engine.delete(kept)


def test_what_was_not_made_at_all_is_not_kept(engine: Engine) -> None:
    policy = json.dumps(trust("ec2.amazonaws.com"))
    made = engine.create(ROLE, "r", {"name": "taken", "assumeRolePolicy": policy})
    with pytest.raises(ClientError, match="already exists"):
        engine.create(ROLE, "other", {"name": "taken", "assumeRolePolicy": policy})
    engine.delete(made)


class _FailedGateways:
    """An EC2 in which NAT gateways fail right after their creation."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def create_nat_gateway(self, **_: Any) -> Any:
        return {"NatGateway": {"NatGatewayId": "nat-1"}}

    def describe_nat_gateways(self, **_: Any) -> Any:
        return {"NatGateways": [{"State": "failed", "FailureMessage": "no more addresses", "SubnetId": "subnet-0"}]}


def test_configuration_is_decoded_from_text() -> None:
    config = decode_config({"region": "us-west-2", "s3UsePathStyle": "true", "endpoints": '[{"ec2": "http://x"}]'})
    settings = Settings.from_config(config, {})
    assert settings.path_style
    assert settings.endpoints == {"ec2": "http://x"}


def test_without_a_region_the_error_says_how_to_give_one() -> None:
    with pytest.raises(PluginError, match="pulumi config set aws:region"):
        Settings.from_config({}, {})


@pytest.mark.parametrize("barred", [{"forbiddenAccountIds": [ACCOUNT]}, {"allowedAccountIds": ["210987654321"]}])
def test_an_account_that_is_not_allowed_is_refused_when_the_provider_is_configured(
    barred: dict[str, list[str]], clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", clients.settings.endpoint or "")
    keys = {"region": REGION, "accessKey": "localcloud", "secretKey": "localcloud"}

    def configure(**accounts: list[str]) -> None:
        provider = AwsProvider()
        args = from_plain({**keys, **{key: json.dumps(value) for key, value in accounts.items()}})
        request = sdk.ConfigureRequest({}, args, accept_secrets=True, accept_resources=True)
        asyncio.run(provider.configure(request))

    configure(allowedAccountIds=[ACCOUNT])
    with pytest.raises(PluginError, match=f"^AWS account ID not allowed: {ACCOUNT}$"):
        configure(**barred)


def test_the_provider_refuses_configuration_it_does_not_know(engine: Engine) -> None:
    request = sdk.CheckRequest("urn:pulumi:s::p::pulumi:providers:aws::p", {}, from_plain({"regoin": "x"}), b"")
    failures = asyncio.run(engine.provider.check_config(request)).failures
    assert failures
    assert failures[0].property == "regoin"


def test_another_region_replaces_the_provider(engine: Engine) -> None:
    urn = "urn:pulumi:s::p::pulumi:providers:aws::p"
    old, new = from_plain({"region": "us-west-2"}), from_plain({"region": "us-east-1", "profile": "x"})
    diff = asyncio.run(engine.provider.diff_config(sdk.DiffRequest(urn, "1", old, new, [])))
    assert (diff.replaces, diff.diffs) == (["region"], ["profile", "region"])


def test_a_call_uses_the_resources_own_region(clients: Clients) -> None:
    assert Call(clients, inputs={"region": "eu-west-1"}).client("ec2").meta.region_name == "eu-west-1"
    assert Call(clients, inputs={}).region == REGION
