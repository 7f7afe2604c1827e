"""Docs, docstrings and comments keep to words that a reader understands at once.

Readers stumbled over each word of `REMEDIES`. Code in backticks and in fences is not checked:
`nobody` is a user of Linux.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

REMEDIES = {
    "whose": "with …, or a sentence of its own: 'a pod that has no node'",
    "of which": "a sentence of its own, or 'with …'",
    "by which": "with which, or say it the other way round",
    "whoever": "say who: 'anyone who', 'a client that'",
    "nobody": "say who: 'no worker', 'no client'",
    "somebody": "say who: 'another client', 'a user'",
    "mend": "fix, repair",
    "mends": "fixes, repairs",
    "mended": "fixed, repaired",
    "told": "reported, asked, configured; as a noun: an event, a message",
    "beside": "in addition to, also; where it is about place: next to",
}
WORDS = re.compile(rf"\b({'|'.join(REMEDIES)})\b".replace(" ", r"[\s#]+"), re.IGNORECASE)
CODE = re.compile(r"```.*?```|``[^`]+``|`[^`]+`|\]\([^)]*\)|https?://\S+", re.DOTALL)
RELEASED = re.compile(r"^## (?!Unreleased).*", re.MULTILINE | re.DOTALL)


def tracked(pattern: str) -> list[Path]:
    """Return the files of this repository that match the pattern, and what is new and not ignored."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", pattern]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / line for line in listed.splitlines() if (ROOT / line).exists()]


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each string that is a statement: docstrings, also those of constants and fields."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield the first line and text of each comment; comments on lines that follow each other are one text."""
    block: list[str] = []
    last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if block and token.start[0] != last + 1:
            yield last - len(block) + 1, "\n".join(block)
            block = []
        block.append(token.string)
        last = token.start[0]
    if block:
        yield last - len(block) + 1, "\n".join(block)


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each piece of prose in a file."""
    text = path.read_text()
    if path.suffix == ".md":
        yield 1, RELEASED.sub("", text) if path.name == "CHANGELOG.md" else text
    else:
        yield from docstrings(text)
        yield from comments(text)


def findings(path: Path) -> list[str]:
    """Return a message for each of the words in a file's prose."""
    if not WORDS.search(path.read_text()):  # parsing takes much longer
        return []
    found = []
    for first, text in prose(path):
        plain = CODE.sub(lambda code: re.sub(r"[^\n]", "_", code[0]), text)
        for match in WORDS.finditer(plain):
            line = first + plain.count("\n", 0, match.start())
            word = " ".join(re.findall(r"\w+", match[0].lower()))
            found.append((line, f"{path.relative_to(ROOT)}:{line}: '{word}': write {REMEDIES[word]}"))
    return [message for _, message in sorted(found)]


def test_the_documentation_has_no_word_that_readers_stumble_over() -> None:
    files = [*tracked("*.md"), *tracked("*.py")]
    assert [message for path in files for message in findings(path)] == []


@pytest.mark.parametrize("word", REMEDIES)
def test_a_word_is_found_in_docstrings_comments_and_documents(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.docs.test_language.ROOT", tmp_path)
    broken = word.replace(" ", "\n# ")
    module, page = tmp_path / "module.py", tmp_path / "page.md"
    module.write_text(f'"""A module,\n\n{word.title()}."""\n\nSIZE = 1\n"""{word}"""\n# A comment {broken} it.\n')
    page.write_text(f"# A page\n\nA text {word} it.\n")
    found = [message.split(" ")[0] for message in findings(module) + findings(page)]
    assert found == ["module.py:3:", "module.py:6:", "module.py:7:", "page.md:3:"]


def test_code_and_released_sections_of_the_changelog_are_not_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.docs.test_language.ROOT", tmp_path)
    module, page = tmp_path / "module.py", tmp_path / "CHANGELOG.md"
    module.write_text('"""Run as `nobody`."""\n\nUSER = "nobody"\n')
    page.write_text("# Changelog\n\n## Unreleased\n\n```\nnobody\n```\n\n## 0.1.0\n\nNobody.\n")
    assert findings(module) + findings(page) == []
