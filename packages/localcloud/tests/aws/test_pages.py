"""Long lists come in pages."""

from __future__ import annotations

import pytest
from localcloud.aws.pages import page


def test_a_page_ends_where_the_next_one_begins() -> None:
    first, token = page("abcde", None, 2)
    second, last = page("abcde", token, 3)
    assert (first, second, last) == ("ab", "cde", None)
    with pytest.raises(ValueError, match=r"."):
        page("abc", "?", 1)
