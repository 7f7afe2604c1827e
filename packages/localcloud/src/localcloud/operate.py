"""The commands that change a running cloud: `localcloud interrupt` and `localcloud capacity`."""

from __future__ import annotations

import argparse
from typing import Any

from localcloud import control
from localcloud.errors import CloudError
from localcloud.instance import Instance


def interrupt(arguments: argparse.Namespace) -> int:
    """Take Spot Instances back: they get a notice now and end two minutes later."""
    params: dict[str, Any] = {"instances": arguments.instances, "event": arguments.event}
    if arguments.after is not None:
        params["after"] = arguments.after
    answer = control.call(Instance.load(arguments.state), "interrupt", params)
    sent = {"notice": "has its notice", "rebalance": "has a rebalance recommendation", "retire": "will be retired"}
    for instance in arguments.instances:
        end = answer["ends"].get(instance)
        print(f"{instance} {sent[arguments.event]}" + (f" and ends at {end}" if end else ""))
    return 0


def capacity(arguments: argparse.Namespace) -> int:
    """Show which instance types have no capacity, take it away, or give it back."""
    params: dict[str, Any] = {}
    if arguments.none is None and (arguments.zone or arguments.market):
        raise CloudError("--zone, --spot and --on-demand say where there is none: name the types with --none")
    if arguments.restore:
        params = {"restore": True}
    elif arguments.none is not None:
        types = [name.strip() for name in arguments.none.split(",") if name.strip()]
        params = {"none": {"types": types, "zone": arguments.zone, "market": arguments.market}}
    answer = control.call(Instance.load(arguments.state), "capacity", params)
    print("\n".join(answer["shortages"]) or "there is capacity for every instance type")
    return 0


def add_arguments(command: object, parser: argparse.ArgumentParser) -> None:
    """Add the arguments of one of these commands to its parser."""
    if command is interrupt:
        parser.add_argument("instances", nargs="+", metavar="INSTANCE", help="ids of running instances")
        kind = parser.add_mutually_exclusive_group()
        kind.add_argument("--after", type=float, metavar="SECONDS", help="end after this time (default: 120)")
        for event, text in (
            ("rebalance", "send a rebalance recommendation instead; nothing ends"),
            ("retire", "send AWS Health's event of a retirement instead, also to On-Demand instances; nothing ends"),
        ):
            kind.add_argument(f"--{event}", dest="event", action="store_const", const=event, help=text)
        parser.set_defaults(event="notice")
    if command is capacity:
        change = parser.add_mutually_exclusive_group()
        change.add_argument("--none", metavar="TYPE[,TYPE]", help="no capacity for these types; '*' is a wildcard")
        change.add_argument("--restore", action="store_true", help="capacity for everything again")
        parser.add_argument("--zone", help="with --none: only in this zone")
        market = parser.add_mutually_exclusive_group()
        for name in ("spot", "on-demand"):
            text = f"with --none: only {name}"
            market.add_argument(f"--{name}", dest="market", action="store_const", const=name, help=text)
