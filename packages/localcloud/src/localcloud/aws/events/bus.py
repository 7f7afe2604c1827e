"""Send events through moto's EventBridge, and correct what moto gets wrong.

    install()           # once, before the first request
    publish(event)      # to the default bus of the event's account and region

moto also matches disabled rules, gives events to rules that have only a schedule, stops at a target that it doesn't
know, drops fields of the event, and sends to any queue. On AWS a queue gets an event only if its policy lets
EventBridge send: https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-use-resource-based.html#eb-sqs-permissions
"""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from localcloud.aws.events.messages import Event
from localcloud.aws.policy import Decision, Query, evaluate

log = logging.getLogger(__name__)

PRINCIPAL = "service:events.amazonaws.com"


def install() -> None:
    """Wrap moto's method. Call this once per process."""
    from moto.events.models import Rule

    rule: Any = Rule
    original = rule.send_to_targets

    def send_to_targets(self: Any, original_event: Any, transform_input: bool = True) -> None:
        if not _wants(self, original_event):
            return
        for target in list(self.targets):
            try:
                if ":sqs:" in target["Arn"]:
                    _to_queue(self, target, original_event)
                else:
                    alone = copy.copy(self)
                    alone.targets = [target]
                    original(alone, _with_numbers(original_event), transform_input)
            except Exception as error:
                # Like EventBridge, a target that fails doesn't keep the event from the others, nor fails its cause.
                log.warning("rule %s: %s did not get an event: %s", self.name, target["Arn"], error)

    rule.send_to_targets = send_to_targets


def publish(event: Event) -> None:
    """Give an event of an AWS service to the rules of the default bus."""
    from moto.events.models import events_backends

    rules: Any = events_backends[event["account"]][event["region"]].event_buses["default"].rules
    for rule in list(rules.values()):
        rule.send_to_targets({**event, "ingestion-time": event["time"]})


def may_send(policy: Mapping[str, Any] | None, queue_arn: str, rule_arn: str, account: str) -> bool:
    """Return whether a queue's policy lets EventBridge send the messages of this rule."""
    context = {
        "aws:sourcearn": (rule_arn,),
        "aws:sourceaccount": (account,),
        "aws:principalisawsservice": ("true",),
        "aws:securetransport": ("true",),
    }
    asked = Query("sqs:SendMessage", queue_arn, context, (PRINCIPAL,))
    return evaluate([policy] if policy else [], asked) is Decision.ALLOW


def readable(event: Mapping[str, Any]) -> Event:
    """Return the event as targets get it: with its time as text, and without what only moto uses."""
    time = event["time"]
    shown = time if isinstance(time, str) else datetime.fromtimestamp(float(time), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {**{key: value for key, value in event.items() if key != "ingestion-time"}, "time": shown}


def message(target: Mapping[str, Any], event: Mapping[str, Any]) -> str:
    """Return the text that a target gets: the event, a part of it, a constant, or a template filled with it.

    https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-targets.html
    """
    if target.get("Input"):
        return str(target["Input"])
    shown = readable(event)
    if target.get("InputPath"):
        from jsonpath_ng.ext.parser import parse

        parsed: Any = parse(target["InputPath"])
        found = parsed.find(shown)
        return _compact(found[0].value) if found else "{}"
    template = (target.get("InputTransformer") or {}).get("InputTemplate")
    if template:
        from moto.events.utils import EventTemplateParser

        paths = target["InputTransformer"].get("InputPathsMap") or {"_": "$.version"}
        known: Any = {**shown, "ingestion-time": shown["time"]}
        return _compact(EventTemplateParser.parse(template, paths, known))
    return _compact(shown)


def _wants(rule: Any, event: Mapping[str, Any]) -> bool:
    if rule.state == "DISABLED" or not rule.event_pattern.get_pattern():
        return False
    try:
        return bool(rule.event_pattern.matches_event(readable(event)))
    except Exception as error:
        log.warning("rule %s: its pattern could not be compared with an event: %r", rule.name, error)
        return False


def _to_queue(rule: Any, target: Mapping[str, Any], event: Mapping[str, Any]) -> None:
    from moto.sqs.models import sqs_backends

    _, _, _, region, account, name = str(target["Arn"]).split(":")
    backend = sqs_backends[account][region]
    queue = backend.queues.get(name)
    if queue is None:
        log.warning("rule %s: the queue %s does not exist", rule.name, target["Arn"])
        return
    policy = json.loads(queue.policy) if queue.policy else None
    if not may_send(policy, queue.queue_arn, rule.arn, rule.account_id):
        log.warning(
            "rule %s: the policy of queue %s does not let events.amazonaws.com do sqs:SendMessage for %s",
            rule.name,
            name,
            rule.arn,
        )
        return
    group = (target.get("SqsParameters") or {}).get("MessageGroupId")
    backend.send_message(queue_name=name, message_body=message(target, event), group_id=group)


def _with_numbers(event: Mapping[str, Any]) -> Event:
    """Return the event with times as numbers, as moto's other targets need them."""

    def number(time: Any) -> float:
        return datetime.fromisoformat(time).timestamp() if isinstance(time, str) else float(time)

    times = {key: number(event[key]) for key in ("time", "ingestion-time") if key in event}
    return {**event, **times}


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
