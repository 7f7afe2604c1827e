"""Pull-through cache rules of ECR: what ECR keeps, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from packages.localcloud.tests.aws.account import Clients
from packages.localcloud.tests.aws.fakes import ACCOUNT
from packages.localcloud.tests.aws.launches import refused

HUB = "registry-1.docker.io"


@pytest.fixture
def ecr(operator: Clients) -> Iterator[Any]:
    """ECR; the rules of a test are gone after it."""
    found = operator("ecr")
    yield found
    for prefix in prefixes(found):
        found.delete_pull_through_cache_rule(ecrRepositoryPrefix=prefix)


@pytest.fixture(scope="module")
def secret(operator: Clients) -> str:
    made = operator("secretsmanager").create_secret(Name="ecr-pullthroughcache/hub", SecretString="{}")
    return str(made["ARN"])


def prefixes(ecr: Any, **page: Any) -> list[str]:
    pages = ecr.get_paginator("describe_pull_through_cache_rules").paginate(PaginationConfig=page)
    return [rule["ecrRepositoryPrefix"] for found in pages for rule in found["pullThroughCacheRules"]]


def create(ecr: Any, prefix: str = "stack/quay", url: str = "quay.io", **more: Any) -> Any:
    return ecr.create_pull_through_cache_rule(ecrRepositoryPrefix=prefix, upstreamRegistryUrl=url, **more)


def test_a_rule_is_described_until_it_is_deleted(ecr: Any) -> None:
    made = create(ecr)
    assert (made["upstreamRegistry"], made["registryId"]) == ("quay", ACCOUNT)
    (found,) = ecr.describe_pull_through_cache_rules(ecrRepositoryPrefixes=["stack/quay"])["pullThroughCacheRules"]
    assert found["upstreamRegistryUrl"] == "quay.io"
    assert found["createdAt"] == made["createdAt"]
    ecr.delete_pull_through_cache_rule(ecrRepositoryPrefix="stack/quay")
    assert prefixes(ecr) == []


@pytest.mark.parametrize("operation", ["delete_pull_through_cache_rule", "update_pull_through_cache_rule"])
def test_a_rule_that_does_not_exist_is_neither_changed_nor_described(ecr: Any, operation: str) -> None:
    code = "PullThroughCacheRuleNotFoundException"
    refused(code, lambda: getattr(ecr, operation)(ecrRepositoryPrefix="stack/quay"))
    refused(code, lambda: ecr.describe_pull_through_cache_rules(ecrRepositoryPrefixes=["stack/quay"]))


def test_a_prefix_has_one_rule(ecr: Any) -> None:
    create(ecr)
    refused("PullThroughCacheRuleAlreadyExistsException", lambda: create(ecr, url="public.ecr.aws"))


def test_all_pages_together_have_every_rule_once(ecr: Any) -> None:
    made = [f"stack{number}/quay" for number in range(5)]
    for prefix in made:
        create(ecr, prefix)
    assert prefixes(ecr, PageSize=2) == made


def test_a_token_of_no_page_is_refused(ecr: Any) -> None:
    refused("InvalidParameterException", lambda: ecr.describe_pull_through_cache_rules(nextToken="forged"))


@pytest.mark.parametrize("prefix", ["ROOT", "stack/", "a--b"])
def test_every_prefix_that_ecr_allows_is_taken(ecr: Any, prefix: str) -> None:
    assert create(ecr, prefix)["ecrRepositoryPrefix"] == prefix


@pytest.mark.parametrize("prefix", ["s" * 31, "Stack/quay", "stack//quay", "-stack"])
def test_a_prefix_that_ecr_does_not_allow_is_refused(ecr: Any, prefix: str) -> None:
    assert "ecrRepositoryPrefix" in refused("InvalidParameterException", lambda: create(ecr, prefix))


def test_a_registry_without_rules_in_ecr_is_refused(ecr: Any) -> None:
    refused("UnsupportedUpstreamRegistryException", lambda: create(ecr, url="nvcr.io"))


def test_docker_hub_needs_a_secret_that_exists(ecr: Any, secret: str) -> None:
    assert "credentialArn" in refused("InvalidParameterException", lambda: create(ecr, url=HUB))
    refused("SecretNotFoundException", lambda: create(ecr, url=HUB, credentialArn=f"{secret}x"))
    create(ecr, url=HUB, credentialArn=secret)
    (found,) = ecr.describe_pull_through_cache_rules()["pullThroughCacheRules"]
    assert found["credentialArn"] == secret
    missing = {"ecrRepositoryPrefix": "stack/quay", "credentialArn": f"{secret}x"}
    refused("SecretNotFoundException", lambda: ecr.update_pull_through_cache_rule(**missing))


def test_a_secret_with_a_name_that_ecr_does_not_allow_is_refused(ecr: Any, operator: Clients) -> None:
    arn = operator("secretsmanager").create_secret(Name="hub", SecretString="{}")["ARN"]
    said = refused("InvalidParameterException", lambda: create(ecr, url=HUB, credentialArn=arn))
    assert "must begin with ecr-pullthroughcache/" in said


def test_the_repositories_of_a_rule_outlive_it(ecr: Any) -> None:
    create(ecr)
    ecr.create_repository(repositoryName="stack/quay/coreos/etcd")
    ecr.delete_pull_through_cache_rule(ecrRepositoryPrefix="stack/quay")
    (left,) = ecr.describe_repositories()["repositories"]
    assert left["repositoryName"] == "stack/quay/coreos/etcd"
    ecr.delete_repository(repositoryName="stack/quay/coreos/etcd")
