"""A pod is the user's template with what makes it a member of its job."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.controller.fakes import jobs
from tidewater.contract import env, labels
from tidewater.controller import objects
from tidewater.controller.decide.actions import CreatePod
from tidewater.elasticjob import codec, names
from tidewater.elasticjob.model import ElasticJob


def test_a_pod_has_the_old_controllers_name_and_labels_and_belongs_to_its_job() -> None:
    pod = objects.pod(jobs.job(), CreatePod(names.WORKER, 1, core=False))
    assert pod["metadata"]["name"] == "imagenet-worker-1"
    assert pod["metadata"]["namespace"] == jobs.NAMESPACE
    assert pod["metadata"]["labels"] == {
        "group-name": "elastic.pytorch.org",
        "job-name": "imagenet",
        "replica-type": "worker",
        "replica-index": "1",
        "tidewater.dev/job-uid": "uid-of-imagenet",
    }
    (owner,) = pod["metadata"]["ownerReferences"]
    assert owner["controller"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("ElasticJob", "imagenet", "uid-of-imagenet")
    assert objects.owned_by(pod, "uid-of-imagenet")
    assert not objects.owned_by(pod, "uid-of-another")


def test_a_bare_pod_name_is_a_host_name_in_every_pod_of_the_job() -> None:
    job = jobs.job()
    spec = objects.pod(job, CreatePod(names.WORKER, 0, core=True), domain="example.org")["spec"]
    service = objects.service(job)
    assert (spec["hostname"], spec["subdomain"]) == ("imagenet-worker-0", service["metadata"]["name"])
    assert spec["dnsConfig"]["searches"] == ["imagenet.default.svc.example.org"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"]
    pod_labels = objects.pod(job, CreatePod(names.WORKER, 0, core=True))["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= pod_labels.items()
    assert objects.owned_by(service, job.uid)


def test_a_job_with_a_name_that_dns_does_not_take_has_pods_that_reach_each_other_all_the_same() -> None:
    job = jobs.job(name="image.net")
    pod, service = objects.pod(job, CreatePod(names.WORKER, 0, core=True)), objects.service(job)
    assert pod["metadata"]["name"] == "image.net-worker-0"
    assert pod["spec"]["hostname"] == names.host_name("image.net", "-worker-0")
    assert pod["spec"]["subdomain"] == service["metadata"]["name"] == names.service_name("image.net")
    assert service["spec"]["selector"]["job-name"] == "image.net"


def test_the_end_of_a_failed_containers_log_becomes_its_message_unless_the_user_chose_otherwise() -> None:
    """So that the job can say why a pod failed after that pod, and its log, are gone."""
    made = jobs.manifest()
    containers = [{"name": "elasticjob-worker"}, {"name": "sidecar", "terminationMessagePolicy": "File"}]
    made["spec"]["replicaSpecs"]["Worker"]["template"] = {"spec": {"containers": containers}}
    pod = objects.pod(codec.job_of(made), CreatePod(names.WORKER, 0, core=True))
    policies = [each["terminationMessagePolicy"] for each in pod["spec"]["containers"]]
    assert policies == ["FallbackToLogsOnError", "File"]


def test_the_template_stays_as_the_user_wrote_it() -> None:
    made = jobs.manifest()
    template = {
        "metadata": {"labels": {"team": "vision"}, "annotations": {"note": "x"}, "finalizers": ["a/b"], "name": "y"},
        "spec": {
            "containers": [
                {"name": "elasticjob-worker", "image": "i", "volumeMounts": [{"name": "d", "mountPath": "/d"}]}
            ],
            "tolerations": [{"operator": "Exists"}],
            "dnsConfig": {"searches": ["corp"], "options": [{"name": "ndots", "value": "2"}]},
            "notYetInvented": {"deep": [1, 2]},
        },
    }
    made["spec"]["replicaSpecs"]["Worker"]["template"] = template
    made["metadata"] |= {"uid": "u", "generation": 1, "resourceVersion": "1"}
    before = copy.deepcopy(template)
    pod = objects.pod(read(made), CreatePod(names.WORKER, 0, core=True))
    assert template == before
    assert pod["spec"]["tolerations"] == [{"operator": "Exists"}]
    assert pod["spec"]["notYetInvented"] == {"deep": [1, 2]}
    assert pod["spec"]["dnsConfig"]["options"] == [{"name": "ndots", "value": "2"}]
    assert pod["spec"]["dnsConfig"]["searches"] == ["imagenet.default.svc.cluster.local", "corp"]
    assert pod["spec"]["containers"][0]["volumeMounts"] == [{"name": "d", "mountPath": "/d"}]
    assert pod["metadata"]["labels"]["team"] == "vision"
    assert pod["metadata"]["annotations"]["note"] == "x"
    assert pod["metadata"]["finalizers"] == ["a/b"]
    assert pod["metadata"]["name"] == "imagenet-worker-0"


def read(manifest: jobs.Manifest) -> ElasticJob:
    return codec.job_of(manifest)


@pytest.mark.parametrize(
    ("policy", "kubelets"),
    [("ExitCode", "Never"), ("Never", "Never"), ("OnFailure", "OnFailure"), ("Always", "Always")],
)
def test_the_kubelet_restarts_containers_only_if_the_policy_says_so(policy: str, kubelets: str) -> None:
    worker = {"replicas": 1, "restartPolicy": policy, "template": jobs.template()}
    pod = objects.pod(jobs.job(replicaSpecs={"Worker": worker}), CreatePod(names.WORKER, 0, core=True))
    assert pod["spec"]["restartPolicy"] == kubelets


@pytest.mark.parametrize(
    ("policy", "core", "priority"),
    [
        ({"corePriorityClassName": "high", "surgePriorityClassName": "low"}, True, "high"),
        ({"corePriorityClassName": "high", "surgePriorityClassName": "low"}, False, "low"),
        ({"corePriorityClassName": "high"}, False, "the-templates"),
        ({}, True, "the-templates"),
    ],
)
def test_core_and_surge_pods_have_their_priority_classes(policy: dict[str, str], core: bool, priority: str) -> None:
    worker = {"replicas": 1, "template": jobs.template(priorityClassName="the-templates")}
    job = jobs.job(replicaSpecs={"Worker": worker}, schedulingPolicy=policy)
    assert objects.pod(job, CreatePod(names.WORKER, 0, core=core))["spec"]["priorityClassName"] == priority


def test_a_pod_of_another_type_is_named_after_it_and_gets_nothing_of_the_launcher() -> None:
    roles = {"Worker": {"replicas": 1, "template": jobs.template()}, "PS": {"replicas": 2, "template": jobs.template()}}
    pod = objects.pod(jobs.job(replicaSpecs=roles), CreatePod("PS", 1, core=True))
    assert pod["metadata"]["name"] == "imagenet-ps-1"
    assert pod["metadata"]["labels"]["replica-type"] == "ps"
    assert pod["spec"]["containers"][0]["args"] == ["train.py"]


def test_the_only_pod_of_a_type_has_no_number_in_its_names() -> None:
    roles = {
        "Worker": {"replicas": 1, "template": jobs.template()},
        "Master": {"replicas": 1, "podNames": "Single", "template": jobs.template()},
    }
    pod = objects.pod(jobs.job(replicaSpecs=roles), CreatePod("Master", 0, core=True))
    assert (pod["metadata"]["name"], pod["spec"]["hostname"]) == ("imagenet-master", "imagenet-master")
    assert pod["metadata"]["labels"]["replica-index"] == "0"


@pytest.mark.parametrize(("core", "tier"), [(True, "core"), (False, "surge")])
def test_a_pod_whose_number_does_not_say_it_says_otherwise_whether_it_is_core(core: bool, tier: str) -> None:
    worker = {"replicas": 1, "podNames": "Successive", "template": jobs.template()}
    pod = objects.pod(jobs.job(replicaSpecs={"Worker": worker}), CreatePod(names.WORKER, 17, core=core))
    assert pod["metadata"]["name"] == "imagenet-worker-17"
    assert pod["metadata"]["labels"]["tidewater.dev/tier"] == tier


def test_a_pod_has_its_index_under_the_label_that_the_job_names_and_never_loses_the_controllers() -> None:
    key = "torchx.pytorch.org/replica-id"
    template = {**jobs.template(), "metadata": {"labels": {key: "of the template"}}}
    worker = {"replicas": 1, "indexLabel": key, "template": template}
    pod = objects.pod(jobs.job(replicaSpecs={"Worker": worker}), CreatePod(names.WORKER, 2, core=True))
    own = {**names.pod_labels("imagenet", names.WORKER, 2), names.LABEL_JOB_UID: "uid-of-imagenet"}
    assert pod["metadata"]["labels"] == {**own, key: "2"}
    worker["indexLabel"] = names.LABEL_JOB_NAME
    pod = objects.pod(jobs.job(replicaSpecs={"Worker": worker}), CreatePod(names.WORKER, 2, core=True))
    assert pod["metadata"]["labels"][names.LABEL_JOB_NAME] == "imagenet"


def test_a_pod_says_in_which_run_of_the_job_it_was_made() -> None:
    first, third = (
        objects.pod(jobs.job(), CreatePod(names.WORKER, 0, core=True, job_restarts=number)) for number in (0, 2)
    )
    assert names.ANNOTATION_JOB_RESTARTS not in first["metadata"]["annotations"]
    assert third["metadata"]["annotations"][names.ANNOTATION_JOB_RESTARTS] == "2"


@pytest.mark.parametrize("policy", ["ExitCode", "Never", "OnFailure", "Always"])
def test_the_kubelet_restarts_nothing_in_a_job_that_restarts_as_a_whole(policy: str) -> None:
    worker = {"replicas": 1, "restartPolicy": policy, "template": jobs.template()}
    made = jobs.job(replicaSpecs={"Worker": worker}, restartScope="Job")
    assert objects.pod(made, CreatePod(names.WORKER, 0, core=True))["spec"]["restartPolicy"] == "Never"


def test_workers_of_this_projects_trainer_also_have_its_labels() -> None:
    pod = objects.pod(jobs.job(launcher="tidewater"), CreatePod(names.WORKER, 0, core=True))
    assert labels.worker_pods("imagenet").items() <= pod["metadata"]["labels"].items()
    variables = {each["name"] for each in pod["spec"]["containers"][0]["env"]}
    assert env.JOB in variables


def test_a_template_has_the_same_hash_until_it_changes() -> None:
    template = jobs.template()
    reordered = dict(reversed(template["spec"].items()))
    assert objects.template_hash(template) == objects.template_hash({"spec": reordered})
    assert objects.template_hash(template) != objects.template_hash(jobs.template(hostNetwork=True))


def test_resizing_a_job_changes_no_hash() -> None:
    assert objects.template_hashes(jobs.job(replicas=2)) == objects.template_hashes(jobs.job(replicas=3, high=9))
    pod = objects.pod(jobs.job(), CreatePod(names.WORKER, 0, core=True))
    found = pod["metadata"]["annotations"][names.ANNOTATION_TEMPLATE_HASH]
    assert found == objects.template_hashes(jobs.job())[names.WORKER]


ZONE = "topology.kubernetes.io/zone"


def several(index: int, **spec: Any) -> dict[str, Any]:
    """Return a pod of a job with replicas of two pods."""
    made = jobs.job(launcher="tidewater", workersPerReplica=2, **spec)
    return objects.pod(made, CreatePod(names.WORKER, index, core=True))


@pytest.mark.parametrize(("index", "replica"), [(0, "0"), (1, "0"), (2, "1"), (5, "2")])
def test_the_pods_of_a_replica_have_its_number_as_a_label(index: int, replica: str) -> None:
    assert several(index)["metadata"]["labels"]["tidewater.dev/replica"] == replica
    alone = objects.pod(jobs.job(launcher="tidewater"), CreatePod(names.WORKER, index, core=True))
    assert "tidewater.dev/replica" not in alone["metadata"]["labels"]


def test_only_workers_are_parts_of_replicas() -> None:
    roles = {**jobs.workers(), "PS": {"replicas": 2, "template": jobs.template()}}
    made = jobs.job(launcher="tidewater", workersPerReplica=2, topologyKey=ZONE, replicaSpecs=roles)
    other = objects.pod(made, CreatePod("PS", 1, core=True))
    assert "tidewater.dev/replica" not in other["metadata"]["labels"]
    assert "affinity" not in other["spec"]
    assert objects.template_hashes(made)["PS"] == objects.template_hashes(jobs.job(replicaSpecs=roles))["PS"]


def test_a_pod_prefers_to_be_near_the_others_of_its_replica() -> None:
    others = {"tidewater.dev/job-uid": "uid-of-imagenet", "tidewater.dev/replica": "1"}
    term = {"labelSelector": {"matchLabels": others}, "topologyKey": ZONE}
    soft = several(3, topologyKey=ZONE)
    preferred = [{"weight": 100, "podAffinityTerm": term}]
    assert soft["spec"]["affinity"] == {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    assert others.items() <= soft["metadata"]["labels"].items()
    hard = several(3, topologyKey=ZONE, topologyRequired=True)
    assert hard["spec"]["affinity"] == {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    assert "affinity" not in several(3)["spec"]


def test_a_replicas_affinity_is_added_to_the_templates_and_to_that_for_nodes_to_avoid() -> None:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    own = {"podAffinity": {required: [{"topologyKey": "own"}]}, "podAntiAffinity": {required: []}}
    workers = jobs.workers(template=jobs.template(affinity=own))
    made = jobs.job(
        launcher="tidewater", workersPerReplica=2, topologyKey=ZONE, topologyRequired=True, replicaSpecs=workers
    )
    found = objects.pod(made, CreatePod(names.WORKER, 0, core=True, avoid=("a",)))["spec"]["affinity"]
    assert [each["topologyKey"] for each in found["podAffinity"][required]] == ["own", ZONE]
    assert found["podAntiAffinity"] == {required: []}
    assert found["nodeAffinity"].keys() == {"preferredDuringSchedulingIgnoredDuringExecution"}


def test_how_pods_make_a_replica_is_part_of_what_makes_them_outdated() -> None:
    def hash_of(**spec: Any) -> str:
        return objects.template_hashes(jobs.job(launcher="tidewater", **spec))[names.WORKER]

    plain = objects.template_hash(jobs.template())
    assert hash_of() == hash_of(workersPerReplica=1) == plain
    kinds = [hash_of(workersPerReplica=each) for each in (2, 3)]
    kinds += [hash_of(workersPerReplica=2, topologyKey=ZONE, topologyRequired=hard) for hard in (False, True)]
    assert len({plain, *kinds}) == 5
    assert several(0)["metadata"]["annotations"][names.ANNOTATION_TEMPLATE_HASH] == kinds[0]


def test_a_pod_that_avoids_nodes_prefers_any_other_and_keeps_its_own_affinity() -> None:
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    own = {"podAntiAffinity": {preferred: []}, "nodeAffinity": {preferred: [{"weight": 1}], "required…": {}}}
    made = jobs.job(replicaSpecs=jobs.workers(template=jobs.template(affinity=own)))
    assert objects.pod(made, CreatePod(names.WORKER, 0, core=True))["spec"]["affinity"] == own
    found = objects.pod(made, CreatePod(names.WORKER, 0, core=True, avoid=("a", "b")))["spec"]["affinity"]
    fields = [{"key": "metadata.name", "operator": "NotIn", "values": [name]} for name in "ab"]
    assert found["nodeAffinity"][preferred] == [{"weight": 1}, {"weight": 100, "preference": {"matchFields": fields}}]
    assert (found["podAntiAffinity"], found["nodeAffinity"]["required…"]) == ({preferred: []}, {})
