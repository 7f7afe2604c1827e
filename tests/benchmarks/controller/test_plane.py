"""The control plane's processes: where they listen, and whose calls are logged."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.controller.errors import PlaneError, TurnFailed
from benchmarks.controller.plane import Plane, Site, apiserver_flags, binding, etcd_flags
from benchmarks.controller.watch import created

SITE = Site(Path("/site"), api_port=1001, etcd_port=1002, peer_port=1003)


def test_everything_listens_on_the_loopback() -> None:
    flags = dict(flag.removeprefix("--").partition("=")[::2] for flag in apiserver_flags(SITE) + etcd_flags(SITE))
    assert flags["bind-address"] == "127.0.0.1"
    assert flags["listen-client-urls"] == flags["etcd-servers"] == "http://127.0.0.1:1002"
    assert flags["listen-peer-urls"] == "http://127.0.0.1:1003"
    assert SITE.endpoint == "https://127.0.0.1:1001"


def test_the_audit_log_is_written_where_it_is_read() -> None:
    assert f"--audit-log-path={SITE.audit}" in apiserver_flags(SITE)


def test_every_controllers_user_has_all_rights() -> None:
    found = binding("bench-tidewater")
    assert found["roleRef"]["name"] == "cluster-admin"
    assert [subject["name"] for subject in found["subjects"]] == ["bench-tidewater"]


def test_a_plane_that_is_not_started_says_so(tmp_path: Path) -> None:
    plane = Plane(tmp_path, [])
    with pytest.raises(PlaneError, match="isn't started"):
        _ = plane.client
    plane.end()


def test_the_watch_reports_new_pods_only() -> None:
    line = b'{"type":"%s","object":{"kind":"PartialObjectMetadata","metadata":{"name":"job-0-worker-1"}}}\n'
    assert created(line % b"ADDED") == "job-0-worker-1"
    assert created(line % b"MODIFIED") is None
    assert created(line % b"DELETED") is None


def test_the_end_of_a_watch_is_an_error_with_the_servers_words() -> None:
    line = b'{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old resource version"}}\n'
    with pytest.raises(TurnFailed, match="too old resource version"):
        created(line)
