"""Programs in Python that are forked from a zygote instead of started: they needn't import torch.

    started = Forked(farm, "a", ["-m", "trainer.train", "--job", "x"], folder / "a.log")     # in the test
    started.signal(signal.SIGTERM); assert started.wait() == exit_codes.LEFT

    code = run(request)                                                                      # in the zygote

The zygote has the environment `ENVIRON`: a training without a hash seed would execute the zygote again. A worker of
several processes forks them, too, where it would start its own command line; `tests/elastic/launch` starts real ones.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import runpy
import signal
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.elastic.workers import PATIENCE_SECONDS, Worker
from tests.farm import Farm
from tidewater.contract import env as names
from tidewater.elastic.launch import units
from tidewater.elastic.launch.zygote import Request

ENVIRON = {**names.FIXED_HASHES, "PYTHONFAULTHANDLER": "1"}


class Forked(Worker):
    """A program that is forked; `words` is its command line without the interpreter, `netns` its network namespace."""

    def __init__(
        self,
        farm: Farm,
        name: str,
        words: Sequence[str],
        log: Path,
        environ: Mapping[str, str] | None = None,
        netns: str = "",
    ) -> None:
        super().__init__(name, log)
        self._farm, self._request = farm, str(log)
        request = {"id": self._request, "log": str(log), "words": list(words), "environ": dict(environ or {})}
        farm.fork({**request, "netns": netns})

    def poll(self) -> int | None:
        return self._farm.code(self._request)

    def signal(self, number: signal.Signals) -> None:
        self._farm.signal(self._request, number)

    def wait(self, seconds: float = PATIENCE_SECONDS) -> int:
        return self._farm.wait(self._request, seconds)


class Process:
    """A process of a forked launcher, as `subprocess.Popen` is one of a launcher that is a program."""

    def __init__(
        self,
        request: Request,
        _: Sequence[str],
        *,
        env: Mapping[str, str],
        process_group: int,
        preexec_fn: Callable[[], None],
    ) -> None:
        def live() -> None:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):  # the launcher's handlers
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.setpgid(0, process_group)
            preexec_fn()
            sys.exit(run({**request, "environ": env}))

        self._process = multiprocessing.get_context("fork").Process(target=live)
        self._process.start()
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        if self.pid and self.poll() is None:
            os.kill(self.pid, number)


def run(request: Request) -> int:
    """Run a script, a module (`-m`) or a text (`-c`) as Python does; return 0 unless it ends with another code."""
    os.environ.update(request["environ"])
    vars(units)["subprocess"] = types.SimpleNamespace(Popen=functools.partial(Process, request))
    kind, *rest = request["words"]
    if kind == "-c":
        text, *sys.argv[1:] = rest
        sys.argv[0] = kind
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(text, "<string>", "exec"), vars(main))
    elif kind == "-m":
        module, *sys.argv[1:] = rest
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        sys.argv[1:] = rest
        runpy.run_path(kind, run_name="__main__")
    return 0
