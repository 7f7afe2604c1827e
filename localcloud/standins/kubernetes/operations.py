"""Creating, reading, updating and deleting objects on a cluster, waits included; plain objects in and out."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from localcloud.standins.kubernetes import field_managers
from localcloud.standins.kubernetes.awaiting.wait import (
    DEFAULT_SECONDS,
    NotReady,
    Waiter,
    awaiter_for,
    skips_delete_wait,
)
from localcloud.standins.kubernetes.client import Cluster
from localcloud.standins.kubernetes.engine import Log, Severity
from localcloud.standins.kubernetes.errors import ApiError, ClusterError, UnknownKind
from localcloud.standins.kubernetes.force_new import Path
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

RETRY_SECONDS: Final = 31.0
"""How long a creation is tried whose namespace or definition isn't there yet, as long as pulumi-kubernetes does."""
PAUSE_SECONDS: Final = 0.5
_STILL_GOING: Final = (
    '{kind} "{id}" is still being deleted (its `pulumi.com/skipAwait` skips that wait too); waiting for it. '
    "The official provider does not wait here and may fail; run it again then"
)
_CONFLICT_HELP: Final = (
    "Server-Side Apply field conflict detected. See https://www.pulumi.com/registry/packages/kubernetes/how-to-guides/"
    "managing-resources-with-server-side-apply/#handle-field-conflicts-on-existing-resources for troubleshooting help."
)


class NoPreview(Exception):
    """The API server cannot say in advance what it would make of the object; the inputs stand for it."""


class AlreadyExists(ClusterError):
    """The object to create is there already, and the provider isn't told to take such objects over."""

    def __init__(self, obj: Object) -> None:
        super().__init__(
            f'{obj.get("kind")} "{object_id(obj)}" already exists. Import it (`pulumi import`), or set '
            "`upsertExistingObjects` on the provider to take over objects that exist"
        )


@dataclass(frozen=True)
class Context:
    """One request: whose it is and how it is to be done."""

    urn: str
    manager: str
    preview: bool = False
    patch: bool = False
    timeout: float = 0.0
    ignore: Sequence[Path] = ()


@dataclass(frozen=True)
class Operations:
    """What the provider does to a cluster."""

    cluster: Cluster
    log: Log
    cancelled: threading.Event
    patch_force: bool = False
    upsert: bool = False

    def create(self, inputs: Object, context: Context) -> Object:
        """Creates the object and waits until it is ready.

        Raises:
            NoPreview: in a preview, when nothing can be said.
            AlreadyExists, ClusterError: it was not created.
            NotReady: it was created, but did not become ready.
        """
        live = self._preview_create(inputs, context) if context.preview else self._create(inputs, context)
        return live if context.preview else self._await(live, inputs, context)

    def _create(self, inputs: Object, context: Context) -> Object:
        deadline = time.monotonic() + RETRY_SECONDS
        while True:
            try:
                if not context.patch:
                    self._make_way(inputs, context)
                return self._apply(inputs, context)
            except (UnknownKind, ApiError) as error:
                retryable = isinstance(error, UnknownKind) or error.not_found
                if not retryable or time.monotonic() > deadline or self.cancelled.wait(PAUSE_SECONDS):
                    raise
                self.log.status(context.urn, Severity.INFO, f"Retry; creation failed: {error}")

    def _make_way(self, inputs: Object, context: Context) -> None:
        """Sees to it that nothing of the name is there: what is going is waited for, the rest is an error."""
        existing = self._existing(inputs)
        if existing is None:
            return
        if existing["metadata"].get("deletionTimestamp"):
            message = _STILL_GOING.format(kind=existing.get("kind"), id=object_id(existing))
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
            if error.code == 403 or error.namespace_missing or "does not support dry run" in str(error):
                raise NoPreview from error
            if not error.immutable:
                raise
        # A dry run of a replacement meets the old object under the same name; under another name it goes through.
        renamed = {**inputs}
        set_metadata(renamed, "name", f"{name(inputs)}-{secrets.token_hex(3)[:5]}")
        return self._apply(renamed, context)

    def _existing(self, obj: Object) -> Object | None:
        try:
            return self.cluster.get(obj)
        except ApiError as error:
            if error.not_found or error.code == 403:
                return None
            raise

    def read(self, obj: Object) -> Object | None:
        """The live object, or None when it is gone, or its kind is."""
        try:
            return self.cluster.get(obj)
        except UnknownKind:
            return None
        except ApiError as error:
            if error.not_found:
                return None
            raise

    def not_ready_reasons(self, live: Object, inputs: Object, urn: str) -> tuple[str, ...]:
        """Why a live object isn't ready now; empty when it is, or when its kind has no such notion."""
        awaiter = awaiter_for(live, inputs)
        if awaiter is None or not awaiter.on_read:
            return ()
        return self._waiter(urn).check(live, awaiter)

    def update(self, inputs: Object, old_live: Object, old_manager: str, context: Context) -> Object:
        """Applies the inputs to an existing object and waits until it is ready.

        Raises:
            ClusterError: it was refused.
            NotReady: it was changed, but did not become ready.
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
        """Takes over what `kubectl apply` and `kubectl edit` own, so that the program's values meet no conflict."""
        fields = field_managers.adopt_client_side(live, manager)
        if fields is None:
            return live
        version = live["metadata"]["resourceVersion"]
        return self.cluster.json_patch(
            live,
            [
                {"op": "replace", "path": "/metadata/managedFields", "value": fields},
                {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
            ],
        )

    def delete(self, obj: Object, inputs: Object, context: Context) -> None:
        """Deletes the object and waits until it is gone. An object that is not there is no error.

        Raises:
            ClusterError: the API server refused.
            NotReady: it is still there when the time is up.
        """
        try:
            if context.patch:
                self.relinquish(obj, context.manager)
                return
            self.cluster.delete(obj, deletion_propagation(inputs))
        except UnknownKind:
            return
        except ApiError as error:
            if error.not_found:
                return
            if error.code == 403:  # the API server keeps some objects, the namespace `default` for one
                self.relinquish(obj, context.manager)
                return
            raise
        if not skips_delete_wait(inputs):
            seconds = timeout_seconds(context.timeout, inputs, DEFAULT_SECONDS)
            self._waiter(context.urn).until_gone(obj, time.monotonic() + seconds)

    def relinquish(self, obj: Object, manager: str) -> None:
        """Gives up the fields that a manager owns: those that nobody else owns are removed from the object."""
        if self.read(obj) is not None:
            self.cluster.apply(field_managers.identity(obj), manager=manager, force=False, dry_run=False)

    def _apply(self, obj: Object, context: Context, live: Object | None = None) -> Object:
        force = self.patch_force or annotated_true(obj, PATCH_FORCE)
        if context.preview and live is not None:
            # What the update will take over first doesn't conflict then; a preview must not show that it does.
            force = force or field_managers.adopt_client_side(live, context.manager) is not None
        try:
            return self.cluster.apply(obj, manager=context.manager, force=force, dry_run=context.preview)
        except ApiError as error:
            if not error.conflict or "Apply" not in str(error):
                raise
            cause = f'The resource managed by field manager "{context.manager}" had an apply conflict: {error}'
            raise ApiError(error.code, error.reason, f"{_CONFLICT_HELP}\n{cause}", error.details) from error

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


__all__ = ["AlreadyExists", "Context", "NoPreview", "NotReady", "Operations"]
