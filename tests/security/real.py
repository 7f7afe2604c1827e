"""A stack that comes with the project, brought up on a one-machine cloud: its state, and what its API server has.

real = read(checkout, "local")
real.broken_rules()        # [] if the security rules hold
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from tests import graph
from tests.e2e.checkout import Checkout
from tests.security import holds
from tests.security.reach import Network, Pod
from tests.security.registered import registered
from tests.security.rules import RULES
from tests.security.stack import Stack
from tidewater.contract import labels
from tidewater.elasticjob import names

SPACE = "training"


@dataclass(frozen=True)
class Real:
    """A stack that was brought up: its config, its graph from the state file, and what its API server has.

    Attributes:
        name: of the stack, which the waivers use too.
    """

    name: str
    config: Mapping[str, Any]
    stack: Stack
    policies: list[dict[str, Any]]
    namespaces: dict[str, dict[str, str]]
    pods: list[dict[str, Any]]

    @property
    def network(self) -> Network:
        """Return what the policies in the cluster mean."""
        return Network(self.policies, self.namespaces)

    def running(self, component: str) -> list[Pod]:
        """Return the running pods of a component in the training namespace."""
        return [
            Pod(SPACE, pod["metadata"]["labels"], pod["status"]["podIP"])
            for pod in self.pods
            if pod["metadata"]["namespace"] == SPACE
            and pod["metadata"]["labels"].get(labels.COMPONENT) == component
            and pod["status"]["phase"] == "Running"
        ]

    def broken_rules(self) -> list[str]:
        """Return what the security rules find, the changes of settings that they don't report, and unneeded waivers."""
        mine = {self.name: self.stack}
        found = [line for rule in RULES for line in holds.broken(mine, rule) + holds.unreported(mine, rule)]
        return found + holds.unneeded_waivers(mine)

    def unlike_registered(self) -> Counter[tuple[str, str]]:
        """Return the AWS resources, by type and name, that only one of the engine and the quick tests has."""
        made, quick = _counted(self.stack), _counted(registered(self.config, self.name))
        return (made - quick) + (quick - made)

    def changed_policies(self) -> list[str]:
        """Return the names of the network policies that the API server does not have as they were registered."""
        wanted = {
            str(found.get("metadata.name")): _given(found.get("spec"))
            for found in self.stack.of("kubernetes:networking.k8s.io/v1:NetworkPolicy")
        }
        stored = {str(found["metadata"]["name"]): _given(found["spec"]) for found in self.policies}
        return [name for name in wanted.keys() | stored.keys() if wanted.get(name) != stored.get(name)]

    def pods_out_of_reach(self) -> list[str]:
        """Return the pods in the training namespace to which the VPC CNI would not apply the policies.

        It needs an owner, and workers carry the label of their group.
        """
        here = [pod for pod in self.pods if pod["metadata"]["namespace"] == SPACE]
        assert here
        return [
            pod["metadata"]["name"]
            for pod in here
            if not pod["metadata"].get("ownerReferences")
            or (
                pod["metadata"]["labels"].get(labels.COMPONENT) == labels.COMPONENT_WORKER
                and pod["metadata"]["labels"][names.LABEL_GROUP_NAME] != names.GROUP
            )
        ]


def _counted(stack: Stack) -> Counter[tuple[str, str]]:
    return Counter((each.type, each.name) for each in stack.resources if each.type.startswith("aws:"))


def _given(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in spec.items() if value}


def read(checkout: Checkout, name: str) -> Real:
    """Read the stack of this name, which is up in the checkout's cloud."""
    state = checkout.json(f"pulumi stack export --stack {name} --show-secrets")
    own = yaml.safe_load((checkout.path / f"Pulumi.{name}.yaml").read_text())["config"]
    namespaces = checkout.json("kubectl get -o json namespaces")["items"]
    return Real(
        name=name,
        config={**graph.defaults(), **{key.removeprefix("tidewater:"): value for key, value in own.items()}},
        stack=Stack.of_state(state),
        policies=checkout.json("kubectl get -o json networkpolicies -A")["items"],
        namespaces={each["metadata"]["name"]: each["metadata"]["labels"] for each in namespaces},
        pods=checkout.json("kubectl get -o json pods -A")["items"],
    )
