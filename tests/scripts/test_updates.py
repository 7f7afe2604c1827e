"""`make up` and `make down` show their progress and pass on all other output."""

from __future__ import annotations

import pytest

from scripts.updates import Tally

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
