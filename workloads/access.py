"""The training pods' service account, and the IAM role that it stands for through EKS Pod Identity."""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

import settings
from contract import labels
from infra.outputs import TRAINER_SERVICE_ACCOUNT, ClusterOutputs
from workloads import objects
from workloads.manifests import Manifest, metadata
from workloads.namespace import Namespace


def service_account_manifest(namespace: str) -> Manifest:
    """The service account; no pod gets its Kubernetes token, only the one for AWS."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(TRAINER_SERVICE_ACCOUNT, {labels.NAME: labels.APPLICATION}, namespace=namespace),
        "automountServiceAccountToken": False,
    }


class TrainerAccess(pulumi.ComponentResource):
    """Must stand before the first pod: EKS gives credentials only to pods made after the association."""

    def __init__(self, stack: settings.Settings, cluster: ClusterOutputs, namespace: Namespace) -> None:
        place = stack.training.namespace
        super().__init__("tidewater:workloads:TrainerAccess", place, None, cluster.options(namespace))
        child = pulumi.ResourceOptions(parent=self)
        objects.register(service_account_manifest(place), opts=child)
        name = f"{cluster.name}-{place}-{TRAINER_SERVICE_ACCOUNT}"
        aws.eks.PodIdentityAssociation(
            name,
            cluster_name=cluster.name,
            namespace=place,
            service_account=TRAINER_SERVICE_ACCOUNT,
            role_arn=cluster.trainer_role_arn,
            tags={"Name": name},
            opts=child,
        )
        self.register_outputs({})
