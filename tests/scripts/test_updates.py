"""`make up` and `make down` show their progress and pass on all other output."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.updates import Tally
from tests.processes import eventually

PROGRESS = """\
 +  pulumi:pulumi:Stack tidewater-local creating (0s)
 +  tidewater:infra:Network tidewater creating (0s)
 +  aws:ec2:Vpc tidewater-vpc creating (0s)
 +  aws:ec2:Vpc tidewater-vpc created (0.94s)
 +  aws:eks:Cluster tidewater-eksCluster creating (0s)
 ++ aws:ec2:Subnet s creating replacement (0s) [diff: ~cidrBlock]
 ++ aws:ec2:Subnet s created replacement (0.03s) [diff: ~cidrBlock]
 +- aws:ec2:Subnet s replacing (0s) [diff: ~cidrBlock]
 +- aws:ec2:Subnet s replaced (0.00s) [diff: ~cidrBlock]
 -- aws:ec2:Subnet s deleting original (0s) [diff: ~cidrBlock]
 -- aws:ec2:Subnet s deleted original (0.02s) [diff: ~cidrBlock]
 ~  aws:ec2:Eip nat updating (0s) [diff: ~tags]
 +  kubernetes:core/v1:PersistentVolumeClaim data creating (0s) PersistentVolumeClaim "data" is not ready
 +  kubernetes:core/v1:PersistentVolumeClaim data created (0.31s) PersistentVolumeClaim "data" is not ready
 +  kubernetes:batch/v1:Job dataset creating (0s) warning: [Pod training/dataset]: containers with unready status
    pulumi:pulumi:Stack tidewater-local running
    pulumi:pulumi:Stack tidewater-local  warning: repeated under Diagnostics
    pulumi:pulumi:Stack tidewater-local
"""
SHOWN = [
    "Updating (local):",
    " +  aws:eks:NodeGroup workers created (41s)",
    " +  aws:ec2:Subnet t creating (0s) error: ClientError: conflicts with another subnet",
    " +  aws:ec2:Subnet t **creating failed** error: ClientError: conflicts with another subnet",
    "    pulumi:pulumi:Stack tidewater-local running error: update failed",
    "    warning: careful",
    "    pulumi:pulumi:Stack tidewater-local **failed** 1 error",
    "    + 4 created",
    "Resources:",
    "Duration: 8s",
    '    bucket    : "tidewater-0a1b2c3"',
]


def tally_of(text: str) -> Tally:
    tally = Tally()
    for line in text.splitlines():
        assert tally.take(line, now=10.0) is None, line
    return tally


def test_finished_resources_are_counted_and_resources_in_progress_are_named() -> None:
    assert tally_of(PROGRESS).summary(now=15.0) == (
        "  3 created, 1 replaced, 1 deleted; "
        "in progress: Cluster tidewater-eksCluster (5 s), Eip nat (5 s), Job dataset (5 s)"
    )


def test_of_many_resources_in_progress_the_slowest_are_named() -> None:
    tally = Tally()
    for number in range(5):
        tally.take(f" -  aws:efs:MountTarget t{number} deleting (0s)", now=float(number))
    assert tally.summary(now=10.0) == (
        "  nothing changed yet; in progress: MountTarget t0 (10 s), MountTarget t1 (9 s), MountTarget t2 (8 s), 2 more"
    )


@pytest.mark.parametrize("line", SHOWN)
def test_errors_outputs_the_summary_and_slow_resources_are_shown(line: str) -> None:
    assert Tally().take(line, now=0.0) == line


def test_a_slow_resource_is_shown_without_the_resources_it_waited_for() -> None:
    line = " +  kubernetes:batch/v1:Job dataset created (19s) Waiting for Job to succeed"
    assert Tally().take(line, now=0.0) == " +  kubernetes:batch/v1:Job dataset created (19s)"


def test_a_resource_that_failed_is_no_longer_in_progress() -> None:
    tally = tally_of(" +  aws:ec2:Subnet t creating (0s)")
    tally.take(" +  aws:ec2:Subnet t **creating failed** error: conflict", now=11.0)
    assert tally.summary(now=12.0) == "  nothing changed yet"


ROOT = Path(__file__).resolve().parents[2]
PULUMI = """#!/usr/bin/env python3
import signal, sys, time
def save(*_):
    open("interrupted", "a").write("once more")
    time.sleep(0.5)
    open("saved", "w").close()
    sys.exit(1)
signal.signal(signal.SIGINT, save)
open("ready", "w").close()
time.sleep(60)
"""
CALLER = """
import os, signal, sys
from types import SimpleNamespace
from scripts import updates
from scripts.session import exit_status
signal.signal(signal.SIGINT, signal.default_int_handler)
terminal = bool(os.environ["TERMINAL"])
updates.sys = SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: terminal))
updates.paths = SimpleNamespace(CHECKOUT=os.environ["FOLDER"])
session = SimpleNamespace(environ=dict(os.environ))
sys.exit(exit_status("down", lambda: updates.run(session, "destroy", remedy="")))
"""


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("terminal", ["", "1"], ids=["no terminal", "a terminal"])
def test_after_ctrl_c_pulumi_may_finish_and_save_its_state(terminal: str, times: int, tmp_path: Path) -> None:
    (tmp_path / "pulumi").write_text(PULUMI)
    (tmp_path / "pulumi").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path, "FOLDER": str(tmp_path), "TERMINAL": terminal}
    process = subprocess.Popen(
        [sys.executable, "-c", CALLER], stderr=subprocess.PIPE, env=environ, cwd=ROOT, start_new_session=True, text=True
    )
    for file in ["ready", "interrupted"][:times]:
        eventually((tmp_path / file).exists)
        os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=120)  # without the signal, pulumi ends after 60 s and has saved nothing
    assert (tmp_path / "saved").exists()
    assert (process.returncode, said) == (130, "interrupted; `make down` goes on where it stopped\n")
