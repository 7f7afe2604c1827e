"""A worker over two machines, with a launcher on each, goes through the loss of a process, of a machine and a freeze.

Both are on this one, at two addresses of its loopback interface, or in network namespaces of their own.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from scripts import toolchain
from tests.elastic.schedules.network import Network
from tests.elastic.sharded.test_sharded_e2e import PATIENT, STEPS, Job, Whole, pid, undisturbed, verdict
from tests.elastic.workers import Worker
from tests.farm import Farm
from tests.programs import Forked
from tidewater.contract import exit_codes

pytestmark = pytest.mark.e2e


class Nodes(Job):
    """A job with the worker ``a-0``, which is over two machines, and others."""

    hosts: Sequence[str] = ("127.0.0.1", "127.0.0.2")
    """Of the two machines."""

    def machine(self, node: int, shard: int, *more: str) -> Worker:
        """Start the launcher of one machine."""
        replica = ["--replica", "a-0", "--shard-nodes", "2", "--shard-node", str(node), "--host", self.hosts[node]]
        return self.start(f"a-{node}", shard, *replica, "--processes", str(shard // 2), *more)

    def both(self, *more: str) -> list[Worker]:
        """Start both machines, each with one process."""
        return [self.machine(node, 2, *more) for node in range(2)]

    def with_another(self, *more: str) -> tuple[list[Worker], Worker]:
        """Start both machines, and a worker on one machine. Return them when they train together."""
        machines, other = self.both("--min-workers", "2", *more), self.start("b", 2, "--min-workers", "2", *more)
        other.wait_for_world(2)
        return machines, other


@pytest.fixture
def job(start: Callable[..., Worker], tmp_path: Path, whole: Whole) -> Nodes:
    return Nodes(start, tmp_path, whole)


@pytest.fixture(scope="module")
def whole(etcd: str, farm: Farm, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return undisturbed(etcd, farm, tmp_path_factory.mktemp("whole"))


@pytest.fixture
def network(request: pytest.FixtureRequest) -> Iterator[Network]:
    """Yield a network with a host for each machine of the worker ``a-0``, and one for others."""
    with Network(workers=3, ipv6=getattr(request, "param", False)) as network:
        yield network


@pytest.fixture
def far_job(network: Network, farm: Farm, tmp_path: Path, whole: Whole) -> Iterator[Nodes]:
    """Yield a job on these hosts."""
    etcd, started = network.start_etcd(toolchain.binary("etcd"), tmp_path), list[Worker]()
    common = ["--job", "far", "--etcd", etcd, "--report-every", "1", "--checkpoints", str(tmp_path / "checkpoints")]

    def start(name: str, *arguments: str, python: tuple[str, ...], forked: bool) -> Worker:
        host = network.hosts[int(name[-1]) if "-" in name else 2]
        words = [*python, "--worker", name, *common, "--host", host.address, *arguments]
        started.append(Forked(farm, name, words, tmp_path / f"{name}.log", netns=host.netns))
        started[-1].others = started
        return started[-1]

    job = Nodes(start, tmp_path, whole)
    job.hosts = [host.address for host in network.hosts]
    yield job
    for worker in started:
        worker.signal(signal.SIGKILL)
        worker.wait()


def processes(machine: Worker) -> list[int]:
    """Return the ids of the launcher's newest processes."""
    names = {line["worker"] for line in machine.events("started")}
    return [pid(machine, name) for name in sorted(names)]


def finished(machines: list[Worker], *others: Worker) -> None:
    """Wait for the end of all. Counterparts must have the same state then."""
    for worker in (*machines, *others):
        assert worker.wait() == exit_codes.FINISHED, worker.account()
    states = [[line["state"] for line in machine.events("finished")] for machine in machines]
    found = [sorted(each for machine in states for each in machine)]
    found += [sorted(line["state"] for line in other.events("finished")) for other in others]
    assert all(each == found[0] for each in found), found


def learned(job: Nodes) -> None:
    """Each sample was used once, and the weights are those of a whole model."""
    assert verdict(job.lines(), lambda _: 2) == []
    assert job.learned() == []


def test_four_processes_on_two_machines_learn_what_a_whole_model_does(job: Nodes) -> None:
    machines = [job.machine(node, 4) for node in (1, 0)]
    finished(machines)
    assert verdict(job.lines(), lambda _: 4) == []
    assert job.learned() == []
    assert [sorted({line["worker"] for line in each.events("started")}) for each in machines] == [
        ["a-1", "a-1.1"],
        ["a-0", "a-0.1"],
    ]
    assert {line[4] for line in job.lines()} == {0, 1, 2, 3}


def test_a_process_that_is_killed_comes_back_with_those_of_the_other_machine(job: Nodes) -> None:
    machines, other = job.with_another()
    before = [processes(each) for each in machines]
    os.kill(before[1][0], signal.SIGKILL)
    machines[0].wait_for(lambda machine: len(machine.events("started")) == 2)
    finished(machines, other)
    assert [processes(each) == old for each, old in zip(machines, before, strict=True)] == [False, False]
    (lost,) = machines[0].events("process_lost")
    assert (lost["process"], lost["code"]) == ("1", str(exit_codes.KILLED))
    learned(job)


@pytest.mark.parametrize("node", [0, 1])
def test_a_machine_that_is_lost_ends_the_processes_of_the_other_one_until_it_is_back(node: int, job: Nodes) -> None:
    machines, other = job.with_another()
    left = machines[1 - node]
    machines[node].signal(signal.SIGKILL)
    left.wait_for(lambda left: left.events("machine_lost"))
    other.wait_for(lambda other: other.events("waiting"))
    assert len(left.events("started")) == 1
    machines[node] = job.machine(node, 2, "--min-workers", "2")
    finished(machines, other)
    assert left.events("process_lost") == []
    assert len(left.events("started")) == 2
    learned(job)


def test_both_machines_leave_at_a_step_boundary_when_one_launcher_is_asked_to(job: Nodes) -> None:
    machines = job.both("--hold-at", "2", *PATIENT)
    other = job.start("b", 2, "--hold-at", "2", *PATIENT)
    for worker in (*machines, other):
        worker.wait_for(lambda worker: len(worker.events("prepared")) == (2 if worker is other else 1))
    (job.ledger / "go").touch()
    other.wait_for_world(2)
    machines[1].signal(signal.SIGTERM)
    assert [each.wait() for each in machines] == [exit_codes.LEFT] * 2
    assert [line for each in (*machines, other) for line in each.events("step_discarded")] == []
    finished([other])
    learned(job)


@pytest.mark.parametrize("node", [0, 1])
def test_a_machine_that_is_frozen_is_lost_and_starts_again_when_it_thaws(node: int, job: Nodes) -> None:
    machines, other = job.with_another()
    frozen = processes(machines[node])
    launcher = int(Path(f"/proc/{frozen[0]}/status").read_text().split("PPid:")[1].split()[0])
    for each in (launcher, *frozen):
        os.kill(each, signal.SIGSTOP)
    machines[1 - node].wait_for(lambda machine: machine.events("machine_lost"))
    other.wait_for(lambda other: other.events("peer_lost") or other.events("waiting"))
    for each in (launcher, *frozen):
        os.kill(each, signal.SIGCONT)
    finished(machines, other)
    assert len(machines[0].events("started")) == len(machines[1].events("started")) == 2
    learned(job)


def test_too_little_memory_on_one_machine_makes_smaller_micro_batches_on_both(job: Nodes) -> None:
    machines, other = job.with_another("--fits", "0:1", "--short", "a-1", "--max-steps", "30")
    finished(machines, other)
    short = machines[1].events("out_of_memory")
    assert [int(line["micro_batch"]) for line in short] == [1]
    assert [len(each.events("started")) for each in machines] == [2, 2]
    assert machines[0].events("out_of_memory") == []
    assert sorted({line[0] for line in job.lines()}) == list(range(1, 31))


def test_a_machine_with_other_settings_is_refused_and_the_others_go_on(job: Nodes) -> None:
    first = job.machine(0, 2)
    stranger = job.machine(1, 4)
    assert stranger.wait() == exit_codes.USAGE
    assert "--shard-nodes and --shard are (2, 4) on machine 1, a-1, and (2, 2) on the first machine" in stranger.text()
    finished([first, job.machine(1, 2)])
    assert max(line[0] for line in job.lines()) == STEPS


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
def test_machines_that_are_cut_off_from_each_other_start_again_when_they_are_not(
    far_job: Nodes, network: Network
) -> None:
    machines, other = far_job.with_another()
    network.cut([(0, 1)])
    for machine in machines:
        machine.wait_for(lambda machine: machine.events("machine_lost"))
    other.wait_for(lambda other: other.events("waiting"))
    assert [len(machine.events("started")) for machine in machines] == [1, 1]
    network.heal()
    finished(machines, other)
    assert [len(machine.events("started")) for machine in machines] == [2, 2]
    learned(far_job)


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
@pytest.mark.parametrize("network", [True], indirect=True, ids=["ipv6"])
def test_machines_with_ipv6_addresses_only_train_together(far_job: Nodes) -> None:
    machines, other = far_job.with_another()
    finished(machines, other)
    learned(far_job)
