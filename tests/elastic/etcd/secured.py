"""etcd with access control, for tests: with TLS and client certificates, or with user and password."""

from __future__ import annotations

import base64
import json
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from localcloud.kube.pki import Authority

from scripts import toolchain
from tests.elastic.workers import free_port, run_etcd
from tests.processes import eventually
from tidewater.elastic.errors import StoreError
from tidewater.elastic.etcd.access import Access
from tidewater.elastic.etcd.client import EtcdStore

USER, PASSWORD = "trainer", "correct horse"


def run_with_tls(folder: Path) -> Iterator[str]:
    """Yield the address of an etcd that requires TLS and client certificates; the files are in ``folder``."""
    write_certificates(folder)
    files = {"cert-file": "one.pem", "key-file": "one.key", "trusted-ca-file": "ca.pem"}
    flags = ["--client-cert-auth", *(f"--{name}={folder / file}" for name, file in files.items())]
    for url in run_etcd(toolchain.binary("etcd"), folder, free_port(), flags=flags):
        eventually(partial(EtcdStore((url,), access=access_to(folder)).read, "/"), StoreError)  # etcd is still starting
        yield url


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Yield an etcd that requires client certificates, and the folder with the files."""
    folder = tmp_path_factory.mktemp("tls")
    for url in run_with_tls(folder):
        yield url, folder


def access_to(folder: Path) -> Access:
    """Return the credentials that ``run_with_tls`` requires."""
    return Access.of(cacert=f"{folder}/ca.pem", cert=f"{folder}/one.pem", key=f"{folder}/one.key")


def run_with_users(folder: Path) -> Iterator[str]:
    """Yield the address of an etcd in which USER may read and write below /tidewater/; ``guest`` has no rights."""
    for url in run_etcd(toolchain.binary("etcd"), folder, free_port()):
        prefix = {"key": _b64("/tidewater/"), "range_end": _b64("/tidewater0"), "permType": "READWRITE"}
        for path, body in (
            ("user/add", {"name": "root", "password": "root"}),
            ("user/add", {"name": USER, "password": PASSWORD}),
            ("user/add", {"name": "guest", "password": PASSWORD}),
            ("role/add", {"name": "root"}),
            ("role/add", {"name": "training"}),
            ("role/grant", {"name": "training", "perm": prefix}),
            ("user/grant", {"user": "root", "role": "root"}),
            ("user/grant", {"user": USER, "role": "training"}),
            ("enable", {}),
        ):
            ask(url, f"/v3/auth/{path}", body)
        yield url


def ask(url: str, path: str, body: object, token: str = "") -> dict[str, str]:
    """Send an administrator's request and return the answer."""
    headers = {"Authorization": token} if token else {}
    request = urllib.request.Request(url + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return dict(json.load(answer))


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def write_certificates(folder: Path) -> None:
    """Write ``ca.pem``, and ``one.pem`` with ``one.key`` for both server and client."""
    authority = Authority.create("test authority")
    own = authority.issue("etcd", hosts=["127.0.0.1"])
    for name, text in {"ca.pem": authority.pair.certificate, "one.pem": own.certificate, "one.key": own.key}.items():
        (folder / name).write_text(text)
