"""The real engine and SDK, the stand-in, and a real API server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from localcloud import tools

from packages.localcloud.tests.standins.engine_stack import EngineStack
from packages.localcloud.tests.standins.kubernetes.conftest import ControlPlane
from tidewater.kube.errors import NotFound

pytestmark = pytest.mark.e2e

HEAD = """
import os, pulumi, pulumi_kubernetes as k8s
provider = k8s.Provider('cluster', kubeconfig=os.environ['TEST_KUBECONFIG'])
on = pulumi.ResourceOptions(provider=provider)
where = {'namespace': os.environ['TEST_NAMESPACE']}
"""
LIFE = (
    HEAD
    + """
k8s.core.v1.ConfigMap('settings', metadata=where | {'name': 'settings'}, data={'a': os.environ['TEST_A']}, opts=on)
unnamed = k8s.core.v1.ConfigMap('made', metadata=where, opts=on)
k8s.core.v1.Secret('s', metadata=where | {'name': 's'}, string_data={'k': 'hunter2'}, opts=on)
crd = k8s.apiextensions.v1.CustomResourceDefinition('crd', metadata={'name': 'toys.example.test'}, spec={
    'group': 'example.test', 'scope': 'Namespaced', 'names': {'plural': 'toys', 'singular': 'toy', 'kind': 'Toy'},
    'versions': [{'name': 'v1', 'served': True, 'storage': True, 'schema': {'openAPIV3Schema': {
        'type': 'object', 'properties': {'spec': {'type': 'object', 'x_kubernetes_preserve_unknown_fields': True}},
    }}}]}, opts=on)
k8s.apiextensions.CustomResource('toy', api_version='example.test/v1', kind='Toy', spec={'size': 3},
    metadata=where | {'name': unnamed.metadata['name']},
    opts=pulumi.ResourceOptions.merge(on, pulumi.ResourceOptions(depends_on=[crd])))
if found := os.environ.get('TEST_IMPORT'):
    k8s.core.v1.ConfigMap('found', metadata=where | {'name': 'found'}, data={'z': '1'},
        opts=pulumi.ResourceOptions.merge(on, pulumi.ResourceOptions(import_=found)))
"""
)
WAITING = (
    HEAD
    + """
labels = {'app': 'web'}
k8s.apps.v1.Deployment('web', metadata=where | {'name': 'web'}, spec={
    'replicas': int(os.environ['TEST_REPLICAS']), 'selector': {'matchLabels': labels},
    'template': {'metadata': {'labels': labels}, 'spec': {'containers': [{'name': 'main', 'image': 'none'}]}},
}, opts=pulumi.ResourceOptions.merge(on, pulumi.ResourceOptions(
    custom_timeouts=pulumi.CustomTimeouts(create='10s', update='10s'))))
"""
)
"""The Deployment controller must react within the time-outs: before, there is nothing to say about its pods."""

TAKEN_OVER = (
    HEAD
    + """
crd = k8s.apiextensions.v1.CustomResourceDefinition('crd', metadata={'name': 'runs.example.test'}, spec={
    'group': 'example.test', 'scope': 'Namespaced', 'names': {'plural': 'runs', 'singular': 'run', 'kind': 'Run'},
    'versions': [{'name': 'v1', 'served': True, 'storage': True, 'schema': {'openAPIV3Schema': {
        'type': 'object', 'x-kubernetes-preserve-unknown-fields': True, 'properties': {'spec': {
            'type': 'object', 'properties': {'size': {'type': 'integer', 'default': 2}}, 'x-kubernetes-validations': [
                {'rule': 'self.size <= 8', 'message': 'size must be at most 8'}]}}}}}]}, opts=on)
name = where | {'name': 'train'}
if os.environ['TEST_KIND'] == 'Job':
    pod = {'restartPolicy': 'Never', 'containers': [{'name': 'main', 'image': 'none'}]}
    k8s.batch.v1.Job('job-train', metadata=name | {'annotations': {'pulumi.com/skipAwait': 'true'}},
        spec={'parallelism': 0, 'template': {'spec': pod}}, opts=on)
else:
    k8s.apiextensions.CustomResource('run', api_version='example.test/v1', kind='Run', metadata=name,
        spec={'size': int(os.environ['TEST_SIZE'])}, opts=pulumi.ResourceOptions.merge(on, pulumi.ResourceOptions(
            depends_on=[crd], aliases=[pulumi.Alias(type_='kubernetes:batch/v1:Job', name='job-train')],
            replace_on_changes=['apiVersion', 'kind'], delete_before_replace=True)))
"""
)

MOUNTED = (
    HEAD
    + """
claimed = {'storageClassName': '', 'accessModes': ['ReadWriteMany']}
volume = k8s.core.v1.PersistentVolume('volume', metadata={'name': where['namespace']}, spec={
    'capacity': {'storage': '1Gi'}, 'accessModes': ['ReadWriteMany'], 'persistentVolumeReclaimPolicy': 'Retain',
    'claimRef': where | {'name': 'data'},
    'csi': {'driver': 'efs.csi.aws.com', 'volumeHandle': os.environ['TEST_HANDLE']}},
    opts=pulumi.ResourceOptions.merge(on, pulumi.ResourceOptions(delete_before_replace=True)))
claim = k8s.core.v1.PersistentVolumeClaim('claim', metadata=where | {'name': 'data'}, spec=claimed | {
    'volumeName': volume.id, 'resources': {'requests': {'storage': '1Gi'}}},
    opts=pulumi.ResourceOptions.merge(on, pulumi.ResourceOptions(
        replace_on_changes=['spec'], delete_before_replace=True)))
for name in ('a', 'b', 'c', 'd', 'e'):
    k8s.core.v1.Pod(name, metadata=where | {'name': name, 'annotations': {'pulumi.com/skipAwait': 'true'}}, spec={
        'nodeName': 'none', 'terminationGracePeriodSeconds': 0, 'containers': [{'name': 'main', 'image': 'none'}],
        'volumes': [{'name': 'data', 'persistentVolumeClaim': {'claimName': 'data'}}]},
        opts=pulumi.ResourceOptions.merge(on, pulumi.ResourceOptions(
            depends_on=[claim], replace_with=[volume], delete_before_replace=True)))
"""
)
"""Pods on a node that isn't there: they mount the claim as long as they exist.

The engine deletes what has `replace_with` in any order; but before what is replaced for a property. One pod less, and
the claim would be deleted last by chance more often.
"""

CHART = (
    HEAD
    + """
first = k8s.core.v1.ConfigMap('first', metadata=where | {'name': 'first'}, opts=on)
chart = k8s.helm.v4.Chart('demo', chart='charts/demo', namespace=os.environ['TEST_NAMESPACE'],
    values={'word': os.environ['TEST_WORD'], 'ids': [first.id]}, opts=on)
k8s.core.v1.ConfigMap('after', metadata=where | {'name': 'after'}, opts=pulumi.ResourceOptions.merge(
    on, pulumi.ResourceOptions(depends_on=[chart])))
pulumi.export('objects', chart.resources.apply(len))
"""
)
CHART_FILES = {
    "Chart.yaml": "{apiVersion: v2, name: demo, version: 0.1.0}",
    "templates/settings.yaml": """
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}}
data: {word: {{ .Values.word }}, id: {{ first .Values.ids }}}
""",
}


@pytest.fixture
def stack(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> Callable[..., EngineStack]:
    """Return a function that makes a stack of the test's own in its own namespace."""

    def make(program: str, **environment: str) -> EngineStack:
        plane = {"TEST_KUBECONFIG": control_plane.kubeconfig, "TEST_NAMESPACE": namespace}
        made = EngineStack(tmp_path, {**plane, **environment})
        made.program(program)
        return made

    return make


def resources(stack: EngineStack, kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(stack.state())["checkpoint"]["latest"].get("resources") or []
    return [each for each in found if each["type"].endswith(f":{kind}")]


def test_life_of_a_stack(stack: Any, control_plane: ControlPlane, namespace: str) -> None:
    made = stack(LIFE, TEST_A="1")
    assert "+ 7 to create" in made.pulumi("up", "--yes")
    (name,) = (each["outputs"]["metadata"]["name"] for each in resources(made, "ConfigMap") if "made-" in each["id"])
    assert control_plane.live("v1", "ConfigMap", namespace, "settings")["data"] == {"a": "1"}
    assert control_plane.live("example.test/v1", "Toy", namespace, name)["spec"] == {"size": 3}
    assert "hunter2" not in made.state()
    foreign = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"z": "1"}}
    foreign["metadata"] = {"name": "found", "namespace": namespace}
    control_plane.cluster.apply(foreign, manager="someone", force=True, dry_run=False)
    made.environment |= {"TEST_A": "2", "TEST_IMPORT": f"{namespace}/found"}
    assert "+-1 to replace" in made.pulumi("up", "--yes")
    assert control_plane.live("v1", "ConfigMap", namespace, "settings")["data"] == {"a": "2"}
    assert {each["id"] for each in resources(made, "ConfigMap")} == {
        f"{namespace}/{each}" for each in ("settings", "found", name)
    }
    made.pulumi("preview", "--refresh", "--expect-no-changes")
    made.pulumi("destroy", "--yes", "--skip-preview")
    assert not resources(made, "ConfigMap")


def test_a_failed_wait_leaves_the_object_in_the_state_and_the_next_up_tries_again(stack: Any, namespace: str) -> None:
    made = stack(WAITING, TEST_REPLICAS="1")
    assert "Minimum number of live Pods was not attained" in made.up(fails=True)
    (kept,) = resources(made, "Deployment")
    assert kept["id"] == f"{namespace}/web"
    assert kept["initErrors"]
    made.up(fails=True)
    made.environment["TEST_REPLICAS"] = "0"
    made.up()
    assert "initErrors" not in resources(made, "Deployment")[0]


def test_an_alias_lets_a_custom_resource_replace_an_object_of_another_kind(
    stack: Any, control_plane: ControlPlane, namespace: str, eventually: Callable[[Callable[[], Any]], Any]
) -> None:
    def job_is_gone() -> bool:
        try:
            control_plane.live("batch/v1", "Job", namespace, "train")
        except NotFound:
            return True
        return False

    made = stack(TAKEN_OVER, TEST_KIND="Job", TEST_SIZE="3")
    made.pulumi("up", "--yes")
    made.environment["TEST_KIND"] = "Run"
    assert "+-1 to replace" in made.pulumi("up", "--yes")
    assert control_plane.live("example.test/v1", "Run", namespace, "train")["spec"] == {"size": 3}
    eventually(job_is_gone)
    made.pulumi("preview", "--expect-no-changes")
    made.environment["TEST_SIZE"] = "9"
    assert "size must be at most 8" in made.up(fails=True)
    made.environment["TEST_SIZE"] = "4"
    made.pulumi("up", "--yes")
    assert control_plane.live("example.test/v1", "Run", namespace, "train")["spec"] == {"size": 4}
    made.pulumi("preview", "--refresh", "--expect-no-changes")
    made.pulumi("destroy", "--yes", "--skip-preview")


def test_with_a_volume_that_is_replaced_the_pods_that_mount_it_are_deleted_and_then_its_claim(
    stack: Any, control_plane: ControlPlane, namespace: str
) -> None:
    made = stack(MOUNTED, TEST_HANDLE="fs-1::fsap-1")
    made.up()
    made.environment["TEST_HANDLE"] = "fs-1::fsap-2"
    assert "+-7 replaced" in made.up()
    spec = control_plane.live("v1", "PersistentVolume", "", namespace)["spec"]
    assert spec["csi"]["volumeHandle"] == "fs-1::fsap-2"
    assert control_plane.live("v1", "PersistentVolumeClaim", namespace, "data")["status"]["phase"] == "Bound"
    made.pulumi("destroy", "--yes", "--skip-preview")


def test_life_of_a_chart_in_a_folder_of_the_program(stack: Any, control_plane: ControlPlane, namespace: str) -> None:
    made = stack(CHART, TEST_WORD="one")
    made.environment["PATH"] = f"{tools.binary('helm').parent}:{made.environment['PATH']}"
    for name, text in CHART_FILES.items():
        (made.folder / "charts/demo" / name).parent.mkdir(parents=True, exist_ok=True)
        (made.folder / "charts/demo" / name).write_text(text)
    incomplete = made.pulumi("preview")
    assert "Input properties have unknown values. Preview is incomplete." in incomplete
    assert f"demo:{namespace}/demo" not in incomplete
    made.up()
    assert made.outputs() == {"objects": 1}
    (component,) = resources(made, "Chart")
    assert not component.get("inputs")
    assert not component.get("outputs"), "the official plug-in registers none"
    (child,) = (each for each in resources(made, "ConfigMap") if each["id"] == f"{namespace}/demo")
    parents = "kubernetes:helm.sh/v4:Chart$kubernetes:core/v1:ConfigMap"
    assert child["urn"] == f"urn:pulumi:dev::t::{parents}::demo:{namespace}/demo"
    live = control_plane.live("v1", "ConfigMap", namespace, "demo")
    assert live["data"] == {"word": "one", "id": f"{namespace}/first"}
    made.environment["TEST_WORD"] = "two"
    assert "+-1 to replace" in made.pulumi("up", "--yes")  # as any ConfigMap with other data
    assert control_plane.live("v1", "ConfigMap", namespace, "demo")["data"]["word"] == "two"
    made.pulumi("preview", "--refresh", "--expect-no-changes")
    made.pulumi("destroy", "--yes", "--skip-preview")
    assert not resources(made, "ConfigMap")
