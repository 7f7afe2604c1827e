"""The configuration of the control plane's processes."""

from __future__ import annotations

from pathlib import Path

from localcloud.kube import control_plane_config as config


def plan(index: int = 0, webhook: Path | None = None) -> config.Plan:
    return config.Plan(index, "198.18.7.2", Path("/state/clusters/demo"), "https://issuer", webhook)


def test_two_clusters_of_one_cloud_share_no_port_and_no_pod_range() -> None:
    one, two = plan(0), plan(1)
    assert (one.endpoint, two.endpoint) == ("https://198.18.7.2:6443", "https://198.18.7.2:6444")
    assert (one.pod_cidr, two.pod_cidr) == ("100.64.0.0/16", "100.65.0.0/16")
    flags = [{flag for flag in config.etcd_flags(each) if "127.0.0.1" in flag} for each in (one, two)]
    assert flags[0].isdisjoint(flags[1])


def test_nodes_are_limited_to_their_own_objects() -> None:
    flags = config.apiserver_flags(plan())
    assert "--authorization-mode=Node,RBAC" in flags
    assert "--enable-admission-plugins=NodeRestriction" in flags


def test_tokens_are_checked_by_the_webhook_only_if_there_is_one() -> None:
    assert not any("webhook" in flag for flag in config.apiserver_flags(plan()))
    flags = config.apiserver_flags(plan(webhook=Path("/state/webhook")))
    assert "--authentication-token-webhook-config-file=/state/webhook" in flags


def test_the_certificate_has_every_name_and_address_of_the_server() -> None:
    names = config.server_names(plan(), "us-west-2")
    assert {"198.18.7.2", "172.20.0.1", "kubernetes.default.svc.cluster.local"} <= set(names)


def test_the_issuer_has_eks_form_and_does_not_change() -> None:
    issuer = config.issuer_url("us-west-2", "seed")
    assert issuer == config.issuer_url("us-west-2", "seed")
    assert issuer.startswith("https://oidc.eks.us-west-2.amazonaws.com/id/")
    assert len(issuer.rsplit("/", 1)[1]) == 32


def test_pods_are_created_while_the_pod_identity_webhook_does_not_answer() -> None:
    webhook = config.pod_identity_webhook("https://198.18.7.1:8443/mutate", "Y2E=")["webhooks"][0]
    assert webhook["failurePolicy"] == "Ignore"
    assert webhook["clientConfig"] == {"url": "https://198.18.7.1:8443/mutate", "caBundle": "Y2E="}
