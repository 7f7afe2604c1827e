"""Rules for what is in the cluster: namespaces, and what their pods may reach."""

from __future__ import annotations

from tests.security.changes import drop, put, unset
from tests.security.reach import kinds
from tests.security.rules.rule import Rule, each, each_in, must
from tests.security.stack import Resource, Stack
from tidewater.elasticjob import names

JOB = f"kubernetes:{names.API_VERSION}:{names.KIND}"
NAMESPACE = "kubernetes:core/v1:Namespace"
POLICY = "kubernetes:networking.k8s.io/v1:NetworkPolicy"
ENFORCE = "pod-security.kubernetes.io/enforce"


def _denies_all(policy: Resource) -> bool:
    """Return whether a policy selects every pod, for both directions, and opens nothing."""
    spec = policy.get("spec") or {}
    opens = spec.get("ingress") or spec.get("egress")
    return not spec.get("podSelector") and kinds({"spec": spec}) == {"ingress", "egress"} and not opens


def _is_denial(policy: Resource) -> bool:
    return bool(policy.get("metadata.name") == "default-deny")


def _default_deny(stack: Stack, job: Resource) -> str | None:
    here = [each for each in stack.of(POLICY) if each.get("metadata.namespace") == job.get("metadata.namespace")]
    return must(any(map(_denies_all, here)), "its namespace denies nothing by default")


def _opens_all(policy: Resource) -> str | None:
    spec = policy.get("spec") or {}
    unlimited = [rule for key in ("ingress", "egress") for rule in spec.get(key) or () if not rule]
    return must(not unlimited, "a rule allows everything")


def _restricted(namespace: Resource) -> str | None:
    labels = namespace.get("metadata.labels") or {}
    return must(labels.get(ENFORCE) == "restricted", "pods with privileges are accepted")


def _is_restricted(namespace: Resource) -> bool:
    return _restricted(namespace) is None


def _relaxed(value: str) -> dict[str, str]:
    return {ENFORCE: value}


RULES = (
    Rule(
        "TW_DEFAULT_DENY",
        "in the namespace of a job, what no policy opens is denied in both directions",
        each_in(JOB, _default_deny),
        (
            drop(POLICY, _is_denial),
            put(POLICY, "spec.policyTypes", ["Ingress"], _is_denial),
            put(POLICY, "spec.podSelector", {"matchLabels": {"app": "one"}}, _is_denial),
            put(POLICY, "spec.egress", [{}], _is_denial),
        ),
        own_source="https://kubernetes.io/docs/concepts/services-networking/network-policies/#default-policies",
    ),
    Rule(
        "TW_NO_OPEN_POLICY",
        "no policy opens everything again",
        each(POLICY, _opens_all),
        (put(POLICY, "spec.ingress", [{}]), put(POLICY, "spec.egress", [{}])),
        own_source="https://kubernetes.io/docs/concepts/services-networking/network-policies/#default-policies",
    ),
    Rule(
        "TW_RESTRICTED",
        "namespaces accept only pods without privileges",
        each(NAMESPACE, _restricted),
        (
            put(NAMESPACE, "metadata.labels", _relaxed("baseline"), _is_restricted),
            unset(NAMESPACE, "metadata.labels", _is_restricted),
        ),
        own_source="https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted",
    ),
)
