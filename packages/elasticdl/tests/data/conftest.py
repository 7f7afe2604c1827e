"""What is read of files, in bytes."""

from __future__ import annotations

import pytest

from tidewater.elastic.storage.local import LocalBlob


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of all parts that are read of local files, in order."""
    lengths: list[int] = []
    real = LocalBlob.read

    def counting(self: LocalBlob, offset: int, length: int) -> bytes:
        lengths.append(length)
        return real(self, offset, length)

    monkeypatch.setattr(LocalBlob, "read", counting)
    return lengths
