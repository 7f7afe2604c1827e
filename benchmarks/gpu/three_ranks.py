"""Three ranks on one GPU: a worker is killed, frozen, and joins, with the state on the device and mixed precision.

    python -m benchmarks.gpu.three_ranks cuda bf16 reconfigured
    python -m benchmarks.gpu.three_ranks cpu off restarted --faults kill

A worker that is lost is started again, so each fault also shows a join.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.elastic.faults import FAULTS, Cycle, unit
from benchmarks.elastic.jobs import Job
from benchmarks.elastic.systems import ROOT, Site, System, etcd, trainer_node
from benchmarks.gpu.ledger import FOLDER, OLD_TORCH, TOTAL, read, verdict
from benchmarks.gpu.output import require, tell

RANKS = 3
ETCD = "BENCH_ETCD"
"""Environment variable with etcd's program."""
CHECKPOINT_STEPS = 50


def system(device: str, amp: str, kind: str, more: Callable[[Site], dict[str, str]] = lambda site: {}) -> System:
    """Return how the workers are started. ``more``: variables of their environment."""
    script = str(ROOT / "benchmarks" / "gpu" / "worker.py")

    def environment(site: Site, port: int, node: int) -> dict[str, str]:
        return {
            FOLDER: str(site.folder / "ledgers"),
            OLD_TORCH: "1" if kind == "restarted" else "",
            **({"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {}),
            **more(site),
        }

    return System("three ranks", trainer_node(script, "--amp", amp), etcd, environment)


def main(argv: Sequence[str]) -> int:
    """Run the check. Return an exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("device", choices=("cuda", "cpu"))
    parser.add_argument("amp", choices=("off", "bf16", "fp16"))
    parser.add_argument("kind", choices=("reconfigured", "restarted"))
    parser.add_argument("--faults", default="kill,stop,term", help="comma-separated, of: %(default)s")
    given = parser.parse_args(argv)
    who = f"three ranks by gloo, {given.kind}, --amp {given.amp}"
    with tempfile.TemporaryDirectory(prefix="three-ranks-") as temporary:
        folder = Path(temporary)
        (folder / "ledgers").mkdir()
        program = Path(os.environ[ETCD])
        site = Site(Path(sys.executable), program, Path(), ROOT, folder, nodes=RANKS, checkpoint_every=CHECKPOINT_STEPS)
        with Job(system(given.device, given.amp, given.kind), site) as job:
            job.start()
            job.steady(world=RANKS)
            for victim, name in enumerate(given.faults.split(",")):
                for measure, value in Cycle(job, FAULTS[name]).run(victim).items():
                    tell(measure, who, [value], unit(measure))
            job.park()
        found = verdict(read(folder / "ledgers"), TOTAL)
    tell("steps of which all workers' states were compared bit for bit", who, [found.compared], "steps")
    tell("samples lost", who, [found.lost], "samples")
    tell("samples used twice", who, [found.twice], "samples")
    for problem in found.problems:
        print(problem)
    require(not found.problems, "no sample is lost or used twice, and all workers have the same state")
    require(found.compared > 0, "the workers have reported steps in common")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
