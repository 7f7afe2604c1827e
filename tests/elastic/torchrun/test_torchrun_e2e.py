"""Two real ``torchrun`` agents with a real etcd: they form a round, lose an agent, and form a round again."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import wheel
from tests.elastic.torchrun import agents as torchrun_agents
from tests.elastic.torchrun.agents import Agent
from tests.elastic.workers import PATIENCE_SECONDS

pytestmark = pytest.mark.e2e

Start = Callable[..., Agent]

LONG, SHORT = "100000", "3"
LONG_PATIENCE = "patience_seconds=600"
"""More seconds than a test waits, so a test fails if an agent waits for a lost one to stop its workers."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    return wheel.unpack(wheel.build(folder), folder / "site")


@pytest.fixture
def agent(etcd: str, site: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Start]:
    """Yield a function that starts agents of one run; kill those that still run at the end of the test."""
    script = tmp_path / "script.py"
    script.write_text(torchrun_agents.SCRIPT)
    started = []

    def start(name: str, *, nodes: str = "1:2", steps: str = LONG, conf: str = "lease_seconds=2") -> Agent:
        arguments = [
            f"--nnodes={nodes}",
            "--max-restarts=5",
            f"--rdzv-id={request.node.name}",
            "--rdzv-backend=etcd-v3",
            f"--rdzv-endpoint={etcd}",
            f"--rdzv-conf=last_call_seconds=1,{LONG_PATIENCE},{conf}",
            "--local-addr=127.0.0.1",
            str(script),
            steps,
        ]
        started.append(Agent(name, arguments, site, tmp_path))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.send_signal(signal.SIGTERM)
            each.process.wait(PATIENCE_SECONDS)


def test_survivors_recover_from_a_lost_agent_and_from_a_hung_one_whose_worker_lives_and_a_late_agent_joins(
    agent: Start,
) -> None:
    a, b = agent("a"), agent("b")
    for one in (a, b):
        one.wait_for_world(2)
    b.power_off()
    a.wait_for_world(1)
    late = agent("late")
    late.wait_for_world(2)
    a.wait_for_world(2)
    late.process.send_signal(signal.SIGSTOP)
    a.wait_for_world(1)  # its lease has expired
    late.process.send_signal(signal.SIGCONT)
    a.wait_for_world(2)
    late.process.send_signal(signal.SIGTERM)  # a graceful stop: it withdraws, and no agent waits for its lease
    a.wait_for_world(1)


def test_a_finished_run_ends_on_all_agents_and_refuses_late_ones(agent: Start) -> None:
    a, b = agent("a", nodes="2", steps=SHORT), agent("b", nodes="2", steps=SHORT)
    assert [one.process.wait(PATIENCE_SECONDS) for one in (a, b)] == [0, 0]
    late = agent("late", nodes="2", steps=SHORT)
    assert late.process.wait(PATIENCE_SECONDS) != 0
    assert "is finished; use another --rdzv-id" in late.text()


def test_an_etcd_that_does_not_answer_is_an_error_that_names_it(agent: Start, tmp_path: Path, site: Path) -> None:
    arguments = ["--rdzv-backend=etcd-v3", "--rdzv-endpoint=127.0.0.1:1", "--rdzv-conf=connect_seconds=1", "x.py"]
    alone = Agent("alone", ["--nnodes=1:2", *arguments], site, tmp_path)
    assert alone.process.wait(PATIENCE_SECONDS) != 0
    assert "etcd has not answered within 1 s" in alone.text()
    assert "http://127.0.0.1:1" in alone.text()
