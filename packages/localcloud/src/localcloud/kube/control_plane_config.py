"""The flags and configuration of the control plane's processes, as pure functions.

The flags suit a small machine: etcd does not wait for the disk (its data is deleted with the cluster), leader election
is off, and a node that does not answer is NotReady after 16 s instead of 50 s.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

API_PORT = 6443
ETCD_PORT = 2379
SERVICE_CIDR = "172.20.0.0/16"
SERVICE_ADDRESS = "172.20.0.1"
DNS_ADDRESS = "172.20.0.10"
CLUSTER_DOMAIN = "cluster.local"
POD_IDENTITY_WEBHOOK = "pod-identity-webhook"
MAX_CLUSTERS = 64  # 100.64.0.0/10 has 64 ranges of /16


@dataclass(frozen=True)
class Plan:
    """The addresses and folders of one cluster's control plane.

    Args:
        index: k of the cluster, 0..63: API server on port 6443+k, pods in 100.(64+k).0.0/16.
        address: The cloud namespace's address.
        directory: For certificates and etcd's data.
        issuer: The OIDC issuer of service-account tokens.
        webhook: The authentication webhook's kubeconfig; None without one.
    """

    index: int
    address: str
    directory: Path
    issuer: str
    webhook: Path | None = None

    @property
    def endpoint(self) -> str:
        """URL of the API server."""
        return f"https://{self.address}:{API_PORT + self.index}"

    @property
    def etcd_endpoint(self) -> str:
        """URL of etcd, on the loopback of the cloud namespace."""
        return f"http://127.0.0.1:{ETCD_PORT + 2 * self.index}"

    @property
    def pod_cidr(self) -> str:
        """The range that contains the nodes' pod ranges."""
        return f"100.{64 + self.index}.0.0/16"


def issuer_url(region: str, seed: str) -> str:
    """An OIDC issuer in EKS's form, the same for the same seed."""
    identity = hashlib.sha256(seed.encode()).hexdigest()[:32].upper()
    return f"https://oidc.eks.{region}.amazonaws.com/id/{identity}"


def server_names(plan: Plan, region: str) -> list[str]:
    """Every name and address under which the API server is called."""
    service = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", f"kubernetes.default.svc.{CLUSTER_DOMAIN}"]
    return [plan.address, SERVICE_ADDRESS, "127.0.0.1", "localhost", *service, f"eks.{region}.amazonaws.com"]


def etcd_flags(plan: Plan) -> list[str]:
    """Arguments of etcd."""
    peer = f"http://127.0.0.1:{ETCD_PORT + 2 * plan.index + 1}"
    return [
        "--name=default",
        f"--data-dir={plan.directory / 'etcd'}",
        f"--listen-client-urls={plan.etcd_endpoint}",
        f"--advertise-client-urls={plan.etcd_endpoint}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def apiserver_flags(plan: Plan) -> list[str]:
    """Arguments of kube-apiserver."""
    pki = plan.directory / "pki"
    flags = [
        f"--etcd-servers={plan.etcd_endpoint}",
        f"--advertise-address={plan.address}",
        f"--bind-address={plan.address}",
        f"--secure-port={API_PORT + plan.index}",
        f"--service-cluster-ip-range={SERVICE_CIDR}",
        f"--client-ca-file={pki / 'ca.crt'}",
        f"--tls-cert-file={pki / 'apiserver.crt'}",
        f"--tls-private-key-file={pki / 'apiserver.key'}",
        f"--kubelet-client-certificate={pki / 'apiserver-kubelet-client.crt'}",
        f"--kubelet-client-key={pki / 'apiserver-kubelet-client.key'}",
        f"--kubelet-certificate-authority={pki / 'ca.crt'}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--service-account-issuer={plan.issuer}",
        f"--service-account-signing-key-file={pki / 'sa.key'}",
        f"--service-account-key-file={pki / 'sa.pub'}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        "--profiling=false",
        "--shutdown-delay-duration=0s",
        "--event-ttl=2h",
    ]
    if plan.webhook is not None:
        flags += [
            f"--authentication-token-webhook-config-file={plan.webhook}",
            "--authentication-token-webhook-version=v1",
            "--authentication-token-webhook-cache-ttl=5s",
        ]
    return flags


def controller_manager_flags(plan: Plan) -> list[str]:
    """Arguments of kube-controller-manager."""
    pki = plan.directory / "pki"
    return [
        f"--kubeconfig={plan.directory / 'kube-controller-manager.kubeconfig'}",
        "--secure-port=0",
        "--leader-elect=false",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={pki / 'sa.key'}",
        f"--root-ca-file={pki / 'ca.crt'}",
        f"--cluster-signing-cert-file={pki / 'ca.crt'}",
        f"--cluster-signing-key-file={pki / 'ca.key'}",
        "--allocate-node-cidrs=false",
        # With the default of 20 calls a second its controllers take five seconds to start one after the other.
        "--kube-api-qps=200",
        "--kube-api-burst=300",
        "--node-monitor-period=2s",
        "--node-monitor-grace-period=16s",
        "--terminated-pod-gc-threshold=100",
        "--pvclaimbinder-sync-period=1s",  # a claim that is created before its volume waits that long
        "--profiling=false",
    ]


def scheduler_flags(plan: Plan) -> list[str]:
    """Arguments of kube-scheduler."""
    return [
        f"--kubeconfig={plan.directory / 'kube-scheduler.kubeconfig'}",
        "--secure-port=0",
        "--leader-elect=false",
        "--profiling=false",
    ]


def pod_identity_webhook(url: str, ca_bundle: str) -> dict[str, Any]:
    """Return the mutating webhook of pod identity; as on EKS, pods are created unchanged if it does not answer.

    Args:
        ca_bundle: base64 of the PEM that the webhook's certificate is signed by.
    """
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": POD_IDENTITY_WEBHOOK},
        "webhooks": [
            {
                "name": "pod-identity-webhook.amazonaws.com",
                "clientConfig": {"url": url, "caBundle": ca_bundle},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
                "admissionReviewVersions": ["v1"],
                "failurePolicy": "Ignore",
                "sideEffects": "None",
                "timeoutSeconds": 5,
            }
        ],
    }
