"""The training pods' service account, and the IAM role that EKS Pod Identity gives its pods."""

from __future__ import annotations

from dataclasses import dataclass, field

import pulumi
import pulumi_aws as aws

from infra.outputs import TRAINER_SERVICE_ACCOUNT
from tidewater.contract import labels
from workloads import objects
from workloads.manifests import Manifest, metadata
from workloads.namespace import with_credentials


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
    """The cluster, the role of the training pods, and Docker's configuration with the credentials of registries."""

    cluster_name: str
    role_arn: pulumi.Input[str]
    pull_secret: str = field(default="", repr=False)


class TrainerAccess(pulumi.ComponentResource):
    """Service account and association, in the namespace that the component is named after.

    Training pods depend on it: EKS gives credentials only to pods that are created after the association.
    """

    def __init__(self, name: str, args: TrainerAccessArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:workloads:TrainerAccess", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        objects.register(with_credentials(service_account_manifest(name), args.pull_secret), opts=child)
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
