"""TorchX on the stack: the session of its Kubernetes scheduler's page, workspaces, and elastic training.

The applications run in the stack's namespace, on its two worker nodes, which the stack's own job has left. Each test
uses the stack as the one before left it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.control_plane import within
from tests.e2e.checkout import Checkout, wait_until
from tests.e2e.elasticjob import PYTORCH, SHELL, make_room
from tests.e2e.nodegroup.with_torchx.session import HERE, SPACE, App, Session, Watch
from tests.e2e.nodes import WORKERS, nodes, terminate
from tests.e2e.training import is_running

pytestmark = [pytest.mark.e2e, pytest.mark.incremental, pytest.mark.timeout(1800)]

CHECKPOINT, UNTIL = "/data/torchx/digits.pt", "/data/torchx/stop"
DDP = (
    "dist.ddp -j 1:3x1 --cpu 1 --memMB 1024 --script train.py --name digits"
    f" --image {PYTORCH} --env PYTHONPATH=/opt/site-packages,PYTHONUNBUFFERED=1,OMP_NUM_THREADS=1"
    " --mounts type=volume,src=data,dst=/data"
    f" -- --checkpoint {CHECKPOINT} --until {UNTIL}"
)
ROLE = "train"


@pytest.fixture(scope="module")
def session(checkout: Checkout) -> Session:
    """Return a session on a stack with two worker nodes, from which its own job has gone."""
    make_room(checkout, workers=2)
    return Session(checkout)


@pytest.fixture(scope="module")
def echo(session: Session) -> App:
    """Return the application of TorchX's page, submitted as there, from the checkout with all that is in it."""
    return session.run(f"utils.echo --image {SHELL} --msg hello", folder=session.checkout.path)


@pytest.fixture(scope="module")
def digits(session: Session) -> App:
    """Return an elastic training of one to three replicas."""
    return session.run(DDP)


@pytest.fixture(scope="module")
def watch(session: Session, digits: App) -> Iterator[Watch]:
    """Yield what TorchX says of the training, from its beginning to its end."""
    with session.watched(digits) as watch:
        yield watch


def trains_with(app: App, size: int, *, after: int = 0) -> int:
    """Wait until an epoch later than `after` is reported by this number of replicas; return the epoch."""

    def reported() -> int:
        found = [report for index in range(3) for report in epochs(app, index)]
        fitting = [int(report["epoch"]) for report in found if report["world_size"] == str(size)]
        return max((epoch for epoch in fitting if epoch > after), default=0)

    return wait_until(f"an epoch with {size}", reported)


def epochs(app: App, index: int) -> list[dict[str, str]]:
    """Return the reports of epochs that a replica's pod has printed so far; those of rank 0 are the only ones."""
    lines = app.job.run(f"kubectl logs -n {SPACE} {app.id}-worker-{index} --tail=-1", expect=None).text.splitlines()
    reports = [line.partition("event=epoch ")[2] for line in lines]
    return [dict(field.split("=") for field in report.split()) for report in reports if report]


def replicas_that_run(app: App) -> int:
    return sum(map(is_running, app.job.pods()))


def test_the_session_of_torchx_page(session: Session, echo: App) -> None:
    assert "State: SUCCEEDED" in session.wait_for(echo, "SUCCEEDED")
    assert session.log(echo) == ["echo/0 hello"]


def test_the_application_is_listed_and_described_whole(session: Session, echo: App) -> None:
    listed = session.torchx("list --scheduler tidewater").text
    assert [line.split()[1] for line in listed.splitlines() if line.startswith(echo.handle)] == ["SUCCEEDED"]
    described = session.torchx(f"describe {echo.handle}").text
    for part in ("'entrypoint': 'echo'", "'args': ['hello']", f"'image': '{SHELL}'", "'memMB': 1024"):
        assert part in described


def test_a_deleted_application_is_gone(session: Session, echo: App) -> None:
    session.delete(echo)
    assert "does not exist" in session.torchx(f"status {echo.handle}", expect=1).text
    assert echo.handle not in session.torchx("list --scheduler tidewater").text


def test_a_dry_run_prints_what_is_sent_and_sends_nothing(session: Session) -> None:
    before = session.jobs()
    command = f"utils.echo --image {SHELL} --msg hello"
    printed = session.torchx(f"run --scheduler tidewater --dryrun {command}").text
    (request,) = yaml.safe_load_all(printed.partition("=== SCHEDULER REQUEST ===")[2])
    assert request["kind"] == "ElasticJob"
    assert session.jobs() == before
    (session.folder / "request.log").write_text(yaml.safe_dump(request))
    session.checkout.run(f"kubectl create --dry-run=server -f {session.folder / 'request.log'}")


def test_python_submits_what_its_dry_run_prints(session: Session) -> None:
    done = session.checkout.json(f"torchx-python {HERE / 'submit.py'} {SHELL}")
    assert (done["state"], done["log"]) == ("SUCCEEDED", ["from Python\n"])
    app = session.app(done["handle"])
    assert within(yaml.safe_load(done["printed"]), app.job.read())
    session.delete(app)


def test_a_changed_file_of_the_workspace_goes_with_the_next_run(session: Session) -> None:
    command = f"utils.python --script greet.py --image {SHELL}"
    first = session.run(command, "--wait")
    (session.folder / "greet.py").write_text("print('changed')\n")
    second = session.run(command, "--wait")
    (greeting,) = session.log(first)
    assert greeting.split() == "python/0 hello from the workspace .torchxignore greet.py pair.py train.py".split()
    assert session.log(second) == ["python/0 changed"]
    stored = session.checkout.aws(f"s3api list-objects-v2 --bucket {session.checkout.outputs['bucket']} --prefix code/")
    keys = [init["command"][-2] for app in (first, second) for init in init_containers(app)]
    assert len(set(keys)) == 2
    assert {key.partition(session.checkout.outputs["bucket"])[2][1:] for key in keys} <= {
        each["Key"] for each in stored["Contents"]
    }
    session.delete(first)
    session.delete(second)


def init_containers(app: App) -> list[dict[str, Any]]:
    """Return the container of an application that downloads its workspace."""
    pod = app.job.read()["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]
    return [each for each in pod["initContainers"] if each["command"][0] == "aws"]


def test_a_failed_application_says_how_and_with_which_last_lines(session: Session) -> None:
    app = session.run(f"utils.sh --image {SHELL} sh -c 'echo no more ink; exit 3'")
    status = session.wait_for(app, "FAILED")
    assert "exitcode: 3" in status
    assert "no more ink" in status
    session.delete(app)


def test_two_roles_start_together(session: Session) -> None:
    app = session.run(f"pair.py:pair --image {SHELL}", "--wait")
    assert session.log(app, "/trainer/0") == ["trainer/0 the reader answers 200"]
    assert set(app.job.read()["spec"]["replicaSpecs"]) == {"Worker", "reader"}
    session.delete(app)


def test_two_roles_wait_until_there_is_room_for_both(session: Session) -> None:
    app = session.run(f"pair.py:pair --image {SHELL} --cpu 3")  # a node has two
    wait_until("the controller to have seen it", lambda: app.job.status().get("state"))
    assert session.state(app) == "PENDING"
    assert not replicas_that_run(app)
    session.delete(app)


def test_a_cancelled_application_ends_and_stays(session: Session) -> None:
    app = session.run(f"utils.sh --image {SHELL} exec timeout 3600 sleep 3600")  # ends on SIGTERM
    session.wait_for(app, "RUNNING")
    session.torchx(f"cancel {app.handle}")
    session.wait_for(app, "CANCELLED")
    wait_until("no pods", lambda: not replicas_that_run(app))
    session.delete(app)


def test_an_elastic_training_starts_with_a_script_from_the_workspace(
    session: Session, digits: App, watch: Watch
) -> None:
    job = digits.job
    session.wait_for(digits, "RUNNING")
    job.await_active(3)
    trains_with(digits, 3)
    assert {each["state"] for each in watch.said()} <= {"SUBMITTED", "PENDING", "RUNNING"}
    assert watch.said()[-1]["replicas"] == {f"{ROLE}/{index}": "RUNNING" for index in range(3)}


def test_training_goes_on_when_a_pod_is_deleted(session: Session, digits: App, watch: Watch) -> None:
    epoch = trains_with(digits, 3)
    session.checkout.run(f"kubectl delete pod -n {SPACE} {digits.id}-worker-1")
    trains_with(digits, 3, after=epoch)
    assert watch.states()[-1] == "RUNNING"


def test_training_goes_on_when_a_node_loses_power(session: Session, digits: App, watch: Watch) -> None:
    epoch, before = trains_with(digits, 3), len(watch.said())
    lost = digits.node_of(f"{digits.id}-worker-2")
    terminate(session.checkout, nodes(session.checkout, WORKERS)[lost])
    wait_until("the lost node to go", lambda: lost not in nodes(session.checkout, WORKERS))
    trains_with(digits, 3, after=epoch)
    assert watch.states()[-1] == "RUNNING"
    said = [each["msg"] for each in watch.said()[before:]]
    assert any("of 3 replicas, and needs at least 1" in msg for msg in said), said


def test_tidewater_resizes_it(session: Session, digits: App, watch: Watch) -> None:
    epoch = trains_with(digits, 3)
    session.checkout.run(f"tidewater job scale -n {SPACE} {digits.id} 2")
    trains_with(digits, 2, after=epoch)
    two = {f"{ROLE}/{index}": "RUNNING" for index in range(2)}
    wait_until("TorchX to say it", lambda: watch.said()[-1]["replicas"] == two)
    assert "State: RUNNING" in session.status(digits)


def test_the_training_ends_and_torchx_was_right_all_along(session: Session, digits: App, watch: Watch) -> None:
    session.checkout.run(f"kubectl exec -n {SPACE} {digits.id}-worker-0 -- touch {UNTIL}")
    last = watch.await_end()
    assert (last["state"], last["restarts"]) == ("SUCCEEDED", 0)
    assert [state for state in watch.states() if state not in ("SUBMITTED", "PENDING")] == ["RUNNING", "SUCCEEDED"]
    finished = [line for line in session.log(digits, options="--regex event=finished") if "accuracy" in line]
    assert any(float(line.rpartition("=")[2]) > 0.9 for line in finished)
    session.delete(digits)


ECHO = f"utils.echo --image {SHELL}"
BAD = {
    "a-priority-that-does-not-exist": (
        "-cfg priority_class=huge",
        ECHO,
        "option priority_class=huge: the cluster has no such PriorityClass",
    ),
    "a-claim-that-does-not-exist": (
        "",
        f"utils.sh --image {SHELL} --mounts type=volume,src=nothing,dst=/x true",
        "mount nothing: namespace training has no PersistentVolumeClaim of this name",
    ),
    "a-folder-of-the-node-in-a-namespace-without-privileges": (
        "",
        f"utils.sh --image {SHELL} --mounts type=bind,src=/,dst=/host true",
        "role sh: the API server refuses its pods",
    ),
    "a-namespace-without-a-stack": ("-cfg namespace=default", ECHO, "namespace default has no ConfigMap `tidewater`"),
}
"""What only a cluster with a stack refuses. The plug-in's own tests have what needs none."""


@pytest.mark.parametrize(("options", "component", "sentence"), BAD.values(), ids=BAD)
def test_what_cannot_run_is_named_before_anything_is_made(
    session: Session, options: str, component: str, sentence: str
) -> None:
    before = session.jobs()
    output = session.torchx(f"run --scheduler tidewater {options} {component}", expect=1)
    assert sentence in output.text
    assert session.jobs() == before
