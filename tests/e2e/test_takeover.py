"""A stack made before there were ElasticJobs is taken over by `pulumi up`, and its training continues.

The old program comes from the repository's history. In a shallow clone, which lacks it, the test is skipped.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.checkout import ROOT, Checkout, wait_until
from tests.e2e.elasticjob import Job
from tests.e2e.training import latest_step, running_workers, steps, wait_for_world

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

BEFORE = "46358efa07dea614d3e31a90ea4b80309a6539a7"
"""The last commit whose stack trains in an Indexed Job with a scaler."""

CHECKPOINT_EVERY = 20
ARGUMENTS = f"--epochs 1500 --min-step-seconds 0.1 --report-every 1 --checkpoint-every {CHECKPOINT_EVERY}"
KEPT = (".localcloud",)
"""What a pull of newer sources leaves as it is."""


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Checkout]:
    """Yield a checkout of the old program; stop its cloud at the end."""
    path = tmp_path / "tidewater"
    path.mkdir()
    archive = subprocess.run(["git", "archive", BEFORE], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode != 0:
        pytest.skip(f"the history of this clone lacks {BEFORE}: git fetch --unshallow")
    subprocess.run(["tar", "-x"], cwd=path, input=archive.stdout, check=True)
    checkout = Checkout(path)
    try:
        yield checkout
    finally:
        checkout.run("python -m localcloud stop", expect=None)


def configure(checkout: Checkout) -> None:
    """Let the job write checkpoints often, and report every step."""
    file = checkout.path / "Pulumi.local.yaml"
    lines = [line for line in file.read_text().splitlines() if "tidewater:trainerArgs:" not in line]
    lines.insert(lines.index("config:") + 1, f"  tidewater:trainerArgs: {ARGUMENTS}")
    file.write_text("\n".join(lines) + "\n")


def pull(checkout: Checkout, new: Path) -> None:
    """Replace the sources of a checkout by those of this repository."""
    sources = Checkout.copy_to(new).path
    for entry in checkout.path.iterdir():
        if entry.name not in KEPT:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    for entry in sources.iterdir():
        shutil.move(entry, checkout.path)


def test_a_stack_with_an_indexed_job_is_taken_over_without_losing_progress(old: Checkout, tmp_path: Path) -> None:
    configure(old)
    old.make("up")
    wait_until("a few checkpoints", lambda: latest_step(old) > 3 * CHECKPOINT_EVERY)
    pull(old, tmp_path / "new")
    configure(old)
    step = latest_step(old)
    old.make("install")
    old.run("pulumi up --yes")
    old.forget_outputs()
    job = Job(old.path, old.outputs["jobName"], old.namespace)
    wait_for_world(job, 2, seconds=300)
    first = min(int(steps(job, pod)[0]["step"]) for pod in running_workers(job))
    assert first > step - 2 * CHECKPOINT_EVERY
    wait_until("more steps than ever", lambda: latest_step(job) > step)
    left = old.json(f"kubectl get jobs.batch,deployments -n {old.namespace} -o json")["items"]
    assert [each["metadata"]["name"] for each in left if each["metadata"]["name"].startswith(job.name)] == []
    old.run("pulumi preview --expect-no-changes")
    old.run("pulumi destroy --yes")
