"""boto3 clients for one provider configuration: created when first needed, and shared by all requests.

clients = Clients(Settings.from_config({"region": "us-west-2"}, os.environ))
clients.get("ec2").describe_vpcs()
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from localcloud.standins.serve import PluginError

CONFIG_KEYS: Final = frozenset(
    "accessKey secretKey token profile region endpoints defaultTags maxRetries retryMode s3UsePathStyle "
    "skipCredentialsValidation skipMetadataApiCheck skipRegionValidation skipRequestingAccountId insecure "
    "allowedAccountIds forbiddenAccountIds version".split()
)
"""The provider inputs that the stand-in accepts. The `skip…` switches, retries and `insecure` have no effect:
only the account is checked at configuration, and the endpoint is plain HTTP."""

_SERVICE_ALIASES: Final = {
    "cloudwatchlogs": "logs",
    "cloudwatchevents": "events",
    "eventbridge": "events",
    "elb": "elbv2",
    "servicequotas": "service-quotas",
}


@dataclass(frozen=True)
class Settings:
    """The provider's configuration, as far as the stand-in uses it."""

    region: str
    endpoints: Mapping[str, str] = field(default_factory=dict)
    endpoint: str | None = None
    access_key: str | None = None
    secret_key: str | None = None
    token: str | None = None
    profile: str | None = None
    path_style: bool = False
    default_tags: Mapping[str, str] = field(default_factory=dict)
    allowed_accounts: tuple[str, ...] = ()
    forbidden_accounts: tuple[str, ...] = ()

    @property
    def names_accounts(self) -> bool:
        """Return whether some account is not allowed."""
        return bool(self.allowed_accounts or self.forbidden_accounts)

    @staticmethod
    def from_config(config: Mapping[str, Any], environ: Mapping[str, str]) -> Settings:
        """Read the provider's configuration; values that aren't set come from the environment, as with the AWS CLI.

        Raises:
            PluginError: there is no region.
        """
        region = config.get("region") or environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
        if not region:
            raise PluginError("aws: no region; set it with `pulumi config set aws:region us-west-2`, or AWS_REGION")
        endpoints = {
            _SERVICE_ALIASES.get(service, service): str(url)
            for entry in config.get("endpoints") or []
            for service, url in entry.items()
        }
        return Settings(
            region=region,
            endpoints=endpoints,
            endpoint=environ.get("AWS_ENDPOINT_URL"),
            access_key=config.get("accessKey"),
            secret_key=config.get("secretKey"),
            token=config.get("token"),
            profile=config.get("profile"),
            path_style=bool(config.get("s3UsePathStyle")) or bool(environ.get("AWS_ENDPOINT_URL")),
            default_tags=(config.get("defaultTags") or {}).get("tags") or {},
            allowed_accounts=tuple(config.get("allowedAccountIds") or ()),
            forbidden_accounts=tuple(config.get("forbiddenAccountIds") or ()),
        )


def decode_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Decode nested values of the configuration: a provider gets lists, maps and switches as JSON strings."""
    decoded = {}
    for key, value in config.items():
        if isinstance(value, str) and value[:1] in ("{", "["):
            value = json.loads(value)
        decoded[key] = value == "true" if value in ("true", "false") else value
    return decoded


class Clients:
    """Creates and keeps clients; safe to use from many threads."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        self._session: Any = None
        self._clients: dict[tuple[str, str], Any] = {}
        self._account: str | None = None

    def get(self, service: str, region: str | None = None) -> Any:
        """The client of a service, by boto3's name."""
        key = (service, region or self.settings.region)
        with self._lock:  # creating a boto3 client is not thread-safe; using one is
            if key not in self._clients:
                self._clients[key] = self._make(*key)
            return self._clients[key]

    def account(self) -> str:
        """The account that the credentials belong to.

        Raises:
            PluginError: the configuration does not allow this account; in the words of the official plug-in:
                https://github.com/hashicorp/aws-sdk-go-base (VerifyAccountIDAllowed)
        """
        if self._account is None:
            account = str(self.get("sts").get_caller_identity()["Account"])
            settings = self.settings
            if account in settings.forbidden_accounts or account not in (settings.allowed_accounts or (account,)):
                raise PluginError(f"AWS account ID not allowed: {account}")
            self._account = account
        return self._account

    def _make(self, service: str, region: str) -> Any:
        from boto3.session import Session  # imported here: it takes half a second, and a preview may need no client
        from botocore.config import Config

        settings = self.settings
        if self._session is None:
            self._session = Session(
                aws_access_key_id=settings.access_key,
                aws_secret_access_key=settings.secret_key,
                aws_session_token=settings.token,
                profile_name=settings.profile,
                region_name=settings.region,
            )
        config = Config(
            max_pool_connections=64,
            retries={"mode": "standard", "max_attempts": 5},
            s3={"addressing_style": "path" if settings.path_style else "auto"},
        )
        url = settings.endpoints.get(service, settings.endpoint)
        return self._session.client(service, region_name=region, endpoint_url=url, config=config)
