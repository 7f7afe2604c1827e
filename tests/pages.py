"""What people copy from the documentation, so that tests run exactly this.

blocks("docs/training/own-loop.md", "python")[0]
commands("docs/elasticjob.md", "A first job")     # [["kubectl create namespace …", "kubectl apply …"], …]
"""

from __future__ import annotations

import re

from tests.sources import ROOT

_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_END_OF_COMMAND = re.compile(r"(?<!\\)\n")


def blocks(page: str, language: str, section: str = "") -> list[str]:
    """Return the blocks of a language on a page, or in one of its sections, in their order."""
    text = (ROOT / page).read_text()
    if section:
        _, heading, after = text.partition(f"\n## {section}\n")
        assert heading, f"{page} has no section {section!r}"
        text = after.partition("\n## ")[0]
    return [code for name, code in _FENCED.findall(text) if name == language]


def commands(page: str, section: str) -> list[list[str]]:
    """Return the commands in each block of shell of a section. One may have several lines, and a comment at its end."""
    return [_END_OF_COMMAND.split(code.strip()) for code in blocks(page, "sh", section)]
