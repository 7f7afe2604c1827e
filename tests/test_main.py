"""The program as a whole: what it makes depends on the settings, and not on where it runs."""

from __future__ import annotations

import pytest

from tests import graph

GPUS = ("gpus", "gpu-check", "tidewater-devices", "nvidia-device-plugin")
"""Parts of the names of what is made where workers have GPUs, which they have not on one machine unless you ask."""


def resources(made: graph.Graph) -> set[tuple[str, str]]:
    """Type and name of everything that was registered."""
    return {(each.type, each.name) for each in made.resources}


def without_gpus(names: set[tuple[str, str]]) -> set[tuple[str, str]]:
    return {(type_, name) for type_, name in names if not any(part in name for part in GPUS)}


@pytest.mark.parametrize("surge_nodes", ["karpenter", "nodegroup"])
def test_the_same_resources_are_made_on_aws_and_on_one_machine(surge_nodes: str) -> None:
    aws, local = (
        graph.deploy({**config, "surgeNodes": surge_nodes})
        for config in (graph.defaults(), graph.stack_config("Pulumi.local.yaml"))
    )
    assert without_gpus(resources(aws)) == resources(local)
    assert resources(aws) > resources(local)


@pytest.mark.parametrize("surge_nodes", ["karpenter", "nodegroup"])
def test_with_gpus_on_one_machine_exactly_the_same_resources_are_made(surge_nodes: str) -> None:
    gpus = {"gpusPerWorker": 1, "instanceTypes": ["g4dn.xlarge"]}
    aws, local = (
        graph.deploy({**config, "surgeNodes": surge_nodes, **gpus})
        for config in (graph.defaults(), graph.stack_config("Pulumi.local.yaml"))
    )
    assert resources(aws) == resources(local)


def test_the_same_resources_depend_on_each_other_on_aws_and_on_one_machine() -> None:
    local_config = {**graph.stack_config("Pulumi.local.yaml"), "etcdMembers": 3, "systemNodes": 3}
    aws, local = (graph.deploy(config) for config in (graph.defaults(), local_config))
    needs = {(each.type, each.name): set(each.needs) for each in local.resources}
    for each in aws.resources:
        if without_gpus({(each.type, each.name)}):
            ours = {urn for urn in each.needs if not any(part in urn for part in GPUS)}
            assert ours == needs[each.type, each.name], each.name


def test_who_brings_the_nodes_changes_nothing_but_the_nodes_the_job_and_a_flag_of_the_controller() -> None:
    config = graph.stack_config("Pulumi.local.yaml")
    with_karpenter, without = (graph.deploy({**config, "surgeNodes": value}) for value in ("karpenter", "nodegroup"))
    assert resources(without) < resources(with_karpenter)
    theirs = {(each.type, each.name): each.inputs for each in with_karpenter.resources}
    differing = {each.name for each in without.resources if theirs[each.type, each.name] != each.inputs}
    controller = "deployment-tidewater-controller"
    assert differing == {"tidewater-local-workers", "elasticjob", controller}
    assert [
        made.one("kubernetes:apps/v1:Deployment", controller)
        .inputs["spec"]["template"]["spec"]["containers"][0]
        .get("args")
        for made in (with_karpenter, without)
    ] == [None, ["--fixed-nodes"]]
