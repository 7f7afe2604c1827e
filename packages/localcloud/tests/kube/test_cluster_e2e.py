"""A real cluster of two nodes and one with GPUs: what works on it, a power cut, and stopping leaves nothing."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
import urllib.request
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from localcloud import kube, tools
from localcloud.host import cgroups
from localcloud.instance import Instance
from localcloud.kube.addon_manifests import EFS
from localcloud.kube.draining import pods_on

from packages.localcloud.tests.kube.harness import (
    DRIVER_KEY,
    FILE_SYSTEM,
    READY_SECONDS,
    Cluster,
    node_spec,
    traces,
    wait_for,
)
from packages.localcloud.tests.kube.manifests import (
    FETCH,
    GPU,
    INTRUDE,
    intruder,
    plugin,
    service,
    volume,
    web_pod,
    worker,
)

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def web(cluster: Cluster) -> Cluster:
    """One pod on each node, each with a service; both mount one volume."""
    names = [node.spec.name for node in cluster.nodes]
    cluster.apply(*volume(), web_pod("one", names[0]), web_pod("two", names[1]), service("one"), service("two"))
    cluster.kubectl("wait", "--for=condition=Ready", "pod/one", "pod/two", f"--timeout={READY_SECONDS}s")
    wait_for("cluster DNS", lambda: cluster.addons.status("coredns") == "ACTIVE")
    return cluster


def test_nodes_have_the_provider_id_labels_and_address_of_eks(cluster: Cluster) -> None:
    node = json.loads(cluster.kubectl("get", "node", cluster.nodes[0].spec.name, "-o", "json"))
    assert node["spec"]["providerID"] == "aws:///us-west-2a/i-0123456789abcdef0"
    assert node["metadata"]["labels"]["eks.amazonaws.com/nodegroup"] == "workers"
    assert node["metadata"]["labels"]["topology.kubernetes.io/zone"] == "us-west-2a"
    assert node["status"]["addresses"][0] == {"type": "InternalIP", "address": "10.0.0.5"}


def test_pods_on_two_nodes_share_an_efs_volume_with_the_access_points_owner(web: Cluster) -> None:
    web.kubectl("exec", "one", "--", "sh", "-c", "echo from one > /data/note")
    assert web.kubectl("exec", "two", "--", "cat", "/data/note") == "from one\n"
    assert web.kubectl("exec", "two", "--", "stat", "-c", "%u:%g %a", "/data").strip() == "1000:1000 750"
    assert (web.instance.state / "efs" / FILE_SYSTEM / "job" / "note").read_text() == "from one\n"


def test_service_names_resolve_and_services_reach_pods_on_every_node(web: Cluster) -> None:
    for name in ("one", "two"):
        listing = web.kubectl("exec", "one", "--", "python3", "-c", FETCH, f"http://{name}.default.svc.cluster.local/")
        assert "Directory listing" in listing


def test_pods_reach_the_api_server_and_the_aws_endpoint_but_resolve_no_outside_name(web: Cluster) -> None:
    # Without an answer it takes 40 s: 5 s, twice, for the name itself and with each of the 3 search domains.
    probe = (
        "import ssl, socket, time, urllib.request\n"
        "c = socket.create_connection(('kubernetes.default', 443), 30)\n"
        "context = ssl.create_default_context(cafile='/var/run/secrets/kubernetes.io/serviceaccount/ca.crt')\n"
        "context.wrap_socket(c, server_hostname='kubernetes.default')\n"
        f"urllib.request.urlopen('{web.instance.cloud_endpoint}/2015-02-01/file-systems', timeout=30)\n"
        "started = time.monotonic()\n"
        "try: socket.getaddrinfo('example.com', 80)\n"
        "except socket.gaierror: print(f'refused in {time.monotonic() - started < 30}')\n"
    )
    assert web.kubectl("exec", "one", "--", "python3", "-c", probe) == "refused in True\n"


def test_the_pod_identity_agent_gives_credentials_to_pods(web: Cluster) -> None:
    probe = (
        "import urllib.request as u\n"
        "r = u.Request('http://169.254.170.23/v1/credentials', headers={'Authorization': 'token'})\n"
        "print(u.urlopen(r, timeout=30).read().decode())"
    )
    credentials = json.loads(web.kubectl("exec", "two", "--", "python3", "-c", probe))
    assert (credentials["AccessKeyId"], credentials["Token"]) == ("A", "C")


def test_logs_describe_and_port_forward_work(web: Cluster) -> None:
    web.kubectl("exec", "two", "--", "python3", "-c", FETCH, "http://one.default/")
    wait_for("the log of the request", lambda: "GET / HTTP/1.1" in web.kubectl("logs", "one"))
    assert re.search(r"Normal +Started ", web.kubectl("describe", "pod", "one"))
    command = [str(tools.binary("kubectl")), "--kubeconfig", str(web.plane.admin_kubeconfig)]
    forward = subprocess.Popen([*command, "port-forward", "pod/one", ":8000"], stdout=subprocess.PIPE)
    try:
        assert forward.stdout is not None
        forwarding = re.match(rb"Forwarding from (127\.0\.0\.1:\d+) ", forward.stdout.readline())
        assert forwarding
        with urllib.request.urlopen(f"http://{forwarding[1].decode()}/", timeout=30) as response:
            assert b"Directory listing" in response.read()
    finally:
        forward.terminate()
        forward.wait()


def test_a_privileged_pod_with_host_paths_writes_only_to_its_node(cluster: Cluster) -> None:
    mark = f"localcloud-{uuid.uuid4().hex}"
    paths = ["/", "/root", "/etc", "/home", "/var"]
    of_the_user = Path("/root", f"{mark}-of-the-user")
    of_the_user.touch()
    try:
        cluster.apply(intruder(cluster.nodes[0].spec.name, paths))
        cluster.kubectl("wait", "--for=condition=Ready", "pod/intruder", f"--timeout={READY_SECONDS}s")
        report = json.loads(cluster.kubectl("exec", "intruder", "--", "python3", "-c", INTRUDE, mark, *paths))
        assert report["seen"].count(mark) == len(paths) + 1  # /proc/1/root/root is also the node's /root
        assert of_the_user.name not in report["seen"]
        assert [path for path in paths if Path(path, mark).exists()] == []
        assert (report["disks"], report["made"]) == ([], False)
        for name in report["changed"]:
            assert [path for path in tools.node_image().rglob(name) if mark.encode() in path.read_bytes()] == []
    finally:
        cluster.kubectl("delete", "pod", "intruder", "--ignore-not-found")
        of_the_user.unlink()
        for path in paths:
            Path(path, mark).unlink(missing_ok=True)


def test_a_volume_without_mount_target_in_the_zone_is_refused_by_the_driver(cluster: Cluster) -> None:
    from localcloud.kube.csi import efs
    from localcloud.kube.csi.volume import NotMountable, Volume

    ask = efs.api(cluster.instance.cloud_endpoint, "us-west-2", "key", "secret")
    with pytest.raises(NotMountable, match="no available mount target in us-west-2c"):
        efs.check(ask, Volume(FILE_SYSTEM), "us-west-2c")


VCPUS = 48
TAINT = {"key": GPU, "value": "true", "effect": "NO_SCHEDULE"}
GPU_NODE = node_spec(2).name


@pytest.fixture(scope="module")
def gpus(cluster: Cluster) -> Cluster:
    """Return the cluster after it has got a node of a type with 4 GPUs, and more CPUs than this machine."""
    spec = replace(node_spec(2), instance_type="g5.12xlarge", vcpus=VCPUS, gpus=4, taints=[TAINT])
    node = kube.Node(cluster.instance, cluster.supervisor, cluster.plane, spec, DRIVER_KEY)
    cluster.nodes.append(node)
    node.start()
    wait_for("a Ready node", node.ready)
    return cluster


def advertised(cluster: Cluster) -> str:
    node = json.loads(cluster.kubectl("get", "node", GPU_NODE, "-ojson"))
    return str(node["status"]["allocatable"].get(GPU, "nothing"))


def devices(cluster: Cluster, pod: str) -> list[str]:
    cluster.kubectl("wait", "--for=condition=Ready", f"pod/{pod}", f"--timeout={READY_SECONDS}s")
    return sorted(name for name in cluster.kubectl("logs", pod).split() if name.startswith("nvidia"))


def unschedulable(cluster: Cluster, pod: str) -> str:
    """The scheduler's reason, or nothing."""
    found = json.loads(cluster.kubectl("get", "pod", pod, "-ojson"))["status"].get("conditions", [])
    return next((each["message"] for each in found if each.get("reason") == "Unschedulable"), "")


def test_a_node_has_the_cpus_of_its_type_though_the_host_has_fewer(gpus: Cluster) -> None:
    node = json.loads(gpus.kubectl("get", "node", GPU_NODE, "-ojson"))
    assert node["status"]["capacity"]["cpu"] == str(VCPUS)


def test_without_privileges_the_plugin_finds_no_gpu_and_ends(gpus: Cluster) -> None:
    wait_for("a service account", lambda: "default" in gpus.kubectl("get", "serviceaccounts", "-oname"))
    gpus.apply(plugin(GPU_NODE, privileged=False))

    def says() -> bool:
        logs = gpus.kubectl("logs", "-l", "app=plugin", "--ignore-errors", "--tail=5")
        return "no NVIDIA device found: the node has no GPU, or this container lacks privileges" in logs

    wait_for("a plug-in that has ended", says)
    assert advertised(gpus) == "nothing"


def test_with_privileges_the_node_shows_its_gpus(gpus: Cluster) -> None:
    gpus.apply(plugin(GPU_NODE))
    wait_for("4 GPUs", lambda: advertised(gpus) == "4")


def test_pods_without_privileges_get_the_gpus_of_their_limit_and_no_others(gpus: Cluster) -> None:
    gpus.apply(worker(GPU_NODE, "three", 3, cpu="40"), worker(GPU_NODE, "single", 1), worker(GPU_NODE, "none", 0))
    three, single = devices(gpus, "three"), devices(gpus, "single")
    assert sorted([*three, *single]) == ["nvidia0", "nvidia1", "nvidia2", "nvidia3"]
    assert len(three) == 3
    assert devices(gpus, "none") == []


def test_a_pod_that_does_not_tolerate_the_taint_or_finds_no_free_gpu_waits(gpus: Cluster) -> None:
    gpus.apply(worker(GPU_NODE, "stranger", 0, tolerates=False), worker(GPU_NODE, "late", 1))
    wait_for("a reason", lambda: "untolerated taint" in unschedulable(gpus, "stranger"))
    wait_for("a reason", lambda: f"Insufficient {GPU}" in unschedulable(gpus, "late"))
    gpus.kubectl("delete", "pod", "single", "--wait")
    assert len(devices(gpus, "late")) == 1


def test_with_the_strategy_envvar_a_pod_gets_no_device(gpus: Cluster) -> None:
    gpus.kubectl("delete", "pod", "three", "late", "none", "stranger", "--wait")
    gpus.apply(plugin(GPU_NODE, "envvar"))
    gpus.kubectl("rollout", "status", "daemonset/plugin", f"--timeout={READY_SECONDS}s")

    def admitted() -> bool:
        """Until the new plug-in has registered, the node shows the GPUs of the one before, and refuses pods."""
        gpus.apply(worker(GPU_NODE, "blind", 1))
        phase = gpus.kubectl("get", "pod", "blind", "-ojsonpath={.status.phase}")
        if phase == "Failed":
            gpus.kubectl("delete", "pod", "blind", "--wait")
        return phase == "Running"

    wait_for("a pod that is not refused", admitted)
    assert devices(gpus, "blind") == []


def driver_of(node: kube.Node, instance: Instance) -> int:
    """Return the process of a node's driver for EFS; there is one for FSx for Lustre too."""
    for pid in cgroups.processes(f"{instance.cgroup}/{node.spec.instance_id}"):
        with contextlib.suppress(OSError):  # another process of the node may have ended
            if {b"localcloud.kube.csi", EFS.encode()} <= set(Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")):
                return pid
    raise AssertionError(f"{node.spec.name} has no driver for EFS")


def test_a_driver_that_starts_while_the_api_server_is_away_mounts_volumes_afterwards(web: Cluster) -> None:
    node = web.nodes[1]
    log = web.instance.state / "logs" / f"node-{node.spec.instance_id}-aws-efs-csi-driver.log"
    web.supervisor.kill("demo-kube-apiserver")
    os.kill(driver_of(node, web.instance), signal.SIGKILL)
    wait_for("kubelet to refuse it", lambda: "kubelet refused the registration" in log.read_text())
    web.plane.upgrade(web.plane.spec.version, time.monotonic() + READY_SECONDS)
    web.kubectl("delete", "pod", "two")
    web.apply(web_pod("two", node.spec.name))
    web.kubectl("wait", "--for=condition=Ready", "pod/two", f"--timeout={READY_SECONDS}s")
    assert web.kubectl("exec", "two", "--", "cat", "/data/note") == "from one\n"


def test_a_power_cut_ends_a_node_and_its_pods_are_deleted_with_the_node_object(web: Cluster) -> None:
    node = web.nodes[1]
    started = time.monotonic()
    node.power_off()
    assert time.monotonic() - started < 60  # it waits for no drain, which has READY_SECONDS
    assert not node.alive()
    name = f"{web.instance.cgroup}/{node.spec.instance_id}"
    assert cgroups.folders(name) == []
    assert not Path(f"/run/netns/{web.instance.netns}-{node.spec.instance_id}").exists()
    assert not (web.instance.state / "nodes" / node.spec.instance_id).exists()
    wait_for("NotReady", lambda: not node.ready())
    web.plane.delete_node(node.spec.name)
    assert pods_on(web.plane.client, node.spec.name) == []
    assert "from one" in (web.instance.state / "efs" / FILE_SYSTEM / "job" / "note").read_text()


def test_draining_evicts_pods_and_stopping_removes_everything_from_the_host(web: Cluster) -> None:
    node = web.nodes[0]
    web.plane.drain(node.spec.name, time.monotonic() + READY_SECONDS)
    assert pods_on(web.plane.client, node.spec.name) == []
    for each in web.nodes:
        each.stop()
    web.plane.delete_node(node.spec.name)
    web.plane.stop()
    from localcloud.kube import Network

    assert Network(web.instance).destroy() != []
    wait_for("a clean host", lambda: traces(web.instance) == [])
