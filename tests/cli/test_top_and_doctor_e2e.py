"""`top` and `doctor` as processes of their own, on a real API server with a proxy that reaches a worker's real
metrics."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.cli.top.objects import Trainer
from tests.control_plane import NAMESPACE, Plane, named, running
from tidewater.elasticjob import names
from tidewater.elasticjob.names import JOBS
from tidewater.kube.kinds import PODS
from tidewater.kube.server import Server

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 120.0

PATIENT = """
from dataclasses import replace
from unittest.mock import patch
from tidewater.cli.doctor import app, cluster
from tidewater.cli.top import read
patch.object(read, "_SCRAPE_SECONDS", 30).start()
patch.object(cluster, "_REVIEW_SECONDS", 30).start()
patch.object(app, "CHECKS", [replace(check, seconds=30) for check in app.CHECKS]).start()
from tidewater.cli.app import main
main()
"""
"""The command line with longer time limits, so that a busy machine doesn't become an answer that is missing. The limits
have tests of their own, with fakes."""


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    with running(tmp_path_factory.mktemp("api-server")) as found:
        yield found


def tidewater(plane: Plane, *words: str, user: str = "admin") -> subprocess.CompletedProcess[str]:
    """Run the command line, with patience, in a directory that is no checkout."""
    process = started_command(plane, "-c", PATIENT, *words, user=user)
    out, errors = process.communicate(timeout=SECONDS)
    assert "Traceback" not in errors
    return subprocess.CompletedProcess(process.args, process.returncode, out, errors)


def started_command(plane: Plane, *words: str, user: str = "admin") -> subprocess.Popen[str]:
    kubeconfig = plane.kubeconfig(user, with_rights=user == "admin", namespace=NAMESPACE)
    return subprocess.Popen(
        [sys.executable, *words],
        cwd=plane.site.folder,
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def server(plane: Plane) -> Server:
    """A cluster with the CRD and one job, which nothing controls."""
    plane.define_jobs()
    found = plane.server()
    container = {"name": names.WORKER_CONTAINER, "image": "i"}
    workers = {"replicas": 2, "template": {"spec": {"containers": [container]}}}
    size = {"minReplicas": 1, "maxReplicas": 4, "replicaSpecs": {names.WORKER: workers}}
    found.create(JOBS, named("digits", JOBS, spec={"rdzvEndpoint": "etcd:2379", **size}))
    return found


def own_address() -> str:
    """Return an address of this machine that is not the loopback's, to which an API server passes nothing on."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        with contextlib.suppress(OSError):
            probe.connect(("192.0.2.1", 9))  # sends nothing
        address = str(probe.getsockname()[0])
    if address.startswith(("127.", "0.")):
        pytest.skip("this machine has no address but the loopback's")
    return address


@contextlib.contextmanager
def served(trainer: Trainer, address: str) -> Iterator[int]:
    """Serve a worker's metrics, and let it train a little between two looks. Yield the port."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            trainer.trains(1)
            content = trainer.page.encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Write nothing."""

    with ThreadingHTTPServer((address, 0), Page) as http:
        thread = threading.Thread(target=http.serve_forever, daemon=True)
        thread.start()
        try:
            yield http.server_port
        finally:
            http.shutdown()
            thread.join()


def run_pod(server: Server, index: int, address: str, port: int) -> None:
    """Make a worker's pod and say that it runs, as the controller and a kubelet would."""
    name = names.pod_name("digits", names.WORKER, index)
    ports = [{"name": "metrics", "containerPort": port}]
    containers = [{"name": names.WORKER_CONTAINER, "image": "i", "ports": ports}]
    spec = {"nodeName": "node-1", "automountServiceAccountToken": False, "containers": containers}
    pod = named(name, PODS, spec=spec)
    pod["metadata"]["labels"] = dict(names.pod_labels("digits", names.WORKER, index))
    server.create(PODS, pod)
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
    server.patch(PODS, name, {"status": status}, subresource="status", namespace="training")


def test_top_shows_what_a_worker_says_through_the_api_servers_proxy(plane: Plane, server: Server) -> None:
    address = own_address()
    with served(Trainer(rank=1), address) as port:
        run_pod(server, 0, address, port)
        done = tidewater(plane, "top", "digits", "--once")
    assert (done.returncode, done.stderr) == (0, "")
    assert "loss        " in done.stdout
    assert "step 2  epoch 3" in done.stdout
    (row,) = (line.split() for line in done.stdout.splitlines() if line.startswith("digits-worker-0"))
    assert row == ["digits-worker-0", "Running", "core", "0", "1", "1", "2", "node-1"]


def test_top_says_why_a_worker_has_no_numbers(plane: Plane, server: Server) -> None:
    run_pod(server, 1, own_address(), 9)
    done = tidewater(plane, "top", "--once")
    assert done.returncode == 0
    assert "no metrics: port " in done.stdout


def test_a_recording_that_a_timeout_ends_has_its_last_frame(plane: Plane, server: Server, tmp_path: Path) -> None:
    file = tmp_path / "top.txt"
    with started_command(plane, "-m", "tidewater.cli", "top", "--record", str(file)) as process:
        assert process.stdout
        for _ in range(2):  # frames; the second one shows no change, so it is not written yet
            while not process.stdout.readline().startswith("digits  training"):
                pass
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
    assert process.returncode == 0
    assert file.read_text().count("--- ") == 2


def test_a_wrong_name_is_an_error_that_names_the_right_one(plane: Plane, server: Server) -> None:
    done = tidewater(plane, "top", "digit")
    assert (done.returncode, "Did you mean digits?" in done.stderr) == (1, True)


def test_doctor_finds_what_this_cluster_lacks(plane: Plane, server: Server) -> None:
    done = tidewater(plane, "doctor")
    lines = {
        line[4:17].strip(): line[2:] for line in done.stdout.splitlines() if line[2:3] in ("✓", "!", "✗", "-", "?")
    }
    assert done.returncode == 1
    marks = {name: line[0] for name, line in lines.items()}
    assert marks["kubeconfig"] == marks["API server"] == marks["your rights"] == marks["CRD"] == "✓"
    assert marks["nodes"] == marks["controller"] == marks["etcd"] == "✗"
    assert marks["leader"] == "?"
    assert marks["credentials"] == marks["GPUs"] == marks["EFS driver"] == "-"
    assert "its etcd etcd does not exist: there is no Service training/etcd" in lines["etcd"]


def test_doctor_tells_somebody_without_rights_which_ones_to_ask_for(plane: Plane, server: Server) -> None:
    done = tidewater(plane, "doctor", user="nobody")
    assert done.returncode == 1
    assert "✗ your rights  not allowed in namespace training: list elasticjobs (every command)" in done.stdout
    assert "? nodes        could not be checked: " in done.stdout
