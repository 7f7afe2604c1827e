"""Write the request for moto from the operation that the policies were checked for, not from the received request.

`moto_rules` makes moto read the operation's name, labels and region from the environment, with `decided`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from io import BytesIO
from typing import Any
from urllib.parse import unquote, urlencode

from localcloud.aws.requests.operations import Operation

_OPERATION = "localcloud.operation"
_HOST = re.compile(r"[A-Za-z0-9.:\[\]-]+")
_SERVER = ("SERVER_NAME", "SERVER_PORT", "SERVER_PROTOCOL", "REMOTE_ADDR", "REMOTE_PORT")


def environ(operation: Operation, access_key: str, received: Mapping[str, Any]) -> dict[str, Any]:
    """Return the WSGI environment of the request.

    Args:
        access_key: The caller's access key, which moto uses to find the caller.
        received: The environment of the received request; only the values about the connection are used.
    """
    body = urlencode(operation.body).encode() if isinstance(operation.body, tuple) else operation.body
    query = urlencode(operation.query)
    uri = f"{operation.path}?{query}" if query else operation.path
    made = {name: value for name, value in received.items() if name in _SERVER or name.startswith("wsgi.")}
    made |= {
        "REQUEST_METHOD": operation.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote(operation.path).encode().decode("latin-1"),
        "QUERY_STRING": query,
        "RAW_URI": uri,
        "REQUEST_URI": uri,
        "HTTP_HOST": _host(operation, str(received.get("HTTP_HOST", ""))),
        "HTTP_AUTHORIZATION": (
            f"AWS4-HMAC-SHA256 Credential={access_key}/20000101/{operation.region}/{operation.service}/aws4_request, "
            "SignedHeaders=host, Signature=checked"
        ),
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": BytesIO(body),
        _OPERATION: operation,
        **_headers(operation),
    }
    made.pop("wsgi.input_terminated", None)
    return made


def decided(given: Mapping[str, Any]) -> Operation | None:
    """Return the operation of an environment that `environ` has made; None for another one."""
    return given.get(_OPERATION)


def _headers(operation: Operation) -> dict[str, Any]:
    from moto.core.request import PRESERVED_HEADER_NAMES_ENVIRON_KEY

    made: dict[str, Any] = {}
    if operation.content_type:
        made["CONTENT_TYPE"] = operation.content_type
    if operation.target is not None:
        made["HTTP_X_AMZ_TARGET"] = operation.target
    names = {}
    for name, value in operation.headers.items():
        key = "HTTP_" + name.upper().replace("-", "_")
        made[key] = value
        if "_" in name:
            names[key] = name
    made[PRESERVED_HEADER_NAMES_ENVIRON_KEY] = names
    return made


def _host(operation: Operation, received: str) -> str:
    """Return the host. moto reads buckets and regions from AWS's hosts, and uses the received host in queues' URLs."""
    if operation.service == "s3" or "amazonaws" in received.lower() or not _HOST.fullmatch(received):
        return f"{operation.service}.{operation.region}.amazonaws.com"
    return received
