"""The training pods' service account, and the IAM role that EKS Pod Identity gives its pods."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.outputs import TRAINER_SERVICE_ACCOUNT
from tidewater.contract import labels
from workloads import objects
from workloads.manifests import Manifest, metadata


def service_account_manifest(namespace: str) -> Manifest:
    """Return the service account. Its pods get no token for Kubernetes, only the one for AWS."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(TRAINER_SERVICE_ACCOUNT, {labels.NAME: labels.APPLICATION}, namespace=namespace),
        "automountServiceAccountToken": False,
    }


@dataclass(frozen=True)
class TrainerAccessArgs:
    """The cluster, and the role of the training pods."""

    cluster_name: str
    role_arn: pulumi.Input[str]


class TrainerAccess(pulumi.ComponentResource):
    """Service account and association, in the namespace that the component is named after.

    Training pods depend on it: EKS gives credentials only to pods that are created after the association.
    """

    def __init__(self, name: str, args: TrainerAccessArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:workloads:TrainerAccess", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        objects.register(service_account_manifest(name), opts=child)
        association = f"{args.cluster_name}-{name}-{TRAINER_SERVICE_ACCOUNT}"
        aws.eks.PodIdentityAssociation(
            association,
            cluster_name=args.cluster_name,
            namespace=name,
            service_account=TRAINER_SERVICE_ACCOUNT,
            role_arn=args.role_arn,
            tags={"Name": association},
            opts=child,
        )
        self.register_outputs({})
