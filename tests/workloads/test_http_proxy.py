"""The proxy through which nodes and pods reach the internet: who gets its address, and who doesn't need it."""

from __future__ import annotations

import base64
import email
import json
from typing import Any

import pytest

import settings
from tests import graph
from tests.infra.preflight.cluster import existing_cluster
from tests.infra.preflight.vpc import existing_vpc
from tidewater.contract.stack import Facts

PROXY = "http://10.8.0.9:3128"
CONFIG = {
    **graph.defaults(),
    **existing_vpc.CONFIG,
    "jobLogDays": 7,
    "fileAccess": "iam",
    "teams": [{"name": "vision", "userArns": ["arn:aws:iam::123456789012:user/ada"], "maxWorkers": 2}],
}
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
NODE_CLASS = "kubernetes:karpenter.k8s.aws/v1:EC2NodeClass"


@pytest.fixture(scope="module")
def made() -> graph.Graph:
    """The whole program in a VPC with a proxy."""
    config = {**CONFIG, "httpProxy": PROXY, "noProxy": [".corp.example"]}
    return graph.run(graph.program, config, ask=existing_vpc.ask)


def expected() -> dict[str, str]:
    """Return the variables, with the networks that AWS says of the VPC."""
    stack = settings.parse({**CONFIG, "httpProxy": PROXY, "noProxy": [".corp.example"]}, stack="local")
    return stack.with_vpc(tuple(existing_vpc.CIDRS), ()).training.proxy_variables


def environment(container: dict[str, Any]) -> dict[str, str]:
    """Return the variables of a container that have to do with proxies."""
    entries = {each["name"]: each.get("value", "") for each in container.get("env", ())}
    return {name: value for name, value in entries.items() if "proxy" in name.lower()}


def configured(user_data: str) -> dict[str, Any]:
    """Return the instance's part of the NodeConfig in MIME user data."""
    whole, part = email.message_from_string(user_data).walk()
    assert (whole.get_content_type(), part.get_content_type()) == ("multipart/mixed", "application/node.eks.aws")
    found: dict[str, Any] = json.loads(str(part.get_payload()))["spec"]["instance"]
    return found


def test_all_nodes_start_with_the_variables(made: graph.Graph) -> None:
    datas = [base64.b64decode(each.inputs["userData"]).decode() for each in made.all(TEMPLATE)]
    datas += [each.inputs["spec"]["userData"] for each in made.all(NODE_CLASS)]
    assert len(datas) == 3
    assert all(configured(each) == {"environment": {"default": expected()}} for each in datas)


def test_local_disks_and_the_variables_are_in_one_configuration() -> None:
    config = {**CONFIG, "httpProxy": PROXY, "instanceStore": True, "instanceTypes": ["g5.xlarge"]}
    disks = graph.run(graph.program, config, ask=existing_vpc.ask)
    workers = configured(base64.b64decode(disks.one(TEMPLATE, "workers").inputs["userData"]).decode())
    assert workers["localStorage"] == {"strategy": "RAID0"}
    assert workers["environment"]["default"]["http_proxy"] == PROXY
    surge = configured(disks.one(NODE_CLASS).inputs["spec"]["userData"])
    assert surge.keys() == {"environment"}, "Karpenter has a field for the disks"


def test_pods_that_call_aws_or_the_internet_find_the_proxy_and_others_do_not(made: graph.Graph) -> None:
    found: dict[str, dict[str, str]] = {}
    for each in made.resources:
        spec = (each.inputs.get("spec") or {}) if each.type.startswith("kubernetes:") else {}
        template = spec.get("template") or spec.get("replicaSpecs", {}).get("Worker", {}).get("template") or {}
        pod = template.get("spec") or {}
        for container in (*pod.get("initContainers", ()), *pod.get("containers", ())):
            found[f"{each.name}/{container['name']}"] = environment(container)
    with_it = {name for name, variables in found.items() if variables}
    assert {name.partition("/")[2] for name in with_it} == {"fetch-code", "dataset", "elasticjob-worker"}
    assert all(found[name] == expected() for name in with_it)
    assert {"etcd", "logs", "controller"} <= {name.partition("/")[2] for name in found.keys() - with_it}
    (karpenter,) = (each for each in made.resources if "controller" in (each.inputs.get("values") or {}))
    assert environment(karpenter.inputs["values"]["controller"]) == expected()


def test_tools_that_submit_jobs_learn_the_proxy_in_every_namespace(made: graph.Graph) -> None:
    maps = [each.inputs for each in made.all("kubernetes:core/v1:ConfigMap")]
    facts = {each["metadata"]["namespace"]: each["data"] for each in maps if each["metadata"]["name"] == "tidewater"}
    assert facts.keys() == {"training", "vision"}
    assert all(Facts.of(data).variables == expected() for data in facts.values())


def test_services_of_a_cluster_that_was_there_are_reached_directly_whatever_their_range() -> None:
    config = {**graph.defaults(), **existing_cluster.CONFIG, "httpProxy": PROXY}
    guest = graph.run(graph.program, config, ask=existing_cluster.ask)
    data = base64.b64decode(guest.one(TEMPLATE, "system").inputs["userData"]).decode()
    direct = configured(data)["environment"]["default"]["NO_PROXY"].split(",")
    assert {existing_cluster.SERVICES, *existing_vpc.CIDRS} <= {*direct}


def test_without_a_proxy_nothing_knows_of_one() -> None:
    plain = graph.run(graph.program, CONFIG, ask=existing_vpc.ask)
    inputs = json.dumps([each.inputs for each in plain.resources], default=str).lower()
    assert [name for name in ("http_proxy", "no_proxy", "httpproxy", "noproxy") if name in inputs] == []
    assert not [each.inputs for each in plain.all(TEMPLATE) if each.inputs.get("userData")]
