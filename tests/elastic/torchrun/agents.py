"""Real ``torchrun`` agents with the plug-in installed from a wheel, and the script that they run."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.elastic.workers import PATIENCE_SECONDS
from tidewater.elastic.observe.log import parse

SCRIPT = """
import datetime, os, sys, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(int(sys.argv[1])):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    print(f"step={step} rank={dist.get_rank()} world_size={dist.get_world_size()} pid={os.getpid()}", flush=True)
    time.sleep(0.05)
dist.destroy_process_group()
"""


class Agent:
    """One agent with one worker in one process group, so that both can be killed at once like a host."""

    def __init__(self, name: str, arguments: list[str], site: Path, folder: Path) -> None:
        self.name = name
        self._path = folder / f"{name}-{time.monotonic_ns()}.log"
        with self._path.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=1", *arguments],
                cwd=folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
                start_new_session=True,
            )

    def text(self) -> str:
        return self._path.read_text()

    def last_step(self) -> dict[str, str]:
        """Return the last step in the log; {} before the first. It is asked for twenty times a second."""
        lines = reversed(self.text().splitlines())
        return next((fields for line in lines if "world_size" in (fields := parse(line))), {})

    def wait_for(self, condition: Callable[[Agent], object], seconds: float = PATIENCE_SECONDS) -> float:
        """Wait until the log satisfies ``condition``; return the waiting time in seconds."""
        began = time.monotonic()
        while not condition(self):
            if time.monotonic() - began > seconds or self.process.poll() is not None:
                raise AssertionError(f"{self.name}, exit code {self.process.poll()}, logged:\n{self.text()[-6000:]}")
            time.sleep(0.05)
        return time.monotonic() - began

    def wait_for_world(self, size: int, seconds: float = PATIENCE_SECONDS) -> float:
        """Wait until ``size`` workers made the last step; return the waiting time in seconds."""
        return self.wait_for(lambda agent: agent.last_step().get("world_size") == str(size), seconds)

    def power_off(self) -> None:
        """Send SIGKILL to the agent and its worker at once, as in a power failure of the host."""
        for pid in (self.process.pid, int(self.last_step()["pid"])):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
