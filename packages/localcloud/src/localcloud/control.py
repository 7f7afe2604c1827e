"""Commands that change a running cloud, from the command line to the daemon: both ends.

    call(instance, "interrupt", {"instances": ["i-0123"]})               # in the command line
    application(principals, {"interrupt": interrupt})                    # in the daemon

A command is a request to the AWS endpoint that is signed like those of AWS, with the operator's key and the service
name `localcloud`. Pods reach the endpoint too, so the caller's policies must allow `localcloud:COMMAND`.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from localcloud.errors import CloudError, NotRunning
from localcloud.instance import Instance

SERVICE: Final = "localcloud"
PATH: Final = "/_localcloud/commands/"
TIMEOUT_SECONDS: Final = 30.0

Command = Callable[[Mapping[str, Any]], Any]


def is_command(method: str, path: str) -> bool:
    """Return whether a request is for one of these commands."""
    return method == "POST" and path.startswith(PATH)


def call(instance: Instance, command: str, params: Mapping[str, Any]) -> Any:
    """Have the daemon do a command; return its answer.

    Raises:
        NotRunning: No daemon answers.
        CloudError: The daemon refused; the message is its own.
    """
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    keys, url, body = instance.credentials(), f"{instance.endpoint}{PATH}{command}", json.dumps(params).encode()
    signed = AWSRequest("POST", url, headers={"Content-Type": "application/json"}, data=body)
    SigV4Auth(Credentials(keys.access_key, keys.secret_key), SERVICE, instance.region).add_auth(signed)
    request = urllib.request.Request(url, body, dict(signed.headers.items()), method="POST")
    try:
        with send(request, TIMEOUT_SECONDS) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        raise CloudError(_message(error)) from error
    except TimeoutError as error:
        raise CloudError(f"no answer within {TIMEOUT_SECONDS:.0f} s: `localcloud logs daemon` may say why") from error
    except OSError as error:
        raise NotRunning(f"no localcloud runs for {instance.state}: start it with `localcloud start`") from error


def send(request: urllib.request.Request | str, timeout_seconds: float) -> Any:
    """Send a request to the daemon; return its answer. The daemon is on this machine, so no proxy is asked."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=timeout_seconds)


def application(principals: Any, commands: Mapping[str, Command]) -> Callable[[dict[str, Any], Any], Any]:
    """Return the WSGI application that does the commands.

    Args:
        principals: `localcloud.aws.principals.Principals`.
        commands: What each command does with its parameters; a CloudError is answered with its message.
    """
    from werkzeug.wrappers import Response

    from localcloud.aws import replies
    from localcloud.aws.requests.errors import Refused

    def app(environ: dict[str, Any], start_response: Any) -> Any:
        try:
            command, params = _authorized(environ, principals)
            done = json.dumps(_found(commands, command)(params))
            response = Response(done, content_type="application/json")
        except Refused as refused:
            response = replies.refusal(refused.reason, refused.message, SERVICE)
        except CloudError as error:
            response = replies.json_error(400, "InvalidRequestException", str(error))
        return response(environ, start_response)

    return app


def _authorized(environ: dict[str, Any], principals: Any) -> tuple[str, Mapping[str, Any]]:
    from localcloud.aws import access
    from localcloud.aws.policy import Decision, Query, evaluate
    from localcloud.aws.requests import received
    from localcloud.aws.requests.errors import Refused

    request = received.read(environ)
    caller, signature = access.authenticate(request, principals, datetime.now(UTC))
    command = request.path.removeprefix(PATH)
    action = f"{SERVICE}:{command}"
    needed = [caller.policies, *((limit,) for limit in caller.limits)]
    allowed = all(evaluate(documents, Query(action)) is Decision.ALLOW for documents in needed)
    if signature.service != SERVICE or not allowed:
        raise Refused("denied", f"User: {caller.arn} is not authorized to perform: {action}", SERVICE)
    try:
        params = json.loads(request.body or b"{}")
    except ValueError as error:
        raise CloudError(f"the parameters of {command} are not JSON: {error}") from error
    if not isinstance(params, dict):
        raise CloudError(f"the parameters of {command} are not a JSON object")
    return command, params


def _found(commands: Mapping[str, Command], name: str) -> Command:
    if name not in commands:
        raise CloudError(f"there is no command {name!r}; the commands are {', '.join(sorted(commands))}")
    return commands[name]


def _message(error: urllib.error.HTTPError) -> str:
    text = error.read().decode(errors="replace")
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return f"the daemon answered {error.code}: {text[:200]}"
