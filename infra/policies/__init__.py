"""Policy documents, made by pure functions from names and ARNs.

policies.to_json(policies.service_trust("pods.eks.amazonaws.com", "sts:AssumeRole", "sts:TagSession"))

documents   IAM, KMS, S3 and EFS documents of everything but Karpenter, and the form of all documents
roles       which roles a stack has, with their trust and their policies
karpenter   what Karpenter's controller may do, and who may send to its queue
"""

from infra.policies.documents import (
    Document,
    bucket_tls_only,
    dataset_object_arn,
    encryption_key,
    file_system,
    file_system_by_iam,
    flow_logs,
    image_cache,
    mount,
    mounted_folder,
    pod_identity_trust,
    service_trust,
    team,
    to_json,
    trainer,
)

__all__ = [
    "Document",
    "bucket_tls_only",
    "dataset_object_arn",
    "encryption_key",
    "file_system",
    "file_system_by_iam",
    "flow_logs",
    "image_cache",
    "mount",
    "mounted_folder",
    "pod_identity_trust",
    "service_trust",
    "team",
    "to_json",
    "trainer",
]
