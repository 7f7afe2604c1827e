"""Completion, errors and broken pipes of the whole command line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.cli.fake import FakeClock, FakeCluster, job
from tidewater.cli.app import app
from tidewater.cli.session import Tools
from tidewater.elasticjob.names import JOBS
from tidewater.kube.kinds import NAMESPACES, missing

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster(FakeClock())


def completed(cluster: FakeCluster, line: str) -> list[str]:
    """Return what a shell would offer for the last word of `line`."""
    words = line.split(" ")
    environment = {
        "_TIDEWATER_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    tools = Tools(connect=lambda access: cluster)
    result = CliRunner(env=environment).invoke(app, [], prog_name="tidewater", obj=tools)
    return result.stdout.split()


def test_jobs_are_completed_by_name(cluster: FakeCluster) -> None:
    cluster.put(JOBS, job("digits"))
    cluster.put(JOBS, job("imagenet"))
    assert completed(cluster, "tidewater job describe i") == ["imagenet"]


def test_namespaces_are_completed_by_name(cluster: FakeCluster) -> None:
    cluster.put(NAMESPACES, {"metadata": {"name": "training"}})
    cluster.put(NAMESPACES, {"metadata": {"name": "kube-system"}})
    assert completed(cluster, "tidewater job list -n t") == ["training"]


def test_contexts_are_completed_from_the_kubeconfig(cluster: FakeCluster, tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text("contexts: [{name: production}, {name: test}]")
    assert completed(cluster, f"tidewater job list --kubeconfig {file} --context p") == ["production"]


def test_completion_is_silent_about_a_cluster_that_does_not_answer(cluster: FakeCluster) -> None:
    cluster.failures["list", "ElasticJob"] = missing(JOBS)
    assert completed(cluster, "tidewater job describe i") == []


def test_commands_are_completed(cluster: FakeCluster) -> None:
    assert completed(cluster, "tidewater job s") == ["submit", "scale", "suspend"]


def tidewater(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command line as a process of its own, without the machine's kubeconfig."""
    kept = {key: value for key, value in os.environ.items() if key in ("PATH", "PYTHONPATH", "LANG")}
    return subprocess.run(
        [sys.executable, "-m", "tidewater.cli", *words],
        cwd=ROOT,
        env={**kept, "HOME": "/nonexistent", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_without_a_kubeconfig_the_error_says_where_one_is_looked_for() -> None:
    result = tidewater("job", "list")
    assert result.returncode == 1
    assert result.stderr.startswith("error: there is no kubeconfig: ~/.kube/config does not exist\n")
    assert "Traceback" not in result.stderr


def test_an_api_server_that_does_not_answer_is_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(
        "current-context: c\n"
        "contexts: [{name: c, context: {cluster: c}}]\n"
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n"
    )
    result = tidewater("job", "list", "--kubeconfig", str(file))
    assert result.returncode == 1
    assert result.stderr.startswith("error: the API server http://127.0.0.1:1 of context c can't be reached: ")
    assert "Traceback" not in result.stderr


def test_help_does_not_load_the_http_client() -> None:
    code = "import sys, tidewater.cli.app; sys.exit('httpx2' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=os.environ, timeout=60, check=False)
    assert done.returncode == 0


def test_a_reader_that_goes_away_is_no_error() -> None:
    code = (
        "import os, sys; from tidewater.cli.app import app, Root; import typer\n"
        "reader, writer = os.pipe(); os.close(reader); os.dup2(writer, 1)\n"
        "@app.command('write')\n"
        "def write() -> None:\n"
        "    print('x' * 100_000, flush=True)\n"
        "app(['write'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
