"""The control plane's processes: where they listen, and which calls are logged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.control_plane import (
    Plane,
    PlaneError,
    Site,
    apiserver_flags,
    audit_policy,
    await_definitions,
    binding,
    etcd_flags,
)

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


def test_the_audit_log_has_the_calls_of_the_named_users_alone() -> None:
    first, last = audit_policy(["bench-tidewater", "bench-training-operator"])["rules"]
    assert first == {"level": "Metadata", "users": ["bench-tidewater", "bench-training-operator"]}
    assert last == {"level": "None"}


def test_definitions_are_awaited_that_have_no_conditions_yet() -> None:
    states = [
        {},
        {"conditions": None},
        *({"conditions": [{"type": "Established", "status": each}]} for each in ("False", "True")),
    ]
    answers = iter(states)
    await_definitions(lambda *_: json.dumps({"items": [{"status": next(answers)}, {"status": states[-1]}]}))
    assert next(answers, None) is None
