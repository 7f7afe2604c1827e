"""What the model says of a field: the text that `kubectl explain` shows, and the values that are accepted.

    backoff_limit: Annotated[int, About("Failures after which the job fails.", minimum=0)] = 20

A field's type, its default and whether it is required come from the dataclass itself. One table, `About`, serves the
schema that the API server holds people to and the reader that the controller uses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class About:
    """Description and bounds of a field; None and empty mean: no bound.

    Args:
        text: What the field is for, in sentences.
        minimum: Smallest accepted number, of a list the smallest accepted element.
        maximum: Largest accepted number, of a list the largest accepted element.
        pattern: Regular expression (RE2) of an accepted string, of a map the expression of its keys.
        min_length: Fewest characters of a string.
        max_length: Most characters of a string; of a map those of its keys.
        most: Most elements of a list or a map. CEL rules over them need it, or the API server refuses their cost.
        list_type: `set` or `map` (with `list_key`): how server-side apply merges the list. Elements are distinct.
        list_key: Field that identifies an element of a list of type `map`.
        schema: Returns the whole schema of a field whose type says nothing, in place of the derived one.
    """

    text: str
    minimum: int | None = None
    maximum: int | None = None
    pattern: str = ""
    min_length: int | None = None
    max_length: int | None = None
    most: int | None = None
    list_type: str = ""
    list_key: str = ""
    schema: Callable[[], Mapping[str, object]] | None = field(default=None, repr=False)
