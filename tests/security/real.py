"""A stack that comes with the project, brought up on a one-machine cloud, and what can be seen of it.

bring_up(checkout, "aws-dev", "Pulumi.aws-dev.yaml.example").stack
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from tests import graph
from tests.e2e.checkout import UP, Checkout
from tests.e2e.with_gpus import example
from tests.security.reach import Network
from tests.security.stack import Stack

NO_WORKERS = {"tidewater:workers": 0, "tidewater:minWorkers": 0}
"""Everything is registered without workers too, and sooner."""


@dataclass(frozen=True)
class Real:
    """A stack that was brought up: its config, its graph from the state file, and what its API server has."""

    config: Mapping[str, Any]
    stack: Stack
    policies: list[dict[str, Any]]
    namespaces: dict[str, dict[str, str]]
    pods: list[dict[str, Any]]

    @property
    def network(self) -> Network:
        """Return what the policies in the cluster mean."""
        return Network(self.policies, self.namespaces)


def bring_up(checkout: Checkout, name: str, file: str | None) -> Real:
    """Bring a stack up on an empty cloud; `file` is its example, None for the stack that is configured already."""
    settings = checkout.path / f"Pulumi.{name}.yaml"
    if file:
        settings.write_text(yaml.safe_dump({"config": {**example.config(file), **NO_WORKERS}}))
    checkout.run("python -m localcloud start")
    checkout.run(f"pulumi stack select --create {name} && {UP}")
    state = checkout.json(f"pulumi stack export --stack {name} --show-secrets")
    own = {
        key.removeprefix("tidewater:"): value for key, value in yaml.safe_load(settings.read_text())["config"].items()
    }
    checkout.run("umask 077; pulumi stack output kubeconfig --show-secrets > checked.kubeconfig")
    kubectl = "kubectl --kubeconfig checked.kubeconfig get -o json"
    namespaces = checkout.json(f"{kubectl} namespaces")["items"]
    return Real(
        config={**graph.defaults(), **own},
        stack=Stack.of_state(state),
        policies=checkout.json(f"{kubectl} networkpolicies -A")["items"],
        namespaces={each["metadata"]["name"]: each["metadata"]["labels"] for each in namespaces},
        pods=checkout.json(f"{kubectl} pods -A")["items"],
    )
