"""Certificates of a cluster."""

from __future__ import annotations

import contextlib
import ssl
import stat
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import NameOID
from localcloud.kube.pki import Authority


def test_a_client_certificate_has_the_name_and_group_that_kubernetes_reads() -> None:
    pair = Authority.create("demo").issue("system:node:n", organization="system:nodes")
    subject = x509.load_pem_x509_certificate(pair.certificate.encode()).subject
    assert subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == "system:node:n"
    assert subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)[0].value == "system:nodes"


def test_a_server_certificate_passes_a_clients_verification(tmp_path: Path) -> None:
    authority = Authority.create("demo")
    pair = authority.issue("server", hosts=["127.0.0.1", "kubernetes.default"])
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*pair.write(tmp_path, "server"))
    client = ssl.create_default_context(cadata=authority.pair.certificate)
    incoming, outgoing = (ssl.MemoryBIO(), ssl.MemoryBIO()), (ssl.MemoryBIO(), ssl.MemoryBIO())
    ends = [
        client.wrap_bio(incoming[0], outgoing[0], server_hostname="kubernetes.default"),
        server.wrap_bio(incoming[1], outgoing[1], server_side=True),
    ]
    for _ in range(4):
        for mine, other in ((0, 1), (1, 0)):
            with contextlib.suppress(ssl.SSLWantReadError):
                ends[mine].do_handshake()
            incoming[other].write(outgoing[mine].read())
    assert ends[0].version() is not None


def test_keys_are_readable_only_by_their_owner(tmp_path: Path) -> None:
    _, key = Authority.create("demo").pair.write(tmp_path, "ca")
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
