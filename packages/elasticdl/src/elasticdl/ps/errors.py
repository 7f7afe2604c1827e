"""Errors of the parameter servers, for servers and clients.

PushRefused     a model or a gradient doesn't fit what the server holds; sending it again gives the same error
NoModel         the server has no model yet: a worker pushes it
SnapshotLost    the server has no such snapshot: it was restarted, or has taken too many since
BadCheckpoint   a checkpoint is incomplete or altered; says which file
"""

from __future__ import annotations

from elasticdl.errors import ElasticDLError, InputError


class PushRefused(InputError):
    """A model or a gradient doesn't fit what the server holds."""


class NoModel(ElasticDLError):
    """The server has no model yet."""


class SnapshotLost(ElasticDLError):
    """The server doesn't have the snapshot, or has it no more."""


class BadCheckpoint(InputError):
    """A checkpoint is incomplete or altered."""
