"""A stack that comes with the project, brought up on a one-machine cloud, and what can be seen of it.

bring_up(checkout, "aws-dev", "Pulumi.aws-dev.yaml.example").stack
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from tests import graph
from tests.e2e.checkout import Checkout
from tests.security.reach import Network
from tests.security.stack import Stack

ON_ONE_MACHINE = (
    "publicAccessCidrs",
    "image",
    "fetchImage",
    "etcdImage",
    "controllerImage",
    "karpenterCharts",
    "karpenterImage",
)
"""Keys in which an example for AWS can't run on one machine, which has these addresses and images only."""

NO_WORKERS = {"tidewater:workers": 0, "tidewater:minWorkers": 0}
"""One machine has no GPUs. Everything is registered without workers too."""


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


def example(file: str) -> dict[str, Any]:
    """Return the keys of an example for AWS, with those of the one-machine cloud that it needs here."""
    own = yaml.safe_load((graph.ROOT / file).read_text())["config"]
    local = yaml.safe_load((graph.ROOT / "Pulumi.local.yaml").read_text())["config"]
    return {**own, **{f"tidewater:{key}": local[f"tidewater:{key}"] for key in ON_ONE_MACHINE}, **NO_WORKERS}


def bring_up(checkout: Checkout, name: str, file: str | None) -> Real:
    """Bring a stack up on an empty cloud; `file` is its example, None for the stack that is configured already."""
    settings = checkout.path / f"Pulumi.{name}.yaml"
    if file:
        settings.write_text(yaml.safe_dump({"config": example(file)}))
    checkout.run("python -m localcloud start")
    checkout.run(f"pulumi stack select --create {name} && pulumi up --yes")
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
