"""Every mistake in a config is found before Pulumi makes anything, and names its key, its value and the remedy."""

from __future__ import annotations

from typing import Any

import pulumi
import pytest
import yaml

import settings
from settings.hardware import Size
from settings.parsing import TAKEN_JOB_NAMES
from tests import facts, graph

DIVIDED = {
    "workersPerReplica": 2,
    "gpusPerWorker": 0,
    "workers": 4,
    "minWorkers": 2,
    "maxWorkers": 8,
    "trainingScript": "tests/e2e/nodegroup/divided.py",
}

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "workers above the maximum": ({"workers": 99}, "workers = 99: must be from 1 to 8"),
    "workers below the minimum": ({"workers": 1, "minWorkers": 2}, "workers = 1: must be from 2 to 8"),
    "workers as text": ({"workers": "three"}, "workers = three: must be an integer"),
    "workers as true": ({"workers": True}, "workers = true: must be an integer"),
    "workers as a list": ({"workers": "[2]"}, "workers = [2]: must be an integer"),
    "protect as a word": ({"protect": "maybe"}, "protect = maybe: must be true or false"),
    "instance types as text": ({"instanceTypes": "g5.xlarge"}, "instanceTypes = g5.xlarge: must be a list"),
    "negative workers": ({"workers": "-1"}, "workers = -1: must be from 1 to 8"),
    "an account twice": (
        {"allowedAccountIds": ["123456789012", 123456789012]},
        "allowedAccountIds = 123456789012: is listed twice",
    ),
    "a user as a role": (
        {"roleArns": {"node": "arn:aws:iam::123456789012:user/node"}},
        "roleArns.node = arn:aws:iam::123456789012:user/node: must be the ARN of an IAM role",
    ),
    "a path in the place of a role": (
        {"roleArns": {"node": "arn:aws:iam::123456789012:role/ml/"}},
        "roleArns.node = arn:aws:iam::123456789012:role/ml/: must be the ARN of an IAM role",
    ),
    "a role of AWS's own": (
        {"roleArns": {"cluster": "arn:aws:iam::123456789012:role/aws-service-role/eks.amazonaws.com/ForEKS"}},
        "belongs to AWS, which uses it for other things; name another role",
    ),
    "one role twice": (
        {"roleArns": dict.fromkeys(("node", "trainer"), "arn:aws:iam::123456789012:role/x")},
        "roleArns.trainer = arn:aws:iam::123456789012:role/x: is the role of node too; each needs one of its own",
    ),
    "a path without its last slash": ({"rolePath": "/ml"}, "rolePath = /ml: must be /, or names of letters"),
    "a path of AWS's": ({"rolePath": "/aws-service-role/x/"}, "belongs to AWS's own roles; choose another path"),
    "a path that is too long": ({"rolePath": f"/{'a' * 511}/"}, "has 513 characters; 512 at most"),
    "CIDR with host bits": ({"vpcCidr": "10.0.0.1/16"}, "vpcCidr = 10.0.0.1/16: must be an IPv4 range"),
    "CIDR that isn't one": ({"vpcCidr": "ten/16"}, "vpcCidr = ten/16: must be an IPv4 range"),
    "CIDR without a length": ({"vpcCidr": "10.0.0.0"}, "vpcCidr = 10.0.0.0: must be an IPv4 range"),
    "CIDR too big": ({"vpcCidr": "10.0.0.0/8"}, "from /16 to /20"),
    "CIDR of the internet": ({"vpcCidr": "8.8.0.0/16"}, "must be a private range"),
    "CIDR of the services": ({"vpcCidr": "172.20.0.0/16"}, "overlaps 172.20.0.0/16"),
    "bad public CIDR": ({"publicAccessCidrs": ["300.1.1.1/32"]}, "publicAccessCidrs = 300.1.1.1/32"),
    "public CIDR twice": ({"publicAccessCidrs": ["8.8.4.0/24"] * 2}, "publicAccessCidrs = 8.8.4.0/24: is listed"),
    "private address": ({"publicAccessCidrs": ["192.168.1.7/32"]}, "192.168.1.7/32: has private addresses; set your"),
    "address of a provider's NAT": ({"publicAccessCidrs": ["100.64.0.9/32"]}, "100.64.0.9/32: has private addresses;"),
    "address of an example": (
        {"publicAccessCidrs": ["203.0.113.7/32"]},
        "203.0.113.7/32: has documentation addr",
    ),
    "reserved address": ({"publicAccessCidrs": ["240.0.0.0/8"]}, "240.0.0.0/8: has reserved addresses;"),
    "range with private addresses": ({"publicAccessCidrs": ["8.0.0.0/6"]}, "8.0.0.0/6: has private addresses;"),
    "instance type in capitals": (
        {"instanceTypes": ["G5.xlarge"]},
        "instanceTypes = G5.xlarge: must be an EC2 instance",
    ),
    "system type without a size": (
        {"systemInstanceTypes": ["m5"]},
        "systemInstanceTypes = m5: must be an EC2 instance",
    ),
    "instance type twice": ({"instanceTypes": ["g5.xlarge", "g5.xlarge"]}, "instanceTypes = g5.xlarge: is listed"),
    "more workers per node than vCPUs": ({"workersPerNode": 97}, "workersPerNode = 97: must be from 1 to 96"),
    "replicas of several workers with GPUs": (
        {**DIVIDED, "gpusPerWorker": 1},
        "workersPerReplica = 2: a model that is divided isn't supported on GPUs yet",
    ),
    "workers that make no whole replica": (
        {**DIVIDED, "workers": 3},
        "workers = 3: must be a multiple of workersPerReplica, which is 2",
    ),
    "replicas of several workers with the trainer's own models": (
        {**DIVIDED, "trainingScript": ""},
        "workersPerReplica = 2: the stack's own script divides no model; set trainingScript to one that calls",
    ),
    "fewest workers that make no whole replica": (
        {**DIVIDED, "minWorkers": 1},
        "minWorkers = 1: must be a multiple of workersPerReplica, which is 2",
    ),
    "most workers that make no whole replica": (
        {**DIVIDED, "maxWorkers": 7},
        "maxWorkers = 7: must be a multiple of workersPerReplica, which is 2",
    ),
    "the image of the scaler": ({"scalerImage": "python:3"}, "scalerImage = python:3: no such key; did you mean"),
    "one zone": ({"availabilityZones": "1"}, "availabilityZones = 1: must be from 2 to 4"),
    "zone of another region": ({"availabilityZones": "us-west-2a,eu-west-1b"}, "eu-west-1b: not a zone of"),
    "zone twice": ({"availabilityZones": "us-west-2a,us-west-2a"}, "2 to 4 zones, each once"),
    "NAT gateways": ({"natGateways": "none"}, "natGateways = none: must be single or perZone"),
    "short retention": ({"logRetentionDays": 30}, "logRetentionDays = 30: must be one of 365"),
    "admin that is no ARN": ({"adminArns": ["alice"]}, "adminArns = alice: must be the ARN of an IAM role or user"),
    "job name in capitals": ({"jobName": "Digits"}, "jobName = Digits: must be lower-case letters"),
    "namespace of the controller": ({"namespace": "tidewater-system"}, "belongs to the ElasticJob controller"),
    "namespace of the device plug-in": ({"namespace": "tidewater-devices"}, "belongs to the GPUs' device plug-in"),
    "namespace of Prometheus": ({"namespace": "tidewater-monitoring"}, "belongs to the stack's Prometheus"),
    "image of Prometheus": ({"prometheusImage": ""}, 'prometheusImage = "": must be a container image'),
    "dataset in no archive": ({"dataset": "s3://bucket/folder"}, "dataset = s3://bucket/folder: must be digits"),
    "no time for the dataset": ({"datasetMinutes": 0}, "datasetMinutes = 0: must be from 5 to 1440"),
    "script of another kind": ({"trainingScript": "train.sh"}, "trainingScript = train.sh"),
    "checkpoints in two places": ({"checkpoints": "efs,s3"}, "checkpoints = efs,s3: must be efs or s3 or both"),
    "tag of the program": ({"tags": {"Stack": "mine"}}, "tags = Stack: this tag is set by the program"),
    "tag of EKS": ({"tags": {"eks:eks-cluster-name": "x"}}, "tags = eks:eks-cluster-name: this tag"),
    "tag of a cluster": ({"tags": {"kubernetes.io/cluster/x": "owned"}}, "tags = kubernetes.io/cluster/x: this tag"),
    "tag of Karpenter": ({"tags": {"karpenter.sh/nodepool": "x"}}, "tags = karpenter.sh/nodepool: this tag"),
    "tag of Karpenter on AWS": ({"tags": {"karpenter.k8s.aws/ec2nodeclass": "x"}}, "ec2nodeclass: this tag"),
    "tag that is a number": (
        {"tags": {"Cost": 12}},
        "tags.Cost = 12: must be text: put it in quotes, or use --type string",
    ),
    "tag of the program in another case": (
        {"tags": {"project": "x"}},
        "tags = project: this tag is set by the program",
    ),
    "tags that differ in case": (
        {"tags": {"Owner": "a", "owner": "b"}},
        "tags = Owner: IAM takes it for the same tag as",
    ),
    "tag with a sign": (
        {"tags": {"Owner": "a, b"}},
        "tags.Owner = a, b: a tag may have letters, digits, spaces and _.",
    ),
    "tag with a sign in its name": (
        {"tags": {"Who?": "me"}},
        "tags = Who?: the name of a tag may have letters, digits",
    ),
    "namespace of Kubernetes' classes": (
        {"namespace": "system"},
        "namespace = system: names of priority classes can't",
    ),
    "namespace that begins so": ({"namespace": "system-a"}, "namespace = system-a: names of priority classes can't"),
    "job with the name of etcd": ({"jobName": "etcd"}, "jobName = etcd: the stack's etcd has a service of this name"),
    "region of the default provider": (
        {"aws:region": "eu-west-1"},
        "aws:region = eu-west-1: has no effect, as the stack has an AWS provider of its own; set tidewater:region",
    ),
    "profile of the default provider": (
        {"aws:profile": "me"},
        "set tidewater:profile instead, and remove it: pulumi config rm",
    ),
    "another key of it": (
        {"aws:maxRetries": "9"},
        "has no effect, as the stack has an AWS provider of its own; remove it:",
    ),
    "more tags than an S3 object may have": (
        {"tags": {f"Tag{number}": "x" for number in range(8)}},
        "tags = 8 tags: 7 at most: S3 allows 10 on an object, and the program sets 3; remove 1",
    ),
    "misspelt key": ({"wrkers": 3}, "wrkers = 3: no such key; did you mean workers?"),
}


@pytest.mark.parametrize(("changes", "message"), BAD.values(), ids=BAD.keys())
def test_a_mistake_is_reported_with_key_value_and_remedy(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(settings.ConfigurationError) as refused:
        graph.parsed(**changes)
    assert message in str(refused.value)
    assert len(refused.value.mistakes) == 1, str(refused.value)


def test_all_mistakes_are_reported_at_once() -> None:
    config = {**graph.defaults(), "workers": 99, "etcdMembers": 2, "vpcCidr": "x", "protect": 7}
    with pytest.raises(settings.ConfigurationError) as refused:
        settings.parse(config, stack="dev")
    assert [mistake.split(" ")[0] for mistake in refused.value.mistakes] == [
        "protect",
        "vpcCidr",
        "workers",
        "etcdMembers",
    ]


def test_no_message_shows_a_secret() -> None:
    with pytest.raises(settings.ConfigurationError) as refused:
        settings.parse({**graph.defaults(), "trainerArgs": "--token 'x"}, stack="dev", secrets=["trainerArgs"])
    assert refused.value.mistakes[0].startswith("trainerArgs = [secret]: can't be split")


def test_no_message_shows_a_secret_of_the_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {**{f"tidewater:{key}": value for key, value in graph.defaults().items()}, "aws:secretKey": "hidden"}
    monkeypatch.setattr(pulumi.runtime.config, "get_config_env", lambda: given)
    monkeypatch.setattr(pulumi.runtime.config, "is_config_secret", lambda key: key == "aws:secretKey")
    monkeypatch.setattr(pulumi, "get_stack", lambda: "dev")
    with pytest.raises(settings.ConfigurationError) as refused:
        settings.load()
    (mistake,) = refused.value.mistakes
    assert mistake.startswith("aws:secretKey = [secret]: has no effect")


def test_a_job_has_no_name_of_a_service_of_the_stack() -> None:
    services = graph.deploy(graph.stack_config("Pulumi.local.yaml")).all("kubernetes:core/v1:Service")
    in_namespace = [each.inputs["metadata"] for each in services if each.inputs["metadata"]["namespace"] == "training"]
    assert sorted(each["name"] for each in in_namespace) == sorted(TAKEN_JOB_NAMES)


def test_a_key_that_is_missing_is_named() -> None:
    config = {key: value for key, value in graph.defaults().items() if key != "jobName"}
    with pytest.raises(settings.ConfigurationError, match="jobName: is not set"):
        settings.parse(config, stack="dev")


@pytest.mark.parametrize("stack", ["Production", "a" * 40, "1st", "my.stack"])
def test_a_stack_name_that_aws_would_refuse_is_refused(stack: str) -> None:
    with pytest.raises(settings.ConfigurationError, match="the stack's name"):
        settings.parse(graph.defaults(), stack=stack)


def yaml_of(file: str) -> dict[str, Any]:
    """Return the keys of a file as it is."""
    config = yaml.safe_load((graph.ROOT / file).read_text())["config"]
    return {key.removeprefix("tidewater:"): value for key, value in config.items()}


@pytest.mark.parametrize("file", ["Pulumi.local.yaml", "Pulumi.aws-dev.yaml.example", "Pulumi.aws.yaml.example"])
def test_the_stacks_that_come_with_the_project_are_valid(file: str) -> None:
    settings.parse(graph.stack_config(file), stack="dev")


@pytest.mark.parametrize("file", ["Pulumi.aws-dev.yaml.example", "Pulumi.aws.yaml.example"])
def test_an_example_is_refused_until_it_has_the_address_of_a_person(file: str) -> None:
    copied = {**graph.stack_config(file), **yaml_of(file)}
    with pytest.raises(settings.ConfigurationError) as refused:
        settings.parse(copied, stack="dev")
    assert [each.partition(" = ")[0] for each in refused.value.mistakes] == ["publicAccessCidrs"]


def test_text_and_values_mean_the_same() -> None:
    values = {**graph.defaults(), "workers": 3, "protect": True, "instanceTypes": ["g5.xlarge"], "tags": {"a": "b"}}
    texts = {**values, "workers": "3", "protect": "true", "instanceTypes": '["g5.xlarge"]', "tags": '{"a": "b"}'}
    assert settings.parse(values, stack="dev") == settings.parse(texts, stack="dev")


def test_an_s3_object_may_have_all_tags_of_the_stack() -> None:
    tags = {f"Tag{number}": "x" for number in range(7)}
    assert len(graph.parsed(tags=tags).all_tags) == 10


def test_access_from_anywhere_needs_an_explicit_key() -> None:
    found = graph.parsed(publicAccessCidrs=["0.0.0.0/0"], publicAccessFromAnywhere=True)
    assert found.cluster.public_access_cidrs == ("0.0.0.0/0",)


def test_workers_share_nodes_and_the_last_node_may_be_partly_used() -> None:
    changes = {"instanceTypes": ["g5.12xlarge"], "workersPerNode": 4, "workers": 5, "surgeNodes": "nodegroup"}
    workers = graph.parsed(**changes).workers
    assert (workers.nodes.desired, workers.nodes.minimum, workers.nodes.maximum) == (2, 1, 2)


def test_a_mixed_group_has_at_least_the_smallest_of_each() -> None:
    config = {**graph.defaults(), "instanceTypes": ["g5.2xlarge", "c6i.4xlarge", "g6e.xlarge"]}
    assert facts.parsed(config).workers.nodes.smallest == Size(vcpus=4, memory_mib=32 * 1024, gpus=0, network_cards=1)


def test_trainer_arguments_are_split_as_a_shell_would() -> None:
    found = graph.parsed(trainerArgs="--epochs 2 --name 'two words'")
    assert found.training.trainer_args == ("--epochs", "2", "--name", "two words")


@pytest.mark.parametrize(("places", "efs", "s3"), [("efs", True, False), ("s3", False, True), ("both", True, True)])
def test_checkpoints_go_to_one_place_or_to_both(places: str, efs: bool, s3: bool) -> None:
    found = graph.parsed(checkpoints=places, keepCheckpoints=5)
    assert found.training.checkpoints == settings.Checkpoints(efs=efs, s3=s3, keep=5)


def test_nobody_reads_the_metrics_unless_it_is_asked_for() -> None:
    found = {who: graph.parsed(monitoring=who).monitoring for who in ("none", "prometheus", "managed")}
    assert found["none"] is settings.parse(graph.defaults(), stack="dev").monitoring is None
    assert [each and each.managed for each in found.values()] == [None, False, True]


def test_an_archive_gets_a_directory_of_its_own() -> None:
    one, other = (settings.Dataset.of(f"s3://bucket/{name}.zip") for name in ("one", "other"))
    assert one.name != other.name
    assert settings.Dataset.of("digits") == settings.Dataset("digits")


def test_every_key_is_typed_and_described() -> None:
    keys = yaml.safe_load((graph.ROOT / "Pulumi.yaml").read_text())["config"]
    for key, entry in keys.items():
        assert {"type", "default", "description"} <= entry.keys(), key
        assert entry["type"] != "array" or entry["items"], key


@pytest.mark.parametrize(
    "folder", ["s3://bucket/a*/", "s3://bucket/a?/", "s3://bucket/a b/", "s3://bucket/", "s3://b/a"]
)
def test_a_folder_of_a_dataset_names_no_other_folder_in_a_policy(folder: str) -> None:
    with pytest.raises(settings.ConfigurationError, match="dataset = "):
        graph.parsed(dataset=folder, datasetStorage="s3")


@pytest.mark.parametrize("key", sorted(key for key in graph.defaults() if key == "image" or key.endswith("Image")))
def test_an_image_may_be_named_with_its_digest(key: str) -> None:
    image = f"{graph.defaults()[key]}@sha256:{'0a' * 32}"
    assert f"'{image}'" in repr(graph.parsed(monitoring="prometheus", **{key: image}))
