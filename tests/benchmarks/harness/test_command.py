"""Every benchmark has the same command line, and the same loop over its turns."""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from benchmarks.controller.__main__ import Controllers, sizes
from benchmarks.controller.plan import SIZES
from benchmarks.elastic.__main__ import Elastic
from benchmarks.elasticdl.__main__ import ElasticDL
from benchmarks.harness import records
from benchmarks.harness.command import Benchmark, Make, Say, TurnFailed, choice, main, parse
from benchmarks.harness.plan import Series, Turn
from benchmarks.harness.records import Found, read
from benchmarks.lifecycle import Lifecycle
from benchmarks.nodes.__main__ import Nodes

ALL = [Controllers(), Elastic(), ElasticDL(), Lifecycle(), Nodes()]


class Toy(Benchmark):
    """Two systems; the second one may fail."""

    name, systems, measures, runs = "toy", ("one", "two"), ("work",), 2
    fatal = (OSError,)

    def __init__(self, error: type[Exception] | None = None) -> None:
        self.error = error
        self.opened_times = 0

    def versions(self) -> Mapping[str, str]:
        return {"toy": "1"}

    def blocks(self, given: argparse.Namespace) -> list[list[Series]]:
        return [[Series("work", (system,), "seconds", given.runs, 1.0) for system in given.systems]]

    @contextlib.contextmanager
    def opened(self, given: argparse.Namespace, turns: Sequence[Turn], folder: Path, say: Say) -> Iterator[Make]:
        self.opened_times += 1
        assert list(folder.iterdir()) == []

        def make(turn: Turn) -> Iterator[Found]:
            factor = 1 if turn.series.system == "one" else 3
            if factor == 3 and turn.number == 0 and self.error:
                raise self.error("it broke")
            yield Found("seconds", turn.series.system, (factor * (turn.number + 1.0),), "s")

        yield make


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(records, "OUT", tmp_path)
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    return tmp_path / "toy.jsonl"


def test_a_run_records_what_is_missing_and_publishes_the_rows_and_the_ratios_of_turns(file: Path) -> None:
    toy = Toy()
    assert main(toy, ["--out", str(file), "--runs", "1"]) == 0
    assert main(toy, ["--out", str(file)]) == 0
    assert [(each.system, each.values) for each in read(file)] == [
        ("one", (1.0,)),
        ("two", (3.0,)),
        ("two", (6.0,)),
        ("one", (2.0,)),
    ]
    published = {row["measure"]: row for row in json.loads((file.parent / "toy.json").read_text())}
    assert (published["seconds / one"]["system"], published["seconds / one"]["median"]) == ("two", 3.0)
    assert toy.opened_times == 2
    assert main(toy, ["--out", str(file)]) == 0
    assert toy.opened_times == 2


def test_a_turn_that_fails_is_left_out_and_the_run_fails(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(Toy(TurnFailed), ["--out", str(file)]) == 1
    assert [(each.system, each.values) for each in read(file)] == [("one", (1.0,)), ("two", (6.0,)), ("one", (2.0,))]
    assert capsys.readouterr().err == "turn 1 of work, two: it broke\n"


def test_what_ends_the_benchmark_early_is_said_after_the_rows(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(Toy(OSError), ["--out", str(file)]) == 1
    printed = capsys.readouterr()
    assert printed.err == "the benchmark has ended early: it broke\n"
    assert f"recorded in {file}" in printed.out
    assert len(read(file)) == 1


@pytest.mark.parametrize("benchmark", ALL, ids=lambda each: each.name)
def test_the_plan_of_each_benchmark_is_printed_without_measuring(
    benchmark: Benchmark, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(benchmark, ["--plan", "--out", str(tmp_path / "none.jsonl")]) == 0
    printed = capsys.readouterr().out
    assert benchmark.systems[0] in printed
    assert printed.splitlines()[-1].startswith("in all")
    assert not (tmp_path / "none.jsonl").exists()
    assert all(benchmark.versions().values())


@pytest.mark.parametrize("benchmark", ALL, ids=lambda each: each.name)
def test_the_help_shows_commands_and_choices(benchmark: Benchmark, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(benchmark, ["--help"])
    printed = " ".join(capsys.readouterr().out.split())
    assert "# what would run, and for how long" in printed
    assert benchmark.systems[0] in printed


def test_systems_and_measures_are_chosen_by_name_and_keep_their_order() -> None:
    given = parse(Elastic(), ["--systems", "torchft,tidewater", "--measures", "step,kill"])
    assert (given.systems, given.measures) == (["tidewater", "torchft"], ["kill", "step"])
    given = parse(ElasticDL(), ["--systems", "1 server, 2 workers, async; 1 server, 1 worker, async"])
    assert given.systems == ["1 server, 1 worker, async", "1 server, 2 workers, async"]
    assert parse(Controllers(), ["--jobs", "1000,20"]).jobs == [20, 1000]
    assert parse(Controllers(), []).jobs == list(SIZES)


@pytest.mark.parametrize(
    ("text", "separator", "message"),
    [
        ("horovod", ",", "^horovod: choose among a, b$"),
        ("b; c, d", ";", "^c, d: choose among a; b$"),
    ],
)
def test_a_wrong_name_is_an_error_with_the_choice(text: str, separator: str, message: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=message):
        choice(text, ["a", "b"], separator)


@pytest.mark.parametrize(
    ("text", "message"),
    [("many", "many: numbers, separated by commas"), ("0", "0: at least one job")],
    ids=["words", "none"],
)
def test_a_wrong_number_of_jobs_is_an_error(text: str, message: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=message):
        sizes(text)


def test_a_life_from_nothing_is_measured_only_if_asked_for() -> None:
    labels = {series.label for block in Lifecycle().blocks(parse(Lifecycle(), [])) for series in block}
    assert labels == {"life"}
