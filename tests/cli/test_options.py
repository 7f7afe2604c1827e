"""Options that come in groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from tidewater.cli.options import command
from tidewater.cli.session import Session, Tools


@dataclass(frozen=True)
class Size:
    """A group of options."""

    workers: Annotated[int, typer.Option()] = 1
    names: Annotated[list[str] | None, typer.Option("--name")] = None


def made(seen: list[object]) -> typer.Typer:
    app = typer.Typer()

    @app.callback()
    def root() -> None: ...

    @command(app, "run")
    def run(session: Session, size: Size, name: str, quick: bool = False) -> None:
        """Run it."""
        seen.append((session.target.namespace, session.target.context, size, name, quick))

    return app


def test_the_options_of_a_group_arrive_as_the_group() -> None:
    seen: list[object] = []
    words = ["run", "--workers", "3", "digits", "-n", "training", "--quick", "--name", "a", "--context", "c"]
    result = CliRunner().invoke(made(seen), words, obj=Tools())
    assert result.exit_code == 0, result.output
    assert seen == [("training", "c", Size(3, ["a"]), "digits", True)]


def test_a_group_that_is_not_used_has_its_defaults() -> None:
    seen: list[object] = []
    assert CliRunner().invoke(made(seen), ["run", "digits"]).exit_code == 0
    assert seen == [("", "", Size(), "digits", False)]


def test_the_help_is_the_functions_own() -> None:
    text = CliRunner().invoke(made([]), ["run", "--help"]).output
    assert "Run it." in text
    assert "--workers" in text
    assert "--kubeconfig" in text
