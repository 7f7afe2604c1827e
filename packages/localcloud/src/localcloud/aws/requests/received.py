"""A request as it was received: encoded path and query, headers by lower-case names, and the body."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import unquote, unquote_plus

from localcloud.aws.requests.errors import Refused

# The query parameters with which a presigned URL is signed; they are not parameters of the operation.
PRESIGNED = frozenset(
    f"X-Amz-{name}"
    for name in ("Algorithm", "Credential", "Date", "Expires", "SignedHeaders", "Signature", "Security-Token")
)


@dataclass(frozen=True)
class Received:
    """A request.

    Args:
        path: Percent-encoded, as it was sent.
        query: Percent-encoded, as it was sent, without the question mark.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes = b""
    address: str = "127.0.0.1"

    @cached_property
    def parameters(self) -> list[tuple[str, str]]:
        """Return the decoded parameters of the query, without those of a presigned URL's signature."""
        return [(name, value) for name, value in form_pairs(self.query) if name not in PRESIGNED]


def signed_pairs(query: str) -> list[tuple[str, str]]:
    """Return the decoded parameters of a query as signatures use them: '+' is a plus."""
    pairs = [part.partition("=") for part in query.split("&") if part]
    return [(unquote(name), unquote(value)) for name, _, value in pairs]


def form_pairs(text: str) -> list[tuple[str, str]]:
    """Return the decoded parameters of a query or a form as services use them: '+' is a space."""
    pairs = [part.partition("=") for part in text.split("&") if part]
    return [(unquote_plus(name), unquote_plus(value)) for name, _, value in pairs]


def read(environ: Mapping[str, Any]) -> Received:
    """Read the request of a WSGI environment.

    Raises:
        Refused: It has no length, or its target is a URL instead of a path.
    """
    if "HTTP_TRANSFER_ENCODING" in environ:
        raise Refused("length", "You must provide the Content-Length HTTP header.", "s3")
    target = str(environ.get("RAW_URI", environ.get("PATH_INFO", "/")))
    if not target.startswith("/") or "#" in target:
        raise Refused("unidentified", f"The request target {target!r} is not a path", "s3")
    path, _, query = target.partition("?")
    try:
        length = int(environ.get("CONTENT_LENGTH") or 0)
    except ValueError as error:
        raise Refused("length", "The Content-Length HTTP header is not a number.", "s3") from error
    body: bytes = environ["wsgi.input"].read(length) if length else b""
    return Received(
        method=str(environ["REQUEST_METHOD"]),
        path=path,
        query=query,
        headers=_headers(environ),
        body=body,
        address=str(environ.get("REMOTE_ADDR", "127.0.0.1")),
    )


def _headers(environ: Mapping[str, Any]) -> dict[str, str]:
    from moto.core.request import PRESERVED_HEADER_NAMES_ENVIRON_KEY

    # S3 metadata with an underscore in its name; the server passes on no other header of that kind.
    written = environ.get(PRESERVED_HEADER_NAMES_ENVIRON_KEY) or {}
    headers = {}
    for key, value in environ.items():
        if key.startswith("HTTP_"):
            headers[str(written.get(key, key[5:].replace("_", "-"))).lower()] = str(value)
    for key in ("CONTENT_TYPE", "CONTENT_LENGTH"):
        if environ.get(key):
            headers[key.lower().replace("_", "-")] = str(environ[key])
    return headers
