"""What is known of the cluster, and which jobs a change concerns."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from tests.controller.fakes import jobs, virtual
from tests.controller.fakes.api import Api
from tidewater.controller import objects
from tidewater.controller.cluster.client import Ref
from tidewater.controller.cluster.mirror import Key
from tidewater.controller.decide.actions import CreatePod
from tidewater.controller.decide.observed import Admission, JobView, NodeView
from tidewater.controller.options import Options
from tidewater.controller.pod_index import PATIENCE_SECONDS
from tidewater.controller.progress.silence import Silence
from tidewater.controller.progress.watch import Process, processes
from tidewater.controller.store import DECODED, GONE_NODES, Store, read_job
from tidewater.elasticjob import names
from tidewater.elasticjob.names import JOBS
from tidewater.kube.kinds import NODES, PODS, SERVICES


class Desk:
    """A store of a fake API server, and the jobs that have become due."""

    def __init__(self) -> None:
        self.api = Api()
        self.due: list[str] = []
        self.store = Store(self.api.client(), Options(), lambda key, seconds: self.due.append(key.name))
        self.task = asyncio.create_task(self.store.run())

    async def settle(self) -> None:
        await self.store.wait_synced()
        await asyncio.sleep(0.1)

    def apply(self, name: str = "imagenet", **spec: object) -> None:
        self.api.create(JOBS, jobs.manifest(name, **spec))  # type: ignore[arg-type]

    def view(self, name: str = "imagenet", refusal: str = "") -> JobView:
        view = self.store.view(Key(jobs.NAMESPACE, name), virtual.now(), refusal)
        assert view is not None
        return view

    def start(self, name: str = "imagenet", index: int = 0, type_: str = names.WORKER, *, core: bool = True) -> None:
        """Create a pod of a job."""
        self.api.create(PODS, objects.pod(self.view(name).job, CreatePod(type_, index, core=core)))

    def set_status(self, pod: str, **status: object) -> None:
        self.api.patch(Ref(PODS, jobs.NAMESPACE, pod), {"status": status}, "status")


async def test_a_view_holds_the_jobs_own_pods_and_service_and_all_nodes() -> None:
    desk = Desk()
    desk.api.create(NODES, {"metadata": {"name": "n"}, "spec": {}})
    for name in ("imagenet", "other"):
        desk.apply(name)
    await desk.settle()
    for name in ("imagenet", "other"):
        desk.start(name)
    desk.api.create(SERVICES, objects.service(desk.view().job))
    await desk.settle()
    view = desk.view(refusal="no quota")
    assert [pod.name for pod in view.pods] == ["imagenet-worker-0"]
    assert view.pods[0].template_hash == view.template_hashes[names.WORKER]
    assert view.services == {"imagenet"}
    assert set(view.nodes) == {"n"}
    assert view.refusal == "no quota"


async def test_what_was_said_of_a_refused_service_is_known_until_the_service_or_the_job_is_gone() -> None:
    desk = Desk()
    desk.apply()
    await desk.settle()
    job = desk.view().job
    desk.store.service_refused(job, "quota")
    assert desk.view().service_refusal == "quota"
    desk.api.create(SERVICES, objects.service(job))
    await desk.settle()
    assert desk.view().service_refusal == ""
    desk.store.service_refused(job, "quota")
    desk.api.delete(Ref(JOBS, jobs.NAMESPACE, "imagenet"))
    await desk.settle()
    assert desk.store.service_refusals == {}


async def test_a_node_that_was_deleted_is_lost_until_it_is_there_again() -> None:
    desk = Desk()
    node = {"metadata": {"name": "n"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    desk.api.create(NODES, node)
    desk.apply()
    await desk.settle()
    desk.start()
    desk.api.patch(Ref(PODS, jobs.NAMESPACE, "imagenet-worker-0"), {"spec": {"nodeName": "n"}})
    await desk.settle()
    desk.due.clear()
    desk.api.delete(Ref(NODES, None, "n"))
    await desk.settle()
    assert desk.due == ["imagenet"]
    assert desk.view().nodes == {"n": NodeView(name="n", doomed=True, lost=True)}
    desk.api.create(NODES, node)
    await desk.settle()
    assert desk.view().nodes["n"] == NodeView(name="n", uid=desk.api.get(NODES, "", "n")["metadata"]["uid"])


async def test_of_nodes_that_were_deleted_only_the_last_are_remembered() -> None:
    desk = Desk()
    await desk.settle()
    desk.apply()
    for number in range(GONE_NODES + 10):
        desk.api.create(NODES, {"metadata": {"name": f"n-{number}"}})
        await desk.settle()
        desk.api.delete(Ref(NODES, None, f"n-{number}"))
        await desk.settle()
    assert list(desk.view().nodes) == [f"n-{number}" for number in range(10, GONE_NODES + 10)]


async def test_a_pod_of_any_type_has_the_type_as_the_job_writes_it() -> None:
    desk = Desk()
    worker = {"replicas": 1, "template": jobs.template()}
    desk.apply(replicaSpecs={"Worker": worker, "ParameterServer": worker})
    await desk.settle()
    desk.start(type_="ParameterServer")
    desk.start()
    await desk.settle()
    assert {pod.type for pod in desk.view().pods} == {"Worker", "ParameterServer"}


async def test_every_change_makes_the_job_due_that_it_concerns() -> None:
    desk = Desk()
    for name in ("imagenet", "other"):
        desk.apply(name)
    await desk.settle()
    desk.due.clear()
    desk.start()
    await desk.settle()
    assert desk.due == ["imagenet"]
    desk.set_status("imagenet-worker-0", phase="Failed")
    await desk.settle()
    desk.api.delete(Ref(PODS, jobs.NAMESPACE, "imagenet-worker-0"))
    await desk.settle()
    desk.api.patch(Ref(JOBS, jobs.NAMESPACE, "imagenet"), {"spec": {"suspend": True}})
    await desk.settle()
    assert set(desk.due) == {"imagenet"}


async def test_news_of_many_pods_are_put_together_for_longer() -> None:
    desk = Desk()
    waits = list[float]()
    desk.store._due = lambda key, seconds: waits.append(seconds)
    desk.apply(replicas=400, high=400)
    await desk.settle()
    for index in range(400):
        desk.start(index=index)
    await desk.settle()
    assert waits[-1] == 4 * PATIENCE_SECONDS
    waits.clear()
    desk.set_status("imagenet-worker-399", phase="Succeeded")
    await desk.settle()
    assert waits == [4 * PATIENCE_SECONDS]
    waits.clear()
    desk.api.patch(Ref(JOBS, jobs.NAMESPACE, "imagenet"), {"status": {"replicas": 400}}, "status")
    await desk.settle()
    assert waits == [4 * PATIENCE_SECONDS], "perhaps it is the controller's own write"
    waits.clear()
    desk.api.patch(Ref(JOBS, jobs.NAMESPACE, "imagenet"), {"spec": {"suspend": True}})
    await desk.settle()
    assert waits == [0.0], "a person waits for it"


async def test_a_job_that_was_made_anew_learns_that_the_names_of_the_former_are_free() -> None:
    desk = Desk()
    desk.apply()
    await desk.settle()
    former = replace(desk.view().job, uid="of a former job")
    desk.api.create(PODS, objects.pod(former, CreatePod(names.WORKER, 0, core=True)))
    desk.api.create(SERVICES, objects.service(former))
    await desk.settle()
    desk.due.clear()
    desk.api.delete(Ref(PODS, jobs.NAMESPACE, "imagenet-worker-0"))
    await desk.settle()
    assert desk.due == ["imagenet"]
    desk.api.delete(Ref(SERVICES, jobs.NAMESPACE, "imagenet"))
    await desk.settle()
    assert desk.due == ["imagenet", "imagenet"]


async def test_a_job_learns_that_the_only_pod_of_a_former_type_is_gone() -> None:
    desk = Desk()
    master = {"replicas": 1, "podNames": "Single", "template": jobs.template()}
    desk.apply(replicaSpecs={**jobs.workers(), "Master": master})
    await desk.settle()
    former = replace(desk.view().job, uid="of a former job")
    desk.api.create(PODS, objects.pod(former, CreatePod("Master", 0, core=True)))
    await desk.settle()
    desk.due.clear()
    desk.api.delete(Ref(PODS, jobs.NAMESPACE, "imagenet-master"))
    await desk.settle()
    assert desk.due == ["imagenet"]


async def test_a_number_that_was_reserved_is_unused_until_a_pod_may_have_it() -> None:
    desk = Desk()
    ps = {"replicas": 1, "template": jobs.template()}
    desk.apply(replicaSpecs={**jobs.workers(podNames="Successive"), "PS": ps})
    await desk.settle()
    job = desk.view().job
    desk.store.note_unused(job, [CreatePod("Worker", 4, True), CreatePod("Worker", 5, True), CreatePod("PS", 0, True)])
    assert desk.view().unused == {("Worker", 4), ("Worker", 5)}
    desk.store.note_used(job, CreatePod("Worker", 4, True))
    assert desk.view().unused == {("Worker", 5)}
    desk.api.delete(Ref(JOBS, jobs.NAMESPACE, "imagenet"))
    desk.apply()
    await desk.settle()
    assert desk.view().unused == frozenset()


async def test_pods_of_nobody_concern_nobody() -> None:
    desk = Desk()
    desk.apply()
    await desk.settle()
    desk.due.clear()
    meta = {"name": "stray", "namespace": jobs.NAMESPACE, "labels": dict(names.job_labels("imagenet"))}
    desk.api.create(PODS, {"metadata": meta, "spec": {}})
    await desk.settle()
    assert desk.due == []
    assert desk.view().pods == ()


async def test_jobs_that_may_give_room_back_learn_of_core_pods_that_wait() -> None:
    desk = Desk()
    desk.apply("greedy", autoscale=True)
    desk.apply("plain")
    desk.apply("short")
    await desk.settle()
    desk.start("short")
    waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    conditions = [{**waits, "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    desk.set_status("short-worker-0", phase="Pending", conditions=conditions)
    await desk.settle()
    desk.due.clear()
    desk.store.note(desk.view("short"))
    assert desk.due == ["greedy"]
    assert desk.view("greedy").waiting_cores == 1
    assert desk.view("short").waiting_cores == 0
    desk.api.delete(Ref(JOBS, jobs.NAMESPACE, "short"))
    await desk.settle()
    assert desk.view("greedy").waiting_cores == 0
    desk.apply("successive", replicaSpecs=jobs.workers(podNames="Successive"))
    await desk.settle()
    for index, core in ((7, True), (8, False)):
        desk.start("successive", index, core=core)
        desk.set_status(f"successive-worker-{index}", phase="Pending", conditions=conditions)
    await desk.settle()
    desk.store.note(desk.view("successive"))
    assert desk.view("greedy").waiting_cores == 1


async def test_core_pods_of_replicas_of_several_pods_wait_one_by_one() -> None:
    desk = Desk()
    desk.apply("greedy", autoscale=True)
    desk.apply("pairs", launcher="tidewater", workersPerReplica=2)
    await desk.settle()
    waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    conditions = [{**waits, "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    for index in range(3):  # the minimum is one replica: pods 0 and 1
        desk.start("pairs", index)
        desk.set_status(f"pairs-worker-{index}", phase="Pending", conditions=conditions)
    await desk.settle()
    desk.store.note(desk.view("pairs"))
    assert desk.view("greedy").waiting_cores == 2
    desk.apply("queued", launcher="tidewater", workersPerReplica=3, schedulingPolicy={"queue": "q"})
    await desk.settle()
    desk.store.note(replace(desk.view("queued"), admission=Admission.ROOM))
    assert desk.view("greedy").waiting_cores == 2 + 3


def test_what_the_mirror_keeps_of_a_job_is_what_the_decision_needs() -> None:
    made = jobs.manifest()
    made["metadata"] |= {
        "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}],
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{...}", "mine": "1"},
    }
    kept = read_job(made)
    assert b"managedFields" not in kept.body
    assert kept.manifest()["metadata"]["annotations"] == {"mine": "1"}
    assert kept.manifest()["spec"] == made["spec"]


def test_nothing_that_users_write_stops_the_mirror() -> None:
    specs: list[Any] = [None, [], {"schedulingPolicy": "x"}, {"autoscale": "yes"}]
    for spec in specs:
        kept = read_job({"metadata": {"name": "a", "annotations": None}, "spec": spec, "status": None})
        assert (kept.queued, kept.autoscale, kept.state) == (False, False, "")


async def test_more_jobs_than_are_kept_as_objects_are_read_again() -> None:
    desk = Desk()
    for number in range(DECODED + 10):
        desk.apply(f"job-{number}")
    await desk.settle()
    for _ in range(2):
        for number in range(DECODED + 10):
            assert desk.view(f"job-{number}").job.name == f"job-{number}"
    assert desk.store.states() == {"New": DECODED + 10}


async def test_pods_of_a_running_job_are_asked_for_their_progress_and_a_silent_job_says_so() -> None:
    desk = Desk()
    desk.apply()
    desk.apply("other")
    await desk.settle()
    ports = [{"name": "metrics", "containerPort": 9464}, {"name": "metrics-1", "containerPort": 9465}]
    for name in ("imagenet", "other"):
        made = objects.pod(desk.view(name).job, CreatePod(names.WORKER, 0, core=True))
        made["spec"]["containers"][0]["ports"] = [*ports, {"name": "web", "containerPort": 80}]
        made["spec"]["nodeName"] = "node-7"
        desk.api.create(PODS, made)
        desk.set_status(f"{name}-worker-0", phase="Running", podIP="10.0.0.5")
    desk.api.patch(Ref(JOBS, jobs.NAMESPACE, "imagenet"), {"status": {"state": "Running"}}, "status")
    await desk.settle()
    uid, pod = desk.view().job.uid, "imagenet-worker-0"
    assert desk.store._running() == [uid]
    found = processes(desk.view().pods)
    assert found == [Process(pod, "10.0.0.5", 9464), Process(pod, "10.0.0.5", 9465)]
    desk.due.clear()
    desk.store._progress.silences[uid] = Silence(virtual.now(), (pod,))
    desk.store._owner_due(uid)
    assert desk.due == ["imagenet"]
    assert desk.view().silence.endswith(f"it waits for {pod} on node node-7.")
    assert desk.view("other").silence == ""
    desk.api.delete(Ref(JOBS, jobs.NAMESPACE, "imagenet"))
    await desk.settle()
    desk.due.clear()
    desk.store._owner_due(uid)
    assert (desk.due, desk.store._running()) == ([], [])
