"""What the provider's cluster means to a chart, with an API server that only tells what it serves."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest
from localcloud.standins.kubernetes.__main__ import KubernetesServicer, ProviderHost
from localcloud.standins.kubernetes.config import Config
from localcloud.standins.kubernetes.engine import Severity
from localcloud.standins.kubernetes.helm.arguments import ChartArguments
from localcloud.standins.kubernetes.helm.chart import TYPE
from localcloud.standins.kubernetes.provider import KubernetesProvider
from localcloud.standins.serve import PluginError
from localcloud.standins.values import repair_property_value
from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.runtime.proto import provider_pb2

from packages.localcloud.tests.standins.kubernetes.fake_monitor import FakeMonitor

repair_property_value()
CHART: Final = ChartArguments("demo", "release", "release")
GROUPS: Final = ("apps/v1", "example.test/v1", "gone.test/v1")
SERVED: Final[dict[str, Any]] = {
    "/version": {"gitVersion": "v1.34.4"},
    "/apis": {"groups": [{"versions": [{"groupVersion": each}]} for each in GROUPS]},
    "/api/v1": {"resources": [{"kind": "Pod", "name": "pods", "namespaced": True}]},
    "/apis/apps/v1": {"resources": [{"kind": "Deployment", "name": "deployments", "namespaced": True}]},
    "/apis/example.test/v1": {"resources": [{"kind": "Toy", "name": "toys", "namespaced": False}]},
}
"""The server of `gone.test` doesn't answer, as that of an API which an APIService registers may not."""


class ApiServer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        found = SERVED.get(self.path)
        self.send_response(503 if found is None else 200)
        self.end_headers()
        self.wfile.write(json.dumps(found or {"message": "no endpoints"}).encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Silent:
    def log(self, urn: str, severity: Severity, message: str) -> None:
        pass

    status = log


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), ApiServer) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{found.server_port}"
        found.shutdown()


def provider(server: str, **settings: Any) -> KubernetesProvider:
    kubeconfig = {
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "home"}}],
        "current-context": "x",
    }
    made = KubernetesProvider(Silent())
    made.config = Config.read({"kubeconfig": json.dumps(kubeconfig), **settings}, {})
    return made


@pytest.fixture
def helm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file to which a stand-in for helm writes its arguments, one a line."""
    program, called = tmp_path / "bin" / "helm", tmp_path / "called"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {called}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    return called


def flags(called: Path) -> dict[str, str]:
    lines = called.read_text().splitlines()
    return {line: after for line, after in itertools.pairwise(lines) if line.startswith("--")}


def test_helm_is_told_what_the_cluster_serves(server: str, helm: Path) -> None:
    ProviderHost(provider(server)).render(CHART)
    assert flags(helm)["--kube-version"] == "v1.34.4"
    assert flags(helm)["--api-versions"].split(",") == [
        *("v1", "v1/Pod", "apps/v1", "apps/v1/Deployment", "example.test/v1", "example.test/v1/Toy", "gone.test/v1")
    ]


@pytest.mark.parametrize(
    ("settings", "namespace"), [({}, "home"), ({"namespace": "given"}, "given")], ids=["kubeconfig", "provider"]
)
def test_a_release_goes_to_the_provider_s_namespace(
    server: str, helm: Path, settings: dict[str, str], namespace: str
) -> None:
    ProviderHost(provider(server, **settings)).render(CHART)
    assert flags(helm)["--namespace"] == namespace


def test_whether_a_kind_lives_in_a_namespace_is_asked_of_the_cluster(server: str) -> None:
    host = ProviderHost(provider(server))
    assert not host.namespaced({"apiVersion": "example.test/v1", "kind": "Toy"}, [])
    with pytest.raises(PluginError, match=r"is namespaced: example\.test/v1, Kind=Ball"):
        host.namespaced({"apiVersion": "example.test/v1", "kind": "Ball"}, [])


def test_a_cluster_that_cannot_be_reached_is_an_error_that_names_it() -> None:
    request = provider_pb2.ConstructRequest(
        type=TYPE, name="demo", inputs=PropertyValue.marshal_map({"chart": PropertyValue("demo")})
    )
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))  # and doesn't listen
        address = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        servicer = KubernetesServicer("4.34.2", provider(address), "")
        with pytest.raises(PluginError, match=f"configured Kubernetes cluster is unreachable: .*{address}"):
            asyncio.run(servicer.construct(FakeMonitor(), request))
