"""Asks AWS by the plug-in's functions. Those for single things end with an error if there is none.

found = await or_none(ask("aws:ec2/getVpc:getVpc", {"id": "vpc-1"}, aws.ec2.GetVpcResult), ABSENT)
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

Ask = Callable[[str, Mapping[str, Any], type], Awaitable[Any]]
"""Calls a function of the plug-in, by its token, with arguments, and returns a result of the type."""


async def or_none(question: Awaitable[Any], absent: re.Pattern[str]) -> Any:
    """Return the answer; None if the error has the words of the plug-in and of the service for what doesn't exist."""
    try:
        return await question
    except Exception as error:  # the SDK has no other type for it
        if absent.search(str(error)):
            return None
        raise
