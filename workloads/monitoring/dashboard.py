"""The Grafana dashboard of training, generated.

    text = to_json(dashboard(Parts(gpus=True)))

Grafana's own library builds it, so every property is one that Grafana knows
(https://github.com/grafana/grafana-foundation-sdk). tests/e2e runs every query of it against a Prometheus that has
watched a real training.
"""

from __future__ import annotations

import itertools
import json
import string
from collections.abc import Iterator
from dataclasses import dataclass

from grafana_foundation_sdk.builders import common as ui
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders import prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import GraphDrawStyle, LegendDisplayMode, LegendPlacement
from grafana_foundation_sdk.models.dashboard import Dashboard, DataSourceRef, VariableRefresh

from workloads.monitoring import scrape

UID = "tidewater-training"
TITLE = "Tidewater training"
WIDTH = 24
"""Of a row of panels."""

SELECTED = '{namespace="$namespace",elasticjob="$elasticjob"}'
_EACH = "$__rate_interval"
_SHOWN = "$__range"
"""What the person looks at: an hour at first."""
MOST = 20
"""Lines of a chart with one for each worker, node or GPU: a job may have a thousand of them."""
_SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")


@dataclass(frozen=True)
class Query:
    """PromQL, and how its series are called in the legend."""

    expression: str
    legend: str


@dataclass(frozen=True)
class Panel:
    """A chart over time, or one number.

    Attributes:
        unit: as Grafana names it, for example `percentunit`.
        most: upper end of the axis; None: that of the data.
    """

    title: str
    description: str
    queries: tuple[Query, ...]
    unit: str = "short"
    width: int = WIDTH // 3
    most: float | None = None
    number: bool = False
    bars: bool = False


def _number(title: str, description: str, expression: str, unit: str = "short") -> Panel:
    return Panel(title, description, (Query(expression, ""),), unit, width=WIDTH // 4, number=True)


# Time by time: `rate` alone divides by the whole interval, also for a worker that came in the middle of it.
GOODPUT = (
    f"clamp_max(sum(rate(tidewater_useful_seconds_total{SELECTED}[{_EACH}]))"
    f" / sum(rate(tidewater_training_seconds_total{SELECTED}[{_EACH}])), 1)"
)
SAMPLES = f"sum(rate(tidewater_samples_total{SELECTED}[{_EACH}]))"
WORLD_SIZE = f"max(tidewater_world_size{SELECTED})"
# The gauges of a worker without a step are 0.
LOSS = f"avg(tidewater_loss{SELECTED} and on (instance) (tidewater_committed_steps_total{SELECTED} > 0))"
# All workers count the same recoveries.
RECOVERIES = f"round(max by (cause) (increase(tidewater_recovery_seconds_count{SELECTED}[{_EACH}])))"
STEP_TIMES = f"sum by (le) (rate(tidewater_step_seconds_bucket{SELECTED}[{_EACH}]))"
RECOVERY_TIMES = f"sum by (le, cause) (increase(tidewater_recovery_seconds_bucket{SELECTED}[1h]))"


def _outermost(series: str, by: str, rate: bool = False, least: bool = False) -> str:
    """Return the query for the `MOST` series that are the highest, or lowest, on average over what is shown.

    They are chosen once, at the end of the time that is shown, so that a chart has no more lines than that. A choice at
    each moment would have other lines at other moments.

    Args:
        series: The metric, with its labels.
        by: The labels that tell the lines apart.
        rate: Whether the lines are increases per second.
        least: Whether the lowest ones are chosen.
    """
    each = f"sum by ({by}) (rate({series}[{_EACH}]))" if rate else f"max by ({by}) ({series})"
    over = f"rate({series}[{_SHOWN}] @ end())" if rate else f"avg_over_time({series}[{_SHOWN}] @ end())"
    return f"{each} and on ({by}) {'bottomk' if least else 'topk'}({MOST}, max by ({by}) ({over}))"


WAITS = _outermost(f"tidewater_wait_seconds_total{SELECTED}", "pod, node", rate=True, least=True)

TRAINING = (
    _number("World size", "Workers in the last committed step.", WORLD_SIZE),
    _number("Goodput", "Share of the time that was used for steps that count.", GOODPUT, "percentunit"),
    _number("Samples/s", "Of all workers.", SAMPLES),
    _number("Step", "The last committed step.", f"max(tidewater_step{SELECTED})"),
    Panel(
        "Workers",
        "Workers in the last committed step, and processes that Prometheus reaches: a joiner is only the latter.",
        (
            Query(WORLD_SIZE, "world size"),
            Query(
                f'count(up{{job="{scrape.WORKERS}",namespace="$namespace",elasticjob="$elasticjob"}} == 1)', "reached"
            ),
        ),
    ),
    Panel(
        "Goodput",
        "Share of the time that was used for steps that count. The rest: recoveries, discarded steps, waiting.",
        (Query(GOODPUT, "goodput"),),
        "percentunit",
        most=1,
    ),
    Panel(
        "Recoveries by cause",
        "How often training stopped because the membership changed.",
        (Query(RECOVERIES, "{{cause}}"),),
        bars=True,
    ),
    Panel("Loss", "Mean loss over the samples of the last committed step.", (Query(LOSS, "loss"),)),
    Panel("Samples/s", "Of all workers.", (Query(SAMPLES, "samples/s"),)),
    Panel(
        "Time of a step",
        "Of committed steps.",
        tuple(
            Query(f"histogram_quantile({part}, {STEP_TIMES})", name) for part, name in ((0.5, "median"), (0.95, "95 %"))
        ),
        "s",
    ),
    Panel(
        "Time of a recovery",
        "From the moment training stopped to the next committed step: 95 % within the last hour took less.",
        (Query(f"histogram_quantile(0.95, {RECOVERY_TIMES})", "{{cause}}"),),
        "s",
    ),
    Panel(
        "Checkpoints in the last hour",
        "Written and failed.",
        (
            Query(f"sum(increase(tidewater_checkpoints_saved_total{SELECTED}[1h]))", "written"),
            Query(f"sum(increase(tidewater_checkpoint_failures_total{SELECTED}[1h]))", "failed"),
        ),
    ),
    Panel(
        "Time of waiting for others",
        f"Share of its time for which a worker waits in steps: the {MOST} that wait least. The others wait for them.",
        (Query(WAITS, "{{pod}} {{node}}"),),
        "percentunit",
        most=1,
    ),
    Panel(
        "Straggler",
        "A worker with a median part of a step that takes a third longer than the others', and by how much.",
        (Query(f"max by (pod, node) (tidewater_straggler_seconds{SELECTED}) > 0 or vector(0)", "{{pod}} {{node}}"),),
        "s",
    ),
    Panel(
        "No step",
        "Time since the last step, if it is longer than --silent-seconds, and the worker that the others wait for.",
        (Query(f"max by (waits_for) (tidewater_silent_seconds{SELECTED}) or vector(0)", "{{waits_for}}"),),
        "s",
    ),
    Panel(
        "Steps given up, workers that drifted, GPUs left out",
        "In the last hour; GPUs that fail, now. A step is given up when a worker fails in it.",
        (
            Query(f"max(increase(tidewater_discarded_steps_total{SELECTED}[1h]))", "steps given up"),
            Query(f"sum(increase(tidewater_drifts_total{SELECTED}[1h]))", "drifts"),
            Query(f"sum(tidewater_process_left_out{SELECTED}) or vector(0)", "GPUs left out"),
        ),
    ),
)

CONTROL = (
    Panel(
        "Jobs by state", "All ElasticJobs of the cluster.", (Query("max by (state) (elasticjob_jobs)", "{{state}}"),)
    ),
    Panel(
        "Alerts",
        "Those that fire.",
        (Query('sum by (alertname) (ALERTS{alertstate="firing"}) or vector(0)', "{{alertname}}"),),
    ),
    Panel(
        "etcd: time of a write",
        "99 % of the writes to its log took less. On EFS a few milliseconds are usual.",
        (
            Query(
                f"histogram_quantile(0.99, sum by (le) (rate(etcd_disk_wal_fsync_duration_seconds_bucket[{_EACH}])))",
                "99 %",
            ),
        ),
        "s",
    ),
)

NODES = (
    Panel("Nodes", "That Prometheus reaches.", (Query(f'sum by (role) (up{{job="{scrape.NODES}"}})', "{{role}}"),)),
    Panel(
        "CPUs in use",
        f"On the {MOST} nodes that use most.",
        (Query(_outermost("node_cpu_usage_seconds_total", "node", rate=True), "{{node}}"),),
    ),
    Panel(
        "Memory in use",
        f"On the {MOST} nodes that use most.",
        (Query(_outermost("node_memory_working_set_bytes", "node"), "{{node}}"),),
        "bytes",
    ),
)

KARPENTER = (
    Panel(
        "Nodes that Karpenter has started and ended",
        "Since its start.",
        (
            Query("sum(karpenter_nodeclaims_created_total)", "started"),
            Query("sum(karpenter_nodeclaims_terminated_total) or vector(0)", "ended"),
        ),
    ),
)

GPUS = (
    Panel(
        "GPU in use",
        f"Share of the time in which a kernel ran, on the {MOST} GPUs where it is least.",
        (Query(_outermost("DCGM_FI_DEV_GPU_UTIL", "node, gpu", least=True), "{{node}} {{gpu}}"),),
        "percent",
        most=100,
    ),
    Panel(
        "GPU memory in use",
        f"On the {MOST} GPUs that use most.",
        (Query(f"({_outermost('DCGM_FI_DEV_FB_USED', 'node, gpu')}) * 1048576", "{{node}} {{gpu}}"),),
        "bytes",
    ),
    Panel(
        "Temperature",
        f"Of the {MOST} hottest GPUs.",
        (Query(_outermost("DCGM_FI_DEV_GPU_TEMP", "node, gpu"), "{{node}} {{gpu}}"),),
        "celsius",
    ),
    Panel(
        "Power",
        f"Of the {MOST} GPUs that draw least: one that draws much less than others does less.",
        (Query(_outermost("DCGM_FI_DEV_POWER_USAGE", "node, gpu", least=True), "{{node}} {{gpu}}"),),
        "watt",
    ),
    Panel(
        "Last Xid error",
        f"Of {MOST} GPUs, those with errors first; 0: none. https://docs.nvidia.com/deploy/xid-errors/",
        (Query(_outermost("DCGM_FI_DEV_XID_ERRORS", "node, gpu"), "{{node}} {{gpu}}"),),
    ),
)


def rows(parts: scrape.Parts) -> Iterator[tuple[str, tuple[Panel, ...]]]:
    """Yield the rows with their panels: only those with something to measure."""
    yield "Training", TRAINING
    yield "Jobs and control", CONTROL
    yield "Nodes", (*NODES, *KARPENTER) if parts.karpenter else NODES
    if parts.gpus:
        yield "GPUs", GPUS


def dashboard(parts: scrape.Parts) -> Dashboard:
    """Return the dashboard. Its variables choose the data source, the namespace and the job."""
    made = (
        build.Dashboard(TITLE)
        .uid(UID)
        .tags(["tidewater", "generated"])
        .time("now-1h", "now")
        .refresh("30s")
        .timezone("browser")
        .with_variable(build.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .with_variable(_variable("namespace", "tidewater_committed_steps_total"))
        .with_variable(_variable("elasticjob", 'tidewater_committed_steps_total{namespace="$namespace"}'))
    )
    ids = itertools.count(1)
    for title, panels in rows(parts):
        made = made.with_row(build.Row(title).id(next(ids)))
        for each in panels:
            made = made.with_panel(_panel(each).id(next(ids)))
    return made.build()


def to_json(made: Dashboard) -> str:
    """Return the dashboard as Grafana imports it."""
    return json.dumps(made, cls=JSONEncoder, indent=1, sort_keys=True) + "\n"


def _variable(label: str, series: str) -> build.QueryVariable:
    return (
        build.QueryVariable(label)
        .datasource(_SOURCE)
        .query(f"label_values({series}, {label})")
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
    )


def _panel(wanted: Panel) -> stat.Panel | timeseries.Panel:
    made: stat.Panel | timeseries.Panel = stat.Panel() if wanted.number else _chart(wanted)
    made = made.title(wanted.title).description(wanted.description).unit(wanted.unit).datasource(_SOURCE)
    for letter, each in zip(string.ascii_uppercase, wanted.queries, strict=False):
        target = prometheus.Dataquery().ref_id(letter).expr(each.expression).legend_format(each.legend)
        made = made.with_target(target.datasource(_SOURCE).range())
    return made.span(wanted.width).height(4 if wanted.number else 8)


def _chart(wanted: Panel) -> timeseries.Panel:
    legend = (
        ui.VizLegendOptions().show_legend(True).placement(LegendPlacement.BOTTOM).display_mode(LegendDisplayMode.LIST)
    )
    made = timeseries.Panel().legend(legend).min(0)
    if wanted.most is not None:
        made = made.max(wanted.most)
    if wanted.bars:
        made = made.draw_style(GraphDrawStyle.BARS).fill_opacity(60)
    return made
