"""Prometheus on the cluster: what it may do, that promtool accepts its configuration, and when it is made."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from scripts import toolchain
from tests import graph
from tests.security.reach import Network, Pod
from tidewater.contract import devices, labels
from tidewater.elasticjob import names
from workloads.etcd import manifests as etcd
from workloads.monitoring import component, scrape, server

EVERYTHING = scrape.Parts(gpus=True, karpenter=True)
CONFIG_MAP = "kubernetes:core/v1:ConfigMap"
DEPLOYMENT = "kubernetes:apps/v1:Deployment"
DAEMON_SET = "kubernetes:apps/v1:DaemonSet"
NAMESPACE = "kubernetes:core/v1:Namespace"
POLICY = "kubernetes:networking.k8s.io/v1:NetworkPolicy"


def deployed(monitoring: str, file: str = "Pulumi.local.yaml", **changes: Any) -> graph.Graph:
    return graph.deploy({**graph.stack_config(file), "monitoring": monitoring, **changes})


def names_of(made: graph.Graph) -> set[tuple[str, str]]:
    return {(each.type, each.name) for each in made.resources}


def jobs(parts: scrape.Parts, reader: scrape.Reader = scrape.SELF) -> dict[str, dict[str, Any]]:
    """The targets by their name."""
    return {each["job_name"]: each for each in scrape.configuration(parts, reader)["scrape_configs"]}


@pytest.mark.parametrize("parts", [scrape.Parts(), EVERYTHING], ids=["cpus", "everything"])
def test_promtool_accepts_the_configuration(parts: scrape.Parts, tmp_path: Path) -> None:
    for name, text in server.files(parts).items():
        # promtool looks for the files of the service account.
        (tmp_path / name).write_text(text.replace("/var/run/secrets/kubernetes.io/serviceaccount", str(tmp_path)))
    for name in ("token", "ca.crt"):
        (tmp_path / name).touch()
    done = subprocess.run(
        [toolchain.monitoring_binary("promtool"), "check", "config", tmp_path / "prometheus.yml"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rules found" in done.stdout


def test_without_monitoring_nothing_is_added() -> None:
    without, with_it = deployed("none"), deployed("prometheus")
    added = {name for _, name in names_of(with_it) - names_of(without)}
    assert names_of(without) < names_of(with_it)
    maps = {name for name in added if name.startswith("configmap-prometheus-")}
    assert len(maps) == 1
    assert added - maps == {
        "monitoring",
        "namespace-tidewater-monitoring",
        "configmap-tidewater-dashboard",
        "serviceaccount-prometheus",
        "clusterrole-tidewater-monitoring",
        "clusterrolebinding-tidewater-monitoring",
        "deployment-prometheus",
        "service-prometheus",
        "networkpolicy-etcd-metrics",
    }


def test_nothing_waits_for_prometheus() -> None:
    made = deployed("prometheus")
    pods = made.one(DEPLOYMENT, "prometheus")
    waiting = [each.name for each in made.resources if pods.urn in each.needs]
    assert waiting == ["service-prometheus"]


def test_it_may_only_find_pods_and_nodes_and_read_metrics() -> None:
    rules = (
        deployed("prometheus").one("kubernetes:rbac.authorization.k8s.io/v1:ClusterRole", "monitoring").inputs["rules"]
    )
    allowed = {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}
    assert {verb for _, verb in allowed} <= {"get", "list", "watch"}
    assert {resource for resource, _ in allowed} == {"pods", "nodes", "nodes/metrics"}


def test_its_pod_passes_the_restricted_standard_that_its_namespace_enforces() -> None:
    made = deployed("prometheus")
    space = made.one("kubernetes:core/v1:Namespace", "tidewater-monitoring").inputs["metadata"]["labels"]
    assert space["pod-security.kubernetes.io/enforce"] == "restricted"
    spec = made.one(DEPLOYMENT, "prometheus").inputs["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in spec["containers"]:
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"]["memory"]


def test_another_configuration_makes_another_pod() -> None:
    def mounted(made: graph.Graph) -> str:
        volumes = made.one(DEPLOYMENT, "prometheus").inputs["spec"]["template"]["spec"]["volumes"]
        (name,) = [each["configMap"]["name"] for each in volumes if "configMap" in each]
        assert name in {each.inputs["metadata"]["name"] for each in made.all(CONFIG_MAP)}
        return str(name)

    with_karpenter, without = deployed("prometheus"), deployed("prometheus", surgeNodes="nodegroup")
    assert mounted(with_karpenter) != mounted(without)
    assert mounted(with_karpenter) == mounted(deployed("prometheus", workers=3))


def test_grafana_finds_the_dashboard_by_its_label() -> None:
    inputs = deployed("prometheus").one(CONFIG_MAP, "dashboard").inputs
    assert inputs["metadata"]["labels"]["grafana_dashboard"] == "1"
    ((file, text),) = inputs["data"].items()
    assert file.endswith(".json")
    assert json.loads(text)["uid"] == "tidewater-training"


def test_gpus_are_measured_where_workers_have_some() -> None:
    with_gpus = deployed("prometheus", "Pulumi.aws.yaml.example")
    exporter = with_gpus.one(DAEMON_SET, scrape.GPU_EXPORTER).inputs
    (container,) = exporter["spec"]["template"]["spec"]["containers"]
    assert container["image"].startswith("nvcr.io/nvidia/k8s/dcgm-exporter:4.")
    assert scrape.GPU_EXPORTER not in {each.name for each in deployed("prometheus").all(DAEMON_SET)}
    assert "gpus" in jobs(EVERYTHING)
    assert "gpus" not in jobs(scrape.Parts())


def test_the_exporter_requests_no_gpu_and_has_no_privilege_but_the_one_that_shows_them() -> None:
    """A GPU that it requested would be missing for a worker."""
    (container,) = component.exporter_manifest("dcgm:4", {})["spec"]["template"]["spec"]["containers"]
    assert "nvidia.com/gpu" not in json.dumps(container["resources"])
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["SYS_ADMIN"]}
    assert "privileged" not in container["securityContext"]


def test_nodes_that_have_no_gpus_yet_do_not_hold_an_update_up() -> None:
    # Pulumi waits for a DaemonSet's pods: https://github.com/pulumi/pulumi-kubernetes/pull/2953
    assert component.exporter_manifest("dcgm:4", {})["metadata"]["annotations"] == {"pulumi.com/skipAwait": "true"}


def test_the_exporter_is_in_the_namespace_that_accepts_its_privilege_and_goes_before_it() -> None:
    made = deployed("prometheus", "Pulumi.aws.yaml.example")
    exporter = made.one(DAEMON_SET, scrape.GPU_EXPORTER)
    space = made.one(NAMESPACE, devices.NAMESPACE)
    assert exporter.inputs["metadata"]["namespace"] == space.inputs["metadata"]["name"]
    assert space.inputs["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    assert made.needs(exporter, space)


def test_prometheus_finds_and_reaches_the_exporter() -> None:
    made = deployed("prometheus", "Pulumi.aws.yaml.example")
    source, exporter = (
        Pod(each.inputs["metadata"]["namespace"], each.inputs["spec"]["template"]["metadata"]["labels"])
        for each in (made.one(DEPLOYMENT, "prometheus"), made.one(DAEMON_SET, scrape.GPU_EXPORTER))
    )
    (content,) = (each.inputs["data"] for each in made.all(CONFIG_MAP) if each.name.startswith("configmap-prometheus-"))
    found = {each["job_name"]: each for each in json.loads(content["prometheus.yml"])["scrape_configs"]}["gpus"]
    assert found["kubernetes_sd_configs"] == [{"role": "pod", "namespaces": {"names": [exporter.namespace]}}]
    assert found["relabel_configs"][0]["regex"] == exporter.labels[labels.NAME]

    policies = [each.inputs for each in made.all(POLICY)]
    spaces = [each.inputs["metadata"]["name"] for each in made.all(NAMESPACE)]
    network = Network(policies, {name: {"kubernetes.io/metadata.name": name} for name in spaces})
    assert network.lets(source, exporter, component.PORT)


def test_all_processes_of_all_workers_are_read() -> None:
    rules = jobs(scrape.Parts())["workers"]["relabel_configs"]
    patterns = {rule["source_labels"][0]: rule["regex"] for rule in rules if rule.get("action") == "keep"}
    assert patterns == {
        "__meta_kubernetes_pod_label_group_name": names.GROUP.replace(".", "\\."),
        "__meta_kubernetes_pod_container_port_name": "metrics(-[0-9]+)?",
    }


def test_the_gpus_keep_the_names_of_the_pods_that_use_them() -> None:
    targets = {rule.get("target_label") for rule in jobs(EVERYTHING)["gpus"]["relabel_configs"]}
    assert targets & {"namespace", "pod"} == set()
    assert "node" in targets


def test_kubelets_are_asked_directly_and_their_certificates_checked() -> None:
    found = jobs(scrape.Parts())["nodes"]
    assert (found["scheme"], found["metrics_path"]) == ("https", "/metrics/resource")
    assert found["tls_config"] == {"ca_file": "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"}
    assert not [rule for rule in found["relabel_configs"] if rule["target_label"] == "__address__"]
    role = [rule["source_labels"] for rule in found["relabel_configs"] if rule["target_label"] == "role"]
    assert role == [["__meta_kubernetes_node_label_tidewater_dev_node_role"]]
    assert labels.NODE_ROLE == "tidewater.dev/node-role"


def test_amazons_collector_asks_the_api_server_for_the_nodes_metrics() -> None:
    found = jobs(scrape.Parts(), scrape.AMAZON)["nodes"]
    # As in Amazon's own example, which names the token's file and no authority's:
    # https://www.pulumi.com/registry/packages/aws/api-docs/amp/scraper/
    assert found["authorization"]["credentials_file"] == "/var/run/secrets/kubernetes.io/serviceaccount/token"
    assert "tls_config" not in found
    rules = found["relabel_configs"]
    replaced = {rule["target_label"]: rule["replacement"] for rule in rules if "replacement" in rule}
    assert replaced == {
        "__address__": "kubernetes.default.svc:443",
        "__metrics_path__": "/api/v1/nodes/$1/proxy/metrics/resource",
    }


def test_amazons_collector_gets_only_what_it_knows_and_the_rules_go_to_the_workspace() -> None:
    # https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/managed-prometheus-collectors-scraper-configuration.html
    configuration, rules = (json.loads(text) for text in server.files_for_amazon(EVERYTHING))
    assert configuration.keys() == {"global", "scrape_configs"}
    assert configuration["global"] == {"scrape_interval": "30s"}
    assert rules.keys() == {"groups"}


@pytest.mark.parametrize(
    ("monitoring", "peer"),
    [
        ("prometheus", {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "tidewater-monitoring"}}}),
        ("managed", {"ipBlock": {"cidr": "10.0.0.0/16"}}),
    ],
)
def test_of_etcd_only_the_metrics_are_opened(monitoring: str, peer: dict[str, Any]) -> None:
    spec = deployed(monitoring).one(POLICY, "etcd-metrics").inputs["spec"]
    assert spec["podSelector"] == {"matchLabels": etcd.LABELS}
    (rule,) = spec["ingress"]
    assert rule["ports"] == [{"protocol": "TCP", "port": 2381}]
    assert peer.items() <= rule["from"][0].items()
    assert etcd.options("training", 1)["listen-metrics-urls"] == "http://0.0.0.0:2381"
