"""A worker knows whether it waits for the others, which name it otherwise when the job makes no step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.elastic.session.handover.test_handover import ALONE
from tidewater.elastic.observe.log import Log
from tidewater.elastic.session.session import Session


@pytest.mark.parametrize(("rank", "waits"), [(0, False), (1, True)], ids=["the one that writes", "another"])
def test_the_others_wait_for_the_one_that_writes_the_final_checkpoint(
    rank: int, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker: Any = SimpleNamespace(group=SimpleNamespace(rank=rank, waits=lambda: False), metrics=None)
    session = Session(SimpleNamespace(), worker, Log("a", listener=lambda event, fields: None))  # type: ignore[arg-type]
    seen: list[bool] = []
    monkeypatch.setattr(session, "confirm", lambda: None)
    monkeypatch.setattr(session, "_generation", ALONE)
    monkeypatch.setattr(session.ending, "finish", lambda generation, rank: seen.append(session.waits()))
    session.finish()
    assert seen == [waits]
