"""The forward proxy: requests and connections pass unchanged, and it notes each. Real clients, real HTTP."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
from botocore.config import Config

from packages.localcloud.tests.aws.fakes import REGION
from tests.aws import moto_server
from tests.e2e.guest.forward_proxy import ForwardProxy


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with moto_server.serve() as found:
        yield found


@pytest.fixture
def proxy() -> Iterator[ForwardProxy]:
    with ForwardProxy(socket.create_server(("127.0.0.1", 0))) as made:
        yield made


def test_objects_of_s3_come_and_go_through_it(endpoint: str, proxy: ForwardProxy) -> None:
    connect: Any = boto3.client  # its type lists every service by name
    through = Config(proxies={"http": proxy.url}, s3={"addressing_style": "path"})
    s3 = connect("s3", REGION, endpoint_url=endpoint, config=through, **moto_server.KEYS)
    s3.create_bucket(Bucket="images", CreateBucketConfiguration={"LocationConstraint": REGION})
    content = bytes(range(256)) * 10_000
    s3.put_object(Bucket="images", Key="a", Body=content)
    assert s3.get_object(Bucket="images", Key="a")["Body"].read() == content
    assert {method for method, _ in proxy.asked} == {"GET", "PUT"}
    assert f"http://{next(iter(proxy.hosts))}" == endpoint


def test_a_connection_carries_anything(endpoint: str, proxy: ForwardProxy) -> None:
    server = urlsplit(endpoint)
    connection = http.client.HTTPConnection(urlsplit(proxy.url).netloc)
    connection.set_tunnel(server.hostname or "", server.port)
    for _ in range(2):
        connection.request("GET", "/moto-api/data.json")
        assert connection.getresponse().read()
    connection.close()
    assert proxy.asked == {("CONNECT", server.netloc)}


def test_after_the_end_it_answers_no_more() -> None:
    with ForwardProxy(socket.create_server(("127.0.0.1", 0))) as ended:
        address = urlsplit(ended.url)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((address.hostname or "", address.port or 0), 5)
