"""Calls to AWS fail, or are answered too late, during `pulumi up` and `pulumi destroy`: a person runs them again.

`make test` has three faults in each of the two, at calls that a seed chooses. In `make soak` every call meets every
fault: in each run all those that have not met it yet, and the next run comes further; and `up` is killed at each of
Kubernetes' objects. The stack is in a cloud of its own.
"""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
import yaml

from tests.e2e.checkout import DESTROY, ROOT, STACK, UP, Checkout
from tests.e2e.faults.plan import Call, Fault, Plan
from tests.e2e.faults.proxy import Proxy
from tests.e2e.inventory import Inventory, added, aws_inventory

pytestmark = pytest.mark.e2e

FAULTY = "faulty"
SMALL = {
    "tidewater:surgeNodes": "nodegroup",
    "tidewater:minWorkers": 1,
    "tidewater:workers": 1,
    "tidewater:maxWorkers": 2,
    "tidewater:trainerArgs": "--epochs 1500 --min-step-seconds 0.5",
}

MOST_SKIPPED = 20
"""Of calls between two faults: `up` and `destroy` of the stack make more than twice as many changes."""

MOST_CALLS = 400
"""More than any of the two makes."""

MOST_RUNS = 40
"""More than are needed: each run makes at least the next resource of the longest chain of dependencies."""

LEAST_OBJECTS = 30
"""The stack has more in Kubernetes."""

_OBJECT = re.compile(r"^ \+  kubernetes:\S+/\S+:(\S+ \S+) (creating|created)\b", re.MULTILINE)

WITH_A_VPC = ("route tables", "security groups")
"""What EC2 makes with a VPC, and deletes with it."""


@dataclass(frozen=True)
class Faults:
    """What calls meet in each run of the two commands, one plan for each run."""

    of_up: Sequence[Plan]
    of_destroy: Sequence[Plan]


def sampled(seed: int) -> Faults:
    """Return each fault once in `up` and once in `destroy`, at places that the seed chooses."""
    chance = random.Random(seed)

    def shuffled() -> list[Plan]:
        return [Plan(fault, chance.randrange(MOST_SKIPPED)) for fault in chance.sample([*Fault], len(Fault))]

    return Faults(shuffled(), shuffled())


def every(fault: Fault) -> Faults:
    """Return more plans than are needed, each with the fault for all calls that have not met it yet."""
    of_up, of_destroy = ([Plan(fault, most=MOST_CALLS) for _ in range(MOST_RUNS)] for _ in range(2))
    return Faults(of_up, of_destroy)


@pytest.fixture(scope="module")
def proxy(checkout: Checkout) -> Iterator[Proxy]:
    """Yield a proxy in front of a cloud with nothing in it."""
    checkout.run("localcloud start")
    local = yaml.safe_load((ROOT / f"Pulumi.{STACK}.yaml").read_text())["config"]
    (checkout.path / f"Pulumi.{FAULTY}.yaml").write_text(yaml.safe_dump({"config": {**local, **SMALL}}))
    checkout.run(f"pulumi stack select --create {FAULTY}")
    account = checkout.aws("sts get-caller-identity")["Account"]
    with Proxy(checkout.cloud()["AWS_ENDPOINT_URL"], account) as made:
        yield made


@pytest.fixture
def account(checkout: Checkout, proxy: Proxy) -> Inventory:
    """Return the inventory before the stack is made."""
    assert proxy
    return aws_inventory(checkout.cloud())


def through_faults(checkout: Checkout, proxy: Proxy, command: str, plans: Sequence[Plan]) -> list[Call]:
    """Run a command again and again, until all plans are done or one meets no call; return the calls that met a fault.

    If an `up` got no answer to a call, `scripts.adopt` runs before the next one, as docs/deploy-aws.md says.
    In the end the command runs without a fault, and must succeed.
    """
    struck: list[Call] = []
    command = f"export AWS_ENDPOINT_URL={proxy.url}; {command}"
    for plan in plans:
        plan.spare(struck)
        with proxy.fault(plan):
            output = checkout.run(command, expect=None)
        if not plan.struck:
            break
        struck += plan.struck
        assert output.status != 0, f"it says that all is well, though calls met {plan}:\n{output}"
        if plan.fault is Fault.UNANSWERED and command.endswith(UP):
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
    if Fault.UNANSWERED in {plan.fault for plan in faults.of_up}:
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
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name.lower())
def test_after_a_fault_at_any_call_the_next_up_and_destroy_complete_and_leave_nothing(
    checkout: Checkout, proxy: Proxy, account: Inventory, fault: Fault
) -> None:
    faults = every(fault)
    for struck in complete(checkout, proxy, account, faults):
        assert len(struck) > 2 * MOST_SKIPPED, "not every call was met"
    assert not faults.of_up[-1].struck + faults.of_destroy[-1].struck, "some calls were met again and again"


def in_the_making(printed: str) -> list[str]:
    """Return the objects that `pulumi up` has begun to make and has not made, in their order."""
    states = dict(_OBJECT.findall(printed))
    return [name for name, state in states.items() if state == "creating"]


def killed_while_making(checkout: Checkout, met: set[str]) -> set[str]:
    """Kill `up` as soon as it makes an object that no kill has met; return that one and what else it was making then.

    Returns {} if it makes no such object, and succeeds.
    """
    log = checkout.path / "killed.log"
    with log.open("w") as out:
        process = checkout.start(UP, stdout=out, stderr=out)
        while process.poll() is None:
            if found := {*in_the_making(log.read_text())} - met:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return found | {*in_the_making(log.read_text())}
            time.sleep(0.05)  # some objects are made in a tenth of a second
    assert process.returncode == 0, log.read_text()
    return set()


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("destroyed", [True, False], ids=["destroy", "up"])
def test_a_first_up_that_is_killed_at_any_object_is_destroyed_or_completed_and_leaves_nothing(
    checkout: Checkout, proxy: Proxy, account: Inventory, destroyed: bool
) -> None:
    assert proxy
    met: set[str] = set()
    while found := killed_while_making(checkout, met):
        met |= found
        checkout.run("pulumi cancel --yes", expect=None)
        if destroyed:
            checkout.run(DESTROY)
            assert added(account, aws_inventory(checkout.cloud())) == {}, f"left after a kill at {found}"
    assert len(met) > LEAST_OBJECTS, f"only {met} were met"
    checkout.run("pulumi preview --expect-no-changes")
    checkout.run(DESTROY)
    assert added(account, aws_inventory(checkout.cloud())) == {}
