"""What the EC2 resource types share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from localcloud.standins.aws.entry import Call, absent_as_none, error_code, wait

BUSY = frozenset(
    "DependencyViolation InvalidParameterValue InvalidPlacementGroup.InUse ResourceInUse IncorrectState".split()
)
"""EC2's errors for a resource that something still uses."""


def tag_specification(call: Call, kind: str) -> list[dict[str, Any]]:
    """Return `TagSpecifications` for a new resource; empty if there are no tags."""
    return [{"ResourceType": kind, "Tags": call.tag_list()}] if call.tags else []


def update_tags(call: Call, resource_id: str | None = None) -> None:
    """Update the resource's tags from the old to the new."""
    changed, removed = call.tag_changes()
    resources = [resource_id or call.id]
    if removed:
        call.client("ec2").delete_tags(Resources=resources, Tags=[{"Key": key} for key in removed])
    if changed:
        tags = [{"Key": key, "Value": value} for key, value in changed.items()]
        call.client("ec2").create_tags(Resources=resources, Tags=tags)


def first(call: Call, operation: str, key: str, *codes: str, **arguments: Any) -> Any:
    """Return the first resource that a describe operation finds, or None."""
    found = absent_as_none(lambda: getattr(call.client("ec2"), operation)(**arguments), *codes)
    return found[key][0] if found and found[key] else None


def delete(call: Call, act: Callable[[], Any], what: str) -> None:
    """Delete a resource; wait while others depend on it, as network interfaces and endpoints disappear a little later.

    Raises:
        ClientError: AWS refused for another reason, or the dependency still existed at the deadline.
    """
    from botocore.exceptions import ClientError

    last: list[Exception] = []

    def done() -> bool:
        try:
            act()
        except ClientError as error:
            code = error_code(error)
            if "NotFound" in code:
                return True
            if code not in BUSY:
                raise
            last[:] = [error]
            return False
        return True

    try:
        wait(call, done, f"the deletion of {what}")
    except Exception as error:
        raise last[0] if last else error from error
