"""The real engine and SDK, the stand-in, and a real API server."""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.e2e

IGNORING = """
on = pulumi.ResourceOptions(provider=provider, ignore_changes=['spec.parallelism', 'spec.completions'])
"""
IMPATIENT = """
on = pulumi.ResourceOptions(provider=provider, custom_timeouts=pulumi.CustomTimeouts(create='3s', update='3s'))
"""
Eventually = Callable[[Callable[[], Any]], Any]


def config_map(namespace: str, data: dict[str, str], name: str = "settings") -> str:
    metadata = {"name": name, "namespace": namespace}
    return f"k8s.core.v1.ConfigMap('settings', metadata={metadata!r}, data={data!r}, opts=on)\n"


def job(namespace: str, parallelism: int = 1, *, wait: bool = False, labels: dict[str, str] | None = None) -> str:
    metadata = {"name": "job", "namespace": namespace, "labels": labels or {}}
    if not wait:
        metadata["annotations"] = {"pulumi.com/skipAwait": "true"}
    requests = {"requests": {"cpu": "1000m", "memory": "1024Mi"}}
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none", "resources": requests}]}
    counts = {"parallelism": parallelism, "completions": parallelism, "completionMode": "Indexed"}
    return f"k8s.batch.v1.Job('job', metadata={metadata!r}, spec={counts | {'template': {'spec': pod}}!r}, opts=on)\n"


def deployment(namespace: str, replicas: int = 0, **extra: object) -> str:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template, **extra}
    metadata = {"name": "web", "namespace": namespace}
    return f"k8s.apps.v1.Deployment('web', metadata={metadata!r}, spec={spec!r}, opts=on)\n"


def live(control_plane: Any, api_version: str, kind: str, namespace: str, name: str) -> dict[str, Any]:
    target = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": namespace}}
    found: dict[str, Any] = control_plane.cluster.get(target)
    return found


def patch(
    control_plane: Any, obj: dict[str, Any], body: dict[str, Any], *, suffix: str = "", manager: str = "kubectl"
) -> None:
    path = control_plane.cluster.path_of(obj) + suffix
    control_plane.cluster.request("PATCH", path, {"fieldManager": manager}, body, "application/merge-patch+json")


def test_life_of_a_config_map(stack: Any, control_plane: Any, namespace: str) -> None:
    stack.program(config_map(namespace, {"a": "1"}))
    assert "+ 3 to create" in stack.pulumi("preview").output
    stack.up()
    assert live(control_plane, "v1", "ConfigMap", namespace, "settings")["data"] == {"a": "1"}
    assert stack.resource("ConfigMap")["id"] == f"{namespace}/settings"
    assert "unchanged" in stack.pulumi("preview", "--expect-no-changes").output
    stack.program(config_map(namespace, {"a": "2"}))
    shown = stack.pulumi("preview", "--diff").output
    assert "delete-replaced" in shown or "replace" in shown
    uid = live(control_plane, "v1", "ConfigMap", namespace, "settings")["metadata"]["uid"]
    stack.up()
    after = live(control_plane, "v1", "ConfigMap", namespace, "settings")
    assert after["data"] == {"a": "2"}
    assert after["metadata"]["uid"] != uid
    stack.pulumi("destroy", "--yes", "--skip-preview")
    listed = control_plane.cluster.list_objects("v1", "ConfigMap", namespace)
    assert "settings" not in {each["metadata"]["name"] for each in listed}
    assert stack.state() in ([], None) or all(each["type"] == "pulumi:pulumi:Stack" for each in stack.state())


def test_mutable_config_maps_are_updated_in_place(stack: Any, control_plane: Any, namespace: str) -> None:
    stack.program(config_map(namespace, {"a": "1"}), enable_config_map_mutable=True)
    stack.up()
    uid = live(control_plane, "v1", "ConfigMap", namespace, "settings")["metadata"]["uid"]
    stack.program(config_map(namespace, {"a": "2", "b": "3"}), enable_config_map_mutable=True)
    stack.up(preview=True)
    after = live(control_plane, "v1", "ConfigMap", namespace, "settings")
    assert after["data"] == {"a": "2", "b": "3"}
    assert after["metadata"]["uid"] == uid


def test_unnamed_objects_get_a_name_and_keep_it(stack: Any, control_plane: Any, namespace: str) -> None:
    body = (
        "c = k8s.core.v1.ConfigMap('made', metadata={{'namespace': {0!r}}}, data={{'a': {1!r}}}, opts=on)\n"
        "pulumi.export('n', c.metadata['name'])\n"
    )
    stack.program(body.format(namespace, "1"))
    stack.up(preview=True)
    first = json.loads(stack.pulumi("stack", "output", "--json").output)["n"]
    assert re.fullmatch(r"made-[0-9a-f]{8}", first)
    assert live(control_plane, "v1", "ConfigMap", namespace, first)["metadata"]["annotations"] == {
        "pulumi.com/autonamed": "true"
    }
    stack.pulumi("preview", "--expect-no-changes")
    stack.program(body.format(namespace, "2"))
    stack.up(preview=True)
    second = json.loads(stack.pulumi("stack", "output", "--json").output)["n"]
    assert second != first


def test_changed_parallelism_replaces_a_job_unless_ignored(stack: Any, control_plane: Any, namespace: str) -> None:
    stack.program(job(namespace, 1))
    stack.up(preview=True)
    stack.pulumi("preview", "--expect-no-changes")  # `1000m` and `1` CPU are the same
    uid = live(control_plane, "batch/v1", "Job", namespace, "job")["metadata"]["uid"]
    stack.program(job(namespace, 2))
    assert "spec.parallelism" in stack.pulumi("preview", "--json").output
    stack.up(preview=True)
    replaced = live(control_plane, "batch/v1", "Job", namespace, "job")
    assert replaced["metadata"]["uid"] != uid
    assert replaced["spec"]["parallelism"] == 2
    patch(control_plane, replaced, {"spec": {"parallelism": 3, "completions": 3}}, manager="scaler")
    stack.program(IGNORING + job(namespace, 4, labels={"x": "y"}))
    stack.up(preview=True)
    after = live(control_plane, "batch/v1", "Job", namespace, "job")
    assert after["metadata"]["uid"] == replaced["metadata"]["uid"]
    assert (after["spec"]["parallelism"], after["metadata"]["labels"]["x"]) == (3, "y")


def test_drift_is_seen_by_refresh_and_repaired_by_up(stack: Any, control_plane: Any, namespace: str) -> None:
    stack.program(deployment(namespace), enable_patch_force=True)
    stack.up()
    web = live(control_plane, "apps/v1", "Deployment", namespace, "web")
    patch(control_plane, web, {"spec": {"replicas": 1}}, suffix="/scale")
    refreshed = stack.pulumi("refresh", "--yes", ok=False).output
    assert "replicas" in stack.pulumi("preview", "--json").output, refreshed
    stack.up()
    assert live(control_plane, "apps/v1", "Deployment", namespace, "web")["spec"]["replicas"] == 0


def test_scaled_by_kubectl_without_force_is_a_conflict_that_names_the_manager(
    stack: Any, control_plane: Any, namespace: str
) -> None:
    stack.program(deployment(namespace))
    stack.up()
    web = live(control_plane, "apps/v1", "Deployment", namespace, "web")
    patch(control_plane, web, {"spec": {"replicas": 1}}, suffix="/scale")
    stack.program(deployment(namespace, replicas=2))
    output = stack.up(ok=False).output
    assert "Server-Side Apply field conflict detected" in output
    assert 'conflict with "kubectl"' in output
    assert ".spec.replicas" in output


def test_object_gone_is_created_again_after_a_refresh(stack: Any, control_plane: Any, namespace: str) -> None:
    stack.program(config_map(namespace, {"a": "1"}))
    stack.up()
    control_plane.cluster.delete(live(control_plane, "v1", "ConfigMap", namespace, "settings"), "Background")
    stack.pulumi("refresh", "--yes")
    assert not [each for each in stack.state() if each["type"].endswith("ConfigMap")]
    stack.up()
    assert live(control_plane, "v1", "ConfigMap", namespace, "settings")["data"] == {"a": "1"}


def test_unknown_field_is_refused_by_name(stack: Any, namespace: str) -> None:
    stack.program(deployment(namespace, replicaz=3))
    result = stack.pulumi("preview", ok=False)
    assert result.returncode != 0
    assert "replicaz" in result.output
    assert "web" in result.output


def test_unknown_field_is_refused_while_another_value_is_unknown(stack: Any, namespace: str) -> None:
    stack.program(
        f"first = k8s.core.v1.Namespace('made', opts=on)\n"
        f"k8s.core.v1.ConfigMap('c', metadata={{'namespace': first.metadata['uid']}}, data={{}}, opts=on)\n"
        "pulumi.CustomResource('kubernetes:core/v1:Secret', 's', {'apiVersion': 'v1', 'kind': 'Secret', 'dat': {},\n"
        f"    'metadata': {{'namespace': {namespace!r}, 'labels': {{'u': first.status['phase']}}}}}}, on)\n"
    )
    result = stack.pulumi("preview", ok=False)
    assert result.returncode != 0
    assert 'unknown field "dat"' in result.output


def test_unknown_type_is_refused_by_name(stack: Any, namespace: str) -> None:
    stack.program(
        f"where = {{'name': 'j', 'namespace': {namespace!r}}}\n"
        "pulumi.CustomResource('kubernetes:batch/v1:Joob', 'j',\n"
        "    {'apiVersion': 'batch/v1', 'kind': 'Joob', 'metadata': where}, on)\n"
    )
    result = stack.pulumi("preview", ok=False)
    assert result.returncode != 0
    assert "kubernetes:batch/v1:Joob" in result.output


def test_secrets_are_encrypted_in_the_state(stack: Any, control_plane: Any, namespace: str) -> None:
    stack.program(
        f"where = {{'name': 's', 'namespace': {namespace!r}}}\n"
        "k8s.core.v1.Secret('s', metadata=where, string_data={'k': 'hunter2'}, opts=on)\n"
    )
    stack.up(preview=True)
    encoded = base64.b64encode(b"hunter2").decode()
    text = stack.pulumi("stack", "export").output
    assert "hunter2" not in text
    assert encoded not in text
    assert live(control_plane, "v1", "Secret", namespace, "s")["data"] == {"k": encoded}
    stack.pulumi("preview", "--expect-no-changes")


def test_existing_object_is_not_taken_over_unless_told(stack: Any, control_plane: Any, namespace: str) -> None:
    obj = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "settings", "namespace": namespace},
        "data": {"z": "1"},
    }
    control_plane.cluster.apply(obj, manager="someone", force=True, dry_run=False)
    stack.program(config_map(namespace, {"a": "1"}))
    assert "already exists" in stack.up(ok=False).output
    stack.program(config_map(namespace, {"a": "1"}), upsert_existing_objects=True)
    stack.up()
    assert live(control_plane, "v1", "ConfigMap", namespace, "settings")["data"] == {"a": "1", "z": "1"}


def test_existing_object_is_imported_by_namespace_and_name(stack: Any, control_plane: Any, namespace: str) -> None:
    stack.program(config_map(namespace, {"a": "1"}, "other"))
    stack.up()
    obj = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "found", "namespace": namespace},
        "data": {"z": "1"},
    }
    control_plane.cluster.apply(obj, manager="someone", force=True, dry_run=False)
    both = config_map(namespace, {"a": "1"}, "other") + (
        f"k8s.core.v1.ConfigMap('found', metadata={{'name': 'found', 'namespace': {namespace!r}}}, data={{'z': '1'}},\n"
        f"    opts=pulumi.ResourceOptions.merge(on, pulumi.ResourceOptions(import_='{namespace}/found')))\n"
    )
    stack.program(both)
    stack.up(preview=True)
    assert {each["id"] for each in stack.state() if each["type"].endswith("ConfigMap")} == {
        f"{namespace}/other",
        f"{namespace}/found",
    }
    stack.pulumi("preview", "--expect-no-changes")


def test_failed_wait_leaves_the_object_in_the_state_and_the_next_up_tries_again(
    stack: Any, control_plane: Any, namespace: str
) -> None:
    stack.program(IMPATIENT + deployment(namespace, replicas=1))
    failed = stack.up(ok=False)
    assert failed.returncode != 0
    assert "Minimum number of live Pods was not attained" in failed.output
    kept = stack.resource("Deployment")
    assert kept["id"] == f"{namespace}/web"
    assert kept["initErrors"]
    assert stack.up(ok=False).returncode != 0
    stack.program(deployment(namespace, replicas=0))
    stack.up()
    assert "initErrors" not in stack.resource("Deployment")


def test_job_is_waited_for_until_it_is_complete(
    stack: Any, control_plane: Any, namespace: str, eventually: Eventually
) -> None:
    stack.program(job(namespace, wait=True))

    def finish() -> None:
        target = eventually(lambda: live(control_plane, "batch/v1", "Job", namespace, "job"))
        pod = eventually(lambda: control_plane.cluster.list_objects("v1", "Pod", namespace)[0])
        patch(control_plane, pod, {"status": {"phase": "Succeeded"}}, suffix="/status")
        assert target

    kubelet = threading.Thread(target=finish)
    kubelet.start()
    stack.up()
    kubelet.join()
    conditions = {each["type"] for each in stack.resource("Job")["outputs"]["status"]["conditions"]}
    assert "Complete" in conditions


def test_failed_job_fails_the_update_with_the_reason(stack: Any, namespace: str) -> None:
    stack.program(job(namespace, wait=True).replace("'completions'", "'activeDeadlineSeconds': 1, 'completions'"))
    failed = stack.up(ok=False)
    assert failed.returncode != 0
    assert "[DeadlineExceeded]" in failed.output
    assert stack.resource("Job")["initErrors"]


def test_patch_sets_its_fields_and_gives_them_up_again(stack: Any, control_plane: Any, namespace: str) -> None:
    whole = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c", "namespace": namespace},
        "data": {"a": "1"},
    }
    control_plane.cluster.apply(whole, manager="someone", force=True, dry_run=False)
    where = {"name": "c", "namespace": namespace}
    stack.program(f"k8s.core.v1.ConfigMapPatch('p', metadata={where!r}, data={{'b': '2'}}, opts=on)\n")
    stack.up(preview=True)
    assert live(control_plane, "v1", "ConfigMap", namespace, "c")["data"] == {"a": "1", "b": "2"}
    stack.pulumi("preview", "--expect-no-changes")
    stack.pulumi("destroy", "--yes", "--skip-preview")
    assert live(control_plane, "v1", "ConfigMap", namespace, "c")["data"] == {"a": "1"}


def test_wait_for_annotation_is_waited_for(
    stack: Any, control_plane: Any, namespace: str, eventually: Eventually
) -> None:
    annotations = {"pulumi.com/waitFor": "jsonpath={.data.ready}=yes"}
    metadata = {"name": "w", "namespace": namespace, "annotations": annotations}
    stack.program(f"k8s.core.v1.ConfigMap('w', metadata={metadata!r}, opts=on)\n")

    def answer() -> None:
        waiting = eventually(lambda: live(control_plane, "v1", "ConfigMap", namespace, "w"))
        patch(control_plane, waiting, {"data": {"ready": "yes"}})

    other = threading.Thread(target=answer)
    other.start()
    stack.up()
    other.join()
    assert stack.resource("ConfigMap")["outputs"]["data"] == {"ready": "yes"}


def test_custom_resource_is_created_right_after_its_definition(stack: Any, control_plane: Any, namespace: str) -> None:
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "x_kubernetes_preserve_unknown_fields": True}},
    }
    stack.program(f"""
crd = k8s.apiextensions.v1.CustomResourceDefinition('crd', metadata={{'name': 'toys.example.test'}}, spec={{
    'group': 'example.test', 'scope': 'Namespaced', 'names': {{'plural': 'toys', 'singular': 'toy', 'kind': 'Toy'}},
    'versions': [{{'name': 'v1', 'served': True, 'storage': True,
        'schema': {{'openAPIV3Schema': {schema!r}}}}}]}}, opts=on)
k8s.apiextensions.CustomResource('toy', api_version='example.test/v1', kind='Toy', spec={{'size': 3}},
    metadata={{'name': 'toy', 'namespace': {namespace!r}}},
    opts=pulumi.ResourceOptions.merge(on, pulumi.ResourceOptions(depends_on=[crd])))
""")
    stack.up(preview=True)
    assert live(control_plane, "example.test/v1", "Toy", namespace, "toy")["spec"] == {"size": 3}
    stack.pulumi("preview", "--expect-no-changes")
    stack.pulumi("destroy", "--yes", "--skip-preview")


def test_unreachable_cluster_is_named_and_its_objects_can_be_dropped(stack: Any, namespace: str) -> None:
    stack.program(config_map(namespace, {"a": "1"}), cluster_identifier="same")
    stack.up()
    config = json.loads(stack.kubeconfig)
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9"
    stack.kubeconfig = json.dumps(config)
    stack.program(
        config_map(namespace, {"a": "1", "b": "2"}), cluster_identifier="same", enable_config_map_mutable=True
    )
    failed = stack.up(ok=False)
    assert failed.returncode != 0
    assert "configured Kubernetes cluster is unreachable" in failed.output
    assert "127.0.0.1:9" in failed.output
    assert stack.pulumi("destroy", "--yes", "--skip-preview", ok=False).returncode != 0
    stack.environment["PULUMI_K8S_DELETE_UNREACHABLE"] = "true"
    stack.pulumi("destroy", "--yes", "--skip-preview")
