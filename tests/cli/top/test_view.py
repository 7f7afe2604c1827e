"""The screen shows a job with its workers, or several jobs in a line each, within the terminal's size."""

from __future__ import annotations

import io
import math
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from tests.cli.top.objects import PORT, job, pod, unschedulable
from tidewater.cli.top.changes import Line
from tidewater.cli.top.model import Curve, Followed, Model, advance
from tidewater.cli.top.samples import Sample, job_sample
from tidewater.cli.top.scrape import Reading, Recoveries, Scraped
from tidewater.cli.top.view import Size, screen, sparkline

NOW = datetime(2026, 11, 23, 10, 12, tzinfo=UTC)


def printed(model: Model, lines: int = 40, columns: int = 110) -> str:
    console = Console(file=io.StringIO(), width=columns, legacy_windows=False)
    console.print(screen(model, Size(columns, lines)))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def trained() -> Followed:
    first = Reading(
        at=1.0, steps=120, samples=1, rank=0, generation=7, world_size=2, step=120, epoch=12, loss=0.0213, goodput=0.987
    )
    metrics = {("training", "digits-worker-0"): Scraped({PORT: first})}
    found = job_sample(job(), [pod(0), unschedulable(1)], [], metrics)
    return Followed(
        found,
        {("uid-digits-worker-0", PORT): first},
        loss=Curve((0.5, 0.25, 0.0213)),
        throughput=Curve((600.0, 300.0, 612.4)),
        recoveries={"lost": Recoveries(2, 0.24), "joined": Recoveries(1, 0.06)},
        lines=(Line(NOW, "Worker 1 is gone"),),
    )


def test_one_job_is_shown_with_its_numbers_curves_workers_and_changes() -> None:
    text = printed(Model(NOW, (trained(),)))
    lines = [line.rstrip() for line in text.splitlines()]
    assert lines[0] == "digits  training  Running  desired 2 (1 to 4)  active 2  failures 0  12m  10:12:00"
    assert lines[2:8] == [
        "training    step 120  epoch 12",
        "membership  world size 2  generation 7",
        "loss        █▄▁  0.0213",
        "samples/s   █▄█  612",
        "goodput     98.7%",
        "recoveries  joined 1 (0.06 s)  lost 2 (0.12 s)",
    ]
    assert lines[9].split() == ["WORKER", "STATE", "KIND", "RESTARTS", "RANK", "GENERATION", "STEP", "NODE"]
    assert lines[10].split() == ["digits-worker-0", "Running", "core", "0", "0", "7", "120", "node-1"]
    assert lines[11].split() == ["digits-worker-1", "Unschedulable", "surge", "0", "-", "-", "-", "-"]
    assert lines[-1] == "10:12:00  Worker 1 is gone"


def test_the_worker_that_the_others_wait_for_is_named_with_its_node() -> None:
    metrics = {
        ("training", f"digits-worker-{index}"): Scraped({PORT: Reading(at=1.0, steps=9, straggler=seconds)})
        for index, seconds in enumerate((0.0, 0.1234))
    }
    found = job_sample(job(), [pod(0), pod(1, node="node-2")], [], metrics)
    processes = {(worker.uid, PORT): worker.scraped.readings[PORT] for worker in found.workers}
    text = printed(Model(NOW, (Followed(found, processes),)))
    wanted = "straggler   digits-worker-1 on node-2: the others wait 0.123 s for it in each step"
    assert wanted in [line.rstrip() for line in text.splitlines()]
    assert "straggler" not in printed(Model(NOW, (trained(),)))


def test_a_running_job_says_what_it_waits_for_in_a_few_lines() -> None:
    why = f"ElasticJob digits is running. 1 of 2 workers run: 1 found no room (VcpuLimitExceeded). {'Karpenter ' * 50}"
    runs = {"type": "Running", "status": "True", "lastTransitionTime": "2026-11-23T10:00:01Z", "message": why}
    waits = job_sample(job(waiting="VcpuLimitExceeded", conditions=[runs]), [pod(0), unschedulable(1)], [], {})
    lines = printed(Model(NOW, (Followed(waits),)), columns=100).splitlines()
    assert lines[1].startswith("ElasticJob digits is running. 1 of 2 workers run: 1 found no room (VcpuLimitExceeded).")
    assert sum("Karpenter" in line for line in lines) <= 4
    assert any(line.rstrip().endswith("…") for line in lines[3:5])
    content = job_sample(job(conditions=[runs]), [pod(0), pod(1)], [], {})
    assert "ElasticJob digits" not in printed(Model(NOW, (Followed(content),)))


def test_several_jobs_have_a_line_each_and_their_namespaces_if_these_differ() -> None:
    other = job_sample(job("other"), [], [], {})
    lines = printed(Model(NOW, (trained(), Followed(other)))).splitlines()
    assert lines[0].split()[:3] == ["JOB", "STATE", "ACTIVE"]
    assert lines[1].split()[:4] == ["digits", "Running", "2/2", "120"]
    assert lines[2].split()[:4] == ["other", "Running", "2/2", "-"]
    elsewhere = job_sample(job("other", namespace="prod"), [], [], {})
    assert printed(Model(NOW, (trained(), Followed(elsewhere)))).splitlines()[0].split()[0] == "NAMESPACE"


def rows(text: str, head: str) -> list[str]:
    """Return the lines of the table that has this head in its first column."""
    lines = [line.rstrip() for line in text.splitlines()]
    first = next(index for index, line in enumerate(lines) if line.startswith(head))
    return lines[first:]


def on_eks(name: str = "digits") -> Followed:
    """Return a job on nodes with names as on EKS."""
    first = Reading(at=1.0, steps=1, samples=1, rank=10, generation=7, step=123456)
    worker = f"{name}-worker-0"
    pods = [
        pod(0, owner=name, node="ip-10-0-132-216.us-west-2.compute.internal"),
        pod(11, owner=name, node="ip-10-0-132-7.us-west-2.compute.internal", phase="Pending"),
    ]
    return Followed(job_sample(job(name), pods, [], {("training", worker): Scraped({PORT: first})}))


def test_on_80_columns_the_node_gets_what_the_others_leave() -> None:
    head, first, second = rows(printed(Model(NOW, (on_eks(),)), 24, 80), "WORKER")
    assert head.split() == ["WORKER", "STATE", "KIND", "RESTARTS", "RANK", "GENERATION", "STEP", "NODE"]
    assert first.split() == ["digits-worker-0", "Running", "core", "0", "10", "7", "123456", "ip-10-0-1…"]
    assert second.split() == ["digits-worker-11", "Pending", "surge", "0", "-", "-", "-", "ip-10-0-1…"]


def test_where_there_is_no_room_columns_are_left_out_and_no_number_is_cut() -> None:
    model = Model(NOW, (on_eks("imagenet-resnet"),))
    head, first, _ = rows(printed(model, 24, 80), "WORKER")
    assert head.split() == ["WORKER", "STATE", "KIND", "RESTARTS", "RANK", "STEP", "NODE"]
    assert first.split() == ["imagenet-resnet-worker-0", "Running", "core", "0", "10", "123456", "ip-10-0-132-…"]
    head, first, second = rows(printed(Model(NOW, (on_eks(),)), 24, 40), "WORKER")
    assert head.split() == ["WORKER", "STATE", "RANK", "STEP"]
    assert first.split() == ["digits-worker-0", "Running", "10", "123456"]
    assert second.split() == ["digits-worker-11", "Pending", "-", "-"]


def test_a_name_that_is_too_long_keeps_its_end_which_has_the_index() -> None:
    _, first, second = rows(printed(Model(NOW, (on_eks("imagenet-resnet"),)), 24, 40), "WORKER")
    assert first.split() == ["…-resnet-worker-0", "Running", "10", "123456"]
    assert second.split() == ["…resnet-worker-11", "Pending", "-", "-"]


def test_the_table_of_jobs_fits_too() -> None:
    other = Followed(job_sample(job("imagenet-resnet50-on-spot", namespace="prod"), [], [], {}))
    model = Model(NOW, (trained(), other))
    head, first, _, *_ = rows(printed(model, 24, 80), "NAMESPACE")
    assert head.split() == ["NAMESPACE", "JOB", "STATE", "ACTIVE", "STEP", "LOSS"]
    assert first.split() == ["training", "digits", "Running", "2/2", "120", "█▄▁", "0.0213"]
    head, first, second, *_ = rows(printed(model, 24, 40), "JOB")
    assert head.split() == ["JOB", "STATE", "ACTIVE"]
    assert first.split() == ["digits", "Running", "2/2"]
    assert second.split() == ["…genet-resnet50-on-spot", "Running", "2/2"]


@pytest.mark.parametrize(
    ("scraped", "state", "reason"),
    [
        pytest.param(Scraped(), "Running", "no metrics: its pods declare no port named metrics", id="no-port"),
        pytest.param(Scraped({}, "port 9464 refused"), "Running", "no metrics: port 9464 refused", id="refused"),
        pytest.param(Scraped({PORT: Reading(at=1.0)}), "Running", "no step yet", id="no-step"),
        pytest.param(Scraped(), "Pending", "no worker runs", id="pending"),
    ],
)
def test_without_numbers_the_reason_is_shown(scraped: Scraped, state: str, reason: str) -> None:
    found = job_sample(job(), [pod(0, phase=state)], [], {("training", "digits-worker-0"): scraped})
    assert reason in printed(advance(None, Sample(NOW, (found,))))


def test_the_newest_changes_are_shown_and_as_many_as_there_is_room_for() -> None:
    lines = tuple(Line(NOW + timedelta(seconds=each), f"change {each}") for each in range(50))
    followed = Followed(job_sample(job(), [], [], {}), lines=lines)
    text = printed(Model(NOW, (followed,)), lines=20)
    assert "change 49" in text
    assert "change 39" not in text
    assert len(text.splitlines()) <= 20


def test_what_is_wrong_with_the_api_server_is_shown_with_the_age_of_the_numbers() -> None:
    text = printed(Model(NOW, (trained(),), trouble="the API server does not answer"))
    assert "as of 10:12:00: the API server does not answer" in text


def test_no_jobs_is_said() -> None:
    assert "There are no jobs in any namespace." in printed(Model(NOW, (), none="There are no jobs in any namespace."))


@pytest.mark.parametrize(
    ("values", "bars"),
    [
        pytest.param([], "", id="none"),
        pytest.param([3.0], "▁", id="one"),
        pytest.param([1.0, 1.0], "▁▁", id="equal"),
        pytest.param([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], "▁▂▃▄▅▆▇█", id="rising"),
        pytest.param([1.0, math.nan, 2.0], "▁!█", id="not-a-number"),
        pytest.param([math.inf], "!", id="infinite"),
    ],
)
def test_a_sparkline_reaches_from_the_lowest_value_to_the_highest(values: list[float], bars: str) -> None:
    assert sparkline(values, 10) == bars


def test_a_sparkline_shows_the_newest_values_and_may_begin_at_zero() -> None:
    assert sparkline([9.0, 0.0, 1.0], 2) == "▁█"
    assert sparkline([8.0, 4.0], 2, from_zero=True) == "█▅"
