"""Memory is what the kernel says, of all processes that still run."""

from __future__ import annotations

import os

import pytest

from benchmarks.controller.usage import Memory, memory, parse

ROLLUP = """\
55d0c0a00000-7ffd1b5fe000 ---p 00000000 00:00 0                          [rollup]
Rss:              126976 kB
Pss:              120832 kB
Pss_Dirty:         90000 kB
Pss_Anon:          90000 kB
Shared_Clean:       6144 kB
"""


def test_resident_and_proportional_memory_are_read() -> None:
    assert parse(ROLLUP) == Memory(rss_mib=124.0, pss_mib=118.0)


def test_a_text_without_a_field_is_an_error_that_names_it() -> None:
    with pytest.raises(ValueError, match="without Pss"):
        parse("Rss: 1 kB\n")


def test_ended_processes_are_left_out() -> None:
    own = memory([os.getpid(), 2**22])
    assert 0 < own.pss_mib <= own.rss_mib
    assert memory([]) == Memory(0, 0)
