"""An AWS account on a port: moto, with a small stateful fake of each call that moto lacks."""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import boto3
import pytest
from werkzeug.wrappers import Request, Response

from tests.aws import account

VAULT = "/backup-vaults/aws/efs/automatic-backup-vault"
DENIED = ["backup:DeleteBackupVault", "backup:DeleteRecoveryPoint", "backup:StartCopyJob"]
POLICY = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Deny", "Principal": {"AWS": "*"}, "Action": DENIED, "Resource": "*"}],
}
"""As EFS makes it, cut: rebuy-de/aws-nuke#1110."""


@dataclass
class Lacking:
    """What moto doesn't have: placement groups, recovery points with the vault's policy, pull-through rules."""

    app: Callable[..., Iterable[bytes]]
    groups: dict[str, dict[str, str]] = field(default_factory=dict)
    points: dict[str, dict[str, str]] = field(default_factory=dict)
    """Tags of each recovery point."""
    policy: str = ""
    """Of the vault; empty: EFS hasn't made the vault yet."""
    rules: list[str] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)
    """Services that refuse every call."""

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        body = Request(environ).get_data()
        environ["wsgi.input"] = io.BytesIO(body)
        request = Request(environ)
        scope = request.headers.get("Authorization", "").partition("Credential=")[2].split("/")
        service = scope[3] if len(scope) > 3 else ""
        if service in self.refused:
            return _problem("AccessDeniedException", 403)(environ, start_response)
        answer = {"backup": self._backup, "ecr": self._ecr, "ec2": self._ec2}.get(service, _none)(request)
        environ["wsgi.input"] = io.BytesIO(body)
        return (answer or self.app)(environ, start_response)

    def _backup(self, request: Request) -> Response | None:
        path = request.path.rstrip("/")
        if path.startswith("/tags/"):
            return _json({"Tags": self.points[path.removeprefix("/tags/")]})
        if path == "/backup-vaults":
            names = [VAULT.removeprefix("/backup-vaults/")] if self.policy else []
            return _json({"BackupVaultList": [{"BackupVaultName": name} for name in names]})
        if not path.startswith(VAULT):
            return None
        if path.endswith("/access-policy"):
            if request.method == "PUT":
                self.policy = json.loads(request.get_data())["Policy"]
            return _json({"Policy": self.policy})
        if request.method == "DELETE":
            if "backup:DeleteRecoveryPoint" in self.policy:
                return _problem("AccessDeniedException", 403)
            del self.points[path.removeprefix(f"{VAULT}/recovery-points/")]
            return _json({})
        return _json({"RecoveryPoints": [_point(arn) for arn in self.points]})

    def _ecr(self, request: Request) -> Response | None:
        action = request.headers["X-Amz-Target"].rpartition(".")[2]
        if action == "DescribePullThroughCacheRules":
            rules = [{"ecrRepositoryPrefix": rule, "upstreamRegistryUrl": "quay.io"} for rule in self.rules]
            return _json({"pullThroughCacheRules": rules})
        if action == "DeletePullThroughCacheRule":
            self.rules.remove(json.loads(request.get_data())["ecrRepositoryPrefix"])
            return _json({})
        return None

    def _ec2(self, request: Request) -> Response | None:
        action = request.form["Action"]
        if action == "DescribePlacementGroups":
            items = "".join(_group(name, tags) for name, tags in self.groups.items())
            return _xml(action, f"<placementGroupSet>{items}</placementGroupSet>")
        if action == "DeletePlacementGroup":
            del self.groups[request.form["GroupName"]]
            return _xml(action, "<return>true</return>")
        return None


def _none(request: Request) -> Response | None:
    return None


def _json(answer: Any) -> Response:
    return Response(json.dumps(answer), mimetype="application/x-amz-json-1.1")


def _problem(code: str, status: int) -> Response:
    return Response(json.dumps({"__type": code, "message": "no"}), status=status, headers={"x-amzn-ErrorType": code})


def _point(arn: str) -> dict[str, Any]:
    system = "arn:aws:elasticfilesystem:us-west-2:123456789012:file-system/fs-1"
    return {"RecoveryPointArn": arn, "ResourceArn": system, "CreationDate": 1_790_000_000}


def _group(name: str, tags: dict[str, str]) -> str:
    tagged = "".join(f"<item><key>{key}</key><value>{value}</value></item>" for key, value in tags.items())
    return f"<item><groupName>{name}</groupName><strategy>cluster</strategy><tagSet>{tagged}</tagSet></item>"


def _xml(action: str, inside: str) -> Response:
    return Response(f"<{action}Response><requestId>1</requestId>{inside}</{action}Response>", mimetype="text/xml")


@pytest.fixture(scope="session")
def served() -> Iterator[tuple[str, Lacking]]:
    """Yield the endpoint of an account, and the fake in front of moto."""
    lacking = Lacking(account.moto())
    with account.served(lacking) as endpoint:
        yield endpoint, lacking


@pytest.fixture
def lacking(served: tuple[str, Lacking], monkeypatch: pytest.MonkeyPatch) -> Lacking:
    """Return the fake of an empty account, which boto3 finds through the environment."""
    from moto.moto_api._internal.models import moto_api_backend

    endpoint, lacking = served
    moto_api_backend.reset()
    lacking.groups, lacking.points, lacking.policy, lacking.rules, lacking.refused = {}, {}, "", [], set()
    account.use(monkeypatch, endpoint, AWS_MAX_ATTEMPTS="1")
    return lacking


@pytest.fixture
def clients(lacking: Lacking, served: tuple[str, Lacking]) -> Callable[[str], Any]:
    """Return clients of the account; each is made once, since making one takes longer than most of its calls."""
    assert lacking
    return functools.partial(_client, served[0])


@functools.cache
def _client(endpoint: str, service: str) -> Any:
    connect: Any = boto3.Session(region_name="us-west-2").client  # its type lists every service by name
    return connect(service, endpoint_url=endpoint)
