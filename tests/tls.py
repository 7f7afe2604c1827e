"""An HTTPS server with certificates such as EKS makes: neither its CA nor what it signs has a key identifier.

with serving(folder) as (url, ca): ...

Python >= 3.13 makes its default TLS contexts refuse such certificates; `strict` does the same on any Python.
"""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

ADDRESS = "127.0.0.1"
_DAY = timedelta(days=1)


def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `ssl.create_default_context` do what it does on Python >= 3.13."""
    original = ssl.create_default_context

    def create(*args: Any, **kwargs: Any) -> ssl.SSLContext:
        context = original(*args, **kwargs)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", create)


@contextlib.contextmanager
def serving(folder: Path, *, address: str = ADDRESS, expired: bool = False) -> Iterator[tuple[str, Path]]:
    """Answer every GET with `{}`; yield the URL and the CA's certificate. The certificate is for `address`."""
    ca_key, ca = _signed("ca", None, None)
    names = x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))])
    key, certificate = _signed("api", (ca_key, ca), names, expired=expired)
    (folder / "ca.crt").write_bytes(_pem(ca))
    (folder / "server.pem").write_bytes(_key(key) + _pem(certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    server = ThreadingHTTPServer((ADDRESS, 0), _Handler)
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"https://{ADDRESS}:{server.server_port}", folder / "ca.crt"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: Any) -> None: ...


def _signed(
    name: str,
    by: tuple[ec.EllipticCurvePrivateKey, x509.Certificate] | None,
    names: x509.SubjectAlternativeName | None,
    *,
    expired: bool = False,
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by[1].subject if by else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 2 * _DAY)
        .not_valid_after(now - _DAY if expired else now + _DAY)
        .add_extension(x509.BasicConstraints(ca=by is None, path_length=None), critical=True)
    )
    if names:
        made = made.add_extension(names, critical=False)
    return key, made.sign(by[0] if by else key, hashes.SHA256())


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
