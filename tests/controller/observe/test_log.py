"""The log: one line of key=value pairs per event."""

from __future__ import annotations

import io

from tidewater.controller.observe.log import Log


def written(level: str = "info") -> str:
    stream = io.StringIO()
    log = Log("controller-0", level=level, stream=stream, clock=lambda: 0.12)
    log.debug("seen", job="a/b")
    log.info("created", job="a/b", pods="x,y", seconds=0.25, why=None, ready=True)
    log.error("refused", reason='it says "no" = never')
    return stream.getvalue()


def test_a_line_holds_event_fields_level_controller_and_time() -> None:
    created, refused = written().splitlines()
    end = "controller=controller-0 time=1970-01-01T00:00:00.120Z"
    assert created == f"event=created job=a/b pods=x,y seconds=0.25 ready=true level=info {end}"
    assert refused == f'event=refused reason="it says \\"no\\" = never" level=error {end}'


def test_lines_below_the_level_are_left_out() -> None:
    assert len(written("debug").splitlines()) == 3
    assert len(written("error").splitlines()) == 1
