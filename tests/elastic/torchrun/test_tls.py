"""etcd with TLS and client certificates, configured by ``--rdzv-conf cacert=,cert=,key=``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.elastic.etcd.secured import secured
from tidewater.elastic.errors import StoreError
from tidewater.elastic.etcd.access import Access
from tidewater.elastic.etcd.client import EtcdStore
from tidewater.elastic.etcd.ranges import under
from tidewater.elastic.torchrun.options import Options

__all__ = ["secured"]


def store(url: str, **config: object) -> EtcdStore:
    options = Options.parse(url, config)
    return EtcdStore(options.endpoints, access=Access(context=options.tls()))


def test_reads_writes_and_watches_work_with_tls_client_certificates(secured: tuple[str, Path]) -> None:
    url, folder = secured
    client = store(url, cacert=folder / "ca.pem", cert=folder / "one.pem", key=folder / "one.key")
    client.put("/a", b"1")
    snapshot = client.read("/a")
    assert [entry.value for entry in snapshot.entries] == [b"1"]
    watch = client.watch({under("/a"): snapshot.revision})
    assert next(iter(watch))[0].key == "/a"
    watch.close()


def test_the_error_message_names_what_tls_lacks(secured: tuple[str, Path]) -> None:
    url, folder = secured
    with pytest.raises(StoreError, match="CERTIFICATE_VERIFY_FAILED"):
        store(url).read("/a")
    with pytest.raises(StoreError, match=r"(?i)certificate|violation of protocol"):
        store(url, cacert=folder / "ca.pem").read("/a")
    # whether etcd's answer or the reset of the connection is seen first is chance; the remedy is the same
    with pytest.raises(StoreError, match=r"it speaks TLS.*write https://"):
        store(url.replace("https", "http")).read("/a")
