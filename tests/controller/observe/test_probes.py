"""The HTTP endpoints, over real connections."""

from __future__ import annotations

import asyncio
import json

from tidewater.controller.observe.metrics import Metrics
from tidewater.controller.observe.probes import METRICS_TEXT, Page, Pages, serve


async def fetch(port: int, request: str) -> tuple[int, str, str]:
    """Return status, content type and body of an answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{request}\r\nHost: x\r\n\r\n".encode())
    await writer.drain()
    answer = (await reader.read()).decode()
    writer.close()
    head, _, body = answer.partition("\r\n\r\n")
    status, *headers = head.split("\r\n")
    kinds = dict(line.split(": ", 1) for line in headers)
    return int(status.split()[1]), kinds["Content-Type"], body


def answers(pages: Pages, *requests: str) -> list[tuple[int, str, str]]:
    async def main() -> list[tuple[int, str, str]]:
        async with serve(0, pages) as port:
            return [await fetch(port, request) for request in requests]

    return asyncio.run(main())


def test_a_page_is_served_with_its_status() -> None:
    pages: Pages = {"/healthz": lambda: Page(b"ok\n"), "/readyz": lambda: Page(b"not yet\n", 503)}
    found = answers(
        pages, "GET /healthz HTTP/1.1", "GET /readyz?verbose HTTP/1.1", "GET /x HTTP/1.1", "POST / HTTP/1.1"
    )
    assert [status for status, _, _ in found] == [200, 503, 404, 405]
    assert [body for _, _, body in found][:2] == ["ok\n", "not yet\n"]
    assert "/healthz, /readyz" in found[2][2]


def test_a_client_that_sends_nonsense_disturbs_nobody() -> None:
    async def main() -> tuple[int, str, str]:
        async with serve(0, {"/healthz": lambda: Page(b"ok\n")}) as port:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"\x00\xff\n\n" + b"x" * 100_000)
            writer.close()
            return await fetch(port, "GET /healthz HTTP/1.1")

    assert asyncio.run(main())[0] == 200


def test_metrics_are_in_prometheus_text_format() -> None:
    metrics = Metrics()
    metrics.watch(lambda: {"Running": 3, "Queued": 1}, lambda: 7)
    metrics.request("patch", "elasticjobs", 200, 0.01)
    metrics.request("watch", "pods", 200, 300.0)
    metrics.reconciled("done", 0.002)
    metrics.watch_ended("pods", "Gone")
    metrics.event_dropped()
    pages: Pages = {"/metrics": lambda: Page(metrics.exposition(), content_type=METRICS_TEXT)}
    with metrics.leading():
        ((status, kind, body),) = answers(pages, "GET /metrics HTTP/1.1")
    lines = body.splitlines()
    assert (status, kind) == (200, METRICS_TEXT)
    assert 'elasticjob_jobs{state="Running"} 3.0' in lines
    assert "elasticjob_work_queue_depth 7.0" in lines
    assert 'elasticjob_api_requests_total{code="200",resource="elasticjobs",verb="patch"} 1.0' in lines
    assert 'elasticjob_reconciles_total{result="done"} 1.0' in lines
    assert 'elasticjob_watch_restarts_total{cause="Gone",resource="pods"} 1.0' in lines
    assert "elasticjob_events_dropped_total 1.0" in lines
    assert "elasticjob_leader 1.0" in lines
    assert not any('request_seconds_count{verb="watch"}' in line for line in lines)
    assert json.dumps(lines).count("process_resident_memory_bytes") >= 1
