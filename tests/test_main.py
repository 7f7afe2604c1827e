"""The program as a whole: what it makes depends on the settings, and not on where it runs."""

from __future__ import annotations

import pytest

from tests import graph

DEVICE_PLUGIN = ("kubernetes:apps/v1:DaemonSet", "daemonset-nvidia-device-plugin")
"""Made where workers have GPUs, which the one-machine cloud has not."""


def resources(made: graph.Graph) -> set[tuple[str, str]]:
    """Type and name of everything that was registered."""
    return {(each.type, each.name) for each in made.resources}


@pytest.mark.parametrize("surge_nodes", ["karpenter", "nodegroup"])
def test_the_same_resources_are_made_on_aws_and_on_one_machine(surge_nodes: str) -> None:
    aws, local = (
        graph.deploy({**config, "surgeNodes": surge_nodes})
        for config in (graph.defaults(), graph.stack_config("Pulumi.local.yaml"))
    )
    assert resources(aws) - resources(local) == {DEVICE_PLUGIN}
    assert resources(local) - resources(aws) == set()


def test_the_same_resources_depend_on_each_other_on_aws_and_on_one_machine() -> None:
    aws, local = (graph.deploy(config) for config in (graph.defaults(), graph.stack_config("Pulumi.local.yaml")))
    needs = {(each.type, each.name): set(each.needs) for each in local.resources}
    for each in aws.resources:
        if (each.type, each.name) != DEVICE_PLUGIN:
            ours = {urn for urn in each.needs if "nvidia-device-plugin" not in urn}
            assert ours == needs[each.type, each.name], each.name


def test_who_brings_the_nodes_changes_nothing_but_the_nodes_and_the_job() -> None:
    config = graph.stack_config("Pulumi.local.yaml")
    with_karpenter, without = (graph.deploy({**config, "surgeNodes": value}) for value in ("karpenter", "nodegroup"))
    assert resources(without) < resources(with_karpenter)
    theirs = {(each.type, each.name): each.inputs for each in with_karpenter.resources}
    differing = {each.name for each in without.resources if theirs[each.type, each.name] != each.inputs}
    assert differing == {"tidewater-local-workers", "elasticjob"}
