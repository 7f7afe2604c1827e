"""The controller's metrics for Prometheus.

    metrics = Metrics()
    server = ApiServer(connect(), observe=metrics.request)
    metrics.watch(store.states, work.__len__)
    text = metrics.exposition()

API requests are counted with the verb and resource that Kubernetes authorizes, so that the numbers can be
compared with the API server's audit log and with its own metric `apiserver_request_total`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class _Watched(Collector):
    """Numbers that are counted when they are asked for."""

    def __init__(self, states: Callable[[], Mapping[str, int]], depth: Callable[[], int]) -> None:
        self._states = states
        self._depth = depth

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the numbers as they are now."""
        jobs = GaugeMetricFamily("elasticjob_jobs", "Jobs by state", labels=["state"])
        for state, count in sorted(self._states().items()):
            jobs.add_metric([state], count)
        yield jobs
        yield GaugeMetricFamily("elasticjob_work_queue_depth", "Jobs that wait to be reconciled", self._depth())


class Metrics:
    """The metrics of one process, in their own registry."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"elasticjob_{name}", text, labels, registry=self._registry)

        def histogram(name: str, text: str, *labels: str) -> Histogram:
            return Histogram(f"elasticjob_{name}", text, labels, buckets=_SECONDS, registry=self._registry)

        self._leader = Gauge("elasticjob_leader", "1 if this replica is the leader", registry=self._registry)
        self._reconciles = counter("reconciles", "Reconciliations of jobs, by result", "result")
        self._reconcile_seconds = histogram("reconcile_seconds", "Time of one reconciliation")
        self._requests = counter(
            "api_requests", "Requests to the API server; code 0: no answer", "verb", "resource", "code"
        )
        self._request_seconds = histogram("api_request_seconds", "Time of a request to the API server", "verb")
        self._watches = counter("watch_restarts", "Lists and watches that ended, by cause", "resource", "cause")
        self._events_dropped = counter("events_dropped", "Kubernetes events that were given up")

    def watch(self, states: Callable[[], Mapping[str, int]], depth: Callable[[], int]) -> None:
        """Show the number of jobs by state, and of jobs that wait to be reconciled, as these functions return them."""
        self._registry.register(_Watched(states, depth))

    def request(self, verb: str, resource: str, code: int, seconds: float) -> None:
        """Count a request to the API server."""
        self._requests.labels(verb, resource, str(code)).inc()
        if verb != "watch":  # a watch lasts for minutes
            self._request_seconds.labels(verb).observe(seconds)

    def reconciled(self, result: str, seconds: float) -> None:
        """Count a reconciliation: `result` is done, conflict, refused, failed or fenced."""
        self._reconciles.labels(result).inc()
        self._reconcile_seconds.observe(seconds)

    def watch_ended(self, resource: str, cause: str) -> None:
        """Count the end of a list or watch."""
        self._watches.labels(resource, cause).inc()

    def event_dropped(self) -> None:
        """Count a Kubernetes event that was given up."""
        self._events_dropped.inc()

    @contextlib.contextmanager
    def leading(self) -> Iterator[None]:
        """Show this replica as the leader meanwhile."""
        self._leader.set(1)
        try:
            yield
        finally:
            self._leader.set(0)

    def exposition(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        return generate_latest(self._registry)
