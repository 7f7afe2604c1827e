"""Compare a request's body with the signed hash, and decode the chunks that S3's clients stream.

Source: https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming.html
"""

from __future__ import annotations

import gzip
import hashlib
import hmac
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from localcloud.aws.requests.errors import Refused
from localcloud.aws.requests.received import Received
from localcloud.aws.requests.sigv4 import UNSIGNED_PAYLOAD, Signature, chunk_signature

UNSIGNED_CHUNKS = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
SIGNED_CHUNKS = ("STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER")
EMPTY_HASH = hashlib.sha256(b"").hexdigest()
HASH_HEADER = "x-amz-content-sha256"


def signed_hash(request: Received, signature: Signature) -> str:
    """Return the hash that the signature should cover.

    Raises:
        Refused: The hash in the request is not the hash of the body.
    """
    actual, stated = hashlib.sha256(request.body).hexdigest(), request.headers.get(HASH_HEADER)
    if signature.service != "s3":
        if stated not in (None, actual):
            raise _mismatch(signature.service)
        return actual
    if stated is None:
        return UNSIGNED_PAYLOAD if signature.expires_seconds is not None else actual
    if stated not in (actual, UNSIGNED_PAYLOAD, UNSIGNED_CHUNKS, *SIGNED_CHUNKS):
        raise _mismatch(signature.service)
    return stated


def decoded(request: Received, signature: Signature, secret: str) -> Received:
    """Return the request with the body decoded: without chunks and compression.

    Raises:
        Refused: A chunk, its signature or a trailing checksum is wrong.
    """
    kind = request.headers.get(HASH_HEADER)
    if signature.service != "s3":
        return _unzipped(request, signature.service)
    if kind != UNSIGNED_CHUNKS and kind not in SIGNED_CHUNKS:
        return request
    chain = None if kind == UNSIGNED_CHUNKS else _Chain(signature, secret, signature.signature)
    try:
        body, trailers = _dechunked(request.body, chain)
    except ValueError as error:
        raise Refused("incomplete", f"The chunked body can't be read: {error}", "s3") from error
    _check_length(request, body)
    _check_trailers(body, trailers)
    coding = [part.strip() for part in request.headers.get("content-encoding", "").split(",")]
    kept = ",".join(part for part in coding if part and part != "aws-chunked")
    headers = {name: value for name, value in request.headers.items() if name != "content-encoding"}
    headers |= trailers | ({"content-encoding": kept} if kept else {})
    return replace(request, body=body, headers=headers)


@dataclass
class _Chain:
    """Verifies the signatures of chunks; each signature covers the one before."""

    signature: Signature
    secret: str
    previous: str

    def check(self, kind: str, given: str, *hashes: str) -> None:
        expected = chunk_signature(self.signature, self.secret, kind, self.previous, *hashes)
        if not hmac.compare_digest(expected, given):
            raise Refused("mismatch", "The signature of a chunk does not match its data.", "s3")
        self.previous = expected


def _dechunked(body: bytes, chain: _Chain | None) -> tuple[bytes, dict[str, str]]:
    data, position = bytearray(), 0
    while True:
        end = body.index(b"\r\n", position)
        size_text, _, extension = body[position:end].decode("ascii").partition(";")
        size, start = int(size_text, 16), end + 2
        chunk = body[start : start + size]
        if len(chunk) != size:
            raise ValueError("it ends within a chunk")
        if chain is not None:
            given = extension.partition("chunk-signature=")[2]
            chain.check("AWS4-HMAC-SHA256-PAYLOAD", given, EMPTY_HASH, hashlib.sha256(chunk).hexdigest())
        if size == 0:
            return bytes(data), _trailers(body[start:], chain)
        if body[start + size : start + size + 2] != b"\r\n":
            raise ValueError("a chunk is longer than it says")
        data += chunk
        position = start + size + 2


def _trailers(text: bytes, chain: _Chain | None) -> dict[str, str]:
    lines = [line.strip() for line in text.decode("ascii").split("\n") if line.strip()]
    trailers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    given = trailers.pop("x-amz-trailer-signature", None)
    if chain is not None and trailers:
        signed = "".join(f"{name}:{trailers[name]}\n" for name in sorted(trailers))
        chain.check("AWS4-HMAC-SHA256-TRAILER", given or "", hashlib.sha256(signed.encode()).hexdigest())
    if any(not name.startswith("x-amz-checksum-") for name in trailers):
        raise ValueError("a trailer is not a checksum")
    return trailers


def _check_length(request: Received, body: bytes) -> None:
    if request.headers.get("x-amz-decoded-content-length", str(len(body))) != str(len(body)):
        raise Refused("incomplete", "The body has another length than x-amz-decoded-content-length says.", "s3")


_CHECKSUMS: Mapping[str, Callable[[bytes], bytes]] = {
    "x-amz-checksum-crc32": lambda body: zlib.crc32(body).to_bytes(4, "big"),
    "x-amz-checksum-sha1": lambda body: hashlib.sha1(body).digest(),
    "x-amz-checksum-sha256": lambda body: hashlib.sha256(body).digest(),
}


def _check_trailers(body: bytes, trailers: Mapping[str, str]) -> None:
    from base64 import b64encode

    for name, value in trailers.items():
        checksum = _CHECKSUMS.get(name)
        if checksum is not None and b64encode(checksum(body)).decode() != value:
            raise Refused("checksum", f"The value of {name} does not match the body.", "s3")


def _unzipped(request: Received, service: str) -> Received:
    if request.headers.get("content-encoding") != "gzip":
        return request
    try:
        body = gzip.decompress(request.body)
    except (OSError, EOFError, zlib.error) as error:
        raise Refused("ambiguous", f"The body is not gzip, as its Content-Encoding says: {error}", service) from error
    headers = {name: value for name, value in request.headers.items() if name != "content-encoding"}
    return replace(request, body=body, headers=headers)


def _mismatch(service: str) -> Refused:
    message = "The provided 'x-amz-content-sha256' header does not match what was computed."
    return Refused("body" if service == "s3" else "mismatch", message, service)
