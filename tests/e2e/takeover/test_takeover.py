"""A stack that an earlier version of the program made, with a Job and a scaler, is taken over by `pulumi up`.

The earlier program comes from git; the tools, the cloud and the plug-ins are those of this checkout.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from localcloud import tools

from tests.e2e.checkout import ROOT, Checkout, wait_until
from tests.e2e.training import latest_step, running_workers, steps, wait_for_world

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.incremental, pytest.mark.timeout(1800)]

PROGRAM = (
    "__main__.py",
    "Pulumi.yaml",
    "Pulumi.local.yaml",
    "examples",
    "infra",
    "settings",
    "tidewater",
    "trainer",
    "workloads",
)
LAST_OF_IT = "workloads/scaler.py"
"""A file that the earlier program has and this one does not."""


def earlier() -> str:
    """Return the last commit with the scaler."""
    deleted = ["git", "log", "-1", "--diff-filter=D", "--format=%H", "--", LAST_OF_IT]
    found = subprocess.run(deleted, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    if not found:
        pytest.skip(f"the history of this clone doesn't go back to {LAST_OF_IT}")
    return f"{found}^"


def use_this_checkouts_tools(program: Path) -> None:
    """Name this checkout's image of the trainer and version of Kubernetes in the settings of the earlier program."""
    file = program / "Pulumi.local.yaml"
    config, current = (yaml.safe_load(each.read_text()) for each in (file, ROOT / file.name))
    config["config"] |= {
        "tidewater:image": current["config"]["tidewater:image"],
        "tidewater:kubernetesVersion": tools.KUBERNETES,
    }
    file.write_text(yaml.safe_dump(config))


def put_program(into: Path, archive: bytes) -> None:
    """Replace the program in a checkout by the one in a tar archive."""
    subprocess.run(["rm", "-rf", *PROGRAM], cwd=into, check=True)
    subprocess.run(["tar", "-x"], cwd=into, input=archive, check=True)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """Yield a checkout with the earlier program, and with a cloud of its own, which is stopped at the end."""
    archive = subprocess.run(
        ["git", "archive", earlier(), "--", *PROGRAM], cwd=ROOT, capture_output=True, check=True
    ).stdout
    copy = Checkout.copy_to(tmp_path_factory.mktemp("takeover") / "tidewater")
    put_program(copy.path, archive)
    use_this_checkouts_tools(copy.path)
    try:
        yield copy
    finally:
        copy.run("localcloud stop", expect=None)


def test_the_earlier_program_trains_in_a_job(old: Checkout) -> None:
    old.make("up")
    jobs = old.run(f"kubectl get jobs,deployments -n {old.namespace} -o name").text.split()
    assert {"job.batch/digits", "deployment.apps/digits-scaler"} <= set(jobs)


def test_up_replaces_the_job_and_training_continues_from_its_checkpoint(old: Checkout, tmp_path: Path) -> None:
    step = latest_step(old)
    assert step > 0
    new = Checkout.copy_to(tmp_path / "new")
    archive = subprocess.run(["tar", "-c", *PROGRAM], cwd=new.path, capture_output=True, check=True).stdout
    put_program(old.path, archive)
    old.run("pulumi up --yes")
    old.forget_outputs()
    wait_for_world(old, 2)
    assert sorted(running_workers(old)) == ["digits-worker-0", "digits-worker-1"]
    first = min(int(steps(old, pod)[0]["step"]) for pod in running_workers(old))
    assert first > step, "training began again"


def test_nothing_of_the_earlier_program_is_left(old: Checkout) -> None:
    left = old.run(f"kubectl get jobs,deployments,services -n {old.namespace} -o name").text.split()
    assert not {"job.batch/digits", "deployment.apps/digits-scaler"} & set(left)
    services = f"kubectl get services -n {old.namespace} -o jsonpath='{{.items[*].metadata.ownerReferences[*].kind}}'"
    wait_until("the job's own service", lambda: "ElasticJob" in old.run(services).text)
    old.run("pulumi preview --expect-no-changes")


def test_the_stack_is_an_ordinary_one_afterwards(old: Checkout) -> None:
    old.run("pulumi config set workers 1 && pulumi up --yes")
    wait_for_world(old, 1)
    old.run("pulumi destroy --yes")
