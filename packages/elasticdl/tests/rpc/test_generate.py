"""The checked-in protocol code is that of the definition."""

from __future__ import annotations

from elasticdl.rpc import generate


def test_the_code_in_the_repository_is_made_of_the_definition() -> None:
    for name, text in generate.generated().items():
        assert (generate.HERE / name).read_text() == text, f"run python -m elasticdl.rpc.generate: {name} is old"
