"""Certificates of one cluster: an authority, and what it signs for servers, clients and nodes.

    authority = Authority.create("demo")
    pair = authority.issue("system:node:ip-10-0-1-23", organization="system:nodes")

Keys are EC keys: generating an RSA key takes longer than starting etcd.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = timedelta(days=3650)
CLOCK_SKEW = timedelta(minutes=5)


@dataclass(frozen=True)
class Pair:
    """A certificate and its private key, both PEM."""

    certificate: str
    key: str

    def write(self, directory: Path, name: str) -> tuple[Path, Path]:
        """Save as `<name>.crt` and `<name>.key`; returns both paths."""
        directory.mkdir(parents=True, exist_ok=True)
        certificate, key = directory / f"{name}.crt", directory / f"{name}.key"
        certificate.write_text(self.certificate)
        write_private(key, self.key)
        return certificate, key


class Authority:
    """A certificate authority. Its key stays in memory and in the cluster's directory."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._certificate = certificate
        self._key = key

    @classmethod
    def create(cls, name: str) -> Authority:
        """Make a new authority with this common name."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usage = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        builder = (
            _builder(subject, subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(usage, critical=True)
        )
        return cls(builder.sign(key, hashes.SHA256()), key)

    @property
    def pair(self) -> Pair:
        """The authority's own certificate and key."""
        return Pair(_pem(self._certificate), private_pem(self._key))

    def issue(self, name: str, *, organization: str | None = None, hosts: Sequence[str] = ()) -> Pair:
        """Sign a certificate for a client, and for a server at `hosts` if there are any.

        Args:
            name: Common name; Kubernetes' user name.
            organization: Kubernetes' group.
            hosts: DNS names and IP addresses.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
        if organization:
            attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = _builder(x509.Name(attributes), self._certificate.subject, key.public_key())
        if hosts:
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False
            )
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
        )
        return Pair(_pem(builder.sign(self._key, hashes.SHA256())), private_pem(key))


def signing_key() -> tuple[str, str]:
    """A key for service-account tokens: (private PEM, public PEM)."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return private_pem(key), public.decode()


def private_pem(key: ec.EllipticCurvePrivateKey) -> str:
    """A private key as unencrypted PEM."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, from the moment it exists."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + LIFETIME)
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
