"""Tidewater: an EKS cluster, and elastic training on it. `main` is the table of contents."""

from __future__ import annotations

import functools

import pulumi

import settings
from infra import image_cache, preflight
from infra.account import Account, connect
from infra.addons import Addons, AddonsArgs
from infra.bucket import Bucket, BucketArgs
from infra.cluster import Cluster, ClusterArgs
from infra.encryption import Encryption, EncryptionArgs
from infra.identity import Identity, IdentityArgs, TeamRoles, TeamRolesArgs
from infra.image_cache import ImageCache, ImageCacheArgs
from infra.karpenter import KarpenterAccess, KarpenterAccessArgs
from infra.managed_prometheus import ManagedPrometheus, ManagedPrometheusArgs
from infra.network import FlowLogs, FlowLogsArgs, Network, NetworkArgs
from infra.node_groups import ROOT_DEVICE, NodeGroup, failed_groups, system_group, user_data, worker_group
from infra.outputs import Platform, kubernetes_platform
from infra.policies.roles import KARPENTER_NAMESPACE, KARPENTER_SERVICE_ACCOUNT
from infra.preflight import login, place
from infra.preflight.cluster import Look
from infra.preflight.cluster import look as look_at_cluster
from infra.shared_storage import ExistingStorage, ExistingStorageArgs, SharedStorage, SharedStorageArgs
from tidewater.contract.controller_program import Quota
from workloads.access import TrainerAccess, TrainerAccessArgs
from workloads.bundle import Code, CodeArgs, bundle_for, installer
from workloads.controller import Controller, ControllerArgs
from workloads.devices.check import GpuCheck, GpuCheckArgs, needed
from workloads.devices.efa import EfaPlugin, EfaPluginArgs, efa_nodes
from workloads.devices.plugin import DevicePlugin, DevicePluginArgs
from workloads.etcd.component import Etcd, EtcdArgs
from workloads.exports import Exported, export
from workloads.filling.dataset import Dataset, DatasetArgs
from workloads.filling.packages import Installed, InstalledArgs
from workloads.karpenter import Karpenter, KarpenterArgs, Site, SurgeNodes, SurgeNodesArgs
from workloads.logs.component import KeptLogsArgs, kept_logs
from workloads.manifests import gpu_nodes
from workloads.monitoring import server
from workloads.monitoring.component import Monitoring, MonitoringArgs, parts
from workloads.namespace import Namespace, NamespaceArgs, PriorityClasses, pull_secret
from workloads.network_policies import NetworkPolicies, NetworkPoliciesArgs
from workloads.people import PeopleRights, PeopleRightsArgs, role_manifests
from workloads.storage import Storage, StorageArgs, lustre_volume_manifest, volume_manifest
from workloads.teams import TeamSpace, TeamSpaceArgs, worker_size
from workloads.training import Training, TrainingArgs


def main(run: login.Run = login.run, look: Look = look_at_cluster) -> None:
    """Read the settings, check them against what AWS has, make the AWS side and what runs on it, export the outputs."""
    wanted = settings.load()
    account = connect(wanted, kept := place.keep(wanted))
    stack = image_cache.through(preflight.check(wanted, account, run, look), account)
    name, training, space = stack.name, stack.training, stack.training.namespace

    site = NetworkArgs(account.region, stack.network, stack.instance_types, stack.machines, kept.first_subnets)
    network = Network(name, site, account.options())
    key = encryption(stack, account, network)
    bucket = Bucket(name, BucketArgs(key.arn, protect=stack.protect), account.options())
    identity = Identity(name, IdentityArgs(account, bucket.arn, key.arn), account.options())
    cluster = Cluster(name, ClusterArgs(stack, account, network, identity.node_role.arn, key.arn), account.options())
    files = storage_of(stack, account, network, (identity, cluster), key)
    # What a node needs must stay until the node is gone: its network interfaces would keep the VPC from being deleted.
    node_needs, failed = (network, identity, cluster), failed_groups(stack, account)
    system_nodes = NodeGroup(
        f"{name}-system", system_group(stack, account, network, identity, failed), account.options(*node_needs)
    )
    addons = cluster_addons(stack, account, identity, system_nodes)
    pods_need_first = [network, system_nodes, *addons, *image_caches(stack, account)]
    platform = kubernetes_platform(stack, account, cluster, after=pods_need_first)

    code = Code("code", CodeArgs(bundle_for(training), bucket.name), account.options(bucket))
    # File system and volume stay until the namespace is gone, and with it all pods that may have mounted them.
    volumes = storages(stack, files, platform)
    namespace = Namespace(
        space,
        NamespaceArgs(PriorityClasses(space), training.pull_secret),
        platform.options(files, *(each.volume for each in volumes)),
    )
    mounts, *others = [each.claim(platform.claims(namespace.space, namespace)) for each in volumes]
    trainer = TrainerAccessArgs(stack.cluster_name, identity.trainer_role_arn, training.pull_secret)
    access = TrainerAccess(space, trainer, platform.options(namespace))
    isolation = NetworkPolicies(
        space, NetworkPoliciesArgs(stack.network.cidrs, training.proxy), platform.options(namespace)
    )
    etcd = Etcd(
        "etcd",
        EtcdArgs(training, namespace.priorities.etcd, mounts),
        platform.options(namespace, *volumes, isolation),
    )
    kept_logs(KeptLogsArgs(training, mounts), platform.options(namespace, *volumes, isolation))
    pods_need = platform.mounts(*volumes, access, isolation)
    filled = [
        Dataset(training.dataset.name, DatasetArgs(training, code.uri, name, stack.region, mounts), pods_need),
        *packages(stack, account, bucket, mounts, pods_need),
    ]
    teams = team_spaces(stack, account, (bucket, key, files), namespace, platform)
    controller = Controller(
        "controller", controller_args(stack, namespace.priorities), platform.options(namespace, *teams)
    )
    system_pods(stack, namespace, platform)
    gpu_plugin = device_plugin(stack, platform)
    prometheus = monitoring(stack, account, (network, cluster), platform.options(namespace, *gpu_plugin))
    # Nodes with GPUs cost money, so they come when there is something to train on.
    worker_nodes: list[pulumi.Resource] = [
        NodeGroup(
            f"{name}-workers", worker_group(stack, account, *node_needs, failed), account.options(*node_needs, *filled)
        )
    ]
    if stack.surge is not None:
        worker_nodes.append(surge_nodes(stack, stack.surge, account, (*node_needs, files), platform))
    worker_nodes += [*gpu_plugin, *gpu_check(stack, platform, [*gpu_plugin, *worker_nodes])]
    workers = TrainingArgs(
        stack,
        bucket.name,
        code.uri,
        namespace.priorities,
        functools.reduce(pulumi.ResourceOptions.merge, others, mounts),
    )
    Training(training.job, workers, platform.options(*filled, etcd, controller, *worker_nodes))

    export(
        stack,
        Exported(
            cluster.kubeconfig, bucket.name, files.file_system_id, code.uri, identity.trainer_role_arn, prometheus
        ),
        platform.options(namespace),
    )


def encryption(stack: settings.Settings, account: Account, network: Network) -> Encryption:
    """Make the key of data and logs, unless there is one already; and the VPC's flow logs, if the stack wants them."""
    days, own_cluster = stack.network.flow_log_days, stack.cluster.existing is None
    args = EncryptionArgs(account, control_plane_logs=own_cluster, flow_logs=days > 0, existing=stack.data_key)
    key = Encryption(stack.name, args, account.options())
    if days:
        FlowLogs(stack.name, FlowLogsArgs(account, network.vpc_id, key.arn, days), account.options(network))
    return key


def storage_of(
    stack: settings.Settings,
    account: Account,
    network: Network,
    nodes: tuple[Identity, Cluster],
    key: Encryption,
) -> SharedStorage | ExistingStorage:
    """Make the file system with a folder for each team, or an access point on the one that was there before."""
    identity, cluster = nodes
    role = identity.node_role if stack.file_iam else None
    if stack.file_system:
        return ExistingStorage(stack.name, ExistingStorageArgs(stack.file_system, role), account.options())
    args = SharedStorageArgs(
        network,
        cluster.security_group_id,
        key.arn,
        stack.file_throughput,
        stack.protect,
        node_role=role,
        teams=tuple(team.name for team in stack.teams),
    )
    return SharedStorage(stack.name, args, account.options())


def storages(stack: settings.Settings, files: SharedStorage | ExistingStorage, platform: Platform) -> list[Storage]:
    """Make the volume of the shared files, and in addition that of the Lustre file system, if the stack has one."""
    space, name = stack.training.namespace, f"{stack.name}-{stack.training.namespace}"
    shared = volume_manifest(name, space, files.volume_handle, iam=stack.file_iam)
    found = [Storage(space, StorageArgs(shared), platform.mounts(files))]
    if stack.lustre:
        lustre = f"{name}-lustre"  # the other one has the name of the namespace, which may be any
        volume = lustre_volume_manifest(lustre, space, stack.lustre, stack.region)
        found.append(Storage(lustre, StorageArgs(volume), platform.mounts()))
    return found


def team_spaces(
    stack: settings.Settings,
    account: Account,
    made: tuple[Bucket, Encryption, SharedStorage | ExistingStorage],
    namespace: Namespace,
    platform: Platform,
) -> list[pulumi.Resource]:
    """Make what the teams have, if there are some."""
    if not stack.teams:
        return []
    bucket, key, files = made
    roles = TeamRoles(stack.name, TeamRolesArgs(account, bucket.arn, key.arn), account.options()).arns

    def args(team: settings.Team) -> TeamSpaceArgs:
        handle, mounts = files.team_handles[team.name], platform.mounts(namespace)
        return TeamSpaceArgs(stack, team, roles[team.name], handle, namespace.priorities, mounts)

    rights = PeopleRights("people", PeopleRightsArgs(role_manifests()), platform.options(namespace))
    return [TeamSpace(team.name, args(team), platform.options(namespace, rights)) for team in stack.teams]


def controller_args(stack: settings.Settings, priorities: PriorityClasses) -> ControllerArgs:
    """Return how the controller runs: with teams it serves their namespaces and the stack's, else every one."""
    training = stack.training
    served = (training.namespace, *(team.name for team in stack.teams)) if stack.teams else ()
    nominal = {team.name: Quota(team.nominal, team.maximum) for team in stack.teams if team.nominal is not None}
    return ControllerArgs(
        training.images.controller,
        priorities.controller,
        stack.surge is None,
        served,
        nominal,
        worker_size(stack.workers) if nominal else {},
        training.pull_secret,
    )


def cluster_addons(
    stack: settings.Settings, account: Account, identity: Identity, system_nodes: NodeGroup
) -> list[pulumi.Resource]:
    """Make the addons with pods that need a node, unless the cluster was there before, with its owner's addons."""
    if identity.efs_csi_role_arn is None:
        return []
    roles, gpus = (identity.efs_csi_role_arn, identity.s3_csi_role_arn), stack.workers.gpus > 0
    pools, lustre = stack.gpu_pools, stack.lustre is not None
    args = AddonsArgs(stack.name, stack.cluster.addons, *roles, gpus=gpus, gpu_pools=pools, lustre=lustre)
    return [Addons(stack.name, args, account.options(system_nodes))]


def image_caches(stack: settings.Settings, account: Account) -> list[pulumi.Resource]:
    """Make the rules for ECR's cache of images, if the stack wants them."""
    if stack.image_cache is None:
        return []
    return [ImageCache(stack.name, ImageCacheArgs(stack.image_cache), account.options())]


def packages(
    stack: settings.Settings,
    account: Account,
    bucket: Bucket,
    mounts: pulumi.ResourceOptions,
    opts: pulumi.ResourceOptions,
) -> list[pulumi.Resource]:
    """Make what installs the packages of the person's script, if there are some."""
    wanted = stack.training.packages
    if wanted is None:
        return []
    code = Code("installer", CodeArgs(installer(wanted), bucket.name), account.options(bucket))
    return [Installed("packages", InstalledArgs(stack.training, wanted, code.uri, mounts), opts)]


def monitoring(
    stack: settings.Settings, account: Account, made: tuple[Network, Cluster], opts: pulumi.ResourceOptions
) -> pulumi.Input[str] | None:
    """Make what reads the metrics, if the stack wants it; return its address."""
    if stack.monitoring is None:
        return None
    Monitoring("monitoring", MonitoringArgs(stack, stack.monitoring), opts)
    return managed(stack, account, *made) if stack.monitoring.managed else server.address()


def managed(stack: settings.Settings, account: Account, network: Network, cluster: Cluster) -> pulumi.Output[str]:
    """Make Amazon's Prometheus; return its address."""
    configuration, rules = server.files_for_amazon(parts(stack))
    args = ManagedPrometheusArgs(account, stack.cluster_name, network, cluster.security_group_id, configuration, rules)
    return ManagedPrometheus(stack.name, args, account.options(network, cluster)).endpoint


def surge_nodes(
    stack: settings.Settings,
    surge: settings.Surge,
    account: Account,
    node_needs: tuple[Network, Identity, Cluster, SharedStorage | ExistingStorage],
    platform: Platform,
) -> SurgeNodes:
    """Make Karpenter, what it needs of AWS, and the nodes that it may bring, those of pools too."""
    network, identity, cluster, files = node_needs
    access = KarpenterAccess(stack.name, KarpenterAccessArgs(account, files.mount_policy), account.options(cluster))
    install = KarpenterArgs(stack, surge, access.queue_name, KARPENTER_NAMESPACE, KARPENTER_SERVICE_ACCOUNT)
    karpenter = Karpenter("karpenter", install, platform.options(access))
    subnets, security_group = network.worker_subnet_ids, cluster.security_group_id
    data = user_data(stack.training.proxy_variables, instance_store=False)  # Karpenter has a field for the disks
    site = Site(access.node_role_name, subnets, security_group, ROOT_DEVICE, network.placement_group, data)
    after = platform.options(network, identity, cluster, access, karpenter)
    return SurgeNodes("surge-nodes", SurgeNodesArgs(stack, site), after)


def system_pods(stack: settings.Settings, namespace: Namespace, platform: Platform) -> None:
    """Make what pods in kube-system pull images with, and what gives pods the Elastic Fabric Adapters of the nodes."""
    credentials = stack.training.pull_secret
    if stack.surge or stack.machines.efa:
        pull_secret(KARPENTER_NAMESPACE, credentials, platform.options())
    if stack.machines.efa:
        args = EfaPluginArgs(stack.training.images.efa_plugin, efa_nodes(stack), credentials)
        EfaPlugin("efa-plugin", args, platform.options(namespace))


def device_plugin(stack: settings.Settings, platform: Platform) -> list[pulumi.Resource]:
    """Make what tells Kubernetes about the nodes' GPUs, if workers or the nodes of a pool have some."""
    if not stack.has_gpus:
        return []
    args = DevicePluginArgs(stack.training.images.device_plugin, gpu_nodes(stack), stack.training.pull_secret)
    return [DevicePlugin("gpus", args, platform.options())]


def gpu_check(stack: settings.Settings, platform: Platform, after: list[pulumi.Resource]) -> list[pulumi.Resource]:
    """Make what looks whether the nodes have their GPUs, if there are to be some."""
    if not needed(stack.workers):
        return []
    return [GpuCheck("gpu-check", GpuCheckArgs(stack), platform.options(*after))]


if __name__ == "__main__":
    main()
