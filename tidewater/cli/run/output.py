"""The terminal of `tidewater run`: the lines of all workers, and keys.

    worker-0 | step=120 epoch=3 world_size=2 …
    -- worker-1 was killed; …

Lines of workers are on standard output, as `tidewater job logs` prints them; the command's own are on standard error.
If that is a terminal, it has a progress bar below the lines, which replaces the reports of steps.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.text import Text

from tidewater.cli.job.lines import BEGINNING, Line
from tidewater.cli.job.printer import Layout
from tidewater.cli.session import Terminal
from tidewater.elastic.observe.bar import bar_of
from tidewater.elastic.observe.log import parse

_KEYBOARD = 0


class Output:
    """Prints lines of workers and of the command. Colours are for terminals without NO_COLOR."""

    def __init__(self, workers: int) -> None:
        self._out = _console(stderr=False)
        self._err = _console(stderr=True)
        self._bar = bar_of(sys.stderr, os.environ)
        self.gone = False
        """Whether the reader of the output, or the terminal, has gone away: what follows is discarded."""
        width = len(worker_name(workers - 1))
        self._layout = Layout(job="", types=("worker",), width=width, colour=_coloured(self._out))

    def line(self, worker: str, text: str) -> None:
        """Print a line of a worker."""
        if self._bar and self._bar.shows(parse(text)) and self._out.file.isatty():
            return
        line = self._layout.line(Line(BEGINNING, worker, "", text)) + "\n"
        with self._above():
            self._try(self._out, lambda: self._out.file.write(line))

    def note(self, text: str) -> None:
        """Print lines of the command, after those of workers that came before them."""
        self.flush()
        lines = Text("\n".join(f"-- {line}" for line in text.splitlines()), style="dim")
        with self._above():
            self._try(self._err, lambda: self._err.print(lines))

    def flush(self) -> None:
        """Let the lines be seen."""
        self._try(self._out, self._out.file.flush)

    def close(self) -> None:
        """Leave the bar as it is."""
        if self._bar:
            self._bar.close()

    @contextmanager
    def _above(self) -> Iterator[None]:
        """Remove the bar while a line is written."""
        if not self._bar:
            yield
            return
        with self._bar.lifted():
            yield
            self.flush()

    def _try(self, console: Terminal, write: Callable[[], object]) -> None:
        try:
            write()
        except OSError:  # a closed pipe, or EIO after the end of a terminal
            self.gone = True
            os.dup2(os.open(os.devnull, os.O_WRONLY), console.file.fileno())


def worker_name(index: int) -> str:
    """Return the name of a worker; its replacements have the same."""
    return f"worker-{index}"


@contextmanager
def keyboard() -> Iterator[int | None]:
    """Yield a descriptor from which each key can be read at once; None if standard input is no terminal for us.

    Ctrl-C stays a signal. A command in the background must not change the terminal: the kernel would stop it.
    """
    if not _is_ours():
        yield None
        return
    import termios
    import tty

    before = termios.tcgetattr(_KEYBOARD)
    tty.setcbreak(_KEYBOARD)
    try:
        yield _KEYBOARD
    finally:
        termios.tcsetattr(_KEYBOARD, termios.TCSADRAIN, before)


def _is_ours() -> bool:
    """Return whether standard input is the terminal that controls this process, in the foreground."""
    try:
        return os.tcgetpgrp(_KEYBOARD) == os.getpgrp()
    except OSError:  # it is no terminal, or not ours
        return False


def _console(*, stderr: bool) -> Terminal:
    return Terminal(stderr=stderr, highlight=False, markup=False, emoji=False, soft_wrap=True)


def _coloured(console: Terminal) -> bool:
    return console.color_system is not None and not console.no_color
