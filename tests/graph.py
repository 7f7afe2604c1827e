"""Run the program against Pulumi's mocks and show what it registers.

    graph = deploy(stack_config("Pulumi.local.yaml"))
    graph.one("aws:efs/fileSystem:FileSystem").inputs["encrypted"]
    graph.needs(graph.one("aws:eks/nodeGroup:NodeGroup", "workers"), graph.one("eks:index:Cluster"))

The mocks answer as AWS and pulumi-eks do where the program reads an answer. A component of pulumi-eks has no
children here, since its plug-in makes them.
"""

from __future__ import annotations

import functools
import json
import runpy
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pulumi
import yaml
from google.protobuf import struct_pb2
from localcloud.standins.aws import instance_types
from moto.ec2.models.instance_types import INSTANCE_TYPES
from pulumi.runtime import mocks, rpc
from pulumi.runtime import settings as runtime_settings
from pulumi.runtime.proto import callback_pb2, provider_pb2

import settings
from infra.preflight import login
from infra.preflight.cluster import Look, Objects
from tests import facts
from tests.project.loops import own_loops

ROOT = Path(__file__).resolve().parents[1]
ACCOUNT = "123456789012"
REGION = "us-west-2"
ZONES = [f"{REGION}{letter}" for letter in "cabd"]
STASHED: dict[str, Any] = {}
"""What an earlier update has stashed, by the name of the Stash."""
ADDRESS = "8.8.4.4/32"
"""A person's own, in the place of the one for documentation that an example has."""
QUOTA = 100_000.0
"""vCPUs of each quota of the account."""
NODES_SECURITY_GROUP = "sg-of-the-cluster"
WORKSPACE_ENDPOINT = "https://aps-workspaces.us-west-2.amazonaws.com/workspaces/ws-1/"
KUBECONFIG = json.dumps({"kind": "Config", "certificate-authority-data": "c2VjcmV0"})


@dataclass(frozen=True)
class Registered:
    """One resource as the program asked for it.

    Attributes:
        needs: URNs of its parent, its provider and the resources that it depends on.
        property_needs: URNs of the resources that an input's value comes from, by the input.
        was_top_level: whether an alias says that it had no parent.
        aliases: type and name of each alias that gives them.
        ignored: paths of inputs with changes that are ignored.
        replaced_on: paths of inputs that replace it when they change.
        deleted_first: whether it is deleted before its replacement is created.
        replaced_with: URNs of the resources with which it is replaced.
        deleted_with: URN of the resource, or of its parent's, with which it goes; Pulumi then doesn't delete it itself.
        id: that the mocks gave it; empty for components.
        outputs: that the mocks answered.
        create_timeout: for how long Pulumi waits for its creation at most, such as 10m; empty for the default.
    """

    type: str
    name: str
    inputs: Mapping[str, Any]
    urn: str
    parent: str
    needs: tuple[str, ...]
    property_needs: Mapping[str, tuple[str, ...]]
    was_top_level: bool
    aliases: tuple[tuple[str, str], ...]
    ignored: tuple[str, ...]
    replaced_on: tuple[str, ...]
    deleted_first: bool
    replaced_with: tuple[str, ...]
    deleted_with: str
    id: str
    outputs: Mapping[str, Any]
    create_timeout: str


@dataclass
class Graph:
    """Everything that was registered."""

    resources: list[Registered] = field(default_factory=list)
    outputs: dict[str, Any] = field(default_factory=dict)

    def all(self, type_: str) -> list[Registered]:
        """Return the resources of one type."""
        return [each for each in self.resources if each.type == type_]

    def one(self, type_: str, name_part: str = "") -> Registered:
        """Return the only resource of a type that has `name_part` in its name."""
        found = [each for each in self.all(type_) if name_part in each.name]
        assert len(found) == 1, f"{type_} {name_part}: {[each.name for each in found]}"
        return found[0]

    def needs(self, resource: Registered, other: Registered) -> bool:
        """Return whether `resource` is created after `other` and deleted before it.

        Pulumi guarantees that for dependencies, providers and parents, and for theirs in turn.
        """
        by_urn = {each.urn: each for each in self.resources}
        seen: set[str] = set()
        waiting = list(resource.needs)
        while waiting:
            urn = waiting.pop()
            if urn in by_urn and urn not in seen:
                seen.add(urn)
                waiting += by_urn[urn].needs
        return other.urn in seen


class _Monitor(mocks.MockMonitor):
    """Record every registration with its dependencies, which `Mocks` does not get to see."""

    def __init__(self, graph: Graph, cloud: mocks.Mocks) -> None:
        super().__init__(cloud)
        self._graph = graph

    def make_urn(self, parent: str, type_: str, name: str) -> str:
        """Return the URN with the types of all parents, as the engine does; the mocks' own has the nearest one only."""
        qualified = f"{parent.split('::')[2]}${type_}" if parent else type_
        return "::".join([f"urn:pulumi:{pulumi.get_stack()}", pulumi.get_project(), qualified, name])

    def Call(self, request: Any) -> Any:  # noqa: N802 # gRPC's name
        assert request.tok == "eks:index:Cluster/getKubeconfig", f"the program called {request.tok}"
        answer = struct_pb2.Struct()
        # Not deserialised: that would make the cluster, an argument, again, in a thread with a loop that never runs.
        answer["result"] = json.dumps({**json.loads(KUBECONFIG), "profile": request.args["profileName"]})
        response = provider_pb2.CallResponse()
        getattr(response, "return").CopyFrom(answer)  # a keyword of Python
        return response

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802 # gRPC's name
        if "serviceRole" in request.object:
            # Without its mark as a resource, which would be made again: see `Call`.
            del request.object["serviceRole"].fields[rpc._special_sig_key]
        response = super().RegisterResource(request)  # type: ignore[no-untyped-call]
        if request.type != "pulumi:pulumi:Stack":
            inputs = rpc.deserialize_properties(request.object)
            registered = Registered(
                request.type,
                request.name,
                {key: _plain(value) for key, value in inputs.items()},
                response.urn,
                request.parent,
                (*request.dependencies, request.parent, *_providers(request)),
                {key: tuple(each.urns) for key, each in request.propertyDependencies.items()},
                any(alias.spec.noParent for alias in request.aliases),
                tuple((alias.spec.type, alias.spec.name) for alias in request.aliases),
                tuple(request.ignoreChanges),
                tuple(request.replaceOnChanges),
                request.deleteBeforeReplace,
                tuple(request.replace_with),
                request.deletedWith or self._inherited(request.parent),
                response.id,
                {key: _plain(value) for key, value in rpc.deserialize_properties(response.object).items()},
                request.customTimeouts.create,
            )
            self._graph.resources.append(registered)
        return response

    def _inherited(self, parent: str) -> str:
        """Return what the parent is deleted with, as the engine does for its children."""
        return next((each.deleted_with for each in self._graph.resources if each.urn == parent), "")


class Refused(grpc.RpcError):
    """What the engine answers when the aws provider raises an error; for an `Ask` to raise."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self._reason = reason

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNKNOWN

    def details(self) -> str:
        return self._reason


Ask = Callable[[str, Mapping[str, Any]], dict[str, Any]]
"""Answers a function of the aws provider, by its token and its arguments."""


class Echo(mocks.Mocks):
    """Answers with the inputs, and with what AWS computes as far as the program reads it."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str | None, dict[Any, Any]]:
        outputs = {**args.inputs, **_computed(args)}
        return f"{args.name}-id", outputs

    def call(self, args: mocks.MockCallArgs) -> tuple[dict[Any, Any], list[tuple[str, str]]]:
        return self._ask(args.token, args.args), []


def answer(token: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Answer as AWS does in an account that lacks nothing."""
    if token == "aws:index/getCallerIdentity:getCallerIdentity":
        return {"accountId": ACCOUNT, "arn": f"arn:aws:iam::{ACCOUNT}:user/operator", "userId": "AIDA"}
    if token == "aws:index/getAvailabilityZones:getAvailabilityZones":
        return {"names": ZONES}
    if token == "aws:ec2/getInstanceTypeOfferings:getInstanceTypeOfferings":
        (wanted,) = arguments["filters"]
        pairs = facts.offered(REGION, *wanted["values"])
        return {"instanceTypes": [name for name, _ in pairs], "locations": [zone for _, zone in pairs]}
    if token == "aws:ec2/getInstanceType:getInstanceType":
        return instance_types.outputs(INSTANCE_TYPES[arguments["instanceType"]])
    if token == "aws:ec2/getVpcs:getVpcs":
        return {"ids": ["vpc-of-the-stack"]}
    if token == "aws:ec2/getEips:getEips":
        return {"allocationIds": ["eipalloc-of-the-stack"], "publicIps": ["198.18.0.1"]}
    if token == "aws:ec2/getNatGateways:getNatGateways":
        return {"ids": ["nat-of-the-stack"]}
    if token == "aws:s3/getBucket:getBucket":
        return {"bucket": arguments["bucket"], "bucketRegion": REGION}
    if token == "aws:s3/getObjects:getObjects":
        return {"keys": [arguments["prefix"]]}
    if token == "aws:ebs/getDefaultKmsKey:getDefaultKmsKey":
        return {"keyArn": "alias/aws/ebs"}
    if token == "aws:kms/getKey:getKey":
        return {
            "arn": arguments["keyId"],
            "keyManager": "CUSTOMER",
            "keyState": "Enabled",
            "keySpec": "SYMMETRIC_DEFAULT",
        }
    if token == "aws:iam/getPolicy:getPolicy":
        anything = {"Effect": "Allow", "Action": "*", "Resource": "*"}
        return {**arguments, "policy": json.dumps({"Version": "2012-10-17", "Statement": anything})}
    if token == "aws:iam/getRole:getRole":
        anyone = {"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Principal": "*", "Action": "*"}}
        arn = f"arn:aws:iam::{ACCOUNT}:role/{arguments['name']}"
        return {"name": arguments["name"], "arn": arn, "assumeRolePolicy": json.dumps(anyone)}
    if token == "aws:servicequotas/getServiceQuota:getServiceQuota":
        return {"value": QUOTA}
    if token == "aws:eks/getClusterVersions:getClusterVersions":
        (version,) = arguments["clusterVersionsOnlies"]
        support = {"versionStatus": "STANDARD_SUPPORT", "endOfStandardSupportDate": "2999-12-31T00:00:00Z"}
        return {"clusterVersions": [{"clusterVersion": version, **support}]}
    if token == "aws:eks/getCluster:getCluster":
        raise Refused("reading EKS Cluster: couldn't find resource")
    if token == "aws:eks/getNodeGroups:getNodeGroups":
        return {"names": []}
    if token == "aws:ssm/getParameter:getParameter":
        day = arguments["name"].removesuffix("/release_version").rpartition("-v")[2]
        release = f"{arguments['name'].split('/')[5]}.4-{day}"
        return {"value": release, "insecureValue": release}
    raise AssertionError(f"the program asked for {token}")


class _Transforms:
    def register_transform(self, transform: Any) -> callback_pb2.Callback:
        return callback_pb2.Callback(target="mock", token=transform.__name__)


def _providers(request: Any) -> Iterator[str]:
    """Yield the URNs of a resource's provider, or of those that a plug-in's component gives to its children."""
    given = request.providers.values() if request.remote else ()
    for reference in (request.provider, *given):
        yield reference.rpartition("::")[0]


def _plain(value: Any) -> Any:
    return value.path if isinstance(value, pulumi.FileAsset) else value


def _computed(args: mocks.MockResourceArgs) -> dict[str, Any]:
    computed: dict[str, Any] = {"arn": f"arn:aws:mock:::{args.name}"}
    if args.typ == "eks:index:Cluster":
        computed |= {"kubeconfigJson": KUBECONFIG, "nodeSecurityGroupId": NODES_SECURITY_GROUP}
    if args.typ == "aws:efs/accessPoint:AccessPoint":
        computed |= {"fileSystemArn": f"arn:aws:mock:::{args.inputs['fileSystemId']}"}
    if args.typ == "pulumi:index:Stash":
        computed |= {"output": STASHED.get(args.name, args.inputs["input"])}
    if args.typ == "aws:kms/key:Key":
        computed |= {"keyId": f"{args.name}-key-id"}
    if args.typ == "aws:ec2/placementGroup:PlacementGroup":
        computed |= {"name": f"name of {args.name}"}
    if args.typ == "aws:ec2/launchTemplate:LaunchTemplate":
        computed |= {"latestVersion": 1}
    if args.typ in ("aws:iam/role:Role", "aws:cloudwatch/eventRule:EventRule"):
        computed |= {"name": args.name}
    if args.typ == "aws:amp/workspace:Workspace":
        computed |= {"prometheusEndpoint": WORKSPACE_ENDPOINT}
    if args.typ == "aws:sqs/queue:Queue":
        computed |= {"url": f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/{args.name}"}
    return computed


def defaults() -> dict[str, Any]:
    """Return the config of a stack that sets nothing."""
    project = yaml.safe_load((ROOT / "Pulumi.yaml").read_text())
    return {key: entry["default"] for key, entry in project["config"].items()}


def parsed(**changes: Any) -> settings.Settings:
    """Return the settings of a stack that sets these keys only, without what AWS says of its instance types."""
    return settings.parse({**defaults(), **changes}, stack="dev")


def stack_config(name: str) -> dict[str, Any]:
    """Return the config of a stack file, with the defaults filled in, and in an example a person's address."""
    stack = yaml.safe_load((ROOT / name).read_text())
    own = {key.removeprefix("tidewater:"): value for key, value in stack["config"].items()}
    filled_in = {"publicAccessCidrs": [ADDRESS]} if name.endswith(".example") else {}
    return {**defaults(), **own, **filled_in}


def deploy(config: Mapping[str, Any], stack: str = "local") -> Graph:
    """Run the whole program with this config, once for all tests that use the same. Raise what the program raises."""
    return _deploy(json.dumps(config, sort_keys=True), stack)


@functools.cache
def _deploy(config: str, stack: str) -> Graph:
    return run(program, json.loads(config), stack)


def production(**changes: Any) -> Graph:
    """Run the whole program with the production example and these changes."""
    return deploy({**stack_config("Pulumi.aws.yaml.example"), **changes}, stack="production")


def aws(arguments: tuple[str, ...]) -> login.Ended:
    """Answer as the `aws` of a person who has logged in to the account does."""
    assert "get-caller-identity" in arguments
    return login.Ended(0, json.dumps({"Account": ACCOUNT}))


def nothing_there(_: str) -> Objects:
    """Answer as the API server of a cluster on which no name is taken."""
    return Objects()


def program(run: login.Run = aws, look: Look = nothing_there) -> None:
    """Run the whole program, on a machine where `run` is the `aws`; `look` asks an API server."""
    runpy.run_path(str(ROOT / "__main__.py"))["main"](run, look)


@own_loops()
def run(
    program: Callable[[], Any],
    config: Mapping[str, Any],
    stack: str = "local",
    *,
    ask: Ask | mocks.Mocks = answer,
    graph: Graph | None = None,
    secrets: Collection[str] = (),
) -> Graph:
    """Run `program` against the mocks and wait for everything that it starts.

    Args:
        secrets: the keys of `config` that were set with --secret.
        ask: answers its questions to AWS, or is all of the cloud.
        graph: gets what is registered; give one to see what was registered before an error.
    """
    graph = graph or Graph()
    cloud = ask if isinstance(ask, mocks.Mocks) else Echo(ask)
    mocks.set_mocks(cloud, project=settings.PROJECT, stack=stack, monitor=_Monitor(graph, cloud))
    # Mocks do not support transforms. Here they are registered and never called.
    runtime_settings.SETTINGS.feature_support["transforms"] = True
    runtime_settings.SETTINGS.callbacks = _Transforms()
    given = {f"tidewater:{key}": _as_config(value) for key, value in config.items()}
    pulumi.runtime.set_all_config(given, [f"tidewater:{key}" for key in secrets])
    kept: dict[str, Any] = {}
    original = pulumi.export

    def export(name: str, value: Any) -> None:
        pulumi.Output.from_input(value).apply(lambda found: kept.__setitem__(name, found))
        original(name, value)

    pulumi.export = export
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # the SDK's own
            pulumi.runtime.test(program)()  # type: ignore[no-untyped-call]
    finally:
        pulumi.export = original
    graph.outputs = kept
    return graph


def _as_config(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
