"""The controller with a real API server: without it, with Karpenter's objects; in `make soak` killed and frozen.

There is neither a scheduler nor a kubelet nor a garbage collector: pods stay Pending, and only the controller
reacts to a job. `test_chaos` kills it at every write too, and does more to a job, with an API server in memory.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from scripts import toolchain
from tests.control_plane import NO_PROXY, Plane, await_definitions, named
from tests.controller.fakes import jobs, karpenter
from tests.controller.real import account, cloud, controller, interrupted, processes, until
from tidewater.contract.controller_program import Quota
from tidewater.controller.act import stamp
from tidewater.controller.cluster.client import NODE_CLASSES, NODE_POOLS, Manifest, Ref, Source
from tidewater.controller.decide.exits import MOST_DEVICE_FAILURES
from tidewater.controller.options import Options
from tidewater.controller.store import SELECTOR
from tidewater.elasticjob import install, names
from tidewater.elasticjob.install import Program, access
from tidewater.elasticjob.names import JOBS
from tidewater.kube.errors import Refused
from tidewater.kube.kinds import EVENTS, NAMESPACES, NODES, PODS, SERVICE_ACCOUNTS, SERVICES

pytestmark = pytest.mark.e2e

USER = "tidewater-controller"
TEAMS = ("vision", "speech")


@pytest.fixture(scope="module")
def keeper() -> Iterator[ThreadPoolExecutor]:
    """Yield a thread that starts processes next to an event loop: a process ends with the thread that started it."""
    with ThreadPoolExecutor(1) as thread:
        yield thread


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory, keeper: ThreadPoolExecutor) -> Iterator[Plane]:
    made = Plane(tmp_path_factory.mktemp("plane"), [USER])
    try:
        keeper.submit(made.start).result()
        # There is no controller manager to make the account, without which no pod is admitted.
        made.apply(*(named(each, NAMESPACES) for each in TEAMS))
        made.apply(*(named("default", SERVICE_ACCOUNTS, each) for each in (jobs.NAMESPACE, *TEAMS)))
        made.define_jobs()
        yield made
    finally:
        made.end()


@pytest.fixture(autouse=True)
def environment(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Connect to the API server, and delete what a test has left."""
    monkeypatch.setenv("KUBECONFIG", str(plane.kubeconfig(USER)))
    for name, value in NO_PROXY.items():
        monkeypatch.setenv(name, value)
    yield
    for space in (jobs.NAMESPACE, *TEAMS):
        plane.kubectl("delete", f"{names.PLURAL},leases", "--all", "-n", space)
        plane.kubectl("delete", "pods,services", "-l", SELECTOR, "-n", space, "--force", "--grace-period=0")


@pytest.mark.soak
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_controller_that_is_killed_at_any_write_leaves_nothing_half_done(moment: str) -> None:
    async def attempt(number: int) -> bool:
        """Return whether the controller was killed."""
        name = f"{moment}-{number}"
        async with cloud() as found:
            async with controller(number, moment) as first:
                await found.server.create(JOBS, jobs.manifest(name))

                async def ended() -> bool:
                    return first.dead or await found.settled(name, 2)

                await until(ended)
                if not first.dead:
                    await found.scale(name, 3)

                    async def ended_again() -> bool:
                        return first.dead or await found.settled(name, 3)

                    await until(ended_again)
            await found.scale(name, 3)
            async with controller():
                await until(lambda: found.settled(name, 3))
            pods = [pod for pod in await found.names(PODS) if pod.startswith(name)]
            assert pods == [f"{name}-worker-{index}" for index in range(3)]
            assert name in await found.names(SERVICES)
            return first.dead

    for number in range(100):
        if not asyncio.run(attempt(number)):
            assert number >= 5
            return
    raise AssertionError("a hundred writes for one job")


def test_an_api_server_that_restarts_only_delays(plane: Plane, keeper: ThreadPoolExecutor) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with cloud() as found, controller():
            await found.server.create(JOBS, jobs.manifest())
            await until(lambda: found.settled("imagenet", 2))
            await loop.run_in_executor(keeper, plane.end)
            await loop.run_in_executor(keeper, plane.start)
            await found.scale("imagenet", 3)
            await until(lambda: found.settled("imagenet", 3))

    asyncio.run(main())


def test_what_karpenter_said_before_a_worker_was_seen_to_wait_reaches_the_jobs_status() -> None:
    async def main() -> None:
        async with cloud() as found, controller():
            await found.server.create(JOBS, jobs.manifest())
            await until(lambda: found.settled("imagenet", 2))
            ref = Ref(PODS, jobs.NAMESPACE, "imagenet-worker-1")
            pod = await found.server.get(ref)
            about = {"kind": "Pod", "namespace": ref.namespace, "name": ref.name, "uid": pod["metadata"]["uid"]}
            now = stamp(datetime.now(UTC))
            for source, message in (("default-scheduler", "0/0 nodes"), ("karpenter", "no instance type fits")):
                said = {"reason": "FailedScheduling", "message": message, "type": "Warning", "lastTimestamp": now}
                where = {"metadata": {"name": f"said-by-{source}", "namespace": ref.namespace}}
                await found.server.create(
                    EVENTS, where | said | {"involvedObject": about, "source": {"component": source}}
                )
            waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": now}
            await found.server.patch(ref, {"status": {"conditions": [waits]}}, "status")

            async def told() -> bool:
                status = (await found.server.get(Ref(JOBS, jobs.NAMESPACE, "imagenet"))).get("status", {})
                return "Karpenter: no instance type fits." in str(status) and status["waiting"] == "FailedScheduling"

            await until(told)

    asyncio.run(main())


def test_successors_get_new_numbers_and_a_failure_restarts_the_whole_job() -> None:
    key, job = "torchx.pytorch.org/replica-id", Ref(JOBS, jobs.NAMESPACE, "roles")
    workers = jobs.workers(podNames="Successive", indexLabel=key)
    master = {"podNames": "Single", "template": jobs.template()}

    async def main() -> None:
        async with cloud() as found, controller():

            async def are(*pods: str) -> bool:
                return await found.names(PODS) == [f"roles-{pod}" for pod in pods]

            roles = {**workers, names.MASTER: master}
            await found.server.create(JOBS, jobs.manifest("roles", replicaSpecs=roles))
            await until(lambda: are("master", "worker-0", "worker-1"))
            await found.delete(PODS, jobs.NAMESPACE, "roles-worker-0")
            await until(lambda: are("master", "worker-1", "worker-2"))
            successor = (await found.server.get(Ref(PODS, jobs.NAMESPACE, "roles-worker-2")))["metadata"]
            assert (successor["labels"][key], successor["labels"][names.LABEL_TIER]) == ("2", names.CORE)
            await found.server.patch(job, {"spec": {"restartScope": "Job"}})
            before = (await found.server.get(Ref(PODS, jobs.NAMESPACE, "roles-master")))["metadata"]["uid"]
            await found.server.patch(Ref(PODS, jobs.NAMESPACE, "roles-worker-1"), interrupted(), "status")
            await until(are)
            told = (await found.server.get(job))["status"]
            assert (told["restarts"], told["jobRestarts"], "restartTime" in told) == (1, 1, True)
            await until(lambda: are("master", "worker-3", "worker-4"))
            anew = (await found.server.get(Ref(PODS, jobs.NAMESPACE, "roles-master")))["metadata"]
            assert anew["uid"] != before
            assert anew["annotations"][names.ANNOTATION_JOB_RESTARTS] == "1"

    asyncio.run(main())


def test_jobs_with_names_that_can_not_be_those_of_hosts_or_services_get_pods_and_a_service() -> None:
    awkward = ("1net", "a" * 63, "image.net")

    async def main() -> None:
        async with cloud() as found, controller():

            async def all_are_there() -> bool:
                return await found.names(PODS) == [f"{name}-worker-{index}" for name in awkward for index in range(2)]

            for name in awkward:
                await found.server.create(JOBS, jobs.manifest(name))
            await until(all_are_there)
            assert {names.service_name(name) for name in awkward} <= set(await found.names(SERVICES))

    asyncio.run(main())


@pytest.fixture
def definitions(plane: Plane) -> Iterator[None]:
    """Define Karpenter's kinds as its chart does."""
    command = [str(toolchain.binary("helm")), "template", "crd", str(toolchain.charts() / "karpenter-crd")]
    rendered = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    plane.kubectl("apply", "--server-side", "-f", "-", stdin=rendered)
    await_definitions(plane.kubectl)
    yield
    plane.kubectl("delete", "--wait=false", "-f", "-", stdin=rendered)


@pytest.fixture(scope="module")
def least(plane: Plane) -> str:
    """Return the kubeconfig of an account with the controller's rights."""
    return account(plane, "least", access.CLUSTER_RULES)


def test_with_its_own_rights_alone_it_reads_in_karpenters_objects_why_no_node_comes(
    plane: Plane, definitions: None, least: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with cloud() as found:
            for kind, made in karpenter.broken():
                await found.server.create(kind, made)
                await found.server.patch(
                    Ref(kind, None, made["metadata"]["name"]), {"status": made["status"]}, "status"
                )
            monkeypatch.setenv("KUBECONFIG", least)
            async with controller():
                await found.server.create(JOBS, jobs.manifest())
                await until(lambda: found.settled("imagenet", 2))
                waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
                since = {"lastTransitionTime": stamp(datetime.now(UTC))}
                pod = Ref(PODS, jobs.NAMESPACE, "imagenet-worker-1")
                await found.server.patch(pod, {"status": {"conditions": [waits | since]}}, "status")
                await until(lambda: found.waits("imagenet", "SubnetsNotFound"))
                ready = {"status": {"conditions": [karpenter.READY]}}
                for kind in (NODE_CLASSES, NODE_POOLS):
                    await found.server.patch(Ref(kind, None, "workers"), ready, "status")
                await until(lambda: found.waits("imagenet", "Unschedulable"))

    asyncio.run(main())


def test_with_its_own_rights_alone_it_sees_when_a_job_has_room_on_fixed_nodes(
    plane: Plane, least: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    label = {"for": "this-test"}
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"pods": "2"}}
    node = {"metadata": {"name": "fixed", "labels": label}, "status": ready}
    template = jobs.template(nodeSelector=label)
    other = {
        "metadata": {"name": "other", "namespace": jobs.NAMESPACE},
        "spec": {**template["spec"], "nodeName": "fixed"},
    }
    job = jobs.manifest("queued", low=2, replicaSpecs=jobs.workers(template=template), schedulingPolicy={"queue": "q"})

    async def main() -> None:
        async with cloud() as found:
            await found.server.create(NODES, {"apiVersion": "v1", "kind": "Node", **node})
            # The API server taints each new node; the controller manager that would take that away doesn't run here.
            await found.server.patch(Ref(NODES, None, "fixed"), {"spec": {"taints": None}})
            made = await found.server.create(PODS, {"apiVersion": "v1", "kind": "Pod", **other})
            monkeypatch.setenv("KUBECONFIG", least)
            async with controller(options=Options(fixed_nodes=True)):
                await found.server.create(JOBS, job)
                await until(lambda: found.waits("queued", "Unschedulable"))
                assert not [name for name in await found.names(PODS) if name.startswith("queued")]
                await found.server.delete(Ref(PODS, jobs.NAMESPACE, "other"), uid=made["metadata"]["uid"], grace=0)
                await until(lambda: found.settled("queued", 2))

    asyncio.run(main())


def test_with_the_rights_for_its_namespaces_alone_it_serves_these_and_no_other(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = install.Installation(program=Program({}), name="limited", namespaces=("team-a", "team-b"))
    spaces = (*wanted.namespaces, "team-c", wanted.namespace)
    plane.apply(*(named(each, NAMESPACES) for each in spaces), *access.manifests(wanted))
    plane.apply(*(named("default", SERVICE_ACCOUNTS, each) for each in spaces))
    own_account = str(plane.kubeconfig(f"system:serviceaccount:{wanted.namespace}:limited", with_rights=False))

    async def main() -> None:
        async with cloud() as found:

            async def done() -> bool:
                return all([len(await found.names(PODS, each)) == 2 for each in wanted.namespaces])

            for space in ("team-c", *wanted.namespaces):
                await found.server.create(JOBS, {**jobs.manifest(), "metadata": {"name": "same", "namespace": space}})
            monkeypatch.setenv("KUBECONFIG", own_account)
            async with controller(options=Options(tuple(wanted.namespaces))):
                await until(done)
            assert await found.names(PODS, "team-c") == []
            async with cloud() as own:
                with pytest.raises(Refused):
                    await own.names(JOBS, "team-c")

    asyncio.run(main())


def test_a_team_that_borrows_shrinks_for_the_owner_and_neither_is_ever_below_its_minimum() -> None:
    options, seen = Options(TEAMS, quotas=dict.fromkeys(TEAMS, Quota(2, 4))), list[tuple[int, int]]()

    def job(team: str, low: int, replicas: int) -> Manifest:
        return {**jobs.manifest("job", replicas, low, replicas), "metadata": {"name": "job", "namespace": team}}

    async def main() -> None:
        async with cloud() as found, controller(options=options):

            async def have(vision: int, speech: int) -> bool:
                seen.append((len(await found.names(PODS, "vision")), len(await found.names(PODS, "speech"))))
                return seen[-1] == (vision, speech)

            async def says(words: str) -> bool:
                return words in str(await found.server.get(Ref(JOBS, "vision", "job")))

            async def resized() -> bool:
                events = await found.server.list(Source(EVENTS, "vision"))
                return "Resized from 4 to 2 workers. It gives back 2 workers to team speech." in str(events)

            await found.server.create(JOBS, job("vision", 1, 4))
            await until(lambda: have(4, 0))
            first = set(await found.names(PODS, "vision"))
            await found.server.create(JOBS, job("speech", 2, 2))
            await until(lambda: have(2, 2))
            await until(lambda: says("It may have 2 of 4 workers"))
            assert set(await found.names(PODS, "vision")) < first
            await until(resized)
            await found.delete(JOBS, "speech", "job")
            for pod in await found.names(PODS, "speech"):  # there is no garbage collector
                await found.delete(PODS, "speech", pod)
            await until(lambda: have(4, 0))

    asyncio.run(main())
    assert min(vision for vision, _ in seen[seen.index((4, 0)) :]) == 2
    assert max(map(sum, seen)) == 4


@pytest.mark.parametrize("more", [access.TAINT_RULES, ()], ids=["it-may", "it-may-not"])
def test_with_its_own_rights_alone_it_taints_a_node_on_which_devices_fail_or_says_why_not(
    plane: Plane, monkeypatch: pytest.MonkeyPatch, more: Sequence[Manifest]
) -> None:
    name = "tainting" if more else "untainting"
    job, node = Ref(JOBS, jobs.NAMESPACE, name), Ref(NODES, None, name)
    own = {"key": "mine", "effect": "NoSchedule"}

    async def main() -> None:
        async with cloud() as found:
            made = await found.server.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
            await found.server.patch(node, {"spec": {"taints": [own]}})
            await found.server.create(JOBS, jobs.manifest(name))
            seen = {name: {"deviceFailures": MOST_DEVICE_FAILURES, "uid": made["metadata"]["uid"]}}
            await found.server.patch(job, {"status": {"nodes": seen}}, "status")
            monkeypatch.setenv("KUBECONFIG", account(plane, name, [*access.CLUSTER_RULES, *more]))

            async def done() -> bool:
                reasons = [each["reason"] for each in (await found.server.list(Source(EVENTS, jobs.NAMESPACE))).items]
                tainted = (await found.server.get(job))["status"]["nodes"][name].get("tainted", False)
                return bool(tainted) if more else "FailedTaintNode" in reasons

            async with controller(options=Options(fixed_nodes=True, taints_nodes=True)):
                await until(lambda: found.settled(name, 2))
                await until(done)
            keys = [each["key"] for each in (await found.server.get(node))["spec"]["taints"]]
            assert keys == ["mine", *(["tidewater.dev/device-failing"] if more else [])]
            pod = await found.server.get(Ref(PODS, jobs.NAMESPACE, f"{name}-worker-0"))
            assert name in str(pod["spec"]["affinity"]), "it prefers other nodes"

    asyncio.run(main())


@pytest.mark.soak
def test_a_frozen_leader_is_replaced_and_changes_nothing_when_it_wakes_up(tmp_path: Path) -> None:
    async def main(replicas: Mapping[str, subprocess.Popen[bytes]]) -> None:
        async with cloud() as found:

            async def led() -> bool:
                return await found.leader() != ""

            await found.server.create(JOBS, jobs.manifest())
            await until(lambda: found.settled("imagenet", 2))
            await until(led)
            frozen = await found.leader()
            replicas[frozen].send_signal(signal.SIGSTOP)
            await found.scale("imagenet", 3)
            # `test_lease` shows in virtual time that it takes less than 15 s. Real time also measures the machine.
            await until(lambda: found.settled("imagenet", 3))
            assert await found.leader() != frozen
            replicas[frozen].send_signal(signal.SIGCONT)

            async def noticed() -> bool:
                return "event=not_leading" in (tmp_path / frozen).read_text()

            await until(noticed)
            assert await found.leader() != frozen
            assert await found.settled("imagenet", 3)

    with processes("a", "b", logs=tmp_path) as replicas:
        asyncio.run(main(replicas))
