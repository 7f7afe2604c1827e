"""Each alert fires when it should and not otherwise, as Prometheus' own promtool finds."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scripts import toolchain
from tests import graph
from workloads.monitoring import alerts, scrape

EVERYTHING = scrape.Parts(gpus=True, karpenter=True)
JOB = 'namespace="training",elasticjob="digits"'
ALERTS = {each.name: each for group in alerts.chosen(EVERYTHING).values() for each in group}


@dataclass(frozen=True)
class Story:
    """Series as promtool writes them (`0+6x60`: 0, 6, 12 … at one value a minute), and when to look."""

    series: Mapping[str, str]
    minute: int


def worker(name: str, values: str, worker: int = 0, extra: str = "") -> dict[str, str]:
    """A series of one worker."""
    return {f'tidewater_{name}{{{JOB},pod="digits-worker-{worker}"{extra}}}': values}


def trains(useful: str, all_of_it: str, number: int = 0) -> dict[str, str]:
    """The times of a worker."""
    return {**worker("useful_seconds_total", useful, number), **worker("training_seconds_total", all_of_it, number)}


def briefly(number: int) -> dict[str, str]:
    """The times of a worker that is there for five minutes, after the others, and loses little of them."""
    return trains(f"_x{5 * number} 0+58x5 stale", f"_x{5 * number} 0+60x5 stale", number)


def useful(share: float, minutes: int) -> str:
    """The counter of a worker that uses this share of its time."""
    return f"0+{60 * share:g}x{minutes}"


LOST = ',cause="lost"'
FIRES = {
    "TrainingStalled": Story({**worker("useful_seconds_total", "0+60x10 600x30"), **worker("loss", "0.5x40")}, 30),
    "TrainingGoodputLow": Story(trains(useful(0.5, 60), useful(1, 60)), 45),
    "TrainingKeepsLosingWorkers": Story(worker("recovery_seconds_count", "0x10 0+1x7 7x40", extra=LOST), 30),
    "TrainingLossNotFinite": Story(worker("loss", "0.5 0.4 NaN NaN"), 3),
    "TrainingStateDrifted": Story(worker("drifts_total", "0x5 1x5"), 8),
    "TrainingCheckpointsFail": Story(worker("checkpoint_failures_total", "0x5 1x5"), 8),
    "TrainingWorkerSilent": Story({f'up{{job="workers",{JOB},pod="digits-worker-1"}}': "1x3 0x10"}, 10),
    "TrainingStraggler": Story(worker("straggler_seconds", "0.2x30"), 20),
    "TrainingProcessLeftOut": Story(worker("process_left_out", "1x5", extra=',gpu="GPU-1",code="200"'), 3),
    "ElasticJobWaits": Story({'elasticjob_jobs{state="Restarting"}': "0x2 1x30"}, 25),
    "ElasticJobFailed": Story({'elasticjob_jobs{state="Failed"}': "0 1 1"}, 2),
    "ElasticJobControllerGone": Story(
        {'elasticjob_leader{pod="a"}': "1x5 0x20", 'elasticjob_leader{pod="b"}': "0x25"}, 15
    ),
    "ElasticJobReconcilesFail": Story({'elasticjob_reconciles_total{result="failed"}': "0+1x30"}, 20),
    "EtcdHasNoLeader": Story(
        {'up{job="etcd"}': "1x20", 'etcd_server_has_leader{namespace="training"}': "1x5 0x15"}, 10
    ),
    "NodeSilent": Story({'up{job="nodes",node="ip-10-0-0-1"}': "1x3 0x10"}, 10),
    "NodesDoNotStart": Story(
        {'karpenter_cloudprovider_errors_total{method="Create",error="InsufficientCapacityError"}': "0+1x40"}, 25
    ),
    "GpuFault": Story({'DCGM_FI_DEV_XID_ERRORS{node="a",gpu="3"}': "0 79 79"}, 2),
    "GpuHot": Story({'DCGM_FI_DEV_GPU_TEMP{node="a",gpu="3"}': "93x20"}, 15),
    "GpuIdle": Story({f'DCGM_FI_DEV_GPU_UTIL{{node="a",gpu="{gpu}"}}': "0x60" for gpu in range(2)}, 45),
}

CALM = {
    "TrainingStalled": {
        "steps are committed": Story(worker("useful_seconds_total", useful(0.9, 60)), 45),
        "an evaluation of 20 minutes, told part by part": Story(worker("useful_seconds_total", "0+30x60"), 45),
        "one of two workers has nothing to count yet": Story(
            {**worker("useful_seconds_total", useful(1, 60)), **worker("useful_seconds_total", "0x60", 1)}, 45
        ),
        "a job that began 5 minutes ago": Story(worker("useful_seconds_total", "0x5"), 5),
    },
    "TrainingGoodputLow": {
        "a good hour": Story(trains(useful(0.97, 60), useful(1, 60)), 45),
        "a bad quarter after a good one": Story(trains("0+58x30 1740+6x6", useful(1, 60)), 36),
        "workers that come and go every five minutes": Story(
            {key: values for number in range(1, 9) for key, values in briefly(number).items()}, 45
        ),
        "a job that has not made a step": Story(trains("0x60", "0x60"), 45),
    },
    "TrainingKeepsLosingWorkers": {
        "five losses": Story(worker("recovery_seconds_count", "0x10 0+1x4 5x40", extra=LOST), 30),
        "ten resizes": Story(worker("recovery_seconds_count", "0x10 0+1x9 10x40", extra=',cause="joined"'), 30),
        "three losses that three workers count": Story(
            {
                key: value
                for each in range(3)
                for key, value in worker("recovery_seconds_count", "0x10 0+1x2 3x40", each, LOST).items()
            },
            30,
        ),
    },
    "TrainingLossNotFinite": {"a finite loss": Story(worker("loss", "0.5 0.4 -3 0"), 3)},
    "TrainingStateDrifted": {"an old drift": Story(worker("drifts_total", "0x2 1x30"), 28)},
    "TrainingCheckpointsFail": {"written": Story(worker("checkpoint_failures_total", "0x60"), 50)},
    "TrainingWorkerSilent": {
        "a worker that starts": Story({f'up{{job="workers",{JOB},pod="digits-worker-1"}}': "0x3 1x10"}, 3),
        "a worker that is gone": Story({f'up{{job="workers",{JOB},pod="digits-worker-1"}}': "1x3 0x1 stale"}, 20),
    },
    "TrainingStraggler": {
        "one that is slow for ten minutes": Story(worker("straggler_seconds", "0x5 0.2x10 0x20"), 30),
    },
    "TrainingProcessLeftOut": {
        "its pod is gone": Story(worker("process_left_out", "1x3 stale", extra=',gpu="GPU-1",code="200"'), 8),
    },
    "ElasticJobWaits": {
        "five minutes for a node": Story({'elasticjob_jobs{state="Created"}': "1x5 0x30"}, 20),
        "in the queue": Story({'elasticjob_jobs{state="Queued"}': "1x60"}, 50),
    },
    "ElasticJobFailed": {"none": Story({'elasticjob_jobs{state="Failed"}': "0x5"}, 3)},
    "ElasticJobControllerGone": {
        "one of two leads": Story({'elasticjob_leader{pod="a"}': "1x25", 'elasticjob_leader{pod="b"}': "0x25"}, 15),
        "the other takes over": Story(
            {'elasticjob_leader{pod="a"}': "1x5 0x20", 'elasticjob_leader{pod="b"}': "0x7 1x20"}, 15
        ),
    },
    "ElasticJobReconcilesFail": {
        "one failure": Story({'elasticjob_reconciles_total{result="failed"}': "0x5 1x20"}, 12),
        "conflicts, which are tried again": Story({'elasticjob_reconciles_total{result="conflict"}': "0+1x30"}, 20),
    },
    "EtcdHasNoLeader": {
        "a leader": Story({'up{job="etcd"}': "1x20", 'etcd_server_has_leader{namespace="training"}': "1x20"}, 10),
        "one of three members is away": Story(
            {
                'up{job="etcd",pod="etcd-0"}': "1x20",
                'up{job="etcd",pod="etcd-1"}': "0x20",
                'etcd_server_has_leader{namespace="training",pod="etcd-0"}': "1x20",
            },
            10,
        ),
    },
    "NodeSilent": {"answers": Story({'up{job="nodes",node="ip-10-0-0-1"}': "1x10"}, 10)},
    "NodesDoNotStart": {
        "an error now and then": Story(
            {'karpenter_cloudprovider_errors_total{method="Create",error="InsufficientCapacityError"}': "0x5 1x40"}, 13
        ),
        "a node that is gone already": Story(
            {'karpenter_cloudprovider_errors_total{method="Get",error="NodeClaimNotFoundError"}': "0+1x40"}, 25
        ),
    },
    "GpuFault": {"none": Story({'DCGM_FI_DEV_XID_ERRORS{node="a",gpu="3"}': "0x5"}, 2)},
    "GpuHot": {"warm": Story({'DCGM_FI_DEV_GPU_TEMP{node="a",gpu="3"}': "84x20"}, 15)},
    "GpuIdle": {
        "one of two works": Story(
            {'DCGM_FI_DEV_GPU_UTIL{node="a",gpu="0"}': "0x60", 'DCGM_FI_DEV_GPU_UTIL{node="a",gpu="1"}': "90x60"}, 45
        )
    },
}
QUIET = [(name, what, story) for name, stories in CALM.items() for what, story in stories.items()]


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [toolchain.monitoring_binary("promtool"), *arguments], capture_output=True, text=True, check=False
    )


def alerts_at(story: Story, name: str, folder: Path) -> int:
    """Return how often an alert fires at that time, according to promtool's report."""
    (folder / "rules.yaml").write_text(json.dumps(alerts.rules(EVERYTHING)))
    told = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": key, "values": values} for key, values in story.series.items()],
                "alert_rule_test": [{"eval_time": f"{story.minute}m", "alertname": name, "exp_alerts": []}],
            }
        ],
    }
    (folder / "story.yaml").write_text(json.dumps(told))
    done = promtool("test", "rules", folder / "story.yaml")
    got = done.stderr.partition("got:")[2]
    assert done.returncode == (1 if got else 0), done.stdout + done.stderr
    return got.count("Labels:")


def test_promtool_accepts_the_rules(tmp_path: Path) -> None:
    for number, parts in enumerate((scrape.Parts(), EVERYTHING)):
        file = tmp_path / f"{number}.yaml"
        file.write_text(json.dumps(alerts.rules(parts)))
        done = promtool("check", "rules", file)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("name", "story"), FIRES.items(), ids=FIRES.keys())
def test_an_alert_fires_once_for_what_it_is_about(name: str, story: Story, tmp_path: Path) -> None:
    assert alerts_at(story, name, tmp_path) == 1


@pytest.mark.parametrize(("name", "what", "story"), QUIET, ids=[f"{name}: {what}" for name, what, _ in QUIET])
def test_an_alert_does_not_fire_without_need(name: str, what: str, story: Story, tmp_path: Path) -> None:
    assert alerts_at(story, name, tmp_path) == 0


def test_every_alert_has_a_story_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    assert FIRES.keys() == CALM.keys() == ALERTS.keys()


def test_every_alert_says_what_happened_and_what_to_do() -> None:
    for each in ALERTS.values():
        assert each.severity in (alerts.PAGE, alerts.LOOK), each.name
        assert each.summary.endswith("."), each.name
        assert each.action, each.name


@pytest.mark.parametrize(
    ("parts", "groups"),
    [
        (scrape.Parts(), ["training", "control", "nodes"]),
        (EVERYTHING, ["training", "control", "nodes", "karpenter", "gpus"]),
    ],
    ids=["cpus", "everything"],
)
def test_what_is_not_there_has_no_rules(parts: scrape.Parts, groups: list[str]) -> None:
    found: list[dict[str, Any]] = alerts.rules(parts)["groups"]
    assert [each["name"] for each in found] == [f"tidewater-{name}" for name in groups]


def test_the_documentation_lists_every_alert() -> None:
    text = (graph.ROOT / "docs" / "monitoring.md").read_text()
    assert [name for name in ALERTS if f"`{name}`" not in text] == []
