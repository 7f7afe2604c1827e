"""Amazon's Prometheus: who reads what from where, and that it goes before what it uses."""

from __future__ import annotations

import json
from typing import Any

from tests import graph
from workloads.monitoring import alerts, scrape

WORKSPACE = "aws:amp/workspace:Workspace"
SCRAPER = "aws:amp/scraper:Scraper"
RULES = "aws:amp/ruleGroupNamespace:RuleGroupNamespace"
PARTS = scrape.Parts(gpus=True, karpenter=True)


def deployed(monitoring: str = "managed") -> graph.Graph:
    return graph.deploy({**graph.stack_config("Pulumi.aws.yaml.example"), "monitoring": monitoring})


def test_only_managed_monitoring_makes_a_workspace_and_only_the_other_one_a_server() -> None:
    managed, own = deployed(), deployed("prometheus")
    assert [len(managed.all(type_)) for type_ in (WORKSPACE, SCRAPER, RULES)] == [1, 1, 1]
    assert not [type_ for type_ in (WORKSPACE, SCRAPER, RULES) if own.all(type_)]
    assert "deployment-prometheus" in {each.name for each in own.resources}
    assert "deployment-prometheus" not in {each.name for each in managed.resources}
    for made in (managed, own):
        assert {"daemonset-dcgm-exporter", "configmap-tidewater-dashboard"} <= {each.name for each in made.resources}


def test_the_collector_reads_the_stacks_targets_from_the_private_subnets_of_all_zones() -> None:
    inputs = deployed().one(SCRAPER).inputs
    source: dict[str, Any] = inputs["source"]["eks"]
    assert source["clusterArn"].endswith(f":eks:us-west-2:{graph.ACCOUNT}:cluster/tidewater-local")
    assert len(source["subnetIds"]) == 3
    assert source["securityGroupIds"] == [graph.NODES_SECURITY_GROUP]
    assert json.loads(inputs["scrapeConfiguration"]) == scrape.configuration(PARTS, scrape.AMAZON)


def test_the_workspace_judges_the_stacks_rules_and_has_no_key_that_would_refuse_the_collector() -> None:
    made = deployed()
    assert json.loads(made.one(RULES).inputs["data"]) == alerts.rules(PARTS)
    assert "kmsKeyArn" not in made.one(WORKSPACE).inputs


def test_the_collector_is_deleted_before_the_cluster_and_its_network() -> None:
    """Its network interfaces would keep subnets and security group from being deleted."""
    made = deployed()
    scraper = made.one(SCRAPER)
    assert made.needs(scraper, made.one("eks:index:Cluster"))
    for subnet in made.all("aws:ec2/subnet:Subnet"):
        assert made.needs(scraper, subnet), subnet.name


def test_an_output_says_where_grafana_finds_the_metrics() -> None:
    assert deployed("prometheus").outputs["prometheus"] == "http://prometheus.tidewater-monitoring.svc:9090"
    assert "prometheus" not in deployed("none").outputs
    assert deployed().outputs["prometheus"] == graph.WORKSPACE_ENDPOINT
