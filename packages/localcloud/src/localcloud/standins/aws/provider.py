"""The provider: what all resource types have in common. Each type is described in `resources/`."""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import time
from typing import Any, Final

from pulumi.provider.experimental import provider as sdk
from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.provider.experimental.provider import PropertyDiff, PropertyDiffKind

from localcloud.standins.aws import schema
from localcloud.standins.aws.clients import CONFIG_KEYS, Clients, Settings, decode_config
from localcloud.standins.aws.entry import Call, Entry, Naming, Tree
from localcloud.standins.aws.equality import project, same
from localcloud.standins.aws.functions import FUNCTIONS
from localcloud.standins.aws.registry import ENTRIES
from localcloud.standins.serve import InitFailed, PluginError
from localcloud.standins.values import UNKNOWN, from_plain, secret_keys, to_plain

Properties = dict[str, PropertyValue]
AUTOMATIC: Final = "__defaults"
"""The member of the inputs that lists the inputs that the plug-in set, as in the official plug-in."""
_DEFAULT_TIMEOUT_SECONDS: Final = 1200.0


class AwsProvider(sdk.Provider):
    """Implement the plug-in protocol for the types in `ENTRIES` and the functions in `FUNCTIONS`."""

    def __init__(self) -> None:
        self._clients: Clients | None = None

    async def check_config(self, request: sdk.CheckRequest) -> sdk.CheckResponse:
        """Refuse unknown configuration."""
        failures = [
            sdk.CheckFailure(key, f"the stand-in for pulumi-aws does not know the provider input {key}")
            for key in request.new_inputs
            if key not in CONFIG_KEYS and not key.startswith("__")
        ]
        return sdk.CheckResponse(inputs=request.new_inputs, failures=failures)

    async def diff_config(self, request: sdk.DiffRequest) -> sdk.DiffResponse:
        """Replace the provider if the region changes; every other change is in place."""
        old, new = to_plain(request.old_state), to_plain(request.new_inputs)
        changed = sorted(key for key in {*old, *new} if not same(old.get(key), new.get(key)))
        replaced = [key for key in changed if key == "region" and new.get(key) is not UNKNOWN]
        return sdk.DiffResponse(changes=bool(changed), diffs=changed, replaces=replaced)

    async def configure(self, request: sdk.ConfigureRequest) -> sdk.ConfigureResponse:
        """Store the configuration; clients are created when first needed, or to see if the account is allowed."""
        config = decode_config(to_plain(request.args))
        if UNKNOWN not in config.values():
            self._clients = Clients(Settings.from_config(config, os.environ))
            if self._clients.settings.names_accounts:
                await asyncio.to_thread(self._clients.account)
        return sdk.ConfigureResponse(accept_secrets=True, supports_preview=True)

    async def check(self, request: sdk.CheckRequest) -> sdk.CheckResponse:
        """Check names and types, then add what the program left out: name, defaults, default tags."""
        entry = _entry(request.type)
        news, olds = to_plain(request.new_inputs), to_plain(request.old_inputs)
        checked, failures = schema.check(entry, news)
        automatic: list[str] = []
        if entry.naming and _needs_name(entry.naming, checked):
            try:
                name = _automatic_name(entry.naming, request.name, olds, request.random_seed)
            except PluginError as error:
                failures.append(schema.Failure(entry.naming.property, str(error)))
            else:
                checked[entry.naming.property] = name
                automatic.append(entry.naming.property)
        for name, value in entry.defaults.items():
            if checked.get(name) is None and not any(name in group and group & set(checked) for group in entry.one_of):
                checked[name] = value
                automatic.append(name)
        default_tags = self._clients.settings.default_tags if self._clients else {}
        if entry.tags and default_tags and checked.get("tags") is not UNKNOWN:
            checked["tags"] = {**default_tags, **(checked.get("tags") or {})}
        inputs = from_plain({**checked, AUTOMATIC: sorted(automatic)}, secret_keys(request.new_inputs))
        return sdk.CheckResponse(inputs=inputs, failures=[sdk.CheckFailure(f.property, f.reason) for f in failures])

    async def diff(self, request: sdk.DiffRequest) -> sdk.DiffResponse:
        """Compare the recorded inputs (after a refresh: the actual ones) with the wanted ones."""
        entry = _entry(request.type)
        old_inputs = getattr(request, "old_inputs", None) or request.old_state
        olds, news = to_plain(old_inputs), to_plain(request.new_inputs)
        changed = _changed(entry, olds, news) - set(request.ignore_changes)
        replaced = sorted(name for name in changed if _replaces(entry, name, olds, news))
        return sdk.DiffResponse(
            changes=bool(changed),
            diffs=sorted(changed),
            replaces=replaced,
            delete_before_replace=bool(replaced) and (entry.delete_first or _name_stays(entry, olds, news)),
            detailed_diff={name: _kind(name, olds, news, name in replaced) for name in sorted(changed)},
        )

    async def create(self, request: sdk.CreateRequest) -> sdk.CreateResponse:
        """Create the resource and wait until it is ready."""
        entry = _entry(request.type)
        secret = secret_keys(request.properties) | entry.secrets
        inputs = to_plain(request.properties)
        if request.preview:
            foreseen: Tree = dict.fromkeys(schema.outputs(entry.token), UNKNOWN) | _echo(entry, inputs)
            return sdk.CreateResponse(properties=_outputs(foreseen, secret))
        call = self._call(inputs=inputs, deadline=_deadline(request.timeout))
        try:
            call.id = await _on_thread(entry.create, call)
        except Exception as error:
            if half_made := await self._half_made(entry, call, secret, error):
                raise half_made from error
            raise
        outputs = await self._settle(entry, call, secret)
        return sdk.CreateResponse(resource_id=call.id, properties=outputs)

    async def update(self, request: sdk.UpdateRequest) -> sdk.UpdateResponse:
        """Apply the changes in place."""
        entry = _entry(request.type)
        secret = secret_keys(request.news) | entry.secrets
        olds = to_plain(getattr(request, "old_inputs", None) or request.olds)
        news, state = to_plain(request.news), to_plain(request.olds)
        changed = frozenset(_changed(entry, olds, news) - set(request.ignore_changes))
        if request.preview:
            recomputed = dict.fromkeys(entry.recomputed, UNKNOWN)
            return sdk.UpdateResponse(_outputs({**state, **_echo(entry, news), **recomputed}, secret))
        call = self._call(
            inputs=news, olds=olds, state=state, id=request.resource_id, deadline=_deadline(request.timeout)
        )
        call.changed = changed
        if entry.update:
            await _on_thread(entry.update, call)
        return sdk.UpdateResponse(await self._settle(entry, call, secret))

    async def read(self, request: sdk.ReadRequest) -> sdk.ReadResponse:
        """Return the actual resource for a refresh, an import or a `get`. An empty id means that it doesn't exist."""
        entry = _entry(request.type)
        inputs, state = to_plain(request.inputs), to_plain(request.properties)
        call = self._call(inputs=inputs, state=state, id=request.resource_id)
        found = await _on_thread(entry.read, call)
        if found is None:
            return sdk.ReadResponse(resource_id="")
        known = _imported(entry, found) if not inputs else _refreshed(entry, inputs, found)
        secret = secret_keys(request.inputs) | secret_keys(request.properties) | entry.secrets
        outputs = {**state, **_echo(entry, known), **found, **_where(entry, call), "id": call.id}
        return sdk.ReadResponse(call.id, _outputs(_with_tags_all(entry, outputs), secret), from_plain(known, secret))

    async def delete(self, request: sdk.DeleteRequest) -> None:
        """Delete the resource and wait until it is gone."""
        entry = _entry(request.type)
        state = to_plain(request.properties)
        inputs = to_plain(getattr(request, "old_inputs", None) or request.properties)
        call = self._call(inputs=inputs, state=state, id=request.resource_id, deadline=_deadline(request.timeout))
        await _on_thread(entry.delete, call)

    async def invoke(self, request: sdk.InvokeRequest) -> sdk.InvokeResponse:
        """Return the result of a function."""
        if request.tok not in FUNCTIONS:
            raise PluginError(schema.unknown_type(request.tok))
        function = FUNCTIONS[request.tok]
        arguments = to_plain(request.args)
        failures = [
            sdk.CheckFailure(name, f"{request.tok} of the stand-in for pulumi-aws does not know the argument {name}")
            for name in arguments
            if name not in function.arguments | {"region"}
        ]
        if failures:
            return sdk.InvokeResponse(failures=failures)
        result = await _on_thread(function.answer, self._call(inputs=arguments))
        return sdk.InvokeResponse(from_plain(result))

    async def _settle(self, entry: Entry, call: Call, secret: frozenset[str]) -> Properties:
        """Wait until the resource is ready and read it; after an error the resource must stay in the state."""
        try:
            if entry.ready:
                await _on_thread(entry.ready, call)
            found = await _on_thread(entry.read, call)
        except Exception as error:
            partial = _outputs({**call.state, **_echo(entry, call.inputs)}, secret)
            raise InitFailed(call.id, partial, from_plain(call.inputs, secret), [str(error)]) from error
        outputs = {**_echo(entry, call.inputs), **(found or {}), **_where(entry, call), "id": call.id}
        return _outputs(_with_tags_all(entry, outputs), secret)

    async def _half_made(self, entry: Entry, call: Call, secret: frozenset[str], error: Exception) -> InitFailed | None:
        """Return the error after which the engine keeps what exists already, as it is; None if nothing does.

        The next update then completes the resource, or `destroy` deletes it, as with the official plug-in:
        https://github.com/pulumi/pulumi-terraform/pull/237
        """
        if not call.id:
            return None
        try:
            found = await _on_thread(entry.read, call)
        except Exception as unread:  # it exists, and must stay in the state
            partial = _outputs(_echo(entry, call.inputs), secret)
            return InitFailed(call.id, partial, from_plain(call.inputs, secret), [str(error), str(unread)])
        if found is None:
            return None
        known = _refreshed(entry, call.inputs, found)
        outputs = _with_tags_all(entry, {**_echo(entry, known), **found, **_where(entry, call), "id": call.id})
        return InitFailed(call.id, _outputs(outputs, secret), from_plain(known, secret), [str(error)])

    def _call(self, **fields: Any) -> Call:
        if self._clients is None:
            raise PluginError("aws: the provider's configuration is not known yet")
        return Call(self._clients, **fields)


def _entry(token: str) -> Entry:
    if token not in ENTRIES:
        raise PluginError(schema.unknown_type(token))
    return ENTRIES[token]


async def _on_thread(function: Any, call: Call) -> Any:
    return await asyncio.to_thread(function, call)


def _deadline(timeout_seconds: float) -> float:
    return time.monotonic() + (timeout_seconds or _DEFAULT_TIMEOUT_SECONDS)


def _needs_name(naming: Naming, inputs: Tree) -> bool:
    return inputs.get(naming.property) is None and inputs.get(naming.prefix_property) is None


def _automatic_name(naming: Naming, urn_name: str, olds: Tree, seed: bytes) -> str:
    """Return the recorded name if it was automatic, else a new one; the seed makes preview and update agree."""
    if naming.property in (olds.get(AUTOMATIC) or []) and olds.get(naming.property):
        return str(olds[naming.property])
    if not naming.suffix:
        return urn_name
    digits = hashlib.sha256(seed).hexdigest()[:7] if seed else secrets.token_hex(4)[:7]
    stem = urn_name.lower() if naming.lower else urn_name
    name = f"{naming.prefix}{stem}-{digits}"
    if len(name) > naming.longest:
        raise PluginError(
            f"the automatic name {name} is longer than {naming.longest} characters; give {naming.property}"
        )
    return name


def _changed(entry: Entry, olds: Tree, news: Tree) -> set[str]:
    # A state of the official plug-in, or of an earlier version, may have inputs that aren't covered.
    names = {*olds, *news} & entry.covered()
    return {
        name
        for name in names
        if not (name in entry.computed and news.get(name) is None)
        and not same(olds.get(name), news.get(name), ordered=name in entry.ordered, document=name in entry.documents)
    }


def _replaces(entry: Entry, name: str, olds: Tree, news: Tree) -> bool:
    """Return whether a change of the input replaces; `replace_on` may name a member, as in `accessConfig.mode`."""
    if entry.replaces(name) or entry.update is None:
        return True
    members = [path.partition(".")[2] for path in entry.replace_on if path.startswith(name + ".")]
    old, new = olds.get(name) or {}, news.get(name) or {}
    if new is UNKNOWN:
        return False
    return any(not same(old.get(member), new.get(member)) for member in members)


def _name_stays(entry: Entry, olds: Tree, news: Tree) -> bool:
    """Return whether the program sets the name, so that old and new resource can't exist at the same time."""
    if entry.naming is None:
        return False
    name = entry.naming.property
    fixed = name not in (news.get(AUTOMATIC) or []) and name in news
    return fixed and olds.get(name) == news.get(name)


def _kind(name: str, olds: Tree, news: Tree, replaces: bool) -> PropertyDiff:
    kind = "ADD" if olds.get(name) is None else "DELETE" if news.get(name) is None else "UPDATE"
    return PropertyDiff(PropertyDiffKind[kind + ("_REPLACE" if replaces else "")], True)


def _echo(entry: Entry, inputs: Tree) -> Tree:
    """Return the inputs as outputs."""
    outputs = {name: value for name, value in inputs.items() if name != AUTOMATIC}
    return _with_tags_all(entry, outputs)


def _where(entry: Entry, call: Call) -> Tree:
    """Return the region, unless the service is global."""
    return {"region": call.region} if "region" in schema.outputs(entry.token) else {}


def _with_tags_all(entry: Entry, outputs: Tree) -> Tree:
    if not entry.tags:
        return outputs
    return {**outputs, "tagsAll": outputs.get("tags") or {}}


def _outputs(outputs: Tree, secret: frozenset[str]) -> Properties:
    derived = {"tagsAll"} if "tags" in secret else set()
    return from_plain(outputs, secret | derived)


def _refreshed(entry: Entry, inputs: Tree, found: Tree) -> Tree:
    """Return the recorded inputs with the actual values; an equivalent value keeps its form."""
    refreshed = dict(inputs)
    for name in inputs:
        if name in found and not name.startswith("__"):
            ordered, document = name in entry.ordered, name in entry.documents
            actual = found[name] if schema.is_map(entry.token, name) else project(found[name], inputs[name])
            if not same(inputs[name], actual, ordered=ordered, document=document):
                refreshed[name] = actual
    # If the program gives no tags, a tag that another client added is also drift.
    if entry.tags and found.get("tags") and "tags" not in inputs:
        refreshed["tags"] = found["tags"]
    return refreshed


def _imported(entry: Entry, found: Tree) -> Tree:
    """Return the inputs that create the resource as it was found, without empty ones."""
    wanted = schema.input_names(entry.token) & entry.covered()
    inputs = {name: value for name, value in found.items() if name in wanted and value not in (None, "", [], {})}
    automatic = {name: value for name, value in entry.defaults.items() if name not in inputs}
    return {**automatic, **inputs, AUTOMATIC: sorted(automatic)}
