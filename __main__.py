"""Tidewater: an EKS cluster, and elastic training on it. `main` is the table of contents."""

from __future__ import annotations

import pulumi

import settings
from infra.account import Account, connect
from infra.addons import Addons, AddonsArgs
from infra.bucket import Bucket, BucketArgs
from infra.cluster import Cluster, ClusterArgs
from infra.encryption import Encryption, EncryptionArgs
from infra.identity import Identity, IdentityArgs
from infra.karpenter import NAMESPACE as KARPENTER_NAMESPACE
from infra.karpenter import SERVICE_ACCOUNT as KARPENTER_ACCOUNT
from infra.karpenter import KarpenterAccess, KarpenterAccessArgs
from infra.network import Network, NetworkArgs
from infra.node_groups import ROOT_DEVICE, WORKER_DISK_GIB, NodeGroup, system_group, worker_group
from infra.outputs import Platform, kubernetes_platform
from infra.shared_storage import SharedStorage, SharedStorageArgs
from workloads.access import TrainerAccess, TrainerAccessArgs
from workloads.bundle import Code, CodeArgs, bundle_for
from workloads.controller import Controller, ControllerArgs
from workloads.dataset import Dataset, DatasetArgs
from workloads.etcd import Etcd, EtcdArgs
from workloads.exports import Exported, export
from workloads.karpenter import Karpenter, KarpenterArgs, Site, SurgeNodes, SurgeNodesArgs
from workloads.namespace import Namespace, NamespaceArgs
from workloads.storage import Storage, StorageArgs
from workloads.training import Training, TrainingArgs


def main() -> None:
    """Read the settings, make the AWS side and what runs on it, export the outputs."""
    stack = settings.load()
    name, training, space = stack.name, stack.training, stack.training.namespace

    account = connect(stack)
    network = Network(name, NetworkArgs(account.region, stack.network, stack.instance_types), account.options())
    key = Encryption(name, EncryptionArgs(account), account.options())
    bucket = Bucket(name, BucketArgs(key.arn, protect=stack.protect), account.options())
    identity = Identity(name, IdentityArgs(account, training, bucket.arn, key.arn), account.options())
    cluster = Cluster(name, ClusterArgs(stack, account.partition, network, key.arn), account.options())
    files = SharedStorage(
        name, SharedStorageArgs(network, cluster.security_group_id, key.arn, protect=stack.protect), account.options()
    )
    # What a node needs must stay until the node is gone: its network interfaces would keep the VPC from being deleted.
    node_needs = (network, identity, cluster)
    system_nodes = NodeGroup(f"{name}-system", system_group(stack, network, identity), account.options(*node_needs))
    addons = Addons(name, AddonsArgs(name, identity.efs_csi_role_arn), account.options(system_nodes))
    platform = kubernetes_platform(name, account, cluster, after=[network, system_nodes, addons])

    code = Code("code", CodeArgs(bundle_for(training), bucket.name), account.options(bucket))
    namespace = Namespace(space, NamespaceArgs(gpus=stack.workers.gpus > 0), platform.options())
    access = TrainerAccess(space, TrainerAccessArgs(name, identity.trainer_role_arn), platform.options(namespace))
    storage = Storage(space, StorageArgs(f"{name}-{space}", files.volume_handle), platform.options(namespace, files))
    etcd = Etcd("etcd", EtcdArgs(training, namespace.priorities.etcd), platform.options(namespace, storage))
    dataset = Dataset(training.dataset.name, DatasetArgs(training, code.uri), platform.options(storage, access))
    controller = Controller(
        "controller",
        ControllerArgs(training.images.controller, namespace.priorities.controller),
        platform.options(namespace),
    )
    # Nodes with GPUs cost money, so they come when there is something to train on.
    worker_nodes: list[pulumi.Resource] = [
        NodeGroup(f"{name}-workers", worker_group(stack, network, identity), account.options(*node_needs, dataset))
    ]
    if stack.surge is not None:
        worker_nodes.append(surge_nodes(stack, stack.surge, account, node_needs, platform))
    workers = TrainingArgs(stack, bucket.name, code.uri, namespace.priorities)
    Training(training.job, workers, platform.options(dataset, etcd, controller, *worker_nodes))

    export(stack, Exported(cluster.kubeconfig, bucket.name, files.file_system_id, code.uri))


def surge_nodes(
    stack: settings.Settings,
    surge: settings.Surge,
    account: Account,
    node_needs: tuple[Network, Identity, Cluster],
    platform: Platform,
) -> SurgeNodes:
    """Make Karpenter, what it needs of AWS, and the nodes that it may bring."""
    network, _, cluster = node_needs
    access = KarpenterAccess(stack.name, KarpenterAccessArgs(account, surge), account.options(cluster))
    install = KarpenterArgs(stack, surge, access.queue_name, KARPENTER_NAMESPACE, KARPENTER_ACCOUNT)
    karpenter = Karpenter("karpenter", install, platform.options(access))
    subnets, security_group = network.private_subnet_ids, cluster.security_group_id
    site = Site(access.node_role_name, subnets, security_group, ROOT_DEVICE, WORKER_DISK_GIB)
    after = platform.options(*node_needs, access, karpenter)
    return SurgeNodes("surge-nodes", SurgeNodesArgs(stack, surge, site), after)


if __name__ == "__main__":
    main()
