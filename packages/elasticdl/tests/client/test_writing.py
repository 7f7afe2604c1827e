"""The writer of data as a pod runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from elasticdl.client import writing
from elasticdl.data.opening import open_reader

WITHOUT = "import sys; sys.modules.update(dict.fromkeys(('typer', 'rich', 'click')))\n"
"""Packages of the command line that images of pods lack."""


def test_it_needs_no_package_of_the_command_line(tmp_path: Path) -> None:
    program = f"{WITHOUT}from elasticdl.client.writing import main\nsys.exit(main(sys.argv[1:]))"
    options = json.dumps({"records_per_shard": 100, "asked": {"records": 250}})
    done = subprocess.run(
        [sys.executable, "-c", program, "generated-clicks", str(tmp_path / "clicks"), options],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "records in" in done.stdout
    with open_reader(str(tmp_path / "clicks" / "train")) as reader:
        assert max(each.end - each.start for each in reader.shards()) == 100


def test_what_can_not_be_written_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert writing.main(["/no/such/data", str(tmp_path / "x"), "{}"]) == 2
    assert capsys.readouterr().err.startswith("error: ")
