"""ECR's pull-through cache rules.

As in internal/service/ecr/pull_through_cache_rule.go of hashicorp/terraform-provider-aws.
"""

from __future__ import annotations

from typing import Final

from localcloud.standins.aws.entry import Call, Entry, Tree, absent_as_none, ignore_absent, words


def _create(call: Call) -> str:
    inputs = call.inputs
    secret = {"credentialArn": inputs["credentialArn"]} if inputs.get("credentialArn") else {}
    prefix = str(inputs["ecrRepositoryPrefix"])
    call.client("ecr").create_pull_through_cache_rule(
        ecrRepositoryPrefix=prefix, upstreamRegistryUrl=inputs["upstreamRegistryUrl"], **secret
    )
    return prefix


def _read(call: Call) -> Tree | None:
    describe = call.client("ecr").describe_pull_through_cache_rules
    answer = absent_as_none(lambda: describe(ecrRepositoryPrefixes=[call.id]))
    if answer is None:
        return None
    (rule,) = answer["pullThroughCacheRules"]
    names = ("ecrRepositoryPrefix", "upstreamRegistryUrl", "registryId", "credentialArn")
    return {name: rule[name] for name in names if rule.get(name)}


def _update(call: Call) -> None:
    secret = {"credentialArn": call.inputs["credentialArn"]} if call.inputs.get("credentialArn") else {}
    call.client("ecr").update_pull_through_cache_rule(ecrRepositoryPrefix=call.id, **secret)


def _delete(call: Call) -> None:
    ignore_absent(lambda: call.client("ecr").delete_pull_through_cache_rule(ecrRepositoryPrefix=call.id))


ENTRIES: Final = [
    Entry(
        token="aws:ecr/pullThroughCacheRule:PullThroughCacheRule",
        covers=words("ecrRepositoryPrefix upstreamRegistryUrl credentialArn"),
        replace_on=words("ecrRepositoryPrefix upstreamRegistryUrl"),
        tags=False,
        create=_create,
        read=_read,
        update=_update,
        delete=_delete,
    ),
]
