"""The provider driven as the engine drives it, against a real API server."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
from localcloud.standins.serve import InitFailed, PluginError
from localcloud.standins.values import UNKNOWN

from packages.localcloud.tests.standins.kubernetes.conftest import ControlPlane
from packages.localcloud.tests.standins.kubernetes.harness import CheckFailed, Engine

pytestmark = pytest.mark.e2e

Engines = Callable[..., Engine]
Eventually = Callable[[Callable[[], Any]], Any]
Tree = dict[str, Any]
CONFIG_MAP, JOB, DEPLOYMENT = "core/v1:ConfigMap", "batch/v1:Job", "apps/v1:Deployment"
POLICY = "networking.k8s.io/v1:NetworkPolicy"


def config_map(namespace: str, *, name: str = "settings", **data: str) -> Tree:
    return {"metadata": {"name": name, "namespace": namespace}, "data": data}


def job(namespace: str, parallelism: int = 1, *, wait: bool = False, **spec: Any) -> Tree:
    metadata: Tree = {"name": "job", "namespace": namespace}
    if not wait:
        metadata["annotations"] = {"pulumi.com/skipAwait": "true"}
    requests = {"requests": {"cpu": "1000m", "memory": "1024Mi"}}
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none", "resources": requests}]}
    counts = {"parallelism": parallelism, "completions": parallelism, "completionMode": "Indexed"}
    return {"metadata": metadata, "spec": {**counts, **spec, "template": {"spec": pod}}}


def deployment(namespace: str, replicas: int = 0, **extra: Any) -> Tree:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template, **extra}
    return {"metadata": {"name": "web", "namespace": namespace}, "spec": spec}


def test_changed_data_replaces_a_config_map_unless_config_maps_are_mutable(
    engine: Engines, control_plane: ControlPlane, namespace: str
) -> None:
    def uid() -> Any:
        return control_plane.live("v1", "ConfigMap", namespace, "settings")["metadata"]["uid"]

    strict = engine()
    assert strict.up(CONFIG_MAP, "c", config_map(namespace, a="1")) == "create"
    assert strict.state["c"].id == f"{namespace}/settings"
    assert strict.up(CONFIG_MAP, "c", config_map(namespace, a="1")) == "same"
    first = uid()
    assert strict.up(CONFIG_MAP, "c", config_map(namespace, a="2")) == "replace data.a"
    second = uid()
    mutable = engine(enableConfigMapMutable=True)
    mutable.state = strict.state
    assert mutable.up(CONFIG_MAP, "c", config_map(namespace, a="3", b="4")) == "update"
    assert first != second == uid()
    assert control_plane.live("v1", "ConfigMap", namespace, "settings")["data"] == {"a": "3", "b": "4"}
    mutable.destroy("c")
    listed = control_plane.cluster.list_objects("v1", "ConfigMap", namespace)
    assert "settings" not in {each["metadata"]["name"] for each in listed}


def test_an_unnamed_object_keeps_the_name_that_it_got(
    engine: Engines, control_plane: ControlPlane, namespace: str
) -> None:
    made, inputs = engine(), {"metadata": {"namespace": namespace}, "data": {"a": "1"}}
    made.up(CONFIG_MAP, "made", inputs)
    first = made.state["made"].live["metadata"]["name"]
    assert re.fullmatch(r"made-[0-9a-f]{8}", first)
    assert made.state["made"].live["metadata"]["annotations"] == {"pulumi.com/autonamed": "true"}
    assert made.up(CONFIG_MAP, "made", inputs) == "same"
    assert made.up(CONFIG_MAP, "made", {**inputs, "metadata": {**inputs["metadata"], "labels": {"a": "b"}}}) == "update"
    assert control_plane.live("v1", "ConfigMap", namespace, first)["metadata"]["labels"] == {"a": "b"}


def test_changed_parallelism_replaces_a_job_unless_ignored(
    engine: Engines, control_plane: ControlPlane, namespace: str
) -> None:
    jobs = engine()
    jobs.up(JOB, "j", job(namespace))
    assert jobs.up(JOB, "j", job(namespace)) == "same"  # `1000m` and `1` CPU are the same
    assert jobs.up(JOB, "j", job(namespace, 2)) == "replace spec.completions spec.parallelism"
    replaced = control_plane.live("batch/v1", "Job", namespace, "job")
    control_plane.patch(replaced, {"spec": {"parallelism": 3, "completions": 3}}, manager="scaler")
    # The engine hands over the old values of ignored inputs.
    labelled = job(namespace, 2)
    labelled["metadata"]["labels"] = {"x": "y"}
    assert jobs.up(JOB, "j", labelled, ["spec.parallelism", "spec.completions"]) == "update"
    after = control_plane.live("batch/v1", "Job", namespace, "job")
    assert after["metadata"]["uid"] == replaced["metadata"]["uid"]
    assert (after["spec"]["parallelism"], after["metadata"]["labels"]["x"]) == (3, "y")


def test_drift_is_seen_by_refresh_and_repaired_by_up(
    engine: Engines, control_plane: ControlPlane, namespace: str
) -> None:
    web = engine(enablePatchForce=True)
    inputs = deployment(namespace)
    web.up(DEPLOYMENT, "web", inputs)
    assert web.refresh("web")
    assert web.up(DEPLOYMENT, "web", inputs) == "same"
    control_plane.patch(web.state["web"].live, {"spec": {"replicas": 1}}, suffix="/scale")
    assert web.refresh("web")
    assert web.up(DEPLOYMENT, "web", inputs) == "update"
    assert control_plane.live("apps/v1", "Deployment", namespace, "web")["spec"]["replicas"] == 0


def test_values_that_the_api_server_leaves_out_are_no_change_after_a_refresh(engine: Engines, namespace: str) -> None:
    mount = {"name": "data", "mountPath": "/data", "readOnly": False}
    probe = {"tcpSocket": {"port": 80}, "initialDelaySeconds": 0}
    container = {"name": "main", "image": "none", "volumeMounts": [mount], "readinessProbe": probe}
    web = deployment(namespace, minReadySeconds=0)
    web["spec"]["template"]["spec"] = {"containers": [container], "volumes": [{"name": "data", "emptyDir": {}}]}
    policy = {
        "metadata": {"name": "none", "namespace": namespace},
        "spec": {"podSelector": {}, "policyTypes": ["Egress"], "egress": []},
    }
    made = engine()
    for token, name, inputs in ((DEPLOYMENT, "web", web), (POLICY, "policy", policy)):
        made.up(token, name, inputs)
        assert made.refresh(name)
        assert made.preview(token, name, inputs) == "same"
    live, left = made.state["web"].live["spec"], made.state["policy"].live["spec"]
    (shown,) = live["template"]["spec"]["containers"]
    assert {"minReadySeconds", "egress"}.isdisjoint({*live, *left})
    assert {"readOnly", "initialDelaySeconds"}.isdisjoint({*shown["volumeMounts"][0], *shown["readinessProbe"]})


def test_a_field_that_kubectl_scaled_is_a_conflict_that_names_the_manager(
    engine: Engines, control_plane: ControlPlane, namespace: str
) -> None:
    web = engine()
    web.up(DEPLOYMENT, "web", deployment(namespace))
    control_plane.patch(web.state["web"].live, {"spec": {"replicas": 1}}, suffix="/scale")
    with pytest.raises(PluginError) as caught:
        web.up(DEPLOYMENT, "web", deployment(namespace, replicas=2))
    assert "Server-Side Apply field conflict detected" in str(caught.value)
    assert 'conflict with "kubectl"' in str(caught.value)
    assert ".spec.replicas" in str(caught.value)


def test_an_object_that_is_gone_leaves_the_state_at_a_refresh(
    engine: Engines, control_plane: ControlPlane, namespace: str
) -> None:
    maps = engine()
    maps.up(CONFIG_MAP, "c", config_map(namespace, a="1"))
    assert maps.refresh("c")
    control_plane.cluster.delete(maps.state["c"].live, "Background")
    assert not maps.refresh("c")
    assert maps.up(CONFIG_MAP, "c", config_map(namespace, a="1")) == "create"


def test_an_unknown_field_is_refused_by_name(engine: Engines, namespace: str) -> None:
    with pytest.raises(PluginError, match=r"web.*replicaz"):
        engine().preview(DEPLOYMENT, "web", deployment(namespace, replicaz=3))


def test_an_unknown_field_is_refused_while_another_value_is_unknown(engine: Engines, namespace: str) -> None:
    metadata = {"name": "s", "namespace": namespace, "labels": {"u": UNKNOWN}}
    with pytest.raises(CheckFailed, match='unknown field "dat"'):
        engine().preview("core/v1:Secret", "s", {"metadata": metadata, "dat": {}})


def test_an_unknown_type_is_refused_by_name(engine: Engines, namespace: str) -> None:
    with pytest.raises(CheckFailed, match="kubernetes:batch/v1:Joob"):
        engine().preview("batch/v1:Joob", "j", {"metadata": {"name": "j", "namespace": namespace}})


def foreign_config_map(control_plane: ControlPlane, namespace: str, name: str) -> None:
    obj = {"apiVersion": "v1", "kind": "ConfigMap", **config_map(namespace, name=name, z="1")}
    control_plane.cluster.apply(obj, manager="someone", force=True, dry_run=False)


def test_an_existing_object_is_taken_over_only_when_told_so(
    engine: Engines, control_plane: ControlPlane, namespace: str
) -> None:
    foreign_config_map(control_plane, namespace, "settings")
    with pytest.raises(PluginError, match="already exists"):
        engine().up(CONFIG_MAP, "c", config_map(namespace, a="1"))
    engine(upsertExistingObjects=True).up(CONFIG_MAP, "c", config_map(namespace, a="1"))
    assert control_plane.live("v1", "ConfigMap", namespace, "settings")["data"] == {"a": "1", "z": "1"}


def test_a_pending_deletion_deletes_an_object_that_another_resource_has_taken_over_as_officially(
    engine: Engines, control_plane: ControlPlane, namespace: str
) -> None:
    update = engine(upsertExistingObjects=True)
    update.up(CONFIG_MAP, "c", config_map(namespace, a="1"))
    to_delete = update.state.pop("c")  # its replacement in another place failed, and then the program was set back
    update.up(CONFIG_MAP, "c", config_map(namespace, a="1"))
    update.delete(to_delete)
    listed = control_plane.cluster.list_objects("v1", "ConfigMap", namespace)
    assert "settings" not in {each["metadata"]["name"] for each in listed}


def test_an_existing_object_is_imported_by_namespace_and_name(
    engine: Engines, control_plane: ControlPlane, namespace: str
) -> None:
    foreign_config_map(control_plane, namespace, "found")
    maps = engine()
    assert maps.import_(CONFIG_MAP, "c", f"{namespace}/found").id == f"{namespace}/found"
    assert maps.up(CONFIG_MAP, "c", config_map(namespace, name="found", z="1")) == "same"
    assert maps.import_(CONFIG_MAP, "d", f"{namespace}/none").id == ""


def test_a_claim_that_was_deleted_by_hand_is_bound_again_when_its_volume_is_released(
    engine: Engines, control_plane: ControlPlane, namespace: str, eventually: Eventually
) -> None:
    """The command is in docs/architecture.md."""
    stack, kind, claimed = engine(), "core/v1:PersistentVolumeClaim", {"storageClassName": "", "volumeName": namespace}
    size, modes = {"storage": "1Gi"}, {"accessModes": ["ReadWriteMany"]}
    reserved = {"claimRef": {"namespace": namespace, "name": "data"}, "persistentVolumeReclaimPolicy": "Retain"}
    volume = {"capacity": size, **modes, **reserved, "csi": {"driver": "efs.csi.aws.com", "volumeHandle": "fs-1"}}
    spec = {**modes, **claimed, "resources": {"requests": size}}
    claim = {"metadata": {"name": "data", "namespace": namespace}, "spec": spec}
    stack.up("core/v1:PersistentVolume", "volume", {"metadata": {"name": namespace}, "spec": volume})
    stack.up(kind, "claim", claim)
    control_plane.cluster.delete({"apiVersion": "v1", **stack.state["claim"].live}, "Foreground")
    while stack.refresh("claim"):
        pass
    with pytest.raises(InitFailed, match="Pending"):
        stack.up(kind, "claim", claim, timeout=1)
    released = [{"op": "remove", "path": "/spec/claimRef/uid"}]
    control_plane.cluster.json_patch(stack.state["volume"].live, released)
    found = ("v1", "PersistentVolumeClaim", namespace, "data")
    eventually(lambda: control_plane.live(*found)["status"]["phase"] == "Bound")


def test_a_job_is_waited_for_until_it_is_complete(
    engine: Engines, control_plane: ControlPlane, namespace: str, eventually: Eventually
) -> None:
    def finish() -> None:
        pod = eventually(lambda: control_plane.cluster.list_objects("v1", "Pod", namespace)[0])
        control_plane.patch(pod, {"status": {"phase": "Succeeded"}}, suffix="/status")

    kubelet = threading.Thread(target=finish)
    kubelet.start()
    jobs = engine()
    jobs.up(JOB, "j", job(namespace, wait=True))
    kubelet.join()
    assert "Complete" in {each["type"] for each in jobs.state["j"].live["status"]["conditions"]}


def test_a_failed_job_stays_in_the_state_with_the_reason_and_is_replaced_where_annotated(
    engine: Engines, namespace: str
) -> None:
    jobs, inputs = engine(), job(namespace, wait=True, activeDeadlineSeconds=1)
    with pytest.raises(InitFailed, match=r"\[DeadlineExceeded\]"):
        jobs.up(JOB, "j", inputs)
    assert jobs.state["j"].id == f"{namespace}/job"
    assert jobs.preview(JOB, "j", inputs) == "same"
    inputs["metadata"]["annotations"] = {"pulumi.com/replaceUnready": "true"}
    assert jobs.preview(JOB, "j", inputs).startswith('replace metadata.annotations["pulumi.com/replaceUnready"]')
    inputs["metadata"]["annotations"] |= {"pulumi.com/skipAwait": "true"}
    assert jobs.preview(JOB, "j", inputs).startswith('replace metadata.annotations["pulumi.com/replaceUnready"]')


def test_a_patch_sets_its_fields_and_gives_them_up_again(
    engine: Engines, control_plane: ControlPlane, namespace: str
) -> None:
    foreign_config_map(control_plane, namespace, "c")
    patches, inputs = engine(), config_map(namespace, name="c", b="2")
    patches.up("core/v1:ConfigMapPatch", "p", inputs)
    assert control_plane.live("v1", "ConfigMap", namespace, "c")["data"] == {"b": "2", "z": "1"}
    assert patches.up("core/v1:ConfigMapPatch", "p", inputs) == "same"
    patches.destroy("p")
    assert control_plane.live("v1", "ConfigMap", namespace, "c")["data"] == {"z": "1"}


def test_the_wait_for_annotation_is_waited_for(
    engine: Engines, control_plane: ControlPlane, namespace: str, eventually: Eventually
) -> None:
    def answer() -> None:
        waiting = eventually(lambda: control_plane.live("v1", "ConfigMap", namespace, "settings"))
        control_plane.patch(waiting, {"data": {"ready": "yes"}})

    inputs = config_map(namespace)
    inputs["metadata"]["annotations"] = {"pulumi.com/waitFor": "jsonpath={.data.ready}=yes"}
    other = threading.Thread(target=answer)
    other.start()
    maps = engine()
    maps.up(CONFIG_MAP, "c", inputs)
    other.join()
    assert maps.state["c"].live["data"] == {"ready": "yes"}


def test_an_object_is_created_once_its_namespace_exists(
    engine: Engines, control_plane: ControlPlane, namespace: str, eventually: Eventually
) -> None:
    late, maps = f"{namespace}-late", engine()

    def create() -> None:
        eventually(lambda: any("Retry" in message for message in maps.messages))
        obj = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": late}}
        control_plane.cluster.apply(obj, manager="test", force=True, dry_run=False)

    other = threading.Thread(target=create)
    other.start()
    assert maps.up(CONFIG_MAP, "c", config_map(late, a="1")) == "create"
    other.join()


def test_an_object_of_the_same_name_that_is_being_deleted_is_waited_for(
    engine: Engines, control_plane: ControlPlane, namespace: str, eventually: Eventually
) -> None:
    maps, held = engine(), config_map(namespace)
    held["metadata"]["finalizers"] = ["example.test/held"]
    foreign = {"apiVersion": "v1", "kind": "ConfigMap", **held}
    control_plane.cluster.apply(foreign, manager="someone", force=True, dry_run=False)
    control_plane.cluster.delete(foreign, "Background")

    def release() -> None:
        eventually(lambda: any("example.test/held" in message for message in maps.messages))
        control_plane.patch(foreign, {"metadata": {"finalizers": None}})

    other = threading.Thread(target=release)
    other.start()
    assert maps.up(CONFIG_MAP, "c", config_map(namespace, a="1")) == "create"
    other.join()
    assert control_plane.live("v1", "ConfigMap", namespace, "settings")["data"] == {"a": "1"}


def test_an_unreachable_cluster_is_named_and_its_objects_can_be_dropped(
    engine: Engines, control_plane: ControlPlane, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    maps = engine()
    maps.up(CONFIG_MAP, "c", config_map(namespace, a="1"))
    config = json.loads(control_plane.kubeconfig)
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9"
    lost = Engine(json.dumps(config), {"enableConfigMapMutable": True}, maps.state)
    for step in (
        lambda: lost.up(CONFIG_MAP, "c", config_map(namespace, a="1", b="2")),
        lambda: lost.refresh("c"),
        lambda: lost.destroy("c"),
    ):
        with pytest.raises(PluginError, match=r"unreachable.*127\.0\.0\.1:9"):
            step()
    monkeypatch.setenv("PULUMI_K8S_DELETE_UNREACHABLE", "true")
    Engine(json.dumps(config), {}, maps.state).destroy("c")
