"""The trainer's fixtures that the worker's tests use, too."""

from __future__ import annotations

from tests.trainer.conftest import etcd, s3, s3_endpoint

__all__ = ["etcd", "s3", "s3_endpoint"]
