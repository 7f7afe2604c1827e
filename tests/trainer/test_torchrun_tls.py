"""etcd behind TLS and client certificates, as ``--rdzv-conf cacert=,cert=,key=`` reaches it."""

from __future__ import annotations

import datetime
import ipaddress
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from localcloud import toolchain
from tests.trainer.workers import free_port
from trainer.errors import StoreError
from trainer.store import EtcdStore
from trainer.torchrun.options import Options


def write_certificates(folder: Path) -> None:
    """``ca.pem``, and ``one.pem`` with ``one.key`` for server and client alike."""
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


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of an etcd that speaks TLS only and asks for client certificates, and the folder with the files."""
    folder = tmp_path_factory.mktemp("tls")
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
    arguments = ["--client-cert-auth", *(f"--{name}={value}" for name, value in flags.items())]
    with (folder / "etcd.log").open("w") as log:
        process = subprocess.Popen([toolchain.binary("etcd"), *arguments], stdout=log, stderr=log)
    yield url, folder
    process.kill()
    process.wait()


def store(url: str, **config: object) -> EtcdStore:
    options = Options.parse(url, config)
    return EtcdStore(options.endpoints, context=options.tls())


def test_with_authority_and_client_certificate_etcd_is_read_written_and_watched(secured: tuple[str, Path]) -> None:
    url, folder = secured
    client = store(url, cacert=folder / "ca.pem", cert=folder / "one.pem", key=folder / "one.key")
    deadline = time.monotonic() + 30
    while True:
        try:
            client.put("/a", b"1")
            break
        except StoreError:  # etcd is still starting
            assert time.monotonic() < deadline
            time.sleep(0.1)
    snapshot = client.read("/a")
    assert [entry.value for entry in snapshot.entries] == [b"1"]
    watch = client.watch("/a", snapshot.revision)
    assert next(iter(watch))[0].key == "/a"
    watch.close()


def test_what_is_missing_for_tls_is_in_the_message(secured: tuple[str, Path]) -> None:
    url, folder = secured
    with pytest.raises(StoreError, match="CERTIFICATE_VERIFY_FAILED"):
        store(url).read("/a")
    with pytest.raises(StoreError, match=r"(?i)certificate|violation of protocol"):
        store(url, cacert=folder / "ca.pem").read("/a")
    with pytest.raises(StoreError, match=r"closed connection|HTTP request to an HTTPS server"):
        store(url.replace("https", "http")).read("/a")
