"""The command says of every check how it stands, and its exit code is 1 if something must be fixed."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tests.cli.doctor.places import Surroundings
from tidewater.cli.doctor.app import entry, register, summary
from tidewater.cli.doctor.checks import CHECKS
from tidewater.cli.doctor.results import Check, fine, fix, note
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
    assert summary([fine("")]) == "Nothing to fix, 0 things worth knowing."


def test_every_check_depends_on_one_before_it_and_has_a_name_of_its_own() -> None:
    names = [check.name for check in CHECKS]
    assert len(set(names)) == len(names)
    for index, check in enumerate(CHECKS):
        assert not check.needs or check.needs in names[:index]


def test_a_cluster_that_cannot_be_reached_is_one_thing_to_fix_and_not_ten(
    here: Surroundings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here.kubeconfig(token="t")
    here.cluster.refused["/version"] = Unreachable("the API server can't be reached", "Is it running?")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", here.environment["KUBECONFIG"])
    app = typer.Typer()
    app.callback()(lambda: None)
    register(app)
    shown = CliRunner().invoke(app, ["doctor"], obj=Tools(connect=lambda access: here.cluster, clock=here.clock))
    assert shown.exit_code == 1
    assert "✗ API server   the API server can't be reached" in shown.stdout
    assert "→ Is it running?" in shown.stdout
    assert "- CRD          not checked, see API server" in shown.stdout
    assert shown.stdout.splitlines()[-1].startswith("1 thing to fix")
