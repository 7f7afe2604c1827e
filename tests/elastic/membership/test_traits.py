"""Workers with different traits are detected and get an error with the difference."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from torch import nn

from tests.elastic.workers import SECRET
from tidewater.elastic.errors import RecordError, Stranger
from tidewater.elastic.membership.evidence import Evidence
from tidewater.elastic.membership.rules import Generation, Member, Seat, View
from tidewater.elastic.membership.traits import Traits, code_digest, difference, refusal


def traits(width: int = 4, **more: str | int | float | bool | None) -> Traits:
    model = nn.Sequential(nn.Linear(3, width), nn.BatchNorm1d(width))
    return Traits.of(model, SECRET, **{"batch_size": 64, "seed": 0, "code": "1f", **more})


def member(name: str, age: int, *, kind: Traits | None = None, ready_after: int = 0) -> Member:
    return Member(name, name, "127.0.0.1", 1, (kind or traits()).digest(), ready_after, age=age)


def test_equal_traits_have_equal_digests_and_no_difference() -> None:
    assert traits() == traits()
    assert traits().digest() == traits().digest()
    assert len(traits().digest()) == 16
    assert difference(traits(), traits(), peer="b") is None


@pytest.mark.parametrize(
    ("theirs", "words"),
    [
        pytest.param(traits(5), "the model's 0.weight is 4x3 of float32 here and 5x3 of float32 there", id="shape"),
        pytest.param(traits(batch_size=32), "batch_size is 64 here and has another value there", id="batch-size"),
        pytest.param(traits(code="2e"), "code is '1f' here and has another value there", id="code"),
        pytest.param(traits(code="2e", seed=1), "seed is 0 here and has another value there", id="code-is-named-last"),
        pytest.param(traits(extra=1), "extra is missing here", id="only-there"),
        pytest.param(
            Traits.of(nn.Linear(3, 4).half(), SECRET, batch_size=64, seed=0, code="1f"),
            "the model's 0.weight is 4x3 of float32 here and missing there",
            id="another-model",
        ),
    ],
)
def test_the_first_difference_is_named(theirs: Traits, words: str) -> None:
    sentence = difference(traits(), theirs, peer="digits-1")
    assert sentence is not None
    assert f"can't train with digits-1: {words}. " in sentence
    assert "--job" in sentence
    assert theirs.digest() != traits().digest()


def test_traits_arrive_at_a_peer_unchanged() -> None:
    assert Traits.from_json(traits().to_json()) == traits()
    for data in (b"{", b"[]", b'{"version": 99}', b'{"version": 4, "values": 3, "shapes": [], "evidence": {}}'):
        with pytest.raises(RecordError):
            Traits.from_json(data)


def test_a_newcomer_with_other_traits_gets_an_error_that_names_the_difference() -> None:
    view = View(Generation(4, 9, (member("a", 1),), "start"), 7, (member("a", 1),))
    sentence = refusal(view, "c", traits(seed=7), lambda _: traits())
    assert sentence is not None
    assert "can't train with a: seed is 7 here and has another value there" in sentence


def with_version(version: str) -> Traits:
    return replace(traits(), evidence=Evidence(versions={"torch": version}))


def test_a_newcomer_with_contradictory_evidence_is_refused_although_its_traits_are_equal() -> None:
    mine, theirs = with_version("2.14.1"), with_version("2.15.0")
    assert mine.digest() == theirs.digest() == traits().digest()
    assert Traits.from_json(theirs.to_json()).evidence == theirs.evidence
    view = View(Generation(4, 9, (member("a", 1),), "start"), 7, (member("a", 1),))
    sentence = refusal(view, "c", mine, lambda _: theirs)
    assert sentence is not None
    assert "can't train with a: torch is 2.14.1 here and 2.15.0 there. Stop all workers" in sentence


@pytest.mark.parametrize("generation", [None, 1], ids=["before the first generation", "in the first generation"])
def test_of_workers_that_start_together_the_one_that_differs_from_the_first_is_refused(generation: int | None) -> None:
    members = (member("c", 3), member("b", 2), member("a", 1))
    known = {"a": with_version("2.14.1"), "b": with_version("2.14.1"), "c": with_version("2.15.0")}
    first = Generation(generation, 9, tuple(reversed(members)), "start") if generation else None
    view = View(first, 7, members)

    def refused(name: str, *away: str) -> bool:
        return bool(refusal(view, name, known[name], lambda asked: None if asked.id in away else known[asked.id]))

    assert [name for name in known if refused(name)] == ["c"]
    assert refused("c", "a"), "the first one is lost: any other that answers counts"


def test_a_newcomer_with_equal_traits_is_not_refused() -> None:
    view = View(Generation(4, 9, (member("a", 1),), "start"), 7, (member("a", 1),))
    assert refusal(view, "c", traits(), lambda _: None) is None


@pytest.mark.parametrize("answer", [pytest.param(None, id="none"), pytest.param(traits(seed=9), id="somebody-else")])
def test_a_record_whose_process_does_not_answer_is_ignored_after_it_expires(answer: Traits | None) -> None:
    """All workers were killed a moment ago and restart with other settings."""
    view = View(Generation(4, 9, (member("a", 1),), "start"), 7, (member("a", 1),))
    assert refusal(view, "c", traits(seed=7), lambda _: answer) is None


def test_any_live_peer_can_report_the_difference() -> None:
    a, b = member("a", 1), member("b", 2)
    view = View(Generation(4, 9, (a, b), "start"), 7, (a, b))
    assert refusal(view, "c", traits(seed=7), lambda asked: traits() if asked.id == "b" else None)


def test_before_the_first_generation_the_oldest_applicant_decides() -> None:
    view = View(members=(member("b", 2), member("a", 1, kind=traits(seed=7))))
    assert refusal(view, "a", traits(seed=7), lambda _: None) is None
    assert refusal(view, "b", traits(), lambda asked: traits(seed=7) if asked.id == "a" else None)


def test_workers_with_changed_traits_can_continue_a_job_whose_workers_are_all_gone() -> None:
    view = View(Generation(4, 9, (member("a", 1),), "start"), 7, ())
    assert refusal(view, "c", traits(seed=7), lambda _: None) is None
    taken_up = replace(view, members=(member("c", 3, ready_after=4),))
    assert refusal(taken_up, "d", traits(seed=7), lambda _: traits())


def test_the_code_digest_depends_on_contents_and_names_but_not_on_the_location(tmp_path: Path) -> None:
    for place, text in (("one", "x = 1\n"), ("two", "x = 1\n"), ("three", "x = 2\n")):
        (tmp_path / place / "sub").mkdir(parents=True)
        (tmp_path / place / "sub" / "a.py").write_text(text)
        (tmp_path / place / "notes.txt").write_text(place)
    one, two, three = (code_digest(tmp_path / place) for place in ("one", "two", "three"))
    assert one == two != three
    assert code_digest(tmp_path / "one", tmp_path / "one" / "sub" / "a.py") != one


def test_a_workers_values_are_neither_sent_nor_guessed_without_the_secret() -> None:
    """A flag of the script may be a password."""
    mine, theirs = traits(token="hunter2"), traits(token="other")
    assert b"hunter2" not in mine.to_json()
    sentence = difference(theirs, Traits.from_json(mine.to_json()), peer="b")
    assert sentence is not None
    assert "token is 'other' here and has another value there" in sentence
    assert "hunter2" not in sentence
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    said = {"batch_size": 64, "seed": 0, "code": "1f", "token": "hunter2"}
    guessed = Traits.of(model, b"another secret", **said)  # type: ignore[arg-type]
    assert not set(guessed.values) & set(mine.values)
    assert guessed.digest() != mine.digest()


def test_equal_values_of_different_flags_have_different_digests() -> None:
    values = dict(traits(one="x", two="x").values)
    assert values["one"] != values["two"]


def test_a_worker_with_another_secret_is_refused_by_name() -> None:
    def ask(_: Seat) -> Traits | None:
        raise Stranger

    view = View(Generation(4, 9, (member("a", 1),), "start"), 7, (member("a", 1),))
    sentence = refusal(view, "c", traits(seed=7), ask)
    assert sentence is not None
    assert "can't train with a: it has another secret" in sentence
    assert "TIDEWATER_SECRET" in sentence


@pytest.mark.parametrize("whole", [True, False], ids=["small", "large"])
def test_members_that_answer_late_are_waited_for_side_by_side(whole: bool) -> None:
    """They may be addresses that nothing answers at: each connection takes seconds."""
    all_ask = threading.Barrier(3, timeout=60)

    def ask(seat: Seat) -> Traits | None:
        all_ask.wait()
        return traits() if seat.id == "c" else None

    members = tuple(member(name, 1) for name in "abc")
    known = View(Generation(4, 9, members, "start", signature=traits().digest()), 7, members, whole=whole)
    sentence = refusal(known, "new", traits(seed=7), ask)
    assert "can't train with c: seed is 7 here" in (sentence or "")


def test_if_the_first_member_answers_at_once_no_other_is_asked() -> None:
    asked = list[str]()

    def ask(seat: Seat) -> Traits | None:
        asked.append(seat.id)
        return traits()

    members = tuple(member(name, 1) for name in "abc")
    assert refusal(View(Generation(4, 9, members, "start"), 7, members), "new", traits(), ask) is None
    assert asked == ["a"]


def test_the_first_member_counts_though_others_answer_earlier() -> None:
    """One that starts at the same time may be the one that differs from the first."""
    late = threading.Event()

    def ask(seat: Seat) -> Traits | None:
        if seat.id != "a":
            late.set()
            return with_version("2.15.0")
        assert late.wait(60)
        return with_version("2.14.1")

    members = tuple(member(name, 1) for name in "abc")
    assert refusal(View(Generation(4, 9, members, "start"), 7, members), "new", with_version("2.14.1"), ask) is None


@pytest.mark.parametrize(("strangers", "refused"), [("ab", False), ("abc", True)])
def test_in_a_large_job_one_process_at_the_address_of_a_lost_member_refuses_nobody(
    strangers: str, refused: bool
) -> None:
    """Its generation's record outlives the members, so addresses in it may be those of other jobs by now."""

    def ask(seat: Seat) -> Traits | None:
        if seat.id in strangers:
            raise Stranger
        return None

    generation = Generation(4, 9, tuple(member(name, 1) for name in "abc"), "start")
    sentence = refusal(View(generation, 7, whole=False), "new", traits(), ask)
    assert ("another secret" in (sentence or "")) is refused
