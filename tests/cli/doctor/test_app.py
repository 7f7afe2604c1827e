"""The command says of every check how it stands, and its exit code is 1 if something must be fixed."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner
from typer.testing import Result as Output

from tests.cli.doctor.places import Surroundings
from tests.cli.top.fakes import forbidden
from tidewater.cli.doctor import app as doctor_app
from tidewater.cli.doctor.app import CHECKS, entry, results_of, summary
from tidewater.cli.doctor.place import Place
from tidewater.cli.doctor.results import Check, Outcome, Result, fine, fix, note, skipped, unchecked
from tidewater.cli.errors import CliError
from tidewater.cli.session import Tools
from tidewater.kube.errors import Unreachable

CHECK = Check("This machine", "kubectl", lambda place: fine(""))


def test_an_entry_has_the_finding_and_below_it_the_remedy() -> None:
    assert entry(CHECK, fine("kubectl 1.34.4")).plain == "  ✓ kubectl      kubectl 1.34.4"
    assert entry(CHECK, fix("two\nlines", "fix it")).plain.splitlines() == [
        "  ✗ kubectl      two",
        "                 lines",
        "                 → fix it",
    ]


def test_the_summary_counts_what_must_be_fixed() -> None:
    assert summary([fine(""), note("n"), fix("m", "r")]) == "1 thing to fix, 1 worth knowing."
    assert summary([fine(""), skipped("s")]) == "Nothing to fix, 0 worth knowing."
    assert summary([unchecked("u")]) == "Nothing to fix, 0 worth knowing, 1 not checked."


def test_every_check_depends_on_one_before_it_and_has_a_name_of_its_own() -> None:
    names = [check.name for check in CHECKS]
    assert len(set(names)) == len(names)
    for index, check in enumerate(CHECKS):
        assert not check.needs or check.needs in names[:index]


def doctor(here: Surroundings, monkeypatch: pytest.MonkeyPatch, directory: Path) -> Output:
    """Run the command in a directory that is no checkout."""
    here.kubeconfig(token="t")
    monkeypatch.chdir(directory)
    monkeypatch.setenv("KUBECONFIG", here.environment["KUBECONFIG"])
    app = typer.Typer()
    app.callback()(lambda: None)
    doctor_app.register(app)
    return CliRunner().invoke(app, ["doctor"], obj=Tools(connect=lambda access: here.cluster, clock=here.clock))


def test_a_cluster_that_cannot_be_reached_is_one_thing_to_fix_and_not_ten(
    here: Surroundings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here.cluster.refused["/version"] = Unreachable("the API server can't be reached", "Is it running?")
    shown = doctor(here, monkeypatch, tmp_path)
    assert shown.exit_code == 1
    assert "✗ API server   the API server can't be reached" in shown.stdout
    assert "→ Is it running?" in shown.stdout
    assert "? CRD          not checked, see API server" in shown.stdout
    assert shown.stdout.splitlines()[-1].startswith("1 thing to fix")


def test_the_command_fails_if_something_was_not_checked_and_not_if_it_is_not_needed(
    here: Surroundings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(doctor_app, "CHECKS", [Check("s", "a", lambda place: skipped("not used here"))])
    assert doctor(here, monkeypatch, tmp_path).exit_code == 0
    monkeypatch.setattr(doctor_app, "CHECKS", [Check("s", "a", lambda place: unchecked("no answer"))])
    shown = doctor(here, monkeypatch, tmp_path)
    assert (shown.exit_code, shown.stdout.splitlines()[-1]) == (1, "Nothing to fix, 0 worth knowing, 1 not checked.")


def outcomes(checks: list[Check], place: Place) -> dict[str, Result]:
    return {check.name: result for check, result in results_of(checks, place)}


def test_results_come_in_the_order_of_the_list_although_a_later_check_ends_first(here: Surroundings) -> None:
    second_has_ended = threading.Event()

    def first(place: Place) -> Result:
        return fine("waited") if second_has_ended.wait(60) else fix("alone", "")

    def second(place: Place) -> Result:
        second_has_ended.set()
        return fine("done")

    found = outcomes([Check("s", "first", first, seconds=60), Check("s", "second", second)], here.place)
    assert list(found) == ["first", "second"]
    assert found["first"].text == "waited"


def test_a_check_that_hangs_is_given_up_after_its_own_time(here: Surroundings) -> None:
    never = threading.Event()

    def hangs(place: Place) -> Result:
        never.wait(60)
        return fine("")

    found = outcomes([Check("s", "hangs", hangs, seconds=0.01), Check("s", "next", lambda place: fine(""))], here.place)
    never.set()
    assert (found["hangs"].outcome, found["next"].outcome) == (Outcome.UNCHECKED, Outcome.FINE)
    assert "within 0.01 s" in found["hangs"].text


@pytest.mark.parametrize(
    ("result", "outcome"),
    [
        pytest.param(fix("broken", "fix it"), Outcome.UNCHECKED, id="fix"),
        pytest.param(unchecked("no answer"), Outcome.UNCHECKED, id="unchecked"),
        pytest.param(skipped("not used here"), Outcome.SKIPPED, id="not-needed"),
        pytest.param(note("half"), Outcome.FINE, id="note"),
        pytest.param(fine("whole"), Outcome.FINE, id="fine"),
    ],
)
def test_what_depends_on_a_broken_thing_is_not_checked(here: Surroundings, result: Result, outcome: Outcome) -> None:
    checks = [Check("s", "a", lambda place: result), Check("s", "b", lambda place: fine(""), needs="a")]
    assert outcomes(checks, here.place)["b"].outcome is outcome


def test_a_missing_right_means_not_checked_and_another_error_is_a_finding_with_its_remedy(
    here: Surroundings,
) -> None:
    def refused(place: Place) -> Result:
        raise forbidden("nodes")

    def broken(place: Place) -> Result:
        raise CliError("no answer", "ask again")

    found = outcomes([Check("s", "refused", refused), Check("s", "broken", broken)], here.place)
    assert found["refused"].outcome is Outcome.UNCHECKED
    assert found["broken"] == fix("no answer", "ask again")


def test_a_defect_of_a_check_is_not_hidden(here: Surroundings) -> None:
    def defective(place: Place) -> Result:
        raise KeyError("status")

    with pytest.raises(KeyError):
        outcomes([Check("s", "defective", defective)], here.place)
