"""A process that has imported torch and the trainer, and forks workers.

    python -m tests.trainer.schedules.zygote < requests > reports       # see ``farm``

A worker that is started as a program needs three seconds for imports; a forked one starts within a tenth of a second.
A hundred schedules are feasible only this way. The zygote computes nothing and has one thread, so that its forks have
no unfinished work. It reads requests and writes reports, one JSON object per line. A request with options is for
``script``; one without is for the script that comes with the stack, ``examples.images.train``.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import pkgutil
import select
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainer.launch.lifeline import bound_to

_CLONE_NEWNET = 0x40000000


def main() -> None:
    """Fork a worker per request until the input ends; report every start and end."""
    reports = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # output of imports must not mix with the reports
    _import_everything()
    threads = len(os.listdir("/proc/self/task"))
    if threads != 1:
        raise SystemExit(f"the zygote has {threads} threads and cannot be forked: something starts one on import")
    waker, wakened = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakened)
    bind = bound_to(os.getpid())
    print(json.dumps({"ready": os.getpid()}), file=reports)
    pending = b""
    workers: dict[int, str] = {}
    while True:
        readable, _, _ = select.select([0, waker], [], [])
        if waker in readable:
            os.read(waker, 4096)
            _reap(workers, reports)
        if 0 in readable:
            data = os.read(0, 1 << 16)
            if not data:
                return
            *requests, pending = (pending + data).split(b"\n")
            for request in map(json.loads, requests):
                child = os.fork()
                if child == 0:
                    _become(request, bind, reports.fileno())
                workers[child] = request["id"]
                print(json.dumps({"started": request["id"], "pid": child}), file=reports)


def _import_everything() -> None:
    import torch._dynamo

    import examples.images
    import tests.trainer.schedules.script
    import trainer

    for package in (trainer, examples.images):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                with contextlib.suppress(ImportError):  # modules with dependencies that workers lack, such as the chart
                    importlib.import_module(module.name)
    assert torch._dynamo  # the optimizer would otherwise import it at its first step
    assert tests.trainer.schedules.script


def _reap(workers: dict[int, str], reports: Any) -> None:
    """Report ended workers by their requests' ids, because process ids are reused in a long run."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            print(json.dumps({"ended": workers.pop(pid), "code": os.waitstatus_to_exitcode(status)}), file=reports)


def _become(request: Mapping[str, Any], bind: Callable[[], None], *unwanted: int) -> None:
    """Run the worker of the request; never return."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        libc = ctypes.CDLL(None, use_errno=True)
        bind()
        _redirect(Path(request["log"]))
        for file in unwanted:
            os.close(file)
        if request["netns"]:
            _enter_network(libc, request["netns"])
        code = _train(request) if "options" in request else _train_images(request["argv"])
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _train(request: Mapping[str, Any]) -> int:
    from tests.trainer.schedules.script import Options, main

    options = dict(request["options"])
    options["folder"], options["ledgers"] = Path(options["folder"]), Path(options["ledgers"])
    return main(Options(**options), list(request["argv"]))


def _train_images(argv: Sequence[str]) -> int:
    import trainer
    from examples.images.train import flags, training

    return trainer.run(training, argv, flags=flags)


def _redirect(log: Path) -> None:
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(file, 1)
    os.dup2(file, 2)


def _enter_network(libc: ctypes.CDLL, name: str) -> None:
    namespace = os.open(f"/run/netns/{name}", os.O_RDONLY)
    if libc.setns(namespace, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {name}")
    os.close(namespace)


if __name__ == "__main__":
    main()
