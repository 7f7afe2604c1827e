"""--rdzv-endpoint and --rdzv-conf: accepted values, and errors for mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidewater.elastic.errors import ConfigError
from tidewater.elastic.torchrun.options import Options


def test_endpoints_are_a_list_with_etcds_port_and_plain_http_by_default() -> None:
    found = Options.parse("etcd-0, etcd-1:4001,https://etcd-2:2379/,[::1]:2379", {})
    assert found.endpoints == ("http://etcd-0:2379", "http://etcd-1:4001", "https://etcd-2:2379", "http://[::1]:2379")


def test_settings_are_parsed_from_text_and_torchs_timeout_is_the_join_timeout() -> None:
    found = Options.parse("etcd", {"lease_seconds": "7", "last_call_seconds": "0.5", "timeout": 900})
    assert (found.lease_seconds, found.last_call_seconds, found.join_seconds) == (7, 0.5, 900)
    assert Options.parse("etcd", {"join_seconds": "30", "timeout": 900}).join_seconds == 30


def test_tls_is_on_when_a_certificate_is_named() -> None:
    assert Options.parse("etcd", {"cacert": "/ca.pem"}).endpoints == ("https://etcd:2379",)
    assert Options.parse("etcd", {"protocol": "https"}).tls() is not None
    assert Options.parse("etcd", {}).tls() is None


@pytest.mark.parametrize(
    ("endpoint", "config", "words"),
    [
        pytest.param("", {}, "--rdzv-endpoint is required", id="none"),
        pytest.param("etcd:http", {}, "--rdzv-endpoint 'etcd:http' is not an etcd client address", id="port"),
        pytest.param("ftp://etcd", {}, "'ftp://etcd' is not", id="scheme"),
        pytest.param("etcd", {"lease_second": "5"}, "lease_second=5 is not known: use lease_seconds,", id="unknown"),
        pytest.param("etcd", {"lease_seconds": "1"}, "lease_seconds=1, the least is 2", id="small"),
        pytest.param("etcd", {"lease_seconds": "2.5"}, "leases last whole seconds", id="fraction"),
        pytest.param("etcd", {"join_seconds": "soon"}, "join_seconds=soon is not a number", id="text"),
        pytest.param("etcd", {"join_seconds": "nan"}, "join_seconds=nan, the least is 1", id="nan"),
        pytest.param("etcd", {"protocol": "grpc"}, "protocol=grpc: use http or https", id="protocol"),
        pytest.param("etcd", {"cert": "/c.pem"}, "cert=… and key=… belong together", id="half a pair"),
        pytest.param("http://etcd", {"cacert": "/ca.pem"}, "are for https", id="certificate without TLS"),
    ],
)
def test_a_mistake_is_named_with_the_correct_form(endpoint: str, config: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Options.parse(endpoint, config)
    assert words in str(caught.value)


def test_all_mistakes_of_the_options_are_reported_together() -> None:
    with pytest.raises(ConfigError) as caught:
        Options.parse("etcd:x", {"lease_seconds": "0", "colour": "red"})
    for words in ("etcd:x", "lease_seconds", "colour"):
        assert words in str(caught.value)


def test_an_unreadable_certificate_is_named(tmp_path: Path) -> None:
    absent = tmp_path / "ca.pem"
    with pytest.raises(ConfigError, match=r"cacert=.*ca\.pem cannot be used"):
        Options.parse("etcd", {"cacert": str(absent)}).tls()
