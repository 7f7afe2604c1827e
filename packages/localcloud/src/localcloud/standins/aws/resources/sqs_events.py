"""SQS queues and their policies, EventBridge rules and their targets."""

from __future__ import annotations

import secrets
from typing import Any, Final

from localcloud.standins.aws.entry import (
    Call,
    Entry,
    Naming,
    Tree,
    absent_as_none,
    ignore_absent,
    own_tags,
    retry,
    tag_map,
    words,
)
from localcloud.standins.serve import PluginError

_NO_QUEUE: Final = ("AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist")
# SQS doesn't give a name again in the minute after the deletion of its queue.
_JUST_DELETED: Final = ("AWS.SimpleQueueService.QueueDeletedRecently", "QueueDeletedRecently")
_NUMBERS: Final = {
    "delaySeconds": "DelaySeconds",
    "maxMessageSize": "MaximumMessageSize",
    "messageRetentionSeconds": "MessageRetentionPeriod",
    "receiveWaitTimeSeconds": "ReceiveMessageWaitTimeSeconds",
    "visibilityTimeoutSeconds": "VisibilityTimeout",
}
_ENCRYPTED: Final = "sqsManagedSseEnabled"
DEFAULT_BUS: Final = "default"


def _name(inputs: Tree) -> str:
    return inputs.get("name") or f"{inputs.get('namePrefix', 'terraform-')}{secrets.token_hex(13)}"


def _attributes(inputs: Tree) -> dict[str, str]:
    """Return the queue's attributes as SQS takes them, all as text."""
    found = {key: str(int(inputs[name])) for name, key in _NUMBERS.items() if inputs.get(name) is not None}
    if inputs.get(_ENCRYPTED) is not None:
        found["SqsManagedSseEnabled"] = "true" if inputs[_ENCRYPTED] else "false"
    return found


def _queue_create(call: Call) -> str:
    sqs, name = call.client("sqs"), _name(call.inputs)
    create = lambda: sqs.create_queue(QueueName=name, Attributes=_attributes(call.inputs), tags=call.tags)  # noqa: E731
    return str(retry(call, create, *_JUST_DELETED)["QueueUrl"])


def _queue_attributes(call: Call) -> dict[str, str] | None:
    sqs = call.client("sqs")
    read = lambda: sqs.get_queue_attributes(QueueUrl=call.id, AttributeNames=["All"])  # noqa: E731
    answer = absent_as_none(read, *_NO_QUEUE)
    return answer["Attributes"] if answer else None


def _queue_read(call: Call) -> Tree | None:
    found = _queue_attributes(call)
    if found is None:
        return None
    return {
        "arn": found["QueueArn"],
        "name": call.id.rpartition("/")[2],
        "url": call.id,
        "policy": found.get("Policy") or "",
        "fifoQueue": False,
        "contentBasedDeduplication": False,
        "kmsDataKeyReusePeriodSeconds": 300,
        **{name: int(found.get(key) or 0) for name, key in _NUMBERS.items()},
        _ENCRYPTED: found.get("SqsManagedSseEnabled", "").lower() == "true",
        "tags": own_tags(call.client("sqs").list_queue_tags(QueueUrl=call.id).get("Tags")),
    }


def _queue_update(call: Call) -> None:
    sqs = call.client("sqs")
    wanted = _attributes({name: call.inputs.get(name) for name in call.changed})
    if wanted:
        sqs.set_queue_attributes(QueueUrl=call.id, Attributes=wanted)
    changed, removed = call.tag_changes()
    if removed:
        sqs.untag_queue(QueueUrl=call.id, TagKeys=removed)
    if changed:
        sqs.tag_queue(QueueUrl=call.id, Tags=changed)


def _queue_delete(call: Call) -> None:
    ignore_absent(lambda: call.client("sqs").delete_queue(QueueUrl=call.id), *_NO_QUEUE)


def _put_queue_policy(call: Call, url: str, policy: str) -> None:
    call.client("sqs").set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy})


def _queue_policy_create(call: Call) -> str:
    url = str(call.inputs["queueUrl"])
    _put_queue_policy(call, url, call.inputs["policy"])
    return url


def _queue_policy_read(call: Call) -> Tree | None:
    found = _queue_attributes(call) or {}
    return {"queueUrl": call.id, "policy": found["Policy"]} if found.get("Policy") else None


def _queue_policy_update(call: Call) -> None:
    _put_queue_policy(call, call.id, call.inputs["policy"])


def _queue_policy_delete(call: Call) -> None:
    ignore_absent(lambda: _put_queue_policy(call, call.id, ""), *_NO_QUEUE)


def _put_rule(call: Call, name: str, **arguments: Any) -> None:
    inputs = call.inputs
    names = {"description": "Description", "eventPattern": "EventPattern", "state": "State"}
    wanted = {key: inputs[given] for given, key in names.items() if inputs.get(given)}
    call.client("events").put_rule(Name=name, **wanted, **arguments)


def _rule_create(call: Call) -> str:
    name = _name(call.inputs)
    _put_rule(call, name, Tags=call.tag_list())
    return name


def _rule_read(call: Call) -> Tree | None:
    events = call.client("events")
    found = absent_as_none(lambda: events.describe_rule(Name=call.id))
    if not found:
        return None
    return {
        "arn": found["Arn"],
        "name": found["Name"],
        "eventBusName": DEFAULT_BUS,
        "description": found.get("Description") or "",
        "eventPattern": found.get("EventPattern") or "",
        "scheduleExpression": found.get("ScheduleExpression") or "",
        "roleArn": found.get("RoleArn") or "",
        "state": found["State"],
        "isEnabled": found["State"] != "DISABLED",
        "tags": tag_map(events.list_tags_for_resource(ResourceARN=found["Arn"]).get("Tags")),
    }


def _rule_update(call: Call) -> None:
    if call.changed - {"tags", "forceDestroy"}:
        _put_rule(call, call.id)
    changed, removed = call.tag_changes()
    events, arn = call.client("events"), call.state["arn"]
    if removed:
        events.untag_resource(ResourceARN=arn, TagKeys=removed)
    if changed:
        tags = [{"Key": key, "Value": value} for key, value in changed.items()]
        events.tag_resource(ResourceARN=arn, Tags=tags)


def _rule_delete(call: Call) -> None:
    forced = {"Force": True} if call.inputs.get("forceDestroy") else {}
    ignore_absent(lambda: call.client("events").delete_rule(Name=call.id, **forced))


def _put_target(call: Call, target: str) -> None:
    inputs = call.inputs
    targets = [{"Id": target, "Arn": inputs["arn"]}]
    for failed in call.client("events").put_targets(Rule=inputs["rule"], Targets=targets).get("FailedEntries") or []:
        raise PluginError(f"EventBridge refused the target {target}: {failed.get('ErrorMessage')}")


def _target_create(call: Call) -> str:
    inputs = call.inputs
    target = inputs.get("targetId") or f"terraform-{secrets.token_hex(13)}"
    _put_target(call, target)
    call.state = {"targetId": target}
    return f"{inputs['rule']}-{target}"


def _target_key(call: Call) -> tuple[str, str]:
    """Return rule and id of the target; an import gives them as RULE/TARGET."""
    if call.inputs.get("rule"):
        target = call.inputs.get("targetId") or call.state["targetId"]
        return call.inputs["rule"], target
    rule, _, target = call.id.rpartition("/")
    call.id = f"{rule}-{target}"
    return rule, target


def _target_read(call: Call) -> Tree | None:
    rule, target = _target_key(call)
    events = call.client("events")
    read = lambda: events.list_targets_by_rule(Rule=rule)["Targets"]  # noqa: E731 # 5 at most
    for found in absent_as_none(read) or []:
        if found["Id"] == target:
            unset = dict.fromkeys(("input", "inputPath", "roleArn"), "")
            return {"eventBusName": DEFAULT_BUS, "rule": rule, "targetId": target, "arn": found["Arn"], **unset}
    return None


def _target_update(call: Call) -> None:
    _put_target(call, _target_key(call)[1])


def _target_delete(call: Call) -> None:
    rule, target = _target_key(call)
    arguments: Tree = {"Rule": rule, "Ids": [target]}
    if call.inputs.get("forceDestroy"):
        arguments["Force"] = True
    ignore_absent(lambda: call.client("events").remove_targets(**arguments))


_NAMES: Final = words("name namePrefix")

ENTRIES: Final = [
    Entry(
        token="aws:sqs/queue:Queue",
        covers=_NAMES | frozenset(_NUMBERS) | {_ENCRYPTED},
        replace_on=_NAMES,
        computed=frozenset({_ENCRYPTED}),
        defaults={
            "delaySeconds": 0,
            "maxMessageSize": 262144,
            "messageRetentionSeconds": 345600,
            "receiveWaitTimeSeconds": 0,
            "visibilityTimeoutSeconds": 30,
        },
        naming=Naming(longest=80),
        one_of=(_NAMES,),
        create=_queue_create,
        read=_queue_read,
        update=_queue_update,
        delete=_queue_delete,
    ),
    Entry(
        token="aws:sqs/queuePolicy:QueuePolicy",
        covers=words("queueUrl policy"),
        replace_on=words("queueUrl"),
        documents=words("policy"),
        tags=False,
        create=_queue_policy_create,
        read=_queue_policy_read,
        update=_queue_policy_update,
        delete=_queue_policy_delete,
    ),
    Entry(
        token="aws:cloudwatch/eventRule:EventRule",
        covers=_NAMES | words("description eventBusName eventPattern forceDestroy state"),
        replace_on=_NAMES,
        only={"eventBusName": DEFAULT_BUS},
        computed=words("state"),
        defaults={"eventBusName": DEFAULT_BUS, "forceDestroy": False},
        documents=words("eventPattern"),
        naming=Naming(longest=64),
        one_of=(_NAMES,),
        create=_rule_create,
        read=_rule_read,
        update=_rule_update,
        delete=_rule_delete,
    ),
    Entry(
        token="aws:cloudwatch/eventTarget:EventTarget",
        covers=words("arn eventBusName forceDestroy rule targetId"),
        replace_on=words("rule targetId"),
        only={"eventBusName": DEFAULT_BUS},
        computed=words("targetId"),
        defaults={"eventBusName": DEFAULT_BUS, "forceDestroy": False},
        tags=False,
        create=_target_create,
        read=_target_read,
        update=_target_update,
        delete=_target_delete,
    ),
]
