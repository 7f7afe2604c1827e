"""A stack that exists stays in its region and network, under its name and in its namespace."""

from __future__ import annotations

from typing import Any

import pulumi
import pytest

import settings
from infra.preflight import place
from tests import graph
from tests.infra.preflight.refusals import REFUSED
from tests.infra.preflight.roles.given_roles import arns_for

KEY, OTHER = (f"arn:aws:kms:us-west-2:123456789012:key/{each}" for each in ("1234abcd", "5678abcd"))
HERE = {"region": "us-west-2", "stack": "local", "namespace": "training"}
NETWORK = {
    "cidr": "10.0.0.0/16",
    "zones": "2",
    "vpc": "",
    "subnets": "",
    "cluster": "",
    "files": "",
    "data_key": "",
    "role": "",
}
BEFORE_KEYS = {name: value for name, value in NETWORK.items() if name not in ("data_key", "role")}
"""The record of a version that knew neither `dataKeyArn` nor `roleArns`."""
ARNS = arns_for()
NAMED = {**NETWORK, "zones": "us-west-2b,us-west-2a"}


def update(monkeypatch: pytest.MonkeyPatch, recorded: dict[str, Any], **changes: Any) -> graph.Graph:
    """Run the program on a stack with these records; return all that was registered."""
    monkeypatch.setattr(graph, "STASHED", recorded)
    return graph.run(graph.program, {**graph.defaults(), **changes})


@pytest.mark.parametrize(
    ("recorded", "changes", "mistake"),
    [
        pytest.param(
            {"place": {**HERE, "region": "eu-west-1"}}, {}, "region = us-west-2: the stack is in eu-west-1", id="region"
        ),
        pytest.param(
            {"place": {**HERE, "stack": "dev"}}, {}, "the stack's name 'local': its cluster has its name", id="renamed"
        ),
        pytest.param(
            {"place": {**HERE, "namespace": "b"}}, {}, "namespace = training: the stack's etcd, data", id="namespace"
        ),
        pytest.param(
            {"place": HERE, "place-network": NETWORK},
            {"vpcCidr": "10.1.0.0/16"},
            "vpcCidr = 10.1.0.0/16: the stack's VPC has 10.0.0.0/16;",
            id="range",
        ),
        pytest.param(
            {"place": HERE, "place-network": {**NETWORK, "zones": "3"}},
            {"availabilityZones": "2"},
            "availabilityZones = 2: the stack began with 3,",
            id="fewer zones",
        ),
        pytest.param(
            {"place": HERE, "place-network": NAMED},
            {"availabilityZones": "us-west-2b, us-west-2c"},
            "availabilityZones = us-west-2b,us-west-2c: the stack began with us-west-2b,us-west-2a,",
            id="other zones",
        ),
        pytest.param(
            {"place": HERE, "place-network": NAMED},
            {"availabilityZones": "us-west-2a,us-west-2b"},
            "availabilityZones = us-west-2a,us-west-2b: the stack began with us-west-2b,us-west-2a,",
            id="zones in another order",
        ),
        pytest.param(
            {"place": HERE, "place-network": NETWORK},
            {"availabilityZones": "us-west-2a,us-west-2b,us-west-2c"},
            "availabilityZones = us-west-2a,us-west-2b,us-west-2c: the stack began with 2,",
            id="names instead of a count",
        ),
        pytest.param(
            {"place": HERE, "place-network": NETWORK},
            {"dataKeyArn": KEY},
            f"dataKeyArn = {KEY}: the stack's data is encrypted with a key of its own, and EFS and EKS keep the key",
            id="existing key",
        ),
        pytest.param(
            {"place": HERE, "place-network": BEFORE_KEYS},
            {"dataKeyArn": KEY},
            f"dataKeyArn = {KEY}: the stack's data is encrypted with a key of its own,",
            id="existing key for a stack of an earlier version",
        ),
        pytest.param(
            {"place": HERE, "place-network": {**NETWORK, "data_key": KEY}},
            {},
            f"dataKeyArn = (empty): the stack's data is encrypted with {KEY},",
            id="no existing key any more",
        ),
        pytest.param(
            {"place": HERE, "place-network": {**NETWORK, "data_key": KEY}},
            {"dataKeyArn": OTHER},
            f"dataKeyArn = {OTHER}: the stack's data is encrypted with {KEY},",
            id="another key",
        ),
        pytest.param(
            {"place": HERE, "place-network": BEFORE_KEYS},
            {"roleArns": ARNS},
            f"roleArns.cluster = {ARNS['cluster']}: the stack began with a role of its own, and another role would",
            id="given roles",
        ),
        pytest.param(
            {"place": HERE, "place-network": {**NETWORK, "role": ARNS["cluster"]}},
            {},
            f"roleArns.cluster = (empty): the stack began with {ARNS['cluster']}, and another role would replace",
            id="no given roles any more",
        ),
        pytest.param(
            {"place": HERE, "place-network": {**NETWORK, "role": ARNS["node"]}},
            {"roleArns": ARNS},
            f"roleArns.cluster = {ARNS['cluster']}: the stack began with {ARNS['node']}, and",
            id="another given role",
        ),
    ],
)
def test_a_stack_that_would_move_is_refused_before_anything_else_is_registered(
    recorded: dict[str, Any], changes: dict[str, Any], mistake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph, "STASHED", recorded)
    registered = graph.Graph()
    with pytest.raises(settings.ConfigurationError, match="pulumi stack init") as error:
        graph.run(graph.program, {**graph.defaults(), **changes}, graph=registered)
    assert [each.startswith(mistake) for each in error.value.mistakes] == [True]
    assert {each.type for each in registered.resources} == {"tidewater:infra:KeptPlace", "pulumi:index:Stash"}


@pytest.mark.parametrize(
    "recorded", [{**HERE, **NETWORK}, HERE, {}], ids=["nothing moved", "an earlier version", "a preview of a new stack"]
)
def test_a_stack_that_stays_is_deployed(recorded: dict[str, Any]) -> None:
    here = place.Place(**HERE, **NETWORK)
    assert place.mistakes(here, place.first_place(here, recorded)) == []


def test_a_preview_refuses_an_existing_key_also_if_the_first_version_has_recorded_no_network() -> None:
    here = place.Place(**HERE, **{**NETWORK, "data_key": KEY})
    (mistake,) = place.mistakes(here, place.first_place(here, HERE))
    assert mistake.startswith(f"dataKeyArn = {KEY}: the stack's data is encrypted with a key of its own,")
    assert place.mistakes(here, place.first_place(here, {})) == []


@pytest.mark.parametrize(
    ("first", "now"),
    [("2", "3"), ("us-west-2b,us-west-2a", "us-west-2b,us-west-2a,us-west-2c")],
    ids=["count", "names"],
)
def test_zones_may_be_added_for_workers_while_what_cant_be_moved_stays_in_its_zones(
    first: str, now: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = {"place": HERE, "place-network": {**NETWORK, "zones": first}}
    grown = update(monkeypatch, recorded, availabilityZones=now, workerZones="3", monitoring="managed")
    subnets = [f"tidewater-local-private-{index}-id" for index in range(3)]
    assert len(grown.all("aws:ec2/subnet:Subnet")) == 6
    assert len(grown.all("aws:efs/mountTarget:MountTarget")) == 3
    cluster = grown.one("eks:index:Cluster").inputs
    scraper = grown.one("aws:amp/scraper:Scraper").inputs["source"]["eks"]
    system = grown.one("aws:eks/nodeGroup:NodeGroup", "system").inputs
    assert cluster["privateSubnetIds"] == scraper["subnetIds"] == system["subnetIds"] == subnets[:2]
    assert grown.one("aws:eks/nodeGroup:NodeGroup", "workers").inputs["subnetIds"] == subnets


def test_the_place_is_recorded_once_and_forgotten_last() -> None:
    deployed = graph.deploy(graph.stack_config("Pulumi.local.yaml"))
    records = {each.name: each for each in deployed.all("pulumi:index:Stash")}
    others = [each for each in deployed.resources if each.type.startswith(("aws:", "kubernetes:")) and each.id]
    for name, value in (("place", HERE), ("place-network", NETWORK)):
        record = records[name]
        assert (record.inputs["input"], record.ignored) == (value, ("input",))
        assert all(deployed.needs(each, record) for each in others)


@pytest.mark.parametrize(("key", "value", "named"), REFUSED.values(), ids=REFUSED.keys())
def test_a_mistake_in_a_setting_of_a_stack_that_exists_is_refused_with_its_sentence(
    monkeypatch: pytest.MonkeyPatch, key: str, value: str, named: str
) -> None:
    item, (whole, _, name) = key.removesuffix("[0]"), key.partition(".")
    given: Any = [value] if item != key else {name: int(value) if value.isdigit() else value} if name else value
    with pytest.raises((settings.ConfigurationError, pulumi.RunError)) as refused:
        update(monkeypatch, {"place": HERE, "place-network": NETWORK}, **{whole if name else item: given})
    assert (item if item != key else whole) in str(refused.value)
    assert named in str(refused.value)
