"""Two workers on one GPU, by gloo: what a worker does when its device fails, and how a newcomer gets a large state.

python -m benchmarks.gpu.workers fails cuda
python -m benchmarks.gpu.workers state cuda
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.elastic.jobs import Job
from benchmarks.elastic.systems import ROOT, Site
from benchmarks.elastic.timeline import first_step
from benchmarks.gpu.ledger import FAIL, STATE_MIB
from benchmarks.gpu.output import require, tell
from benchmarks.gpu.three_ranks import ETCD, system
from tidewater.contract import exit_codes

STATES_MIB = {"cuda": 4096, "cpu": 128}
END_SECONDS = 2.0
"""Limit from the failure to the end of the process."""
PATIENCE_SECONDS = 30.0
MIB = 1 << 20
WHO = "gloo, two workers"
SYNCED = re.compile(r"event=state_synced .*seconds=([\d.]+)")


@contextmanager
def job(device: str, nodes: int, **environment: str) -> Iterator[Job]:
    """Run a job of two nodes, and start the first ``nodes``."""
    with tempfile.TemporaryDirectory(prefix="workers-") as temporary:
        folder = Path(temporary)
        (folder / "ledgers").mkdir()
        program = Path(os.environ[ETCD])
        site = Site(Path(sys.executable), program, Path(), ROOT, folder, nodes=2, checkpoint_every=10**9)
        more = {FAIL: str(folder / "fail"), **environment}
        with Job(system(device, "off", "", lambda _: more), site) as running:
            running.start(nodes)
            yield running


def fails(device: str) -> None:
    """Let a kernel of one worker fail its assertion: its process ends, and the other one trains on."""
    with job(device, 2) as running:
        running.steady(world=2)
        order = running.site.folder / "fail"
        order.with_suffix(".draft").write_text("1")
        begin = time.monotonic()
        order.with_suffix(".draft").rename(order)
        failed = running.nodes.pop(1)
        code = failed.wait(PATIENCE_SECONDS)
        spent = time.monotonic() - begin
        tell("an assertion on the device fails: until the process has ended", WHO, [spent], "s")
        require(code == exit_codes.DEVICE_FAILED, f"its exit code is 200 (it is {code}):\n{failed.last_lines()}")
        require(spent < END_SECONDS, f"it ends within {END_SECONDS:g} s")
        alone = running.wait(
            lambda lines: first_step(lines, nodes={0}, world=1, after=begin),
            PATIENCE_SECONDS,
            "a step of the other worker alone",
        )
        tell("the same: until the other worker's next step", WHO, [alone.at - begin], "s")


def state(device: str) -> None:
    """Let a worker join, and so get the state."""
    mib = STATES_MIB[device]
    with job(device, 1, **{STATE_MIB: str(mib)}) as running:
        running.steady(world=1)
        running.start_node(1)
        running.steady(world=2)
        log, pid = running.nodes[1].log.read_text(errors="replace"), running.nodes[1].tree()[0]
        found = SYNCED.search(log)
        require(found is not None, "the newcomer says how long it took to get the state")
        seconds = float(found.group(1)) if found else 0.0
        status = Path(f"/proc/{pid}/status").read_text()
        peak = int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 1024
    tell(f"a state of {mib} MiB for a newcomer", WHO, [seconds], "s")
    tell("the same: rate", WHO, [mib * MIB / seconds / 1e9], "GB/s")
    tell("the same: most host memory of the newcomer", WHO, [peak], "MiB")


CHECKS: dict[str, Callable[[str], None]] = {"fails": fails, "state": state}


if __name__ == "__main__":
    CHECKS[sys.argv[1]](sys.argv[2])
