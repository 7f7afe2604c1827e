"""Tidewater: an EKS cluster, and elastic training on it. Reads as a table of contents."""

from __future__ import annotations

import settings
from infra import account, addons, bucket, cluster, encryption, identity, network, node_groups, outputs, shared_storage
from workloads import access, bundle, dataset, etcd, exports, namespace, storage, training


def main() -> None:
    """Settings, AWS, Kubernetes, outputs."""
    stack = settings.load()

    aws = account.account(stack)
    vpc = network.Network(stack, aws)
    key = encryption.Encryption(stack, aws)
    store = bucket.Bucket(stack, aws, key)
    roles = identity.Identity(stack, aws, store, key)
    control_plane = cluster.Cluster(stack, aws, vpc, key)
    base = node_groups.Base(aws, vpc, roles, control_plane)
    system_nodes = node_groups.system(stack, base)
    files = shared_storage.SharedStorage(stack, aws, vpc, key, control_plane)
    extras = addons.Addons(stack, aws, roles, system_nodes)
    eks = outputs.cluster_outputs(stack, base, files, store, nodes=[system_nodes, extras])

    place = namespace.Namespace(stack, eks)
    data = storage.Storage(stack, eks, place)
    rendezvous = etcd.Etcd(stack, eks, place, data)
    trainer = access.TrainerAccess(stack, eks, place)
    code = bundle.upload(bundle.pack(script=stack.training.script), eks)
    images = dataset.Dataset(stack, eks, code, after=[data, trainer])
    job = training.Training(stack, eks, code, place, after=[images, rendezvous])
    node_groups.workers(stack, base, after=[job])

    exports.export(stack, eks, code)


if __name__ == "__main__":
    main()
