"""ECR's pull-through cache rules, which moto lacks: create, describe, update, delete.

    install()    # once, before the first request

No image is cached here: the nodes have the images of this machine only. Checks and errors are those of
https://docs.aws.amazon.com/AmazonECR/latest/APIReference/API_CreatePullThroughCacheRule.html
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from localcloud.aws import pages

# Both patterns are those of the service's model in botocore. ROOT stands for all repositories without another rule.
PREFIX: Final = re.compile(r"([a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(\/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*\/?|ROOT)")
SECRET: Final = re.compile(
    r"arn:aws(-\w+)*:secretsmanager:[a-zA-Z0-9-:]+:secret:ecr\-pullthroughcache\/[a-zA-Z0-9\/_+=.@-]+"
)
LONGEST_PREFIX: Final = 30
PAGE, LONGEST_PAGE = 100, 1000

# Host → its name in the API. Other registries are not covered: customers choose their names.
OPEN: Final = {"public.ecr.aws": "ecr-public", "quay.io": "quay", "registry.k8s.io": "k8s"}
WITH_CREDENTIALS: Final = {
    "registry-1.docker.io": "docker-hub",
    "ghcr.io": "github-container-registry",
    "registry.gitlab.com": "gitlab-container-registry",
}
_GIVEN: Final = ("upstreamRegistryUrl", "credentialArn")


def install() -> None:
    """Add the operations to moto's class. Call this once per process."""
    from moto.ecr.responses import ECRResponse

    for operation in (
        create_pull_through_cache_rule,
        describe_pull_through_cache_rules,
        update_pull_through_cache_rule,
        delete_pull_through_cache_rule,
    ):
        setattr(ECRResponse, operation.__name__, operation)


def create_pull_through_cache_rule(self: Any) -> Any:
    """CreatePullThroughCacheRule."""
    prefix, url, secret = (self._get_param(name) for name in ("ecrRepositoryPrefix", *_GIVEN))
    if not PREFIX.fullmatch(prefix or "") or not 2 <= len(prefix) <= LONGEST_PREFIX:
        raise _error(
            "InvalidParameterException",
            f"Invalid parameter at 'ecrRepositoryPrefix' failed to satisfy constraint: '{prefix}' must have 2 to "
            f"{LONGEST_PREFIX} characters and satisfy regular expression '{PREFIX.pattern}'",
        )
    if url not in OPEN | WITH_CREDENTIALS:
        raise _error("UnsupportedUpstreamRegistryException", f"The upstream registry '{url}' is not supported")
    if url in WITH_CREDENTIALS and not secret:
        message = f"The upstream registry '{url}' requires authentication: 'credentialArn' is missing"
        raise _error("InvalidParameterException", message)
    _check_secret(self, secret)
    rules = _rules(self)
    if prefix in rules:
        message = f"A pull through cache rule with the prefix '{prefix}' already exists in the registry"
        raise _error("PullThroughCacheRuleAlreadyExistsException", message)
    now = datetime.now(UTC)
    rules[prefix] = {
        "ecrRepositoryPrefix": prefix,
        "upstreamRegistryUrl": url,
        "upstreamRegistry": (OPEN | WITH_CREDENTIALS)[url],
        "registryId": self.current_account,
        "createdAt": now,
        "updatedAt": now,
    }
    if secret:
        rules[prefix]["credentialArn"] = secret
    return _answer(rules[prefix])


def describe_pull_through_cache_rules(self: Any) -> Any:
    """DescribePullThroughCacheRules: all of them, or those with these prefixes."""
    wanted = self._get_param("ecrRepositoryPrefixes")
    found = [_rule(self, prefix) for prefix in wanted] if wanted else list(_rules(self).values())
    size = min(int(self._get_param("maxResults") or PAGE), LONGEST_PAGE)
    try:
        listed, token = pages.page(found, self._get_param("nextToken"), size)
    except ValueError as error:
        raise _error("InvalidParameterException", "Invalid parameter at 'nextToken': it is of no page") from error
    return _answer({"pullThroughCacheRules": list(listed), **({"nextToken": token} if token else {})})


def update_pull_through_cache_rule(self: Any) -> Any:
    """UpdatePullThroughCacheRule: another secret."""
    rule, secret = _rule(self, self._get_param("ecrRepositoryPrefix")), self._get_param("credentialArn")
    _check_secret(self, secret)
    rule |= {"credentialArn": secret, "updatedAt": datetime.now(UTC)}
    return _answer(rule)


def delete_pull_through_cache_rule(self: Any) -> Any:
    """DeletePullThroughCacheRule. The repositories that it has made stay."""
    rule = _rule(self, self._get_param("ecrRepositoryPrefix"))
    del _rules(self)[rule["ecrRepositoryPrefix"]]
    return _answer(rule)


def _rules(response: Any) -> dict[str, dict[str, Any]]:
    """Return the registry's rules by prefix; they are with moto's other state of the region."""
    found: dict[str, dict[str, Any]] = response.ecr_backend.__dict__.setdefault("pull_through_cache_rules", {})
    return found


def _rule(response: Any, prefix: str) -> dict[str, Any]:
    rule = _rules(response).get(prefix)
    if rule is None:
        message = f"The pull through cache rule with the prefix '{prefix}' does not exist in the registry"
        raise _error("PullThroughCacheRuleNotFoundException", message)
    return rule


def _check_secret(response: Any, arn: str | None) -> None:
    from moto.secretsmanager.models import secretsmanager_backends

    if not arn:
        return
    if not SECRET.fullmatch(arn):
        message = f"Invalid parameter at 'credentialArn': the name in '{arn}' must begin with ecr-pullthroughcache/"
        raise _error("InvalidParameterException", message)
    secrets = secretsmanager_backends[response.current_account][response.region].secrets
    if arn not in {secret.arn for secret in list(secrets.values())}:
        raise _error("SecretNotFoundException", f"The secret '{arn}' does not exist")


def _answer(members: Mapping[str, Any]) -> Any:
    from moto.core.responses import ActionResult

    return ActionResult(dict(members))


def _error(code: str, message: str) -> Exception:
    from moto.ecr.exceptions import ValidationException

    # moto serialises an error for the service that its class belongs to. So the class is one of moto's ECR errors, and
    # the code is ours.
    error: Exception = ValidationException(code, message)
    return error
