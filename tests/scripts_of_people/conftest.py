"""One etcd and one farm for all rehearsals: torch is imported once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scripts import toolchain
from tests.scripts_of_people.prelude import whole
from tidewater.cli.rehearse.app import ZYGOTE, Options, command_of, environment_of, rehearsed
from tidewater.cli.rehearse.promises import Outcome
from tidewater.cli.rehearse.trial import Setup
from tidewater.cli.run import etcd
from tidewater.elastic.launch.farm import Farm

Rehearse = Callable[[str], Outcome]
_PATIENCE_SECONDS = 300.0


@pytest.fixture(scope="session")
def store() -> Iterator[str]:
    """Return the URL of an etcd."""
    with etcd.started(toolchain.binary("etcd")) as started:
        yield started.url


@pytest.fixture(scope="session")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    """Return a farm that forks workers of rehearsals."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    with Farm(ZYGOTE, tmp_path_factory.mktemp("farm"), environment) as started:
        yield started


@pytest.fixture
def rehearse(store: str, farm: Farm, tmp_path_factory: pytest.TempPathFactory) -> Rehearse:
    """Return what `tidewater rehearse` finds in a script."""

    def rehearse_script(text: str) -> Outcome:
        folder = tmp_path_factory.mktemp("rehearsal")
        (folder / "my_script.py").write_text(whole(text))
        options = Options(patience=_PATIENCE_SECONDS)
        command = command_of([str(folder), "my_script.py", "--batch-size", "8"], options)
        setup = Setup(
            folder, farm, command, environment_of("my_script", options, store, os.environ), 0, options.patience
        )
        return rehearsed(setup, options, print)

    return rehearse_script
