"""Messages to the user through the engine: lasting ones (`log`) and the progress beside a resource (`status`)."""

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
    ERROR = engine_pb2.ERROR


class Log(Protocol):
    """Where messages go."""

    def log(self, urn: str, severity: Severity, message: str) -> None:
        """Shows a message that stays."""

    def status(self, urn: str, severity: Severity, message: str) -> None:
        """Shows progress beside the resource, until the next."""


class EngineLog:
    """The engine's log service. A message that cannot be delivered is dropped: it must not fail the resource."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._stub: engine_pb2_grpc.EngineStub | None = None

    def log(self, urn: str, severity: Severity, message: str) -> None:
        """Shows a message that stays."""
        self._send(urn, severity, message, ephemeral=False)

    def status(self, urn: str, severity: Severity, message: str) -> None:
        """Shows progress beside the resource, until the next."""
        self._send(urn, severity, message, ephemeral=True)

    def _send(self, urn: str, severity: Severity, message: str, *, ephemeral: bool) -> None:
        if not self._address:
            return
        with self._lock:
            if self._stub is None:
                self._stub = engine_pb2_grpc.EngineStub(grpc.insecure_channel(self._address))
        request = engine_pb2.LogRequest(severity=severity.value, message=message, urn=urn, ephemeral=ephemeral)
        with contextlib.suppress(grpc.RpcError):
            self._stub.Log(request, timeout=5)
