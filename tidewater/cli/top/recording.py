"""`top --record FILE`: what was seen, for a README or a report. The suffix of the file chooses the form.

    with recorder(Path("top.txt"), datetime.now(UTC)) as recording:
        recording.add(renderable, at, changed=True)

.txt     a frame whenever something has happened: a worker came or went, training recovered, the job changed
.cast    every frame, as `asciinema play` replays it (https://docs.asciinema.org/manual/asciicast/v2/)
.svg     the last frame, as a picture
"""

from __future__ import annotations

import io
import json
from datetime import datetime
from pathlib import Path
from typing import Self, TextIO

from rich.console import Console, RenderableType

from tidewater.cli.errors import UsageError
from tidewater.cli.top.view import Size

SIZE = Size(columns=110, lines=36)
"""Of every frame, whatever the terminal: a recording is read on another one."""

_CLEAR = "\x1b[2J\x1b[H"


class Recording:
    """A recording in a file, which is written frame by frame: what it has is whole, however `top` ends."""

    def __init__(self, out: TextIO, began: datetime) -> None:
        self._out, self._began = out, began

    def __enter__(self) -> Self:
        return self

    def add(self, frame: RenderableType, at: datetime, *, changed: bool) -> None:
        """Add what is on the screen; `changed`: whether something has happened but progress."""
        raise NotImplementedError

    def __exit__(self, *raised: object) -> None:
        """Close the file."""
        self._out.close()


class TextRecording(Recording):
    """Frames without colours, with the time of each. The last one is written too, at the end."""

    _unwritten = ""
    _empty = True

    def add(self, frame: RenderableType, at: datetime, *, changed: bool) -> None:
        """See ``Recording.add``."""
        seconds = (at - self._began).total_seconds()
        self._unwritten = f"--- {seconds:.0f} s\n{_rendered(frame, colours=False)}\n"
        if changed or self._empty:
            self._flush()

    def __exit__(self, *raised: object) -> None:
        """Write the last frame, and close the file."""
        self._flush()
        super().__exit__(*raised)

    def _flush(self) -> None:
        self._out.write(self._unwritten)
        self._out.flush()
        self._empty, self._unwritten = False, ""


class Asciicast(Recording):
    """Frames as the output of a terminal, each with its time."""

    def __init__(self, out: TextIO, began: datetime) -> None:
        super().__init__(out, began)
        header = {"version": 2, "width": SIZE.columns, "height": SIZE.lines, "timestamp": int(began.timestamp())}
        out.write(json.dumps({**header, "title": "tidewater top"}) + "\n")

    def add(self, frame: RenderableType, at: datetime, *, changed: bool) -> None:
        """See ``Recording.add``."""
        text = _CLEAR + _rendered(frame, colours=True).replace("\n", "\r\n")
        self._out.write(json.dumps([round((at - self._began).total_seconds(), 3), "o", text]) + "\n")
        self._out.flush()


class Picture(Recording):
    """The last frame. The file is written again with each frame."""

    def add(self, frame: RenderableType, at: datetime, *, changed: bool) -> None:
        """See ``Recording.add``."""
        console = Console(file=io.StringIO(), record=True, width=SIZE.columns, force_terminal=True)
        console.print(frame)
        self._out.seek(0)
        self._out.truncate()
        self._out.write(console.export_svg(title="tidewater top", unique_id="top"))
        self._out.flush()


_FORMS: dict[str, type[Recording]] = {".txt": TextRecording, ".cast": Asciicast, ".svg": Picture}


def recorder(file: Path, began: datetime) -> Recording:
    """Open a recording; a file of that name is replaced.

    Raises:
        UsageError: the suffix is unknown, or the file cannot be written.
    """
    form = _FORMS.get(file.suffix)
    if form is None:
        raise UsageError(f"--record {file}: the form follows the suffix, which is one of {', '.join(_FORMS)}")
    try:
        out = file.open("w", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--record {file}: {error.strerror}: name a file that can be written") from error
    return form(out, began)


def _rendered(frame: RenderableType, *, colours: bool) -> str:
    """Return a frame as text, without spaces at the ends of lines."""
    out = io.StringIO()
    console = Console(
        file=out,
        width=SIZE.columns,
        force_terminal=colours,
        no_color=not colours,
        color_system="256" if colours else None,
        legacy_windows=False,
    )
    console.print(frame)
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())
