"""A proxy in front of an AWS endpoint, through which calls meet a fault.

    with Proxy("http://127.0.0.1:24600", account) as proxy:
        with proxy.fault(Plan(Fault.UNANSWERED, skip=12)) as plan:
            run(f"AWS_ENDPOINT_URL={proxy.url} pulumi up --yes")     # fails
        plan.struck                                                  # by these calls

A request is passed on as it was received, with its Host header, since that is signed.
"""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit
from uuid import uuid4

from localcloud.aws.requests.received import Received

from tests.e2e.faults.plan import Call, Fault, Plan, call_of

TIMEOUT_SECONDS = 300
"""Longer than any call to the one-machine cloud lasts."""

# Of one connection, not of the request: RFC 9110, section 7.6.1. The proxy itself has answered `Expect`.
HOP_BY_HOP = frozenset(("connection", "keep-alive", "expect", "te", "trailer", "transfer-encoding", "upgrade"))

XML = {"ec2", "iam", "sts", "s3"}
"""The services that answer with errors in XML; the others use JSON."""

THROTTLING = {"ec2": (503, "RequestLimitExceeded"), "s3": (503, "SlowDown"), "iam": (400, "Throttling")}
"""https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html,
https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html,
https://docs.aws.amazon.com/IAM/latest/APIReference/CommonErrors.html"""

Answer = tuple[int, list[tuple[str, str]], bytes]


class Proxy:
    """Listens on a free port of this machine while it is entered.

    Args:
        endpoint: where requests are passed on to.
        account: the account's id.
    """

    def __init__(self, endpoint: str, account: str) -> None:
        self._upstream = urlsplit(endpoint).netloc
        self._account = account
        self._plan: Plan | None = None
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        """Return the proxy's endpoint."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        """Serve in a thread."""
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()

    @contextmanager
    def fault(self, plan: Plan) -> Iterator[Plan]:
        """Have calls meet a plan's fault within the block."""
        self._plan = plan
        try:
            yield plan
        finally:
            self._plan = None

    def answer(self, request: Received, headers: list[tuple[str, str]]) -> Answer | None:
        """Answer a request as the cloud does, or as the plan wants it; None if the client gets no answer."""
        plan = self._plan
        call = call_of(request, self._account) if plan else None
        if plan is None or call is None:
            return self._pass_on(request, headers)
        met = plan.next(call)
        if met is None:
            return self._pass_on(request, headers)
        if met.fault is not Fault.UNANSWERED:
            return error(call, met.fault)
        # A client that has given up does not ask again: what its SDK repeats gets no answer, and isn't done twice.
        if not met.repeat:
            self._pass_on(request, headers)
        return None

    def _pass_on(self, request: Received, headers: list[tuple[str, str]]) -> Answer:
        connection = http.client.HTTPConnection(self._upstream, timeout=TIMEOUT_SECONDS)
        target = f"{request.path}?{request.query}" if request.query else request.path
        try:
            connection.putrequest(request.method, target, skip_host=True, skip_accept_encoding=True)
            for name, value in headers:
                if name.lower() not in HOP_BY_HOP:
                    connection.putheader(name, value)
            connection.endheaders(request.body)
            answered = connection.getresponse()
            return answered.status, answered.getheaders(), answered.read()
        finally:
            connection.close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"  # boto3 keeps connections, and waits for `100 Continue`

            def _serve(self) -> None:
                path, _, query = self.path.partition("?")
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                lower = {name.lower(): value for name, value in self.headers.items()}
                answer = proxy.answer(Received(self.command, path, query, lower, body), list(self.headers.items()))
                if answer is None:
                    self.close_connection = True
                    return
                status, headers, text = answer
                self.send_response_only(status)
                for name, value in headers:
                    if name.lower() not in HOP_BY_HOP | {"content-length"}:
                        self.send_header(name, value)
                of_head = {name.lower(): value for name, value in headers}.get("content-length", "0")
                self.send_header("Content-Length", of_head if self.command == "HEAD" else str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = _serve  # noqa: N815

            def log_message(self, format: str, *args: Any) -> None: ...

        return Handler


def error(call: Call, fault: Fault) -> Answer:
    """Return the answer to a refused call, in the form of its service."""
    if fault is Fault.THROTTLED:
        status, code = THROTTLING.get(call.service, (400, "ThrottlingException"))
    else:
        status, code = 500, "InternalError" if call.service in XML else "InternalFailure"
    message = f"{call} is {fault.value}"
    if call.service not in XML:
        text = json.dumps({"__type": code, "message": message})
        return status, [("Content-Type", "application/json"), ("x-amzn-ErrorType", code)], text.encode()
    inner = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    if call.service == "ec2":
        inner = f"<Response><Errors>{inner}</Errors><RequestID>{uuid4()}</RequestID></Response>"
    elif call.service != "s3":
        inner = f"<ErrorResponse>{inner}<RequestId>{uuid4()}</RequestId></ErrorResponse>"
    return status, [("Content-Type", "text/xml")], inner.encode()
