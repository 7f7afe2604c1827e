"""etcd with access control, for tests: with TLS and client certificates, or with user and password."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from scripts import toolchain
from tests.elastic.workers import ETCD_FLAGS, free_port, run_etcd
from tidewater.elastic.errors import StoreError
from tidewater.elastic.etcd.access import Access
from tidewater.elastic.etcd.client import EtcdStore

USER, PASSWORD = "trainer", "correct horse"


def run_with_tls(folder: Path) -> Iterator[str]:
    """Yield the address of an etcd that requires TLS and client certificates; the files are in ``folder``."""
    write_certificates(folder)
    url, peer = f"https://127.0.0.1:{free_port()}", f"http://127.0.0.1:{free_port()}"
    flags = {
        "data-dir": folder / "etcd",
        "listen-client-urls": url,
        "advertise-client-urls": url,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"default={peer}",
        "cert-file": folder / "one.pem",
        "key-file": folder / "one.key",
        "trusted-ca-file": folder / "ca.pem",
    }
    arguments = ["--client-cert-auth", *ETCD_FLAGS, *(f"--{name}={value}" for name, value in flags.items())]
    with (folder / "etcd.log").open("w") as log:
        process = subprocess.Popen([toolchain.binary("etcd"), *arguments], stdout=log, stderr=log)
    try:
        _wait_for(EtcdStore((url,), access=access_to(folder)))
        yield url
    finally:
        process.kill()
        process.wait()


def access_to(folder: Path) -> Access:
    """Return the credentials that ``run_with_tls`` requires."""
    return Access.of(cacert=f"{folder}/ca.pem", cert=f"{folder}/one.pem", key=f"{folder}/one.key")


def _wait_for(store: EtcdStore) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            store.read("/")
            return
        except StoreError:  # etcd is still starting
            assert time.monotonic() < deadline
            time.sleep(0.1)


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
    with urllib.request.urlopen(request, timeout=10) as answer:
        return dict(json.load(answer))


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def write_certificates(folder: Path) -> None:
    """Write ``ca.pem``, and ``one.pem`` with ``one.key`` for both server and client."""
    authority, own = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])

    def certificate(name: x509.Name, key: ec.EllipticCurvePrivateKey, *, ca: bool) -> x509.Certificate:
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = x509.CertificateBuilder(
            issuer, name, key.public_key(), 1 + ca, now - datetime.timedelta(hours=1), now + datetime.timedelta(hours=1)
        ).add_extension(x509.BasicConstraints(ca, None), critical=True)
        if not ca:
            builder = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False)
            builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        return builder.sign(authority, hashes.SHA256())

    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "etcd")])
    pem = serialization.Encoding.PEM
    (folder / "ca.pem").write_bytes(certificate(issuer, authority, ca=True).public_bytes(pem))
    (folder / "one.pem").write_bytes(certificate(subject, own, ca=False).public_bytes(pem))
    (folder / "one.key").write_bytes(
        own.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
