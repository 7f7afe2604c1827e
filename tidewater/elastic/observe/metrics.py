"""The metrics of a worker for Prometheus.

    metrics = open_metrics(9464, job="digits", worker="digits-0")      # port 0: measures nothing, needs no package
    log = Log("digits-0", listener=metrics.event)
    metrics.committed(report)                                          # for every final step

The port also says whether this worker has joined the others, for a readiness probe: see `READY_PATH`.

Events are counted when they are logged. Only steps come from the loop, because the log does not report every step. The
counters of samples count this worker's own samples: the sum over the workers is that of the job.

Goodput is the share of the time, since this worker's first committed step began, that was used for committed steps and
evaluations. Not included: recoveries, resizes, discarded steps, waiting for workers or for etcd, and writing
checkpoints.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tidewater.contract.metrics import READY_PATH
from tidewater.elastic.addresses import everywhere
from tidewater.elastic.errors import ConfigError
from tidewater.elastic.observe.log import Value
from tidewater.elastic.training import Report

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

CAUSES = ("start", "lost", "left", "joined")
"""Why the membership changes, as in ``membership.Generation``."""

_STEP_BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_CHANGE_BUCKETS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)


class Metrics:
    """Notes when training progresses, and nothing else. Used by a worker without ``--metrics-port``."""

    progressed_at = 0.0
    """Monotonic time of the last final step, or round of an evaluation."""

    def committed(self, done: Report) -> None:
        """Count a final step."""
        self.progressed_at = time.monotonic()

    def evaluated(self, seconds: float) -> None:
        """Count the time of a part of an evaluation."""
        self.progressed_at = time.monotonic()

    def silent(self, seconds: float, workers: Sequence[str]) -> None:
        """Note since when the job makes no step, if it is too long (otherwise 0), and for which workers it waits.

        Called by a thread of its own.
        """

    def straggles(self, seconds: float) -> None:
        """Note how much longer than the others this worker takes for its part of a step; 0: it is not slow."""

    def event(self, name: str, fields: Mapping[str, Value]) -> None:
        """Count an event of the log. May be called from any thread."""


class _Elapsed:
    """A counter of time, which grows by itself."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds

    def collect(self) -> Iterator[Any]:
        """Yield its value, as a registry of prometheus-client asks for it."""
        from prometheus_client.core import CounterMetricFamily

        text = "Time since the first committed step began"
        yield CounterMetricFamily("tidewater_training_seconds", text, value=self._seconds())


class PrometheusMetrics(Metrics):
    """Metrics in their own registry. ``open_metrics`` serves them.

    Args:
        registry: A ``prometheus_client.CollectorRegistry``.
        clock: Returns monotonic time in seconds.
    """

    def __init__(self, registry: Any, *, job: str, worker: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.joined = False
        """Whether the worker has joined the others."""
        self._clock = clock
        self._began: float | None = None
        self._useful_seconds = 0.0
        _say_who(registry, job, worker)
        self._open_gauges(registry)
        self._open_counters(registry)
        self._open_histograms(registry)
        registry.register(_Elapsed(self._elapsed))

    def _open_gauges(self, registry: Any) -> None:
        from prometheus_client import Gauge

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"tidewater_{name}", text, registry=registry)

        self._world_size = gauge("world_size", "Workers in the last committed step")
        self._generation = gauge("generation", "Number of the membership of the last committed step")
        self._rank = gauge("rank", "This worker's rank in the last committed step")
        self._step = gauge("step", "Number of the last committed step")
        self._epoch = gauge("epoch", "Epochs that are done")
        self._loss = gauge("loss", "Mean loss over the samples of the last committed step")
        self._silent = Gauge(
            "tidewater_silent_seconds",
            "Time since the last step, if it is longer than --silent-seconds, for each worker that the job waits for",
            ("waits_for",),
            registry=registry,
        )
        self._straggles = gauge(
            "straggler_seconds", "By how much this worker's part of a step takes longer than the others', if it is slow"
        )
        self._goodput = gauge("goodput_ratio", "Share of the time since the first step that was useful")
        self._goodput.set_function(self.goodput)

    def _open_counters(self, registry: Any) -> None:
        from prometheus_client import Counter

        def counter(name: str, text: str) -> Counter:
            return Counter(f"tidewater_{name}", text, registry=registry)

        self._steps = counter("committed_steps", "Steps committed with this worker in them")
        self._samples = counter("samples", "Samples in committed steps, this worker's share")
        self._waited = counter("wait_seconds", "Time in committed steps for which this worker waited for the others")
        self._useful_counter = counter("useful_seconds", "Time used for committed steps and evaluations")
        self._discarded = counter("discarded_steps", "Steps given up because a peer failed")
        self._drifted = counter("drifts", "Comparisons that found workers with another state")
        self._peers_lost = counter("peers_lost", "Peers that failed or vanished")
        self._saved = counter("checkpoints_saved", "Checkpoints written by this worker")
        self._failed = counter("checkpoint_failures", "Checkpoints that could not be written")

    def _open_histograms(self, registry: Any) -> None:
        from prometheus_client import Histogram

        self._step_seconds = Histogram(
            "tidewater_step_seconds", "Time of committed steps", buckets=_STEP_BUCKETS, registry=registry
        )
        self._change_seconds = Histogram(
            "tidewater_recovery_seconds",
            "From the moment training stopped for a change of the membership to the next committed step, by cause",
            ("cause",),
            buckets=_CHANGE_BUCKETS,
            registry=registry,
        )
        # Prometheus sees no increase in a series that begins with 1. https://prometheus.io/docs/practices/instrumentation/#avoid-missing-metrics
        for cause in CAUSES:
            self._change_seconds.labels(cause)

    def goodput(self) -> float:
        """Return the goodput between 0 and 1; 0 before the first step."""
        return min(1.0, self._useful_seconds / max(self._elapsed(), 1e-9))

    def _elapsed(self) -> float:
        return 0.0 if self._began is None else self._clock() - self._began

    def committed(self, done: Report) -> None:
        """See ``Metrics.committed``."""
        super().committed(done)
        self._useful(done.useful_seconds)
        self._world_size.set(done.world_size)
        self._generation.set(done.generation)
        self._rank.set(done.rank)
        self._step.set(done.step)
        self._epoch.set(done.epoch)
        self._loss.set(done.loss)
        self._steps.inc()
        self._samples.inc(len(done.samples))
        self._step_seconds.observe(done.step_seconds)
        self._waited.inc(done.wait_seconds)

    def evaluated(self, seconds: float) -> None:
        """See ``Metrics.evaluated``."""
        super().evaluated(seconds)
        self._useful(seconds)

    def _useful(self, seconds: float) -> None:
        """Count the last ``seconds`` until now as useful time."""
        if self._began is None:
            self._began = self._clock() - seconds
        self._useful_seconds += seconds
        self._useful_counter.inc(seconds)

    def silent(self, seconds: float, workers: Sequence[str]) -> None:
        """See ``Metrics.silent``."""
        self._silent.clear()
        if seconds:
            for each in workers or ("",):
                self._silent.labels(each).set(seconds)

    def straggles(self, seconds: float) -> None:
        """See ``Metrics.straggles``."""
        self._straggles.set(seconds)

    def event(self, name: str, fields: Mapping[str, Value]) -> None:
        """See ``Metrics.event``."""
        counters = {
            "step_discarded": self._discarded,
            "drifted": self._drifted,
            "peer_lost": self._peers_lost,
            "checkpoint_saved": self._saved,
            "checkpoint_failed": self._failed,
        }
        if name in counters:
            counters[name].inc()
        elif name == "joined":
            self.joined = True
        elif name in ("recovered", "resized"):
            seconds = fields.get("seconds")
            self._change_seconds.labels(str(fields.get("cause"))).observe(float(seconds or 0))


def open_metrics(port: int, *, job: str, worker: str) -> Metrics:
    """Serve metrics at ``http://<this host>:<port>/metrics``; if ``port`` is 0, measure nothing.

    Raise ConfigError if the port is in use or prometheus-client is not installed.
    """
    if port == 0:
        return Metrics()
    registry = _registry()
    metrics = PrometheusMetrics(registry, job=job, worker=worker)
    _serve(port, registry, lambda: metrics.joined)
    return metrics


def serve_left_out(port: int, *, job: str, worker: str, gpu: str, code: int) -> None:
    """Serve, in place of a process that its worker has left out, that it is left out; nothing if ``port`` is 0.

    So Prometheus sees it as long as the worker runs, and doesn't take the process for one that is silent.

    Args:
        port: That of the process.
        job: Name of the job.
        worker: Name of the process.
        gpu: UUID or index of its GPU; empty if it has none.
        code: Its last exit code.

    Raise ConfigError like ``open_metrics``.
    """
    if port == 0:
        return
    registry = _registry()
    _say_who(registry, job, worker)
    from prometheus_client import Gauge

    text = "1 for a process that its worker has left out, because its GPU or its connections failed"
    Gauge("tidewater_process_left_out", text, ("gpu", "code"), registry=registry).labels(gpu, code).set(1)
    _serve(port, registry, lambda: True)  # the worker goes on with its other processes


def _say_who(registry: Any, job: str, worker: str) -> None:
    from prometheus_client import Info

    # Not labels of every metric: Prometheus adds the pod's name, and its own `job` label has another meaning.
    Info("tidewater_worker", "Which worker of which job this is", registry=registry).info(
        {"job_name": job, "worker": worker}
    )


def _registry() -> Any:
    try:
        from prometheus_client import CollectorRegistry
    except ImportError as error:
        raise ConfigError(
            "--metrics-port needs prometheus-client: pip install prometheus-client, or leave the flag away"
        ) from error
    return CollectorRegistry()


def _serve(port: int, registry: Any, ready: Callable[[], bool]) -> None:
    from socketserver import ThreadingMixIn
    from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

    from prometheus_client import make_wsgi_app

    class Server(ThreadingMixIn, WSGIServer):
        daemon_threads = True
        address_family = socket.AF_INET6 if ":" in everywhere() else socket.AF_INET

    class Quiet(WSGIRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            """Keep questions out of the worker's log."""

    try:
        server = make_server(everywhere(), port, _with_readiness(make_wsgi_app(registry), ready), Server, Quiet)
    except OSError as error:
        raise ConfigError(f"--metrics-port {port} cannot be used ({error}): choose another one") from error
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()


def _with_readiness(metrics: WSGIApplication, ready: Callable[[], bool]) -> WSGIApplication:
    """Return what answers whether the worker is ready, and everything else as before."""

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Any:
        if environ["PATH_INFO"] != READY_PATH:
            return metrics(environ, start_response)
        start_response("200 OK" if ready() else "503 Service Unavailable", [("Content-Type", "text/plain")])
        return [b""]

    return answer
