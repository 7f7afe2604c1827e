"""Messages to the user through the engine: lasting ones (`log`), and a resource's progress (`status`)."""

from __future__ import annotations

import contextlib
import enum
import threading
from typing import Protocol

import grpc
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc


class Severity(enum.Enum):
    """How the engine shows a message."""

    INFO = engine_pb2.INFO
    WARNING = engine_pb2.WARNING


class Log(Protocol):
    """Where messages go."""

    def log(self, urn: str, severity: Severity, message: str) -> None:
        """Show a message that stays."""

    def status(self, urn: str, severity: Severity, message: str) -> None:
        """Show progress next to the resource, until the next message."""


class EngineLog:
    """The engine's log service. A message that cannot be delivered is dropped: it must not fail the resource."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._stub: engine_pb2_grpc.EngineStub | None = None

    def log(self, urn: str, severity: Severity, message: str) -> None:
        """Show a message that stays."""
        self._send(engine_pb2.LogRequest(severity=severity.value, message=message, urn=urn))

    def status(self, urn: str, severity: Severity, message: str) -> None:
        """Show progress next to the resource, until the next message."""
        self._send(engine_pb2.LogRequest(severity=severity.value, message=message, urn=urn, ephemeral=True))

    def _send(self, request: engine_pb2.LogRequest) -> None:
        with self._lock:
            if self._stub is None:
                self._stub = engine_pb2_grpc.EngineStub(grpc.insecure_channel(self._address))
        with contextlib.suppress(grpc.RpcError):
            self._stub.Log(request, timeout=5)
