"""Find the operation that a request is for, by botocore's models; refuse a request that is not for exactly one.

    operation = identify(request, "sts", "us-west-2", account)

The policies are checked for this operation, and `outgoing` writes moto's request from it, so moto never reads the
received request. The service is the one in the credential scope; the protocol is one of that service's. The operation's
name is read from one place per protocol: the header X-Amz-Target (JSON), the parameter Action (query), or method, path
and query (REST). As on AWS, input that is no parameter of the operation is ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from localcloud.aws.requests import rest
from localcloud.aws.requests.errors import Refused
from localcloud.aws.requests.received import Received, form_pairs

JSON_TYPES = ("application/json", "application/x-amz-json-1.0", "application/x-amz-json-1.1")
FORM_TYPE = "application/x-www-form-urlencoded"
# Services that share a name in the credential scope; the API version in the request tells them apart.
BY_VERSION = {("elb", "2015-12-01"): "elbv2"}
# Services of ours that moto doesn't have.
NOT_IN_MOTO = ("pricing",)


@dataclass(frozen=True)
class Operation:
    """One call.

    Args:
        service: Its name in the credential scope.
        name: Its name in botocore's model.
        params: Its parameters by their names in the model, or by their names in the form.
        backend: moto's name for the service.
        target: The header X-Amz-Target of the JSON protocol.
        labels: The parameters in the path, by their names in the model's path.
        path: Percent-encoded, written from the model's path and `labels`.
        query: The parameters that belong in the query.
        headers: The parameters that belong in headers, by header names in lower case.
        body: The body as it was received, or the parameters of a form.
    """

    service: str
    name: str
    region: str
    account: str
    params: Mapping[str, Any] = field(default_factory=dict)
    backend: str = ""
    method: str = "POST"
    target: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    path: str = "/"
    query: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = ""
    body: bytes | tuple[tuple[str, str], ...] = b""


def identify(request: Received, service: str, region: str, account: str) -> Operation:
    """Return the operation that a request is for.

    Raises:
        Refused: The request is for no operation, or could be for two.
    """
    backend = _backend(service, region, request)
    model = None if backend is None else _model(backend, request)
    if backend is None or model is None or model.signing_name != service:
        raise Refused("unidentified", f"The service {service!r} is not supported by this cloud", service)
    found = Operation(service, "", region, account, backend=backend)
    protocols = model.metadata.get("protocols", [model.protocol])
    if "json" in protocols and ("x-amz-target" in request.headers or not {"query", "ec2"} & {*protocols}):
        return _json(found, request, model)
    if "query" in protocols or "ec2" in protocols:
        return _form(found, request, model)
    if "rest-json" in protocols or "rest-xml" in protocols:
        return _rest(found, request, model)
    raise Refused("unidentified", f"No protocol of the service {service!r} is supported by this cloud", service)


def _backend(service: str, region: str, request: Received) -> str | None:
    """Return moto's name for the service. Path and target tell apart services with the same credential scope.

    A service of ours that moto doesn't have keeps its own name.
    """
    if service in NOT_IN_MOTO:
        return service
    environ = {
        "HTTP_AUTHORIZATION": f"AWS4-HMAC-SHA256 Credential=key/date/{region}/{service}/aws4_request",
        "HTTP_X_AMZ_TARGET": request.headers.get("x-amz-target", ""),
        "HTTP_HOST": "localhost",
        "REQUEST_METHOD": request.method,
        "PATH_INFO": request.path,
        "wsgi.url_scheme": "http",
    }
    try:
        host = _dispatcher().infer_service_region_host(environ, request.path)
    except (IndexError, KeyError, ValueError):
        # moto looks for the API version in the target; this one has none.
        return None
    return _backend_of(host)


@cache
def _backend_of(host: str | None) -> str | None:
    """Return moto's name for the service of a host. To find it, moto lists its own folder: 0.8 ms for each request."""
    found = _dispatcher().get_backend_for_host(host)
    return None if found is None else str(found)


@cache
def _dispatcher() -> Any:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

    return DomainDispatcherApplication(create_backend_app)


def _model(backend: str, request: Received) -> Any:
    """Return the model of the service that moto calls `backend`, or None if it is no AWS service."""
    from moto.core.utils import get_service_model

    service = backend
    if backend in {name for name, _ in BY_VERSION}:
        form = dict([*request.parameters, *form_pairs(request.body.decode("latin-1"))])
        service = BY_VERSION.get((backend, form.get("Version", "")), backend)
    name = _botocore_names().get(service.replace("_", ""))
    return None if name is None else get_service_model(name)


@cache
def _botocore_names() -> Mapping[str, str]:
    """Return botocore's names of services by moto's names, which have no hyphens."""
    import botocore.session

    names = {name.replace("-", ""): name for name in botocore.session.get_session().get_available_services()}
    return {**names, "awslambda": "lambda", "dynamodbv20111205": "dynamodb"}


def _json(found: Operation, request: Received, model: Any) -> Operation:
    target, prefix = request.headers.get("x-amz-target", ""), model.metadata.get("targetPrefix")
    name = target.removeprefix(f"{prefix}.")
    if f"{prefix}.{name}" != target or name not in model.operation_names or request.method != "POST":
        raise Refused("unidentified", f"X-Amz-Target {target!r} names no operation of {found.service}", found.service)
    if _type(request) not in JSON_TYPES:
        raise Refused("unidentified", f"Content-Type {_type(request)!r} is not JSON", found.service)
    if request.parameters:
        raise Refused("ambiguous", "An operation of a JSON protocol has no query", found.service)
    document = _document(request.body, found.service)
    members = rest.members(model.operation_model(name))
    return replace(
        found,
        name=name,
        params={key: value for key, value in document.items() if key in members},
        target=target,
        path=_path(found, request),
        content_type=_type(request),
        body=_written(document),
    )


def _form(found: Operation, request: Received, model: Any) -> Operation:
    if request.method not in ("GET", "POST"):
        raise Refused("unidentified", f"{request.method} is no method of {found.service}", found.service)
    pairs = list(request.parameters)
    if request.body:
        if _type(request) != FORM_TYPE:
            raise Refused("ambiguous", f"A body must be {FORM_TYPE}, not {_type(request)!r}", found.service)
        pairs += form_pairs(_text(request.body, found.service))
    _refuse_doubled((name for name, _ in pairs), found.service)
    form = dict(pairs)
    name = form.get("Action", "")
    if name not in model.operation_names:
        raise Refused("unidentified", f"The action {name!r} is not valid for this web service.", found.service)
    members = rest.members(model.operation_model(name))
    counted = form if model.protocol == "ec2" else {key: form[key] for key in form if key.split(".")[0] in members}
    return replace(
        found, name=name, params=counted, path=_path(found, request), content_type=FORM_TYPE, body=tuple(pairs)
    )


def _rest(found: Operation, request: Received, model: Any) -> Operation:
    matched = rest.match(request, model, found.service)
    content_type, body, document = request.headers.get("content-type", ""), request.body, {}
    _refuse_doubled((name for name, _ in matched.query if name not in matched.lists), found.service)
    if not matched.has_body:
        content_type, body = content_type if matched.has_type else "", b""
    elif matched.json and body:
        document = _document(body, found.service)
        document = {key: document[key] for key in document if key in matched.in_body or matched.payload}
        content_type, body = "application/json", _written(document)
    in_body = document if not matched.payload else {matched.payload: document}
    return replace(
        found,
        name=matched.name,
        params={**{matched.in_body.get(key, key): in_body[key] for key in in_body}, **matched.params},
        method=request.method,
        labels=matched.labels,
        path=matched.path,
        query=matched.query,
        headers=matched.headers,
        content_type=content_type,
        body=body,
    )


def _path(found: Operation, request: Received) -> str:
    """Return the path. In these protocols only SQS has one: the path of the queue."""
    if request.path != "/" and found.backend != "sqs":
        raise Refused("unidentified", f"{request.path} is no path of {found.service}", found.service)
    return request.path


def _type(request: Received) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _text(body: bytes, service: str) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise Refused("ambiguous", f"The body is not UTF-8: {error}", service) from error


def _document(body: bytes, service: str) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        _refuse_doubled((name for name, _ in pairs), service)
        return dict(pairs)

    try:
        parsed = json.loads(_text(body, service) or "{}", object_pairs_hook=unique)
    except ValueError as error:
        raise Refused("ambiguous", f"The body is not JSON: {error}", service) from error
    if not isinstance(parsed, dict):
        raise Refused("ambiguous", "The body is not a JSON object", service)
    return parsed


def _written(document: Mapping[str, Any]) -> bytes:
    """Return JSON in which nothing looks like a form's parameters, because moto also searches bodies for those."""
    return json.dumps(document).replace("&", "\\u0026").replace("=", "\\u003d").encode()


def _refuse_doubled(names: Iterable[str], service: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise Refused("ambiguous", f"The parameter {name!r} is given twice", service)
        seen.add(name)
