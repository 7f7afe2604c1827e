"""The whole program deployed in an account of this process: its resources are made by the aws stand-in, through the
gateway, which asks the policies of the one who deploys. Objects of Kubernetes are only registered.

    stack = Deployment(engine, config, "production")
    stack.up(), stack.refresh(), stack.tag(), stack.destroy()
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from localcloud.aws.policy import Query
from localcloud.aws.requests import questions
from localcloud.standins.algebra import NULL
from localcloud.standins.eks.__main__ import construct
from localcloud.standins.monitor import Registration, Resource
from localcloud.standins.values import from_plain, to_plain, wrap
from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.runtime import mocks
from pulumi.runtime.proto import provider_pb2

from packages.localcloud.tests.standins.aws.harness import Engine
from tests import graph

AWS = "aws:"
CLUSTER = "eks:index:Cluster"
CHANGED = {"CostCentre": "4711"}


class Monitor:
    """The engine's monitor for pulumi-eks: what it registers of AWS is made, the rest kept."""

    def __init__(self, engine: Engine, role: Mapping[str, Any], known: Iterable[Resource]) -> None:
        self._engine = engine
        self._role = role
        self._known = {each.urn: each for each in known}

    async def register(self, registration: Registration) -> Resource:
        """Make a resource; a role gets what the program's transform gives it."""
        urn = f"urn:pulumi:s::p::{registration.type}::{registration.name}"
        inputs = to_plain(registration.inputs)
        found = Resource(urn, PropertyValue(registration.name) if registration.custom else NULL, registration.inputs)
        if registration.custom and registration.type.startswith(AWS):
            own = self._role if registration.type == "aws:iam/role:Role" else {}
            made = await asyncio.to_thread(self._engine.create, registration.type, registration.name, {**inputs, **own})
            found = Resource(urn, PropertyValue(made.id), from_plain(made.outputs))
        self._known[urn] = found
        return found

    async def register_outputs(self, urn: str, outputs: Mapping[str, PropertyValue]) -> None:
        """Keep the outputs of a component."""
        self._known[urn] = Resource(urn, NULL, outputs)

    async def invoke(
        self, token: str, arguments: Mapping[str, PropertyValue], provider: str, version: str
    ) -> dict[str, PropertyValue]:
        """Ask AWS."""
        assert provider or version
        return from_plain(await asyncio.to_thread(self._engine.invoke, token, **to_plain(arguments)))

    async def read_back(self, urn: str) -> Resource:
        """Return what was registered."""
        return self._known[urn]


class Cloud(mocks.Mocks):
    """Makes what the program registers of AWS, and answers with what AWS says."""

    def __init__(self, engine: Engine, role: Mapping[str, Any]) -> None:
        self._engine = engine
        self._role = role
        self._given: list[Resource] = []
        self._echo = graph.Echo(graph.answer)

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str | None, dict[Any, Any]]:
        """Make a resource."""
        if args.typ == CLUSTER:
            outputs = self._cluster(args.name, args.inputs)
            known = {key: outputs.get(key) for key in ("nodeSecurityGroupId",)}
            return args.name, {**args.inputs, **known, "kubeconfigJson": graph.KUBECONFIG}
        if args.resource_id:
            return args.resource_id, self._read(args)
        if not args.typ.startswith(AWS):
            return self._echo.new_resource(args)
        made = self._engine.create(args.typ, args.name, dict(args.inputs))
        return made.id, made.outputs

    def call(self, args: mocks.MockCallArgs) -> tuple[dict[Any, Any], list[tuple[str, str]]]:
        """Answer a question to AWS."""
        try:
            return self._engine.invoke(args.token, **args.args), []
        except Exception as error:  # as the engine answers when the plug-in raises an error
            raise graph.Refused(str(error)) from error

    def _read(self, args: mocks.MockResourceArgs) -> dict[str, Any]:
        found = self._engine.import_(args.typ, args.name, str(args.resource_id))
        assert found, f"there is no {args.resource_id}"
        self._given.append(Resource(found.urn, PropertyValue(found.id), from_plain(found.outputs)))
        return found.outputs

    def _cluster(self, name: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
        role = self._given[0].reference if self._given else None
        values = {key: role if role and key == "serviceRole" else wrap(value) for key, value in inputs.items()}
        request = provider_pb2.ConstructRequest(
            type=CLUSTER,
            name=name,
            inputs=PropertyValue.marshal_map(values),
            providers={"aws": "urn:pulumi:s::p::pulumi:providers:aws::explicit::1"},
        )
        made = asyncio.run(construct(Monitor(self._engine, self._role, self._given), request))
        return to_plain(made.outputs)


class Deployment:
    """A stack of this config, deployed by the one who has these keys."""

    def __init__(self, engine: Engine, config: Mapping[str, Any], stack: str) -> None:
        self._engine = engine
        self._config = config
        self._stack = stack

    def up(self) -> None:
        """Run the program, as the first `pulumi up` does."""
        path = {"path": self._config["rolePath"]}
        boundary = self._config["permissionsBoundary"]
        role = {**path, "permissionsBoundary": boundary} if boundary else path
        graph.run(graph.program, self._config, self._stack, ask=Cloud(self._engine, role))

    def refresh(self) -> None:
        """Read everything, as `pulumi refresh` does."""
        for each in self._engine.made:
            assert self._engine.refresh(each), f"{each.token} {each.name} is gone"

    def tag(self) -> None:
        """Give everything another tag, as an `up` with another `tags` does."""
        for each in self._engine.made:
            if "tags" in each.inputs:
                inputs = {key: value for key, value in each.inputs.items() if not key.startswith("__")}
                self._engine.update(each, {**inputs, "tags": {**inputs["tags"], **CHANGED}})

    def destroy(self) -> None:
        """Delete everything in the opposite order, as `pulumi destroy` does."""
        while self._engine.made:
            self._engine.delete(self._engine.made[-1])
            self._engine.made.pop()


@contextmanager
def recorded() -> Iterator[list[Query]]:
    """Collect the questions to the policies, each once."""
    found: dict[tuple[str, str, tuple[Any, ...]], Query] = {}
    original = questions.questions

    def record(*args: Any, **more: Any) -> list[Query]:
        asked = original(*args, **more)
        for each in asked:
            found.setdefault((each.action, each.resource, tuple(sorted(each.context.items()))), each)
        return asked

    asked: list[Query] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(questions, "questions", record)
        yield asked
    asked.extend(found.values())
