"""The dashboard: Prometheus can parse each of its queries, and each GPU chart shows what DCGM exporter measures."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts import toolchain
from workloads.monitoring import __main__ as command
from workloads.monitoring import alerts, dashboard, scrape

EVERYTHING = scrape.Parts(gpus=True, karpenter=True)
CHOSEN = {"$namespace": "training", "$elasticjob": "digits", "$__rate_interval": "1m", "$__range": "1h"}


def made(parts: scrape.Parts = EVERYTHING) -> dict[str, Any]:
    """The dashboard as Grafana reads it."""
    found: dict[str, Any] = json.loads(dashboard.to_json(dashboard.dashboard(parts)))
    return found


def charts(parts: scrape.Parts = EVERYTHING) -> list[dict[str, Any]]:
    return [each for each in made(parts)["panels"] if each["type"] != "row"]


def queries(panel: dict[str, Any]) -> list[str]:
    """The queries of a panel, with the choice that a person has made."""
    return [chosen(target["expr"]) for target in panel["targets"]]


def chosen(query: str) -> str:
    for name, value in CHOSEN.items():
        query = query.replace(name, value)
    return query


def test_prometheus_can_parse_every_query(tmp_path: Path) -> None:
    found = [{"record": "query", "expr": query} for panel in charts() for query in queries(panel)]
    assert len(found) > 25
    assert not [each["expr"] for each in found if "$" in each["expr"]]
    file = tmp_path / "queries.json"
    # promtool refuses the same rule twice.
    rules = [{**each, "labels": {"number": str(number)}} for number, each in enumerate(found)]
    file.write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))
    done = subprocess.run(
        [toolchain.monitoring_binary("promtool"), "check", "rules", file], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


# Two series as DCGM exporter 4 writes them, and as Prometheus labels them here.
OF_A_GPU = (
    'gpu="0",UUID="GPU-1",device="nvidia0",modelName="NVIDIA A10G",namespace="training",pod="p",node="n",job="gpus"'
)
MEASURED = {
    "DCGM_FI_DEV_GPU_UTIL": 97,
    "DCGM_FI_DEV_FB_USED": 20000,
    "DCGM_FI_DEV_GPU_TEMP": 61,
    "DCGM_FI_DEV_POWER_USAGE": 250,
    "DCGM_FI_DEV_XID_ERRORS": 0,
}


def test_each_gpu_chart_shows_what_dcgm_exporter_measures(tmp_path: Path) -> None:
    (row,) = [panels for title, panels in dashboard.rows(EVERYTHING) if title == "GPUs"]
    tests = [
        {"expr": chosen(query.expression), "eval_time": "1m", "exp_samples": []}
        for panel in row
        for query in panel.queries
    ]
    series = [{"series": f"{name}{{{OF_A_GPU}}}", "values": f"{value}x3"} for name, value in MEASURED.items()]
    answers = asked(tests, series, tmp_path)
    # promtool shows what it got instead of nothing.
    got = {float(value) for value in re.findall(r"got: \{.*\} ([\d.E+]+)", answers)}
    assert got == {97, 20000 * 2**20, 61, 250, 0}, answers


def asked(tests: list[dict[str, Any]], series: list[dict[str, str]], folder: Path) -> str:
    """What promtool says of queries for which nothing is expected: all that they return."""
    file = folder / "story.yaml"
    file.write_text(json.dumps({"tests": [{"interval": "15s", "input_series": series, "promql_expr_test": tests}]}))
    return subprocess.run(
        [toolchain.monitoring_binary("promtool"), "test", "rules", file], capture_output=True, text=True
    ).stderr


OF_A_WORKER = ("tidewater_wait_seconds_total", "node_cpu_usage_seconds_total", "node_memory_working_set_bytes")


def test_no_chart_has_a_line_for_each_of_a_thousand_workers_nodes_or_gpus(tmp_path: Path) -> None:
    """All values of worker 7 are the lowest, those of worker 999 the highest."""
    workers = 1000
    labels = 'namespace="training",elasticjob="digits",pod="w-{0}",node="n-{0}",gpu="0"'
    lines = dict[str, set[str]]()
    for panel in (panel for _, panels in dashboard.rows(EVERYTHING) for panel in panels):
        expressions = [chosen(query.expression) for query in panel.queries]
        series = [
            {"series": f"{name}{{{labels.format(each)}}}", "values": f"0+{abs(each - 7) / workers}x40"}
            for name in (*OF_A_WORKER, *MEASURED)
            if any(name in expression for expression in expressions)
            for each in range(workers)
        ]
        if series:
            tests = [{"expr": each, "eval_time": "10m", "exp_samples": []} for each in expressions]
            lines[panel.title] = set(re.findall(r'node="(n-\d+)"', asked(tests, series, tmp_path)))
    assert len(lines) == 8
    assert {title: len(each) for title, each in lines.items()} == dict.fromkeys(lines, dashboard.MOST)
    assert [title for title, each in lines.items() if "n-7" in each] == LEAST
    assert all("n-999" in each for title, each in lines.items() if title not in LEAST)


LEAST = ["Time of waiting for others", "GPU in use", "Power"]
"""Charts that show the lowest values: in them something is wrong."""


def test_panels_and_rows_have_numbers_of_their_own_and_do_not_overlap() -> None:
    panels = made()["panels"]
    assert len({each["id"] for each in panels}) == len(panels)
    taken = [
        (x, y)
        for each in panels
        for x in range(each["gridPos"]["x"], each["gridPos"]["x"] + each["gridPos"]["w"])
        for y in range(each["gridPos"]["y"], each["gridPos"]["y"] + each["gridPos"]["h"])
    ]
    assert len(taken) == len(set(taken))
    assert max(x for x, _ in taken) < dashboard.WIDTH


def test_a_person_chooses_data_source_namespace_and_job() -> None:
    variables = {each["name"]: each for each in made()["templating"]["list"]}
    assert list(variables) == ["datasource", "namespace", "elasticjob"]
    assert variables["datasource"]["query"] == "prometheus"
    for panel in charts():
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}, panel["title"]


@pytest.mark.parametrize(
    ("parts", "rows"),
    [
        (scrape.Parts(), ["Training", "Jobs and control", "Nodes"]),
        (EVERYTHING, ["Training", "Jobs and control", "Nodes", "GPUs"]),
    ],
    ids=["cpus", "gpus"],
)
def test_only_what_is_there_is_shown(parts: scrape.Parts, rows: list[str]) -> None:
    assert [each["title"] for each in made(parts)["panels"] if each["type"] == "row"] == rows
    karpenter = any("karpenter" in query for panel in charts(parts) for query in queries(panel))
    assert karpenter == parts.karpenter


def test_the_dashboard_is_the_same_in_every_run() -> None:
    """Otherwise each `pulumi up` would change its ConfigMap."""
    assert dashboard.to_json(dashboard.dashboard(EVERYTHING)) == dashboard.to_json(dashboard.dashboard(EVERYTHING))


def test_the_command_prints_dashboard_and_rules(capsys: pytest.CaptureFixture[str]) -> None:
    command.main(["dashboard", "--gpus", "--karpenter"])
    assert json.loads(capsys.readouterr().out) == made()
    command.main(["alerts"])
    assert yaml.safe_load(capsys.readouterr().out) == alerts.rules(scrape.Parts())
