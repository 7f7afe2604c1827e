"""Every check of the trainer that one GPU allows, in at most ten minutes.

    make gpu                                             # or: python -m benchmarks.gpu
    python -m benchmarks.gpu --device cpu --checks ...   # the same code with tiny sizes, where there is no GPU

Needs Python 3.11 or later with torch (for CUDA), torchvision and numpy, and the program etcd (3.4 or later) in PATH or
by --etcd; nothing else has to be installed. Every check runs in a process of its own with a limit of time. If one fails
the others are still tried, and the exit code is 1. Without a GPU nothing is checked or stored, and the exit code is 0.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.gpu import device
from benchmarks.gpu.output import NOT_CHECKED
from benchmarks.gpu.output import rows as found_in
from benchmarks.gpu.three_ranks import ETCD
from benchmarks.harness.records import OUT, RESULTS, ROOT, Found, Records, processor, rows, table
from scripts import toolchain
from scripts.toolchain.errors import SetupError
from tests.processes import Process

PASSED = "passed"
"""Unit of the record that says whether a check has passed: 1 or 0."""


@dataclass(frozen=True)
class Check:
    """One process: the module and its arguments, in which DEVICE stands for the device."""

    name: str
    arguments: tuple[str, ...]
    limit_seconds: float
    needs_etcd: bool = True


DEVICE = "DEVICE"
CHECKS = (
    Check("one-rank", ("one_rank", DEVICE, "reconfigured"), 30, needs_etcd=False),
    Check("one-rank-restarted", ("one_rank", DEVICE, "restarted"), 30, needs_etcd=False),
    Check("ghost", ("regroup", "ghost", DEVICE), 25, needs_etcd=False),
    Check("behind", ("regroup", "behind", DEVICE), 25, needs_etcd=False),
    Check("own-time-out", ("regroup", "own", DEVICE), 25, needs_etcd=False),
    Check("often", ("regroup", "often", DEVICE), 45, needs_etcd=False),
    Check("full", ("regroup", "full", DEVICE), 15, needs_etcd=False),
    Check("three-ranks", ("three_ranks", DEVICE, "off", "reconfigured"), 50),
    Check("three-ranks-bf16", ("three_ranks", DEVICE, "bf16", "restarted", "--faults", "kill,stop"), 40),
    Check("three-ranks-fp16", ("three_ranks", DEVICE, "fp16", "reconfigured", "--faults", "kill,term"), 40),
    Check("fails", ("workers", "fails", DEVICE), 30),
    Check("state", ("workers", "state", DEVICE), 40),
    Check("resnet", ("resnet", "ratio", DEVICE), 65),
    Check("memory", ("resnet", "memory", DEVICE), 40),
    Check("micro-batches", ("resnet", "micro", DEVICE), 40),
    Check("launches", ("cost", "launches", DEVICE), 30),
    Check("waits", ("cost", "waits", DEVICE), 25),
)
"""Together at most ten minutes."""


def etcd() -> Path | None:
    """Return etcd's program, from PATH or from what `make install` has built."""
    found = shutil.which("etcd")
    if found:
        return Path(found)
    try:
        return toolchain.binary("etcd")
    except SetupError:
        return None


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="(default %(default)s)")
    parser.add_argument(
        "--checks", default=",".join(check.name for check in CHECKS), help="comma-separated (default: %(default)s)"
    )
    parser.add_argument("--etcd", type=Path, default=None, help="etcd's program (default: from PATH)")
    parser.add_argument("--out", type=Path, default=None, help="file for the rows (default: benchmarks/results/gpu-…)")
    given = parser.parse_args(argv)
    names = given.checks.split(",")
    if wrong := set(names) - {check.name for check in CHECKS}:
        parser.error(f"--checks {', '.join(sorted(wrong))}: choose among {', '.join(check.name for check in CHECKS)}")
    given.checks = [check for check in CHECKS if check.name in names]
    return given


def look(kind: str) -> tuple[int, str]:
    """Return exit code and output of the look at the device."""
    command = [sys.executable, "-m", "benchmarks.gpu.device", kind]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    return done.returncode, done.stdout.strip()


def passes(check: Check, kind: str, program: Path | None, records: Records, folder: Path) -> bool:
    """Run a check, record its rows, and print what it said if it did not pass. Return whether it did not fail."""
    begin = time.monotonic()
    print(f"{check.name}: begins, at most {check.limit_seconds:.0f} s", flush=True)
    code: int | str | None
    if check.needs_etcd and program is None:
        code, said = "not run", "it needs etcd: name its program by --etcd, or put it into PATH\n"
    else:
        arguments = [kind if argument == DEVICE else argument for argument in check.arguments[1:]]
        argv = [sys.executable, "-m", f"benchmarks.gpu.{check.arguments[0]}", *arguments]
        environment = {"PYTHONPATH": str(ROOT), ETCD: str(program), "PYTHONUNBUFFERED": "1"}
        process = Process(check.name, argv, environment, folder)
        try:
            code = process.wait(check.limit_seconds)
        finally:
            process.end()
        said = process.log.read_text(errors="replace")
        if code is None:
            code = "not over within its limit"
    for found in found_in(said):
        records.add(found)
    took = f"{time.monotonic() - begin:.0f} s"
    if code == NOT_CHECKED:
        print(f"{said}{check.name}: not checked, {took}", flush=True)
        return True
    records.add(Found(f"check {check.name}", "trainer", (float(code == 0),), PASSED))
    print(f"{check.name}: passed, {took}" if code == 0 else f"{said}{check.name}: FAILED ({code}), {took}", flush=True)
    return code == 0


def main(argv: Sequence[str]) -> int:
    """Run the checks. Return 0 if all passed or there is no GPU, 1 if one failed, 2 if Python can't use the GPU."""
    given = parse(argv)
    code, said = look(given.device)
    if code == device.MISSING:
        print(f"No GPU here ({said}): nothing was checked.")
        return 0
    if code:
        print(f"This machine has a GPU, but this Python can't use it ({said}). Name another one: make gpu PYTHON=…")
        return 2
    seen = json.loads(said)
    at = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    default = RESULTS / f"gpu-{at}.jsonl" if given.device == "cuda" else OUT / f"gpu-cpu-{at}.jsonl"
    records = Records(given.out or default, seen["versions"], {**seen["device"], **processor()})
    print(f"{', '.join(seen['device'].values())}; {seen['versions']}", flush=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory(prefix="gpu-") as folder:
        program = given.etcd.resolve() if given.etcd else etcd()
        failed = [
            check.name for check in given.checks if not passes(check, given.device, program, records, Path(folder))
        ]
    print(table(rows(records.all)))
    print(f"stored in {records.file}")
    print(f"failed: {', '.join(failed)}" if failed else "no check has failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
