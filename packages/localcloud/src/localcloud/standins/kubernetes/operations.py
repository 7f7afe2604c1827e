"""Creates, reads, updates and deletes objects on a cluster, and waits for them; plain objects in and out."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from localcloud.standins.kubernetes.awaiting.wait import (
    DEFAULT_SECONDS,
    Waiter,
    awaiter_for,
    skips_delete_wait,
)
from localcloud.standins.kubernetes.cluster.client import Cluster
from localcloud.standins.kubernetes.decide import field_managers
from localcloud.standins.kubernetes.decide.diff import Path
from localcloud.standins.kubernetes.engine import Log, Severity
from localcloud.standins.kubernetes.metadata import (
    PATCH_FORCE,
    Object,
    annotated_true,
    deletion_propagation,
    name,
    object_id,
    set_metadata,
    timeout_seconds,
)
from tidewater.kube.errors import ApiError, ClusterError, Conflict, Forbidden, Invalid, MissingKind, NotFound

RETRY_SECONDS: Final = 31.0
"""How long a creation is retried while its namespace or definition does not exist, as in pulumi-kubernetes."""
PAUSE_SECONDS: Final = 0.5
_STILL_DELETED: Final = (
    '{kind} "{id}" is still being deleted (`pulumi.com/skipAwait` applies to deletion too); waiting for it. '
    "The official provider does not wait here: if it fails, run `pulumi up` again"
)
_CONFLICT_HELP: Final = (
    "Server-Side Apply field conflict detected. See https://www.pulumi.com/registry/packages/kubernetes/how-to-guides/"
    "managing-resources-with-server-side-apply/#handle-field-conflicts-on-existing-resources for troubleshooting help."
)


class NoPreview(Exception):
    """The API server cannot tell in advance what the object would be; the inputs are the preview."""


class AlreadyExists(ClusterError):
    """The object to create exists, and the provider isn't configured to take over existing objects."""

    def __init__(self, obj: Object) -> None:
        super().__init__(
            f'{obj.get("kind")} "{object_id(obj)}" already exists. Import it (`pulumi import`), or set '
            "`upsertExistingObjects` on the provider to take over objects that exist"
        )


@dataclass(frozen=True)
class Context:
    """One request: the resource, its field manager, and how to carry it out."""

    urn: str
    manager: str
    preview: bool = False
    patch: bool = False
    timeout: float = 0.0
    ignore: Sequence[Path] = ()


@dataclass(frozen=True)
class Operations:
    """The provider's operations on a cluster."""

    cluster: Cluster
    log: Log
    cancelled: threading.Event
    patch_force: bool = False
    upsert: bool = False

    def create(self, inputs: Object, context: Context) -> Object:
        """Create the object and wait until it is ready; in a preview, return what the API server would make of it.

        Raises:
            NoPreview: In a preview, when nothing can be said.
            AlreadyExists, ClusterError: It was not created.
            NotReady: It was created, but did not become ready.
        """
        if context.preview:
            return self._preview_create(inputs, context)
        return self._await(self._create(inputs, context), inputs, context)

    def _create(self, inputs: Object, context: Context) -> Object:
        deadline = time.monotonic() + RETRY_SECONDS
        while True:
            try:
                if not context.patch:
                    self._make_way(inputs, context)
                return self._apply(inputs, context)
            except (MissingKind, NotFound) as error:
                if time.monotonic() > deadline or self.cancelled.wait(PAUSE_SECONDS):
                    raise
                self.log.status(context.urn, Severity.INFO, f"Retry; creation failed: {error}")

    def _make_way(self, inputs: Object, context: Context) -> None:
        """Wait for an object of that name that is being deleted; any other object is an error."""
        existing = self._existing(inputs)
        if existing is None:
            return
        if existing["metadata"].get("deletionTimestamp"):
            message = _STILL_DELETED.format(kind=existing.get("kind"), id=object_id(existing))
            self.log.log(context.urn, Severity.WARNING, message)
            seconds = timeout_seconds(context.timeout, inputs, DEFAULT_SECONDS)
            self._waiter(context.urn).until_gone(existing, time.monotonic() + seconds)
        elif not self.upsert:
            raise AlreadyExists(inputs)

    def _preview_create(self, inputs: Object, context: Context) -> Object:
        try:
            if not self.upsert and self._existing(inputs) is not None:
                raise NoPreview
            return self._apply(inputs, context)
        except ApiError as error:
            if _says_nothing(error):
                raise NoPreview from error
            raise

    def _existing(self, obj: Object) -> Object | None:
        try:
            return self.cluster.get(obj)
        except (NotFound, Forbidden):
            return None

    def read(self, obj: Object) -> Object | None:
        """Return the live object; None when it, or its kind, does not exist."""
        try:
            return self.cluster.get(obj)
        except (MissingKind, NotFound):
            return None

    def not_ready_reasons(self, live: Object, inputs: Object, urn: str) -> tuple[str, ...]:
        """Return why a live object isn't ready now; empty when it is, or when nothing waits for its kind."""
        awaiter = awaiter_for(live, inputs)
        if awaiter is None or not awaiter.on_read:
            return ()
        return self._waiter(urn).check(live, awaiter)

    def update(self, inputs: Object, old_live: Object, old_manager: str, context: Context) -> Object:
        """Apply the inputs to an existing object and wait until it is ready.

        Raises:
            ClusterError: The API server refused.
            NotReady: It was changed, but did not become ready.
        """
        target = field_managers.identity({**inputs, "metadata": {**old_live.get("metadata", {})}})
        live = self.cluster.get(target)
        applied = {**inputs}
        set_metadata(applied, "name", name(live))
        if inputs.get("kind") == "CustomResourceDefinition":
            set_metadata(applied, "resourceVersion", live["metadata"]["resourceVersion"])
            updated = self.cluster.replace(applied, manager=context.manager, dry_run=context.preview)
        else:
            if not context.preview and not context.patch:
                live = self._adopt(live, context.manager)
            applied = field_managers.keep_ignored(applied, live, context.ignore, context.manager)
            updated = self._apply(applied, context, live)
        if context.preview:
            return updated
        updated = self._await(updated, inputs, context)
        if old_manager != context.manager:
            self.relinquish(updated, old_manager)
        return updated

    def _adopt(self, live: Object, manager: str) -> Object:
        """Take over what `kubectl apply` and `kubectl edit` own, so that the program's values cause no conflict."""
        fields = field_managers.adopt_client_side(live, manager)
        if fields is None:
            return live
        changes = {"managedFields": fields, "resourceVersion": live["metadata"]["resourceVersion"]}
        patch = [{"op": "replace", "path": f"/metadata/{key}", "value": value} for key, value in changes.items()]
        return self.cluster.json_patch(live, patch)

    def delete(self, obj: Object, inputs: Object, context: Context) -> None:
        """Delete the object and wait until it is gone. An object that does not exist is no error.

        Raises:
            ClusterError: The API server refused.
            NotReady: It is still there when the time is up.
        """
        if context.patch:
            self.relinquish(obj, context.manager)
            return
        try:
            self.cluster.delete(obj, deletion_propagation(inputs))
        except (MissingKind, NotFound):
            return
        except Forbidden:  # the API server keeps some objects, such as the namespace `default`
            self.relinquish(obj, context.manager)
            return
        if not skips_delete_wait(inputs):
            seconds = timeout_seconds(context.timeout, inputs, DEFAULT_SECONDS)
            self._waiter(context.urn).until_gone(obj, time.monotonic() + seconds)

    def relinquish(self, obj: Object, manager: str) -> None:
        """Give up the fields that a manager owns: the API server removes those that have no other owner."""
        if self.read(obj) is not None:
            self.cluster.apply(field_managers.identity(obj), manager=manager, force=False, dry_run=False)

    def _apply(self, obj: Object, context: Context, live: Object | None = None) -> Object:
        force = self.patch_force or annotated_true(obj, PATCH_FORCE)
        if context.preview and live is not None:
            # The update takes these fields over first, so the preview must not show them as a conflict.
            force = force or field_managers.adopt_client_side(live, context.manager) is not None
        try:
            return self.cluster.apply(obj, manager=context.manager, force=force, dry_run=context.preview)
        except Conflict as error:
            if "Apply" not in error.message:
                raise
            cause = f'The resource managed by field manager "{context.manager}" had an apply conflict: {error}'
            raise Conflict(f"{_CONFLICT_HELP}\n{cause}", status=error.status) from error

    def _await(self, live: Object, inputs: Object, context: Context) -> Object:
        awaiter = awaiter_for(live, inputs)
        if awaiter is None or context.patch:
            return live
        seconds = timeout_seconds(context.timeout, inputs, awaiter.seconds)
        return self._waiter(context.urn).until_ready(live, awaiter, time.monotonic() + seconds)

    def _waiter(self, urn: str) -> Waiter:
        def progress(warning: bool, message: str) -> None:
            self.log.status(urn, Severity.WARNING if warning else Severity.INFO, message)

        return Waiter(self.cluster, self.cancelled, progress)


def _says_nothing(error: ApiError) -> bool:
    """Return whether a refused dry run doesn't say that the creation itself would be refused."""
    if isinstance(error, NotFound):
        return error.details.get("kind") == "namespaces"  # which may be created before the object
    if isinstance(error, Invalid) and "field is immutable" in error.message:
        return True  # the object will be replaced
    # An admission webhook with side effects can't take part in a dry run.
    return isinstance(error, Forbidden) or "does not support dry run" in error.message
