"""Only what two workers both have is compared, and the first contradiction is named with its remedy."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tidewater.elastic.membership.evidence import Evidence, Probe, contradiction

SAMPLE = "sample 7 of the dataset"
MINE = Evidence(
    modules={"__main__": "1f", "model": "2e"},
    versions={"Python": "3.11", "torch": "2.14.1", "transformers": "5.0.0"},
    samples={SAMPLE: Probe(("3d",), (0.5, 8.0), (0.01, 0.01))},
)


@pytest.mark.parametrize(
    ("theirs", "words", "remedy"),
    [
        (
            replace(MINE, versions={**MINE.versions, "transformers": "5.1.0"}),
            "transformers is 5.0.0 here and 5.1.0 there",
            "Stop all workers",
        ),
        (replace(MINE, modules={"model": "99"}), "the script's module model has other code there", "Stop all workers"),
        (replace(MINE, samples={SAMPLE: Probe(("4c",), (0.5, 8.0), (0.01, 0.01))}), f"{SAMPLE} is another one", "sort"),
        (replace(MINE, samples={SAMPLE: Probe(("3d",), (0.5, 8.1), (0.01, 0.01))}), f"{SAMPLE} is another one", "sort"),
        (replace(MINE, samples={SAMPLE: Probe(("3d",), (0.5,), (0.01,))}), f"{SAMPLE} is another one", "sort"),
        (
            Evidence({"model": "99"}, {"torch": "2.15.0"}, {SAMPLE: Probe(("4c",))}),
            "torch is 2.14.1 here and 2.15.0 there",
            "Stop all workers",
        ),
    ],
    ids=["version", "module", "label", "image", "another number of arrays", "versions come first"],
)
def test_the_first_contradiction_is_named_with_its_remedy(theirs: Evidence, words: str, remedy: str) -> None:
    found = contradiction(MINE, theirs)
    assert found is not None
    assert words in found[0]
    assert remedy in found[1]
    assert contradiction(theirs, MINE) is not None


@pytest.mark.parametrize(
    "theirs",
    [
        MINE,
        Evidence(),
        Evidence({"tracker": "5b"}, {"wandb": "0.20"}, {"sample 3 of the dataset": Probe(("6a",))}),
        replace(MINE, samples={SAMPLE: Probe(("3d",), (0.509, 7.991), (0.01, 0.01))}),
    ],
    ids=["equal", "nothing", "nothing in common", "last bits"],
)
def test_workers_that_have_nothing_contradictory_are_alike(theirs: Evidence) -> None:
    assert contradiction(MINE, theirs) is None
    assert contradiction(theirs, MINE) is None


def test_a_false_alarm_about_a_sample_has_a_remedy() -> None:
    _, remedy = contradiction(MINE, replace(MINE, samples={SAMPLE: Probe(("4c",))})) or ("", "")
    assert "give the dataset an attribute `digest`" in remedy


def test_evidence_arrives_at_a_peer_unchanged() -> None:
    assert Evidence.of(json.loads(json.dumps(MINE.values()))) == MINE
