"""The WSGI application of the AWS endpoint: authorize a request, pass it to our own service or to moto, call followers.

Both get the operation that the policies were checked for. The gateway chooses moto's application by that operation's
service. moto's own dispatcher is not used: it can choose another application by host or path, such as its dashboard.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, Final, Protocol

from werkzeug.wrappers import Response

from localcloud.aws import access, replies
from localcloud.aws.access import Authorized
from localcloud.aws.principals import Principals
from localcloud.aws.requests import outgoing
from localcloud.aws.requests.errors import Refused
from localcloud.aws.requests.resources import MotoResources

log = logging.getLogger(__name__)

NOT_COVERED: Final = {
    "fis": "AWS FIS is not covered by the one-machine cloud: interrupt instances with `localcloud interrupt`",
}
"""Services of moto's that have no effect here, and what to use instead."""

WSGI = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
Follower = Callable[[Authorized], None]


class Service(Protocol):
    """One of our own services, chosen by the service name in the signature."""

    def handle(self, call: Authorized) -> Response:
        """Answer a call."""


class Gateway:
    """Routes the requests of the AWS endpoint.

    Args:
        services: Our own services, by signing name.
        unsigned: Applications that check their callers themselves, each with a predicate on method and path.
        followers: Functions to call after moto has done an operation, by `service:Operation`.
    """

    def __init__(
        self,
        account: str,
        principals: Principals,
        services: Mapping[str, Service],
        unsigned: Iterable[tuple[Callable[[str, str], bool], WSGI]],
        followers: Mapping[str, Follower],
    ) -> None:
        self._account = account
        self._principals = principals
        self._resources = MotoResources(account)
        self._services = services
        self._unsigned = list(unsigned)
        self._followers = followers

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer one request."""
        method, path = str(environ["REQUEST_METHOD"]), str(environ.get("PATH_INFO", "/"))
        for accepts, app in self._unsigned:
            if accepts(method, path):
                return app(environ, start_response)
        try:
            call = access.authorize(environ, self._principals, self._account, self._resources)
        except Refused as refused:
            response = replies.refusal(refused.reason, refused.message, refused.service)
            return response(environ, start_response)
        if call.operation.service in NOT_COVERED:
            message = NOT_COVERED[call.operation.service]
            return replies.refusal("unsupported", message, call.operation.service)(environ, start_response)
        service = self._services.get(call.operation.service)
        if service is not None:
            return service.handle(call)(environ, start_response)
        return self._pass_on(call, environ, start_response)

    def _pass_on(
        self, call: Authorized, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        operation = call.operation
        name = f"{operation.service}:{operation.name}"
        try:
            result = _moto(operation.backend)(outgoing.environ(operation, call.access_key, environ), start_response)
        except NotImplementedError as error:
            response = replies.refusal("unsupported", f"moto: {error}", operation.service)
            return response(environ, start_response)
        except Exception as error:
            log.exception("%s failed in moto", name)
            response = replies.refusal("failed", f"{name} failed in moto: {error!r}", operation.service)
            return response(environ, start_response)
        try:
            self._followers.get(name, _nothing)(call)
        except Exception:
            # The operation is done: an error would make clients try it again.
            log.exception("what follows %s failed", name)
        return result


def _nothing(_: Authorized) -> None: ...


@cache
def _moto(backend: str) -> WSGI:
    from moto.moto_server.werkzeug_app import create_backend_app

    app: WSGI = create_backend_app(backend)  # type: ignore[arg-type]
    return app
