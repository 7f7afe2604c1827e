"""The provider protocol for Kubernetes objects: configuration, check and diff here, the rest through `operations`."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from pulumi.provider.experimental import provider as sdk

from localcloud.standins.kubernetes import config as configuration
from localcloud.standins.kubernetes import metadata, state
from localcloud.standins.kubernetes.awaiting.conditions import BadExpression
from localcloud.standins.kubernetes.awaiting.decision import Ready
from localcloud.standins.kubernetes.awaiting.wait import NotReady
from localcloud.standins.kubernetes.awaiting.workloads import decide_job
from localcloud.standins.kubernetes.cluster.client import Cluster
from localcloud.standins.kubernetes.cluster.kinds import Token, UnsupportedType, built_in_namespaced
from localcloud.standins.kubernetes.cluster.scopes import Scopes
from localcloud.standins.kubernetes.config import Config
from localcloud.standins.kubernetes.decide.diff import inputs_of, normalize, parse_path
from localcloud.standins.kubernetes.decide.field_managers import new_manager_name
from localcloud.standins.kubernetes.decide.plan import Plan, Rules, plan
from localcloud.standins.kubernetes.decide.schema import unknown_fields
from localcloud.standins.kubernetes.engine import Log, Severity
from localcloud.standins.kubernetes.metadata import Object
from localcloud.standins.kubernetes.operations import Context, NoPreview, Operations
from localcloud.standins.serve import DeleteRequest, DiffRequest, InitFailed, PluginError
from localcloud.standins.values import has_unknown, to_plain
from tidewater.kube.errors import ApiError, ClusterError, Forbidden, MissingKind, NoAccess

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")
_UNREACHABLE: Final = "configured Kubernetes cluster is unreachable"
_REMOVE_HELP: Final = (
    "If the cluster was deleted, you can remove this resource from Pulumi state by rerunning the operation with the "
    'PULUMI_K8S_DELETE_UNREACHABLE environment variable set to "true"'
)


def _in_thread(
    work: Callable[[KubernetesProvider, _Request], _Response],
) -> Callable[[KubernetesProvider, _Request], Coroutine[Any, Any, _Response]]:
    """Run a method in a thread, as it waits for the cluster most of the time; its errors become one line."""

    async def call(provider: KubernetesProvider, request: _Request) -> _Response:
        try:
            return await asyncio.to_thread(work, provider, request)
        except (ClusterError, UnsupportedType, BadExpression) as error:
            raise PluginError(str(error)) from error

    return call


class KubernetesProvider(sdk.Provider):
    """Serves one provider resource: one cluster, called by one user."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.config = Config()
        self.scopes = Scopes()
        self._cancelled = threading.Event()
        self._lock = threading.Lock()
        self._client: Cluster | None = None

    async def check_config(self, request: sdk.CheckRequest) -> sdk.CheckResponse:
        """Refuse unknown settings and those that are not covered."""
        problems = configuration.problems(to_plain(request.new_inputs))
        failures = [sdk.CheckFailure(key, reason) for key, reason in problems.items()]
        return sdk.CheckResponse(inputs=request.new_inputs, failures=failures)

    async def diff_config(self, request: sdk.DiffRequest) -> sdk.DiffResponse:
        """Tell whether a changed configuration means another cluster."""
        difference = configuration.diff(to_plain(request.old_state), to_plain(request.new_inputs))
        kinds = {
            key: sdk.PropertyDiffKind.UPDATE_REPLACE if key in difference.replaces else sdk.PropertyDiffKind.UPDATE
            for key in difference.changed
        }
        return sdk.DiffResponse(
            changes=bool(difference.changed),
            replaces=list(difference.replaces),
            diffs=list(difference.changed),
            detailed_diff={key: sdk.PropertyDiff(kind, True) for key, kind in kinds.items()},
        )

    async def configure(self, request: sdk.ConfigureRequest) -> sdk.ConfigureResponse:
        """Take the configuration; the cluster is not asked yet."""
        variables = {key.rpartition(":")[2]: value for key, value in request.variables.items()}
        self.config = Config.read({**variables, **to_plain(request.args)}, os.environ)
        return sdk.ConfigureResponse(accept_secrets=True, supports_preview=True)

    async def cancel(self) -> None:
        """End the waits."""
        self._cancelled.set()

    async def invoke(self, request: sdk.InvokeRequest) -> sdk.InvokeResponse:
        """Refuse: none of the provider's functions is covered."""
        raise PluginError(f'function "{request.tok}" is not covered by the local stand-in of the kubernetes provider')

    @_in_thread
    def check(self, request: sdk.CheckRequest) -> sdk.CheckResponse:
        """Complete the inputs."""
        if self.config.skip_update_unreachable and not self._reachable():
            message = "Cluster is unreachable but skipUpdateUnreachable flag is set to true, skipping..."
            self.log.log(request.urn, Severity.WARNING, message)
            return sdk.CheckResponse(inputs=request.old_inputs)
        old = state.to_object(request.old_inputs)
        inputs = checked_inputs(
            Token.parse(request.type),
            state.to_object(request.new_inputs),
            old,
            name=request.name,
            seed=bytes(request.random_seed or b""),
            namespace=self._default_namespace,
        )
        self.scopes.learn(inputs)
        failures = [] if inputs == old else self._failures(request.type, inputs)
        return sdk.CheckResponse(inputs=state.from_object(inputs, request.new_inputs), failures=failures)

    def _failures(self, token: str, inputs: Object) -> list[sdk.CheckFailure]:
        """Return the failures that can be found without a dry run; none if the cluster can't be reached."""
        api_version, kind = _kind(inputs)
        if built_in_namespaced(api_version, kind) is None:
            return []  # a custom resource; its definition may be created before it
        try:
            self.cluster().resource_type(api_version, kind)
            if not has_unknown(inputs):
                return []  # the dry run will tell
            document = self.cluster().openapi(api_version)
        except MissingKind as error:
            return [sdk.CheckFailure("kind", f'resource type "{token}" is unknown to the cluster: {error}')]
        except ClusterError:
            return []
        return [
            sdk.CheckFailure(path, f'unknown field "{path}" of {api_version} {kind} "{metadata.name(inputs)}"')
            for path in unknown_fields(document, api_version, kind, inputs)
        ]

    @_in_thread
    def diff(self, request: sdk.DiffRequest) -> sdk.DiffResponse:
        """Tell what a change of inputs means."""
        old_inputs, old_live = state.split_checkpoint(request.old_state)
        if not old_inputs and isinstance(request, DiffRequest):
            old_inputs = state.to_object(request.old_inputs)
        new = state.to_object(request.new_inputs)
        rules = Rules(
            namespaced=self._namespaced(new),
            ignore=[parse_path(path) for path in request.ignore_changes],
            patch=Token.parse(request.type).patch,
            config_map_mutable=self.config.config_map_mutable,
            secret_mutable=self.config.secret_mutable,
        )
        result = plan(old_live, old_inputs, new, rules)
        if metadata.annotated_true(new, metadata.REPLACE_UNREADY) and self._unready(request.urn, new, old_live):
            result = Plan(result.changes, result.replacing, (("metadata", "annotations", metadata.REPLACE_UNREADY),))
        return result.response(old_live, new)

    def _unready(self, urn: str, new: Object, old_live: Object) -> bool:
        """Return whether the annotation `replaceUnready` replaces the object."""
        if new.get("kind") != "Job":
            self.log.log(urn, Severity.WARNING, "replaceUnready annotation is not supported for this resource")
            return False
        try:
            live = self._operations().read(old_live)
            return live is not None and not isinstance(decide_job(live, {"Pod": ()}), Ready)
        except ClusterError:
            self.log.log(urn, Severity.WARNING, "Cluster is unreachable, skipping replaceUnready check")
            return False

    @_in_thread
    def create(self, request: sdk.CreateRequest) -> sdk.CreateResponse:
        """Create an object, or tell what it would be."""
        inputs, token = state.to_object(request.properties), Token.parse(request.type)
        if request.preview and (has_unknown(inputs) or token.patch or not self._served(inputs)):
            return sdk.CreateResponse(resource_id="", properties=request.properties)
        manager = metadata.annotation(inputs, metadata.PATCH_FIELD_MANAGER) or new_manager_name()
        context = Context(request.urn, manager, request.preview, token.patch, request.timeout)

        def checkpoint(live: Object) -> state.Properties:
            return state.checkpoint(inputs, live, request.properties, str(inputs.get("apiVersion")), manager)

        try:
            live = self._operations().create(inputs, context)
        except NoPreview:
            return sdk.CreateResponse(resource_id="", properties=request.properties)
        except NotReady as error:
            if error.gone_wanted:
                raise PluginError(f'resource "{request.urn}" was not created: {error}') from error
            summary = (
                f'resource "{request.urn}" was successfully created, but the Kubernetes API server reported that it '
                f"failed to fully initialize or become live: {error}"
            )
            raise InitFailed(
                metadata.object_id(error.live), checkpoint(error.live), request.properties, [summary, *error.reasons]
            ) from error
        except ClusterError as error:
            raise _creation_error(request.urn, token, error) from error
        if request.preview:
            live = {key: value for key, value in live.items() if key != "status"}
        made = "" if request.preview else metadata.object_id(live)
        return sdk.CreateResponse(resource_id=made, properties=checkpoint(live))

    @_in_thread
    def read(self, request: sdk.ReadRequest) -> sdk.ReadResponse:
        """Read an object for a refresh or an import."""
        token, known = Token.parse(request.type), state.to_object(request.inputs)
        imported = not known.get("kind")
        inputs = {} if imported else normalize(known)
        try:
            live = self._operations().read(_target(token, request.resource_id))
            reasons = self._operations().not_ready_reasons(live, inputs, request.urn) if live and not imported else ()
        except NoAccess as error:
            return self._read_unreachable(request, error)
        if live is None:
            return sdk.ReadResponse(resource_id="")
        _, before = state.split_checkpoint(request.properties)
        live_inputs = state.imported_inputs(live) if imported else inputs_of(live, inputs, before)
        manager = state.text_member(request.properties, state.FIELD_MANAGER) or new_manager_name()
        version = state.text_member(request.properties, state.INITIAL_API_VERSION) or token.api_version
        properties = state.checkpoint(live_inputs, live, request.inputs, version, manager)
        inputs_out = state.from_object(live_inputs, request.inputs)
        if reasons:
            raise InitFailed(request.resource_id, properties, inputs_out, list(reasons))
        return sdk.ReadResponse(resource_id=request.resource_id, properties=properties, inputs=inputs_out)

    def _read_unreachable(self, request: sdk.ReadRequest, error: NoAccess) -> sdk.ReadResponse:
        self.log.log(request.urn, Severity.WARNING, f"{_UNREACHABLE}: {error}")
        if self.config.delete_unreachable:
            return sdk.ReadResponse(resource_id="")
        if self.config.skip_update_unreachable:
            return sdk.ReadResponse(request.resource_id, request.properties, request.inputs)
        raise PluginError(
            f"failed to read resource state due to unreachable cluster ({error}). {_REMOVE_HELP}"
        ) from error

    @_in_thread
    def update(self, request: sdk.UpdateRequest) -> sdk.UpdateResponse:
        """Change an object, or tell what it would be."""
        inputs, token = metadata.without_read_only(state.to_object(request.news)), Token.parse(request.type)
        if request.preview and (has_unknown(inputs) or not self._served(inputs)):
            return sdk.UpdateResponse(request.news)
        _, old_live = state.split_checkpoint(request.olds)
        old_manager = state.text_member(request.olds, state.FIELD_MANAGER) or new_manager_name()
        manager = metadata.annotation(inputs, metadata.PATCH_FIELD_MANAGER) or old_manager
        version = state.text_member(request.olds, state.INITIAL_API_VERSION) or token.api_version
        ignore = [parse_path(path) for path in request.ignore_changes]
        context = Context(request.urn, manager, request.preview, token.patch, request.timeout, ignore)

        def checkpoint(live: Object) -> state.Properties:
            return state.checkpoint(inputs, live, request.news, version, manager)

        try:
            return sdk.UpdateResponse(checkpoint(self._operations().update(inputs, old_live, old_manager, context)))
        except NotReady as error:
            summary = (
                f'the Kubernetes API server reported that "{metadata.object_id(error.live)}" failed to fully '
                f"initialize or become live: {error}"
            )
            raise InitFailed(
                request.resource_id, checkpoint(error.live), request.news, [summary, *error.reasons]
            ) from error
        except NoAccess as error:
            raise PluginError(f"{_UNREACHABLE}: {error}") from error
        except ClusterError as error:
            if request.preview and isinstance(error, Forbidden):
                return sdk.UpdateResponse(request.news)
            raise PluginError(f'update of resource "{request.urn}" failed: {error}') from error

    @_in_thread
    def delete(self, request: sdk.DeleteRequest) -> None:
        """Delete an object."""
        inputs, live = state.split_checkpoint(request.properties)
        if not inputs and isinstance(request, DeleteRequest):
            inputs = state.to_object(request.old_inputs)
        token = Token.parse(request.type)
        target = _target(token, request.resource_id, live.get("metadata", {}).get("uid"))
        manager = state.text_member(request.properties, state.FIELD_MANAGER)
        context = Context(request.urn, manager, patch=token.patch, timeout=request.timeout)
        try:
            self._operations().delete(target, inputs, context)
        except NoAccess as error:
            self.log.log(request.urn, Severity.WARNING, f"{_UNREACHABLE}: {error}")
            if not self.config.delete_unreachable:
                raise PluginError(f"{_UNREACHABLE} ({error}). {_REMOVE_HELP}") from error
        except NotReady as error:
            raise PluginError(f'deletion of resource "{request.urn}" did not complete: {error}') from error

    def cluster(self) -> Cluster:
        """Return the client, made when first needed: a run without changes asks the cluster nothing."""
        with self._lock:
            if self._client is None:
                self._client = Cluster(self.config.connection(os.environ))
            return self._client

    def _operations(self) -> Operations:
        return Operations(self.cluster(), self.log, self._cancelled, self.config.patch_force, self.config.upsert)

    def _reachable(self) -> bool:
        try:
            self.cluster().version()
        except NoAccess:
            return False
        except ApiError:
            return True
        return True

    def _served(self, obj: Object) -> bool:
        """Return whether the cluster can be reached and knows the object's kind."""
        try:
            self.cluster().resource_type(*_kind(obj))
        except ClusterError:
            return False
        return True

    def _namespaced(self, obj: Object) -> bool:
        """Return whether objects of the kind live in a namespace; True when the cluster can't say."""
        known = self.scopes.namespaced(obj)
        if known is not None:
            return known
        try:
            return self.cluster().resource_type(*_kind(obj)).namespaced
        except ClusterError:
            return True

    def _default_namespace(self, obj: Object) -> str:
        """Return the namespace for an object without one; empty outside namespaces, or without a usable kubeconfig."""
        if not self._namespaced(obj):
            return ""
        try:
            return self.config.namespace or self.cluster().connection.namespace
        except NoAccess:
            return ""


def _kind(obj: Object) -> tuple[str, str]:
    return str(obj.get("apiVersion")), str(obj.get("kind"))


def _target(token: Token, resource_id: str, uid: str | None = None) -> Object:
    where, name = metadata.parse_id(resource_id)
    identity = {"name": name, "namespace": where, "uid": uid}
    return {"apiVersion": token.api_version, "kind": token.kind, "metadata": identity}


def _creation_error(urn: str, token: Token, error: ClusterError) -> PluginError:
    if isinstance(error, NoAccess):
        return PluginError(f"{_UNREACHABLE}: {error}")
    if isinstance(error, MissingKind):
        return PluginError(
            f'creation of resource "{urn}" with kind {token.api_version}/{token.kind} failed because the Kubernetes '
            "API server reported that the apiVersion for this resource does not exist. Verify that any required "
            f"CRDs have been created: {error}"
        )
    return PluginError(f'resource "{urn}" was not successfully created by the Kubernetes API server: {error}')


def checked_inputs(
    token: Token, new: Object, old: Object, *, name: str, seed: bytes, namespace: Callable[[Object], str]
) -> Object:
    """Return the inputs to compare and apply.

    Args:
        token: The resource's type.
        new: The inputs that the program gives.
        old: The inputs of the last run; empty for a new resource.
        name: The resource's name in the program, from which an unnamed object gets its name.
        seed: Makes the generated part of a name.
        namespace: Returns the namespace for an object that has none.

    Raises:
        UnsupportedType: The metadata asks for something that server-side apply does not do.
    """
    inputs = metadata.without_read_only({"apiVersion": token.api_version, "kind": token.kind, **new})
    inputs["apiVersion"] = str(inputs["apiVersion"]).removeprefix("core/")
    if metadata.metadata(inputs).get("generateName") and not metadata.has_name(inputs):
        raise UnsupportedType("the `.metadata.generateName` field is not supported in Server-Side Apply mode")
    if token.patch and not metadata.has_name(inputs):
        raise UnsupportedType("patch resources require the `.metadata.name` field to be set")
    metadata.assign_name(inputs, old, name, seed)
    if isinstance(inputs.get("metadata"), dict) and "namespace" not in inputs["metadata"]:
        default = namespace(inputs)
        if default:
            metadata.set_metadata(inputs, "namespace", default)
    return inputs
