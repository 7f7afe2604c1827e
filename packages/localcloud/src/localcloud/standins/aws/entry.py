"""The description of a resource type (`Entry`), and the argument of its functions (`Call`).

Entry(
    token="aws:efs/mountTarget:MountTarget",
    covers=words("fileSystemId subnetId securityGroups"),
    replace_on=words("fileSystemId subnetId"),
    create=create, read=read, update=update, delete=delete,
)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from localcloud.standins.aws.clients import Clients
from localcloud.standins.serve import PluginError

Tree = dict[str, Any]
ALL: Final = frozenset({"*"})
"""For `Entry.replace_on`: every input but `tags` replaces."""


def words(text: str) -> frozenset[str]:
    """The words of a text, as a set."""
    return frozenset(text.split())


@dataclass
class Call:
    """One operation on one resource.

    Attributes:
        inputs: the checked inputs: the wanted ones, and for delete and read those of the last operation.
        olds: the inputs of the last operation, for update.
        state: the outputs of the last operation; empty for create and import.
        id: the resource's id; empty for create.
        changed: for update, the inputs that differ.
        deadline: the monotonic time at which the operation fails.
    """

    clients: Clients
    inputs: Tree
    olds: Tree = field(default_factory=dict)
    state: Tree = field(default_factory=dict)
    id: str = ""
    changed: frozenset[str] = frozenset()
    deadline: float = field(default_factory=lambda: time.monotonic() + 1200)

    @property
    def region(self) -> str:
        """The region of the resource itself, or the provider's."""
        return str(self.inputs.get("region") or self.state.get("region") or self.clients.settings.region)

    def client(self, service: str) -> Any:
        """The boto3 client of a service in the resource's region."""
        return self.clients.get(service, self.region)

    @property
    def tags(self) -> dict[str, str]:
        """The tags of the resource; check has added the default tags."""
        return dict(self.inputs.get("tags") or {})

    def arn(self, service: str, resource: str) -> str:
        """The ARN of a resource in this account and region."""
        return f"arn:aws:{service}:{self.region}:{self.clients.account()}:{resource}"

    def tag_list(self, key: str = "Key", value: str = "Value") -> list[dict[str, str]]:
        """Return the tags in the form of most services."""
        return [{key: name, value: text} for name, text in sorted(self.tags.items())]

    def tag_changes(self) -> tuple[dict[str, str], list[str]]:
        """Return the tags to set and the keys to remove in order to get from the old tags to the new."""
        old, new = dict(self.olds.get("tags") or {}), self.tags
        return {k: v for k, v in new.items() if old.get(k) != v}, sorted(set(old) - set(new))


@dataclass(frozen=True)
class Naming:
    """How a resource gets a name when the program gives none: `<prefix><name>-<7 hex digits>`.

    Attributes:
        property: the input that holds the name.
        longest: AWS's limit.
        prefix_property: the input that asks for a name of another form; then this naming isn't used.
        prefix: what the name must begin with.
        lower: whether the name must be in lower case, as for S3.
        suffix: whether digits are added; the key of an S3 object has none.
    """

    property: str = "name"
    longest: int = 255
    prefix_property: str = "namePrefix"
    prefix: str = ""
    lower: bool = False
    suffix: bool = True


Create = Callable[[Call], str]
Read = Callable[[Call], "Tree | None"]
Act = Callable[[Call], None]


@dataclass(frozen=True)
class Entry:
    """A resource type.

    Attributes:
        token: the type, as in `aws:ec2/vpc:Vpc`.
        create: creates it and returns its id; `ready` does the waiting.
        read: its outputs (with the SDK's names), or None if it doesn't exist.
        update: applies `call.changed`; None: every change replaces.
        delete: deletes it and waits until it is gone; an absent one is no error.
        ready: waits after create and update; a resource that fails here is in the state and can be repaired or deleted.
        covers: the inputs that are carried out.
        replace_on: the inputs that cannot be changed in place.
        computed: the inputs that AWS sets if the program doesn't: removing one from the program is no change.
        defaults: values of inputs that the program does not give.
        ordered: the lists in which the order matters.
        documents: the inputs that are JSON; equivalent documents are equal.
        naming: how it gets an automatic name; None: it gets none.
        one_of: groups of inputs; a program may give at most one input of each group.
        only: the inputs that are carried out with this one value alone.
        recomputed: the outputs that every update may change.
        secrets: the outputs that are secret.
        delete_first: whether the old resource must be deleted before its replacement is created.
        tags: whether the type has tags.
    """

    token: str
    create: Create
    read: Read
    delete: Act
    update: Act | None = None
    ready: Act | None = None
    covers: frozenset[str] = frozenset()
    replace_on: frozenset[str] = frozenset()
    computed: frozenset[str] = frozenset()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    ordered: frozenset[str] = frozenset()
    documents: frozenset[str] = frozenset()
    naming: Naming | None = None
    one_of: tuple[frozenset[str], ...] = ()
    only: Mapping[str, Any] = field(default_factory=dict)
    recomputed: frozenset[str] = frozenset()
    secrets: frozenset[str] = frozenset()
    delete_first: bool = False
    tags: bool = True

    def covered(self) -> frozenset[str]:
        """All inputs that are carried out."""
        return self.covers | {"region"} | ({"tags"} if self.tags else frozenset())

    def replaces(self, name: str) -> bool:
        """Whether a change of the input replaces the resource."""
        return name in self.replace_on or name == "region" or (self.replace_on == ALL and name != "tags")


def wait(call: Call, done: Callable[[], bool], what: str) -> None:
    """Poll until `done()`; the pause grows to a second.

    Raises:
        PluginError: the deadline passed; the message contains `what`.
    """
    pause = 0.2
    while not done():
        if time.monotonic() >= call.deadline:
            raise PluginError(f"timed out waiting for {what}")
        time.sleep(pause)
        pause = min(pause * 1.3, 1.0)


def error_code(error: Exception) -> str:
    """The AWS error code of a botocore ClientError, or an empty string."""
    response = getattr(error, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))


def missing(error: Exception, *codes: str) -> bool:
    """Return whether the error says that the resource doesn't exist."""
    code = error_code(error)
    return code in codes or "NotFound" in code or code.startswith("NoSuch") or code == "404"


def absent_as_none(fetch: Callable[[], Any], *codes: str) -> Any:
    """Return `fetch()`, or None if AWS answers that the resource doesn't exist."""
    from botocore.exceptions import ClientError

    try:
        return fetch()
    except ClientError as error:
        if missing(error, *codes):
            return None
        raise


def ignore_absent(act: Callable[[], Any], *codes: str) -> None:
    """Run a deletion; a resource that doesn't exist is no error."""
    absent_as_none(act, *codes)


def retry(call: Call, act: Callable[[], Any], *codes: str, seconds: float = 120.0) -> Any:
    """Repeat `act` while AWS answers with one of `codes`: AWS is eventually consistent."""
    from botocore.exceptions import ClientError

    deadline, pause = min(call.deadline, time.monotonic() + seconds), 0.2
    while True:
        try:
            return act()
        except ClientError as error:
            if error_code(error) not in codes or time.monotonic() >= deadline:
                raise
        time.sleep(pause)
        pause = min(pause * 1.5, 3.0)


def tag_map(tags: list[dict[str, str]] | None, key: str = "Key", value: str = "Value") -> dict[str, str]:
    """Return AWS's list of tags as a map, without the reserved `aws:` tags."""
    return own_tags({tag[key]: tag[value] for tag in tags or []})


def own_tags(tags: Mapping[str, str] | None) -> dict[str, str]:
    """Return a map of tags without the reserved `aws:` tags."""
    return {key: value for key, value in (tags or {}).items() if not key.startswith("aws:")}
