"""The provider protocol for Kubernetes objects: configuration, check and diff here, the rest through `operations`."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

from pulumi.provider.experimental import provider as sdk

from localcloud.standins.kubernetes import config as configuration
from localcloud.standins.kubernetes import metadata, state
from localcloud.standins.kubernetes.awaiting.conditions import BadExpression
from localcloud.standins.kubernetes.awaiting.wait import NotReady
from localcloud.standins.kubernetes.check import checked_inputs
from localcloud.standins.kubernetes.client import Cluster
from localcloud.standins.kubernetes.config import Config
from localcloud.standins.kubernetes.diff import normalize, parse_path, prune
from localcloud.standins.kubernetes.engine import Log, Severity
from localcloud.standins.kubernetes.errors import ApiError, ClusterError, UnknownKind, Unreachable
from localcloud.standins.kubernetes.field_managers import new_manager_name
from localcloud.standins.kubernetes.kinds import Token, UnsupportedType, built_in_namespaced
from localcloud.standins.kubernetes.metadata import Object
from localcloud.standins.kubernetes.operations import Context, NoPreview, Operations
from localcloud.standins.kubernetes.plan import Plan, Rules, plan
from localcloud.standins.kubernetes.schema import unknown_fields
from localcloud.standins.serve import DeleteRequest, DiffRequest, InitFailed, PluginError
from localcloud.standins.values import has_unknown, to_plain

_Result = TypeVar("_Result")
_REMOVE_HELP: Final = (
    "If the cluster was deleted, you can remove this resource from Pulumi state by rerunning the operation with the "
    'PULUMI_K8S_DELETE_UNREACHABLE environment variable set to "true"'
)


class KubernetesProvider(sdk.Provider):
    """Serves one provider resource: one cluster seen as one user."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._config = Config()
        self._cancelled = threading.Event()
        self._lock = threading.Lock()
        self._client: Cluster | None = None

    # Configuration

    async def check_config(self, request: sdk.CheckRequest) -> sdk.CheckResponse:
        """Refuses unknown settings and those that are not covered."""
        failures = [
            sdk.CheckFailure(key, reason)
            for key, reason in configuration.problems(to_plain(request.new_inputs)).items()
        ]
        return sdk.CheckResponse(inputs=request.new_inputs, failures=failures)

    async def diff_config(self, request: sdk.DiffRequest) -> sdk.DiffResponse:
        """Tells whether a changed configuration means another cluster."""
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
        """Takes the configuration; the cluster is not asked yet."""
        variables = {key.rpartition(":")[2]: value for key, value in request.variables.items()}
        self._config = Config.read({**variables, **to_plain(request.args)}, os.environ)
        return sdk.ConfigureResponse(accept_secrets=True, supports_preview=True)

    async def cancel(self) -> None:
        """Ends the waits."""
        self._cancelled.set()

    async def invoke(self, request: sdk.InvokeRequest) -> sdk.InvokeResponse:
        """Refuses: none of the provider's functions is covered."""
        raise PluginError(f'function "{request.tok}" is not covered by the local stand-in of the kubernetes provider')

    # The protocol's methods: each does its work in a thread, as most of it waits for the cluster

    async def check(self, request: sdk.CheckRequest) -> sdk.CheckResponse:
        """Completes the inputs."""
        return await _in_thread(lambda: self._check(request))

    async def diff(self, request: sdk.DiffRequest) -> sdk.DiffResponse:
        """Tells what a change of inputs means."""
        return await _in_thread(lambda: self._diff(request))

    async def create(self, request: sdk.CreateRequest) -> sdk.CreateResponse:
        """Creates an object, or says what would come of it."""
        return await _in_thread(lambda: self._create(request))

    async def read(self, request: sdk.ReadRequest) -> sdk.ReadResponse:
        """Reads an object for a refresh or an import."""
        return await _in_thread(lambda: self._read(request))

    async def update(self, request: sdk.UpdateRequest) -> sdk.UpdateResponse:
        """Changes an object, or says what would come of it."""
        return await _in_thread(lambda: self._update(request))

    async def delete(self, request: sdk.DeleteRequest) -> None:
        """Deletes an object."""
        await _in_thread(lambda: self._delete(request))

    def _check(self, request: sdk.CheckRequest) -> sdk.CheckResponse:
        if self._config.skip_update_unreachable and not self._reachable():
            self._log.log(
                request.urn,
                Severity.WARNING,
                "Cluster is unreachable but skipUpdateUnreachable flag is set to true, skipping...",
            )
            return sdk.CheckResponse(inputs=request.old_inputs)
        token = Token.parse(request.type)
        old = state.to_object(request.old_inputs)
        inputs = checked_inputs(
            token,
            state.to_object(request.new_inputs),
            old,
            name=request.name,
            seed=bytes(request.random_seed or b""),
            namespace=lambda obj: self._default_namespace(obj),
        )
        failures = [] if inputs == old else self._failures(request.type, inputs)
        return sdk.CheckResponse(inputs=state.from_object(inputs, request.new_inputs), failures=failures)

    def _failures(self, token: str, inputs: Object) -> list[sdk.CheckFailure]:
        """What is wrong as far as can be told without a dry run, and with the cluster in reach."""
        api_version, kind = str(inputs.get("apiVersion")), str(inputs.get("kind"))
        if built_in_namespaced(api_version, kind) is None:
            return []  # a custom resource, whose definition may be about to be created
        try:
            self._cluster().resource_type(api_version, kind)
            if not has_unknown(inputs):
                return []  # the dry run will tell
            document = self._cluster().openapi(api_version)
        except UnknownKind as error:
            return [sdk.CheckFailure("kind", f'resource type "{token}" is unknown to the cluster: {error}')]
        except ClusterError:
            return []
        return [
            sdk.CheckFailure(path, f'unknown field "{path}" of {api_version} {kind} "{metadata.name(inputs)}"')
            for path in unknown_fields(document, api_version, kind, inputs)
        ]

    def _diff(self, request: sdk.DiffRequest) -> sdk.DiffResponse:
        old_inputs, old_live = state.split_checkpoint(request.old_state)
        if not old_inputs and isinstance(request, DiffRequest):
            old_inputs = state.to_object(request.old_inputs)
        new = state.to_object(request.new_inputs)
        rules = Rules(
            namespaced=self._namespaced(new),
            ignore=[parse_path(path) for path in request.ignore_changes],
            patch=Token.parse(request.type).patch,
            config_map_mutable=self._config.config_map_mutable,
            secret_mutable=self._config.secret_mutable,
        )
        result = plan(old_live, old_inputs, new, rules)
        if metadata.annotated_true(new, metadata.REPLACE_UNREADY):
            result = self._replace_unready(request.urn, new, old_live, result)
        return result.response(old_live, new)

    def _replace_unready(self, urn: str, new: Object, old_live: Object, result: Plan) -> Plan:
        if new.get("kind") != "Job":
            self._log.log(urn, Severity.WARNING, "replaceUnready annotation is not supported for this resource")
            return result
        try:
            operations = self._operations()
            live = operations.read(old_live)
            unready = live is not None and bool(operations.not_ready_reasons(live, new, urn))
        except ClusterError:
            self._log.log(urn, Severity.WARNING, "Cluster is unreachable, skipping replaceUnready check")
            return result
        return result.replaced_for(("metadata", "annotations", metadata.REPLACE_UNREADY)) if unready else result

    def _create(self, request: sdk.CreateRequest) -> sdk.CreateResponse:
        inputs = state.to_object(request.properties)
        token = Token.parse(request.type)
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
        return sdk.CreateResponse(
            resource_id="" if request.preview else metadata.object_id(live), properties=checkpoint(live)
        )

    def _read(self, request: sdk.ReadRequest) -> sdk.ReadResponse:
        token = Token.parse(request.type)
        known = state.to_object(request.inputs)
        imported = not known.get("kind")
        where, called = metadata.parse_id(request.resource_id)
        inputs = normalize(known) if not imported else {}
        target = {"apiVersion": token.api_version, "kind": token.kind, "metadata": {"name": called, "namespace": where}}
        try:
            live = self._operations().read(target)
            reasons = self._operations().not_ready_reasons(live, inputs, request.urn) if live and not imported else ()
        except Unreachable as error:
            return self._read_unreachable(request, error)
        if live is None:
            return sdk.ReadResponse(resource_id="")
        live_inputs = imported_inputs(live) if imported else prune(live, inputs)
        manager = state.text_member(request.properties, state.FIELD_MANAGER) or new_manager_name()
        version = state.text_member(request.properties, state.INITIAL_API_VERSION) or token.api_version
        properties = state.checkpoint(live_inputs, live, request.inputs, version, manager)
        inputs_out = state.from_object(live_inputs, request.inputs)
        if reasons:
            raise InitFailed(request.resource_id, properties, inputs_out, list(reasons))
        return sdk.ReadResponse(resource_id=request.resource_id, properties=properties, inputs=inputs_out)

    def _read_unreachable(self, request: sdk.ReadRequest, error: Unreachable) -> sdk.ReadResponse:
        self._log.log(request.urn, Severity.WARNING, f"configured Kubernetes cluster is unreachable: {error}")
        if self._config.delete_unreachable:
            return sdk.ReadResponse(resource_id="")
        if self._config.skip_update_unreachable:
            return sdk.ReadResponse(request.resource_id, request.properties, request.inputs)
        raise PluginError(
            f"failed to read resource state due to unreachable cluster ({error}). {_REMOVE_HELP}"
        ) from error

    def _update(self, request: sdk.UpdateRequest) -> sdk.UpdateResponse:
        inputs = metadata.without_read_only(state.to_object(request.news))
        token = Token.parse(request.type)
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
            raise self._half_updated(request, error.live, checkpoint(error.live), error.reasons) from error
        except Unreachable as error:
            raise PluginError(f"configured Kubernetes cluster is unreachable: {error}") from error
        except ClusterError as error:
            if request.preview and isinstance(error, ApiError) and error.code == 403:
                return sdk.UpdateResponse(request.news)
            raise PluginError(f'update of resource "{request.urn}" failed: {error}') from error

    def _half_updated(
        self, request: sdk.UpdateRequest, live: Object, properties: state.Properties, reasons: tuple[str, ...]
    ) -> InitFailed:
        called = metadata.object_id(live)
        summary = (
            f'the Kubernetes API server reported that "{called}" failed to fully initialize or become live: '
            + "; ".join(reasons)
        )
        return InitFailed(request.resource_id, properties, request.news, [summary, *reasons])

    def _delete(self, request: sdk.DeleteRequest) -> None:
        inputs, live = state.split_checkpoint(request.properties)
        if not inputs and isinstance(request, DeleteRequest):
            inputs = state.to_object(request.old_inputs)
        token = Token.parse(request.type)
        where, called = metadata.parse_id(request.resource_id)
        identity = {"name": called, "namespace": where, "uid": live.get("metadata", {}).get("uid")}
        target = {"apiVersion": token.api_version, "kind": token.kind, "metadata": identity}
        manager = state.text_member(request.properties, state.FIELD_MANAGER)
        context = Context(request.urn, manager, patch=token.patch, timeout=request.timeout)
        try:
            self._operations().delete(target, inputs, context)
        except Unreachable as error:
            self._log.log(request.urn, Severity.WARNING, f"configured Kubernetes cluster is unreachable: {error}")
            if not self._config.delete_unreachable:
                raise PluginError(f"configured Kubernetes cluster is unreachable ({error}). {_REMOVE_HELP}") from error
        except NotReady as error:
            raise PluginError(f'deletion of resource "{request.urn}" did not complete: {error}') from error

    # What the configuration stands for

    def _cluster(self) -> Cluster:
        """The client; made when first needed, as a run without changes asks the cluster nothing."""
        with self._lock:
            if self._client is None:
                self._client = Cluster(self._config.connection(os.environ))
            return self._client

    def _operations(self) -> Operations:
        return Operations(self._cluster(), self._log, self._cancelled, self._config.patch_force, self._config.upsert)

    def _reachable(self) -> bool:
        try:
            self._cluster().version()
        except Unreachable:
            return False
        except ApiError:
            return True
        return True

    def _served(self, obj: Object) -> bool:
        """Whether the cluster can be reached and knows the object's kind."""
        try:
            self._cluster().resource_type(str(obj.get("apiVersion")), str(obj.get("kind")))
        except ClusterError:
            return False
        return True

    def _namespaced(self, obj: Object) -> bool:
        """Whether objects of the kind live in a namespace; taken to be so when the cluster can't say."""
        api_version, kind = str(obj.get("apiVersion")), str(obj.get("kind"))
        known = built_in_namespaced(api_version, kind)
        if known is not None:
            return known
        try:
            return self._cluster().resource_type(api_version, kind).namespaced
        except ClusterError:
            return True

    def _default_namespace(self, obj: Object) -> str:
        """The namespace for an object without one; empty outside namespaces, or without a usable kubeconfig."""
        if not self._namespaced(obj):
            return ""
        if self._config.namespace:
            return self._config.namespace
        try:
            return self._cluster().connection.namespace
        except Unreachable:
            return ""


def imported_inputs(live: Object) -> Object:
    """The inputs of an object that no program described yet: all but what only the cluster sets."""
    inputs = metadata.without_read_only({key: value for key, value in live.items() if key != "status"})
    annotations = {
        key: value
        for key, value in (metadata.metadata(inputs).get("annotations") or {}).items()
        if key not in ("deployment.kubernetes.io/revision", "kubectl.kubernetes.io/last-applied-configuration")
    }
    kept: dict[str, Any] = {key: value for key, value in metadata.metadata(inputs).items() if key != "annotations"}
    return {**inputs, "metadata": {**kept, **({"annotations": annotations} if annotations else {})}}


def _creation_error(urn: str, token: Token, error: ClusterError) -> PluginError:
    if isinstance(error, Unreachable):
        return PluginError(f"configured Kubernetes cluster is unreachable: {error}")
    if isinstance(error, UnknownKind):
        return PluginError(
            f'creation of resource "{urn}" with kind {token.api_version}/{token.kind} failed because the Kubernetes '
            "API server reported that the apiVersion for this resource does not exist. Verify that any required "
            f"CRDs have been created: {error}"
        )
    return PluginError(f'resource "{urn}" was not successfully created by the Kubernetes API server: {error}')


async def _in_thread(work: Callable[[], _Result]) -> _Result:
    try:
        return await asyncio.to_thread(work)
    except (ClusterError, UnsupportedType, BadExpression) as error:
        raise PluginError(str(error)) from error
