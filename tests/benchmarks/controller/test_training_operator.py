"""What lets training-operator run outside of a pod."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from benchmarks.controller.training_operator import TrainingOperator, alias, at_port, files
from benchmarks.harness.command import TurnFailed
from tests.control_plane import Plane


def test_the_webhooks_service_is_another_name_of_this_machine() -> None:
    service = alias()
    assert service["metadata"] == {"name": "training-operator", "namespace": "kubeflow"}
    assert service["spec"] == {"type": "ExternalName", "externalName": "localhost"}


def test_only_the_port_of_the_webhooks_changes() -> None:
    service = {"name": "training-operator", "namespace": "kubeflow", "path": "/validate", "port": 443}
    before = {"metadata": {"name": "hooks"}, "webhooks": [{"name": "a", "clientConfig": {"service": service}}]}
    after = at_port(before, 9999)
    assert after["metadata"] == before["metadata"]
    (hook,) = after["webhooks"]
    assert hook == {"name": "a", "clientConfig": {"service": {**service, "port": 9999}}}
    assert service["port"] == 443


def test_a_secret_becomes_files() -> None:
    assert files({"data": {"tls.crt": base64.b64encode(b"certificate").decode()}}) == {"tls.crt": b"certificate"}
    assert files({"metadata": {}}) == {}
    assert files({"data": None}) == {}


def test_certificates_of_another_operator_are_neither_used_nor_deleted(tmp_path: Path) -> None:
    plane = Plane(tmp_path, [])
    certificates = tmp_path / "serving-certs"
    certificates.mkdir()
    operator = TrainingOperator(certificates)
    with pytest.raises(TurnFailed, match=r"serving-certs exists: another training-operator uses it.*; delete it"):
        operator.install(plane)
    operator.end()
    assert certificates.is_dir()
