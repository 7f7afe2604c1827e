"""The WSGI application behind the AWS endpoint: authorize, then our own service or moto's, then what follows from it.

A service of ours takes the whole request (`Service`); where moto's has gaps, a service may return None to pass it on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from io import BytesIO
from typing import Any, Protocol

from werkzeug.wrappers import Response

from localcloud.aws import access, replies
from localcloud.aws.access import Authorized
from localcloud.aws.principals import Principals

log = logging.getLogger(__name__)

WSGI = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
Follower = Callable[[Authorized], None]


class Service(Protocol):
    """A service of ours, chosen by the name in the signature."""

    def handle(self, call: Authorized, environ: dict[str, Any], body: bytes) -> Response | None:
        """Answer, or return None to leave the request to moto."""


class Gateway:
    """Routes each request of the AWS endpoint.

    Args:
        services: Ours, by signing name.
        unsigned: Applications that authenticate by themselves, by a predicate on method and path.
        followers: Called after moto has done an operation, by `service:Operation`.
    """

    def __init__(
        self,
        account: str,
        principals: Principals,
        services: Mapping[str, Service],
        unsigned: Iterable[tuple[Callable[[str, str], bool], WSGI]],
        followers: Mapping[str, Follower],
    ) -> None:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

        self._account = account
        self._principals = principals
        self._services = services
        self._unsigned = list(unsigned)
        self._followers = followers
        self._moto: WSGI = DomainDispatcherApplication(create_backend_app)

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer one request."""
        method, path = str(environ["REQUEST_METHOD"]), str(environ.get("PATH_INFO", "/"))
        for accepts, app in self._unsigned:
            if accepts(method, path):
                return app(environ, start_response)
        body = _body(environ)
        try:
            call = access.authorize(environ, body, self._principals, self._account)
        except access.Refused as refused:
            response = replies.refusal(refused.reason, refused.message, refused.service)
            return response(environ, start_response)
        service = self._services.get(call.service)
        answer = service.handle(call, environ, body) if service else None
        if answer is not None:
            return answer(environ, start_response)
        return self._pass_on(call, environ, start_response)

    def _pass_on(
        self, call: Authorized, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        result = self._moto(environ, start_response)
        follower = self._followers.get(f"{call.service}:{call.operation.name}") if call.operation else None
        if follower is not None:
            follower(call)
        return result


def _body(environ: dict[str, Any]) -> bytes:
    """The body, left readable for whoever comes next; S3's is left alone, for its hash is in a header."""
    if "x-amz-content-sha256" in str(environ.get("HTTP_AUTHORIZATION", "")) and "/s3/" in environ["HTTP_AUTHORIZATION"]:
        return b""
    length = int(environ.get("CONTENT_LENGTH") or 0)
    body: bytes = environ["wsgi.input"].read(length) if length else b""
    environ["wsgi.input"] = BytesIO(body)
    return body
