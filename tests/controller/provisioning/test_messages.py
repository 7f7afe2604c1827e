"""What is made of Karpenter's events about a pod and its NodeClaims."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.controller.fakes.karpenter import (
    KEY,
    LIMIT,
    NO_CAPACITY,
    NO_OFFERING,
    NO_QUOTA,
    START,
    at,
    failed,
    nominated,
    short,
)
from tidewater.controller.provisioning.messages import (
    LIMITS,
    SETTLE,
    SHORTAGE,
    STALE,
    Explanation,
    Record,
    Said,
    claim_of,
    explanation,
    heard,
    latest,
    refused,
    shortage,
)
from tidewater.elasticjob.names import NODE_STARTING


def after(*events: dict[str, Any], shortages: Said | None = None) -> Record:
    """Return what is known of the pod after events about it, and a shortage for NodeClaim workers-x7k2p."""
    record = Record(key=KEY)
    for each in events:
        record = heard(record, each, shortages if claim_of(each) == "workers-x7k2p" else None)
    return record


def test_a_pod_of_which_karpenter_says_nothing_has_no_cause() -> None:
    assert explanation(Record(key=KEY), START) == Explanation()


def test_an_instance_type_that_does_not_exist_is_told_in_karpenters_words() -> None:
    found = explanation(after(failed(NO_OFFERING)), at(60))
    assert (found.reason, found.why) == ("FailedScheduling", NO_OFFERING.removeprefix("Failed to schedule pod, "))


def test_a_limit_of_the_node_pool_is_told_apart() -> None:
    assert explanation(after(failed(LIMIT)), at(60)).reason == LIMITS


@pytest.mark.parametrize(
    ("message", "code"),
    [
        pytest.param(NO_CAPACITY, "InsufficientInstanceCapacity", id="capacity"),
        pytest.param(NO_QUOTA, "VcpuLimitExceeded", id="quota"),
        pytest.param(
            "NodeClaim workers-x7k2p event: all requested instance types were unavailable during launch",
            "InsufficientCapacityError",
            id="no-code",
        ),
    ],
)
def test_a_shortage_is_named_by_ec2s_first_error_code(message: str, code: str) -> None:
    found = shortage(short(message)).explanation
    assert found.reason == code
    assert found.why == message.removeprefix("NodeClaim workers-x7k2p event: ")


def test_a_node_is_on_its_way_from_when_a_node_claim_was_made() -> None:
    assert explanation(after(nominated("workers-a")), START).reason == NODE_STARTING
    assert explanation(after(failed(LIMIT), nominated("workers-a", 60)), at(60) + SETTLE).reason == NODE_STARTING


def test_no_node_is_on_its_way_whose_node_claim_is_gone() -> None:
    assert explanation(after(nominated("workers-a")), START, gone=True) == Explanation()
    found = explanation(after(failed(LIMIT), nominated("workers-a", 60)), at(60) + SETTLE, gone=True)
    assert found.reason == LIMITS


def test_why_a_node_claim_is_refused_holds_while_karpenter_places_the_pod_on_it() -> None:
    denied = Said(START, Explanation("Unauthorized", "no identity-based policy allows it"))
    record = refused(after(nominated("workers-a", 1)), denied)
    again = heard(record, nominated("workers-a", 130), denied)
    assert [explanation(each, at(131)).reason for each in (record, again)] == ["Unauthorized", "Unauthorized"]


def test_after_a_failed_attempt_the_next_one_has_to_last_before_it_is_told() -> None:
    lacks = shortage(short(NO_QUOTA, 1))
    record = after(nominated("workers-x7k2p"), nominated("workers-b", 200), shortages=lacks)
    soon, later = explanation(record, at(202)), explanation(record, at(200) + SETTLE)
    assert (soon.reason, soon.until) == ("VcpuLimitExceeded", at(200) + SETTLE)
    assert later.reason == NODE_STARTING


def test_a_shortage_says_more_than_that_there_is_no_offering_while_karpenter_does_not_try_it() -> None:
    lacks = shortage(short(NO_QUOTA, 1))
    recent = after(nominated("workers-x7k2p"), failed(NO_OFFERING, 100), shortages=lacks)
    assert explanation(recent, at(101)).reason == "VcpuLimitExceeded"
    long_ago = after(nominated("workers-x7k2p"), failed(LIMIT, 2 + SHORTAGE.total_seconds()), shortages=lacks)
    assert explanation(long_ago, at(3) + SHORTAGE).reason == LIMITS


def test_what_karpenter_no_longer_repeats_is_not_told() -> None:
    for record, reason in ((after(failed(LIMIT)), LIMITS), (after(nominated("workers-a")), NODE_STARTING)):
        last = explanation(record, START + STALE - timedelta(seconds=1))
        assert (last.reason, last.until) == (reason, START + STALE)
        assert explanation(record, START + STALE) == Explanation()


def test_events_may_come_in_any_order() -> None:
    events = [nominated("workers-a"), failed(LIMIT, 30), nominated("workers-b", 60), failed(NO_OFFERING, 90)]
    assert after(*events) == after(*reversed(events))


def test_why_no_instance_type_fits_is_reported_in_the_newest_words() -> None:
    """After one thing is fixed, a user must see the next one."""
    events = [failed(NO_OFFERING), failed("Failed to schedule pod, did not tolerate taint", 300)]
    for each in (events, events[::-1]):
        assert explanation(after(*each), at(301)).why == "did not tolerate taint"


def test_the_same_shortage_keeps_its_words() -> None:
    first, second = (
        Said(at(seconds), Explanation("VcpuLimitExceeded", words)) for seconds, words in ((0, "a"), (200, "b"))
    )
    assert latest(first, second) == latest(second, first) == Said(at(200), Explanation("VcpuLimitExceeded", "a"))
    other = Said(at(300), Explanation("InsufficientInstanceCapacity", "c"))
    assert latest(second, other) == other
