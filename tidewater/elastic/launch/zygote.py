"""A process that has imported what others need, and forks them.

    serve(load)       # as a program: requests < stdin, reports > stdout; see `farm`

A process that is started as a program needs three seconds for the imports of torch; a forked one starts within a tenth
of a second. The zygote computes nothing and has one thread, so that its forks have no unfinished work. Requests and
reports are JSON, one object per line.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tidewater.elastic.launch.lifeline import bound_to

Request = Mapping[str, Any]
"""Its `id`, the file of its `log`, and what the forked process needs."""

Run = Callable[[Request], int]
"""Runs the process of a request, and returns its exit code."""


def serve(load: Callable[[], Run]) -> None:
    """Import by `load`, then fork a process per request until the input ends; report every start and end."""
    reports = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # output of imports must not mix with the reports
    run = load()
    threads = len(os.listdir("/proc/self/task"))
    if threads != 1:
        raise SystemExit(f"the zygote has {threads} threads and cannot be forked: something starts one on import")
    waker, wakened = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakened)
    bind = bound_to(os.getpid())
    print(json.dumps({"ready": os.getpid()}), file=reports)
    pending, children = b"", dict[int, str]()
    while True:
        readable, _, _ = select.select([0, waker], [], [])
        if waker in readable:
            os.read(waker, 4096)
            _reap(children, reports)
        if 0 in readable:
            data = os.read(0, 1 << 16)
            if not data:
                return
            *requests, pending = (pending + data).split(b"\n")
            for request in map(json.loads, requests):
                child = os.fork()
                if child == 0:
                    _become(request, run, bind, reports.fileno())
                children[child] = request["id"]
                print(json.dumps({"started": request["id"], "pid": child}), file=reports)


def _reap(children: dict[int, str], reports: Any) -> None:
    """Report ended processes by their requests' ids, because process ids are reused in a long run."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            print(json.dumps({"ended": children.pop(pid), "code": os.waitstatus_to_exitcode(status)}), file=reports)


def _become(request: Request, run: Run, bind: Callable[[], None], reports: int) -> None:
    """Run the process of the request; never return."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        bind()
        _redirect(Path(request["log"]))
        os.close(reports)
        code = run(request)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _redirect(log: Path) -> None:
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(file, 1)
    os.dup2(file, 2)
