"""The Prometheus of a checkout's cluster, through the API server, and the dashboard's queries as Grafana sends them.

prometheus = Prometheus(checkout)
prometheus.now("up")                                  # [Series({"job": "etcd", …}, [(1763942400.0, 1.0)])]
prometheus.over(query, minutes=5)                     # the same with a value every ten seconds
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from tests.e2e.checkout import Checkout
from workloads.monitoring.dashboard import Panel

SERVICE = "/api/v1/namespaces/tidewater-monitoring/services/prometheus:9090/proxy/api/v1"
STEP_SECONDS = 10


@dataclass(frozen=True)
class Series:
    """One series of an answer."""

    labels: dict[str, str]
    points: list[tuple[float, float]]
    """Time and value."""

    @property
    def values(self) -> list[float]:
        """Return the values without their times."""
        return [value for _, value in self.points]


@dataclass(frozen=True)
class Prometheus:
    """The Prometheus of a checkout's cluster."""

    checkout: Checkout

    def ask(self, path: str, **parameters: Any) -> Any:
        """Return the data of an answer."""
        text = f"?{urlencode(parameters)}" if parameters else ""
        answer = self.checkout.json(f"kubectl get --raw '{SERVICE}/{path}{text}'")
        assert answer["status"] == "success", answer
        return answer["data"]

    def now(self, query: str) -> list[Series]:
        """Return what a query returns at this moment."""
        found = self.ask("query", query=query)["result"]
        return [Series(each["metric"], [_point(each["value"])]) for each in found]

    def number(self, query: str) -> float | None:
        """Return the value of a query's only series; None if it has none."""
        found = self.now(query)
        assert len(found) < 2, found
        return found[0].values[0] if found else None

    def over(self, query: str, minutes: float) -> list[Series]:
        """Return what a query has returned during the last minutes.

        As Grafana draws it: NaN, such as the share of a time in which nothing was counted, is a gap.
        """
        end = time.time()
        window = {"start": end - 60 * minutes, "end": end, "step": STEP_SECONDS}
        found = self.ask("query_range", query=query, **window)["result"]
        series = [Series(each["metric"], [_point(pair) for pair in each["values"]]) for each in found]
        drawn = [Series(each.labels, [point for point in each.points if math.isfinite(point[1])]) for each in series]
        return [each for each in drawn if each.points]

    def alerts(self) -> dict[str, dict[str, Any]]:
        """Return the alert rules by name, each with its `state`, `health` and `lastError`."""
        groups = self.ask("rules", type="alert")["groups"]
        return {rule["name"]: rule for group in groups for rule in group["rules"]}


def chosen(query: str, *, namespace: str, job: str) -> str:
    """Return a query of the dashboard as Grafana sends it for this choice."""
    values = {"$namespace": namespace, "$elasticjob": job, "$__rate_interval": "1m", "$__range": "1h"}
    for name, value in values.items():
        query = query.replace(name, value)
    return query


def legend(text: str, labels: dict[str, str]) -> str:
    """Return the name of a series as Grafana shows it."""
    for name, value in labels.items():
        text = text.replace(f"{{{{{name}}}}}", value)
    return text


Shown = dict[str, list[float]]
"""The values of a panel's series by their names."""


def shown(prometheus: Prometheus, panel: Panel, *, namespace: str, job: str, minutes: float) -> dict[str, Series]:
    """Return the series of a panel by the names in its legend."""
    found = {}
    for query in panel.queries:
        for series in prometheus.over(chosen(query.expression, namespace=namespace, job=job), minutes):
            found[legend(query.legend, series.labels)] = series
    return found


def _point(pair: list[Any]) -> tuple[float, float]:
    return float(pair[0]), float(pair[1])
