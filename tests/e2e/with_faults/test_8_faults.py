"""Calls to AWS fail, or are answered too late, during `pulumi up` and `pulumi destroy`: a person runs them again.

`make test` has three faults in each of the two, at calls that a seed chooses. `make soak` has every call meet every
fault, one call in each run. The stack is in a new cloud, which ends with the module.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
import yaml

from tests.e2e.checkout import ROOT, STACK, Checkout
from tests.e2e.inventory import Inventory, added, aws_inventory
from tests.e2e.with_faults.plan import Call, Fault, Plan
from tests.e2e.with_faults.proxy import Proxy

pytestmark = pytest.mark.e2e

FAULTY = "faulty"
SMALL = {
    "tidewater:surgeNodes": "nodegroup",
    "tidewater:minWorkers": 1,
    "tidewater:workers": 1,
    "tidewater:maxWorkers": 2,
    "tidewater:trainerArgs": "--epochs 1500 --min-step-seconds 0.5",
}
UP = "pulumi up --yes --skip-preview"
DESTROY = "pulumi destroy --yes --skip-preview"

MOST_SKIPPED = 20
"""Of calls between two faults: `up` and `destroy` of the stack make more than three times as many changes."""

MOST_CALLS = 400
"""More than any of the two makes."""

WITH_A_VPC = ("route tables", "security groups")
"""What EC2 makes with a VPC, and deletes with it."""


@dataclass(frozen=True)
class Faults:
    """Faults, each with the number of changing calls that pass before: one for each run."""

    of_up: Sequence[tuple[Fault, int]]
    of_destroy: Sequence[tuple[Fault, int]]


def sampled(seed: int) -> Faults:
    """Return each fault once in `up` and once in `destroy`, at places that the seed chooses."""
    chance = random.Random(seed)

    def shuffled() -> list[tuple[Fault, int]]:
        return [(fault, chance.randrange(MOST_SKIPPED)) for fault in chance.sample([*Fault], len(Fault))]

    return Faults(shuffled(), shuffled())


def every(fault: Fault) -> Faults:
    """Return more faults than there are calls, each for the first call that has not met one yet."""
    return Faults([(fault, 0)] * MOST_CALLS, [(fault, 0)] * MOST_CALLS)


@pytest.fixture(scope="module")
def proxy(checkout: Checkout) -> Iterator[Proxy]:
    """Yield a proxy in front of a new cloud with nothing in it; the cloud ends with the module, whatever is in it."""
    checkout.empty_cloud()  # what is lost with a cloud stays in the stack's state
    checkout.run("python -m localcloud stop")
    checkout.run("python -m localcloud start")
    local = yaml.safe_load((ROOT / f"Pulumi.{STACK}.yaml").read_text())["config"]
    (checkout.path / f"Pulumi.{FAULTY}.yaml").write_text(yaml.safe_dump({"config": {**local, **SMALL}}))
    checkout.run(f"pulumi stack select --create {FAULTY}")
    account = checkout.aws("sts get-caller-identity")["Account"]
    with Proxy(checkout.cloud()["AWS_ENDPOINT_URL"], account) as made:
        yield made
    checkout.forget_outputs()
    checkout.run("python -m localcloud stop")
    checkout.run(f"pulumi stack select --create {STACK}")


@pytest.fixture
def account(checkout: Checkout, proxy: Proxy) -> Inventory:
    """Return the inventory before the stack is made."""
    assert proxy
    return aws_inventory(checkout.cloud())


def through_faults(checkout: Checkout, proxy: Proxy, command: str, faults: Sequence[tuple[Fault, int]]) -> list[Call]:
    """Run a command again and again, until it has met all of the faults or meets none; return the calls that met one.

    What an `up` has made without an answer is taken over before the next one, as the README says.
    In the end it is run without a fault, and must succeed.
    """
    struck: list[Call] = []
    command = f"export AWS_ENDPOINT_URL={proxy.url}; {command}"
    for fault, skip in faults:
        with proxy.fault(Plan(fault, skip, spared=[call.alike for call in struck])) as plan:
            output = checkout.run(command, expect=None)
        if plan.struck is None:
            break
        struck.append(plan.struck)
        assert output.status != 0, f"it says that all is well, though {plan.struck} was {fault.value}:\n{output}"
        if fault is Fault.UNANSWERED and command.endswith(UP):
            checkout.run(f"python -m scripts.adopt --stack {FAULTY}")
    checkout.run(command)
    return struck


def unnamed(left: Inventory, said: str) -> Inventory:
    """Return what is left and is not named by the sweep; what comes with a VPC goes with it."""
    found = {kind: frozenset(id for id in ids if id not in said) for kind, ids in left.items()}
    return {kind: ids for kind, ids in found.items() if ids and not (kind in WITH_A_VPC and "vpcs" in left)}


def complete(checkout: Checkout, proxy: Proxy, account: Inventory, faults: Faults) -> tuple[list[Call], list[Call]]:
    """Bring the stack up and destroy it, through faults, and assert that nothing is left; return the calls struck."""
    of_up = through_faults(checkout, proxy, UP, faults.of_up)
    checkout.run(f"export AWS_ENDPOINT_URL={proxy.url}; pulumi preview --expect-no-changes")
    of_destroy = through_faults(checkout, proxy, DESTROY, faults.of_destroy)
    left = added(account, aws_inventory(checkout.cloud()))
    if Fault.UNANSWERED in {fault for fault, _ in faults.of_up}:
        # Pulumi doesn't know what was made without an answer. The sweep finds it, by the stack's tags.
        swept = checkout.run(f"python -m scripts.sweep {FAULTY} --delete --yes", expect=None)
        left = unnamed(added(account, aws_inventory(checkout.cloud())), swept.text)
    assert left == {}, f"left after faults at {[*map(str, of_up)]} of up and {[*map(str, of_destroy)]} of destroy"
    return of_up, of_destroy


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [16])
def test_after_faults_at_some_calls_the_next_up_and_destroy_complete_and_leave_nothing(
    checkout: Checkout, proxy: Proxy, account: Inventory, seed: int
) -> None:
    faults = sampled(seed)
    of_up, of_destroy = complete(checkout, proxy, account, faults)
    assert (len(of_up), len(of_destroy)) == (len(faults.of_up), len(faults.of_destroy)), "not every fault was met"


@pytest.mark.soak
@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name.lower())
def test_after_a_fault_at_any_call_the_next_up_and_destroy_complete_and_leave_nothing(
    checkout: Checkout, proxy: Proxy, account: Inventory, fault: Fault
) -> None:
    for struck in complete(checkout, proxy, account, every(fault)):
        assert 3 * MOST_SKIPPED < len(struck) < MOST_CALLS, "either not every call was met, or some again and again"
