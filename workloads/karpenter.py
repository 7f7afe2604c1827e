"""Karpenter: it starts a node when a worker finds no room, and ends the node when it is empty.

    karpenter = Karpenter("karpenter", KarpenterArgs(stack, surge, queue, …), platform.options(access))
    SurgeNodes("surge-nodes", SurgeNodesArgs(stack, site), platform.options(access, karpenter))

The controller and the definitions of its objects come from Karpenter's own charts. Of its objects there are two for the
stack's own workers, and two for each pool: an EC2NodeClass says what an instance is made of, and a NodePool which
instances there may be, how many, and when one may be taken away. https://karpenter.sh/docs/concepts/

`pulumi destroy` deletes in the reverse order of creation, and each step must have ended before the next one begins:

1. The job, so that no pod waits for a node any more.
2. The NodePool. Pulumi deletes in the foreground: Kubernetes deletes the NodeClaims, which the pool owns, and keeps the
   pool until they are gone. A NodeClaim is gone when its node is drained and EC2 says that the instance has ended.
   Karpenter starts nothing for a pool that is being deleted.
3. The EC2NodeClass. Its finalizer waits for NodeClaims too, and then deletes the launch templates and the instance
   profiles, which are in no Pulumi state.
4. The controller. Without it no program would do the work of steps 2 and 3, or remove the finalizers of these objects.
5. The definitions, when no object of theirs is left.
6. What the controller and the nodes use on AWS: roles, access entry, queue.

If it is killed on the way, the next `pulumi destroy` begins with the step that was not finished.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

import settings
from tidewater.contract import labels, leaving
from workloads import objects
from workloads.manifests import SYSTEM_NODES, WORKER_NODES, Manifest, Text, environment, metadata
from workloads.namespace import PULL_SECRETS
from workloads.training import cpu_millis

VERSION = "1.14.0"
"""Release of the charts in a registry; `karpenterImage` is of the same one. A folder has the charts that it has."""

PUBLIC_REPOSITORY = "public.ecr.aws/karpenter/controller"
PUBLIC_IMAGE = f"{PUBLIC_REPOSITORY}:{VERSION}"
"""The image that the published charts name, with its digest."""

DEFINITIONS = "karpenter-crd"
"""The chart of the definitions. It updates them, which Helm does not do for those in a controller's own chart.
https://karpenter.sh/docs/upgrading/upgrade-guide/#crd-upgrades"""

AWS = "karpenter.k8s.aws"
CAPACITY_TYPES = {"ON_DEMAND": "on-demand", "SPOT": "spot"}
FAMILIES = ("c", "m", "r")
OLDEST_GENERATION = 5
"""The first of these families that runs on Nitro throughout.
https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-nitro-instances.html"""

CONSOLIDATE_AFTER = "10s"
"""So long a node stays without a pod. Karpenter then looks within 10 s, waits 15 s to see whether it was right, drains
for at least 5 s, and ends the instance: some 45 s in all after the last worker has ended.
https://github.com/kubernetes-sigs/karpenter (pkg/controllers/disruption, pkg/controllers/node/termination)"""

NODE_GRACE_SECONDS = 2 * leaving.GRACE_SECONDS
"""So long a node may take to drain. A worker has its own grace period in it, however late its eviction begins. Pods of
others, with a disruption budget or the annotation karpenter.sh/do-not-disrupt, can't keep a node any longer.

Workers themselves have no such annotation. Nothing but the budgets below is needed to keep a node, and the annotation
would also keep Karpenter from evicting the worker when EC2 has given notice to its instance."""

DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
"""The weekdays in the order of cron, which counts them from 0."""

WEEK_HOURS = 24 * len(DAYS)

READY_MINUTES = 5
"""How long Pulumi waits until Karpenter has found image, subnets and security group, and has checked its rights."""

DRAIN_MINUTES = 30
"""How long Pulumi waits for the end of the nodes. Large GPU instances take minutes to stop."""


@dataclass(frozen=True)
class Site:
    """What the AWS side has made for the nodes."""

    role: Text
    """Name of the nodes' role, not its ARN."""
    subnet_ids: Sequence[Text] | pulumi.Output[list[str]]
    security_group_id: Text
    root_device: str
    placement_group: Text | None = None
    user_data: str | None = None
    """MIME multipart, which Karpenter merges with its own."""


@dataclass(frozen=True)
class KarpenterArgs:
    """The stack with its surge nodes, the queue with EC2's notices, and the service account that has the role."""

    stack: settings.Settings
    surge: settings.Surge
    queue: Text
    namespace: str
    service_account: str


@dataclass(frozen=True)
class SurgeNodesArgs:
    """The stack with its surge nodes and its pools, and where they are."""

    stack: settings.Settings
    site: Site


def chart_version(charts: str) -> str | None:
    """Return which version of a chart to ask for; None for a folder, which has only one."""
    return VERSION if charts.startswith("oci://") else None


def image_values(image: str, charts: str) -> Manifest:
    """Return an image in the form of the chart's values.

    A published chart has the digest of the public image of its version. A folder may be of another version, and another
    image has a digest of its own: an empty one then replaces the chart's.
    """
    if image == PUBLIC_IMAGE and chart_version(charts) == VERSION:
        return {"repository": PUBLIC_REPOSITORY, "tag": VERSION}
    named, _, digest = image.partition("@")
    folder, slash, last = named.rpartition("/")  # a colon before the last slash belongs to the registry's port
    name, _, tag = last.partition(":")
    return {"repository": f"{folder}{slash}{name}", "tag": tag, "digest": digest}


def controller_values(args: KarpenterArgs) -> Manifest:
    """Return the values for the chart `karpenter`.

    The chart itself spreads the replicas over nodes and zones, and keeps them off the nodes that Karpenter brings.
    """
    return {
        "replicas": min(2, args.stack.system.desired),  # a second one on the same node is refused by the chart
        "nodeSelector": SYSTEM_NODES,
        "serviceAccount": {"name": args.service_account},
        "controller": {
            "image": image_values(args.surge.image, args.surge.charts),
            # Without it Karpenter asks the metadata service of its node, which the hop limit keeps pods from.
            "env": environment({"AWS_REGION": args.stack.region, **args.stack.training.proxy_variables}),
            # Of memory it takes about 300 MiB with all of EC2's instance types, and little for each node.
            "resources": {"requests": {"cpu": "200m", "memory": "512Mi"}, "limits": {"memory": "1Gi"}},
        },
        **({"imagePullSecrets": PULL_SECRETS} if args.stack.training.pull_secret else {}),
        "settings": {"clusterName": args.stack.cluster_name, "interruptionQueue": args.queue},
    }


def look_every_second(args: pulumi.ResourceTransformArgs) -> pulumi.ResourceTransformResult | None:
    """Let the kubelet look every second whether the controller is ready; a transform of the chart's objects.

    The chart has no value for it. With Kubernetes' ten seconds `pulumi up` waits that long for a controller that is
    ready after five.
    """
    if args.type_ != "kubernetes:apps/v1:Deployment":
        return None
    props: Any = copy.deepcopy(args.props)
    for container in props["spec"]["template"]["spec"]["containers"]:
        container["readinessProbe"] |= {"initialDelaySeconds": 0, "periodSeconds": 1}
    return pulumi.ResourceTransformResult(props, args.opts)


def _by_id(subnet_ids: Sequence[Text] | pulumi.Output[list[str]]) -> object:
    """Return the terms that select these subnets: by id, since the stack tags none that it didn't make."""
    if isinstance(subnet_ids, pulumi.Output):
        return subnet_ids.apply(_by_id)
    return [{"id": subnet} for subnet in subnet_ids]


def node_class_manifest(stack: settings.Settings, pool: settings.Pool, site: Site) -> Manifest:
    """Return the EC2NodeClass of a pool: subnets, rules, disk and metadata service are those of the node groups.

    The image is pinned, so that a release of another one changes nothing by itself.
    """
    disk = stack.machines.disk
    name = labels.NODES_SURGE if isinstance(pool, settings.Surge) else pool.name
    return {
        "apiVersion": f"{AWS}/v1",
        "kind": "EC2NodeClass",
        "metadata": _metadata(pool),
        "spec": {
            "role": site.role,
            "amiSelectorTerms": [{"alias": f"al2023@{stack.node_image}"}],
            "subnetSelectorTerms": _by_id(site.subnet_ids),
            "securityGroupSelectorTerms": [{"id": site.security_group_id}],
            **_reservations(pool),
            **({"placementGroupSelector": {"name": site.placement_group}} if site.placement_group is not None else {}),
            "metadataOptions": {
                "httpEndpoint": "enabled",
                "httpProtocolIPv6": "disabled",
                "httpTokens": "required",
                "httpPutResponseHopLimit": 1,  # pods are one hop further away, so they can't read the credentials
            },
            "blockDeviceMappings": [
                {
                    "deviceName": site.root_device,
                    "ebs": {
                        "volumeSize": f"{disk.gib}Gi",
                        "volumeType": "gp3",
                        "iops": disk.iops,
                        "throughput": disk.throughput,
                        "encrypted": True,
                        **({"kmsKeyID": stack.node_disk_key} if stack.node_disk_key else {}),
                        "deleteOnTermination": True,
                    },
                }
            ],
            **({"userData": site.user_data} if site.user_data else {}),
            **({"instanceStorePolicy": "RAID0"} if stack.machines.instance_store else {}),
            "detailedMonitoring": False,
            "tags": {**stack.all_tags, "Name": f"{stack.name}-{name}"},
        },
    }


def _reservations(pool: settings.Pool) -> Manifest:
    """Return the terms that select the capacity reservations, if there are some."""
    ids = pool.reservations
    return {"capacityReservationSelectorTerms": [{"id": each} for each in ids]} if ids else {}


def node_labels(pool: settings.Pool) -> dict[str, str]:
    """Return the labels of a pool's nodes. Those of the stack's own worker nodes are on no other pool's."""
    if isinstance(pool, settings.Surge):
        return {**WORKER_NODES, labels.NODES: labels.NODES_SURGE}
    return {labels.NODE_ROLE: labels.NODE_ROLE_POOL, labels.POOL: pool.name}


def node_pool_manifest(stack: settings.Settings, pool: settings.Pool) -> Manifest:
    """Return the NodePool of a pool.

    Only an empty node is taken away: another policy would also move workers to cheaper nodes. Nodes do not expire,
    since Karpenter replaces expired nodes at once, whatever the budgets say. Nodes that are being ended don't count for
    the limit, so the place of a lost node is free at once.
    """
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": _metadata(pool),
        "spec": {
            "template": {
                "metadata": {"labels": node_labels(pool)},
                "spec": {
                    "nodeClassRef": {"group": AWS, "kind": "EC2NodeClass", "name": pool.name},
                    "taints": [{"key": labels.TAINT_WORKER, "value": "true", "effect": "NoSchedule"}],
                    "requirements": requirements(stack, pool),
                    "expireAfter": "Never",
                    "terminationGracePeriod": f"{NODE_GRACE_SECONDS}s",
                },
            },
            "limits": {"nodes": pool.maximum},
            "disruption": {
                "consolidationPolicy": "WhenEmpty",
                "consolidateAfter": CONSOLIDATE_AFTER,
                "budgets": budgets(stack.surge.window if stack.surge else None),
            },
        },
    }


def requirements(stack: settings.Settings, pool: settings.Pool) -> list[Manifest]:
    """Return which instances Karpenter may choose from: those of the list, or any like the smallest of the core's.

    The latter have no room for a worker more than `workersPerNode`, even if nothing else ran there. A node with workers
    of two nodes would stay, half empty, when only some of them leave. With the same GPU and many more vCPUs a
    node costs several times as much: a g5.16xlarge four times what a g5.xlarge does.

    Of several markets, Karpenter takes what is reserved first, then Spot while EC2 has some:
    https://karpenter.sh/docs/concepts/nodepools/#capacity-type
    """
    markets = [pool.capacity_type, *(["ON_DEMAND"] if pool.spot_fallback else [])]
    reserved = ["reserved"] if pool.reservations else []
    found = [
        _one_of("kubernetes.io/arch", "amd64"),
        _one_of("kubernetes.io/os", "linux"),
        _one_of("karpenter.sh/capacity-type", *reserved, *(CAPACITY_TYPES[each] for each in markets)),
    ]
    if pool.instance_types:
        return [*found, _one_of("node.kubernetes.io/instance-type", *pool.instance_types)]
    if stack.machines.instance_store:
        found.append(_number(f"{AWS}/instance-local-nvme", "Gt", 0))  # a type without any doesn't have the label
    workers = stack.workers
    least, too_many = workers.nodes.smallest, workers.per_node + 1
    if least.gpus:
        models = sorted({gpu_label(kind.gpu) for kind in workers.nodes.hardware})
        found.append(_one_of(f"{AWS}/instance-gpu-name", *models))
        found.append(_one_of(f"{AWS}/instance-gpu-count", str(least.gpus)))
    else:
        found.append(_one_of(f"{AWS}/instance-category", *FAMILIES))
        found.append(_number(f"{AWS}/instance-generation", "Gte", OLDEST_GENERATION))
    found.append(_number(f"{AWS}/instance-cpu", "Gte", least.vcpus))
    found.append(_number(f"{AWS}/instance-memory", "Gte", least.memory_mib))
    most = stack.surge_vcpus
    if too_many * workers.gpus <= least.gpus:  # else the GPUs are too few already
        most = min(most, (too_many * cpu_millis(workers) - 1) // 1000)
    found.append(_number(f"{AWS}/instance-cpu", "Lte", most))
    return found


def gpu_label(model: str) -> str:
    """Return AWS's name of a GPU model as Karpenter writes it in the label of a node.

    https://github.com/aws/karpenter-provider-aws (lowerKabobCase in pkg/providers/instancetype/types.go)
    """
    return model.lower().replace(" ", "-")


def budgets(window: settings.Window | None) -> list[Manifest]:
    """Return how many nodes may be taken away at a time, by the reason.

    Empty nodes, as many as there are. Drifted nodes, those of an earlier configuration: none outside the window, and in
    it one after the other. Of several budgets for a reason Karpenter takes the smallest that is active, so what the
    schedule says is when the window is closed.
    """
    empty: Manifest = {"reasons": ["Empty"], "nodes": "100%"}
    closed: Manifest = {"reasons": ["Drifted"], "nodes": "0"}
    if window is None:
        return [empty, closed]
    return [empty, {"reasons": ["Drifted"], "nodes": "1"}, {**closed, **time_outside(window)}]


def time_outside(window: settings.Window) -> dict[str, str]:
    """Return the rest of the week, from the window's end: cron's minute, hour and weekday in UTC, and its length."""
    days, hour = divmod(window.hour + window.hours, 24)
    day = (DAYS.index(window.day) + days) % len(DAYS)
    return {"schedule": f"{window.minute} {hour} * * {day}", "duration": f"{WEEK_HOURS - window.hours}h"}


class Karpenter(pulumi.ComponentResource):
    """The definitions of Karpenter's objects, then its controller. It is ready when all replicas are.

    It is created after the association of its role: EKS gives credentials only to pods that are created after that.
    """

    def __init__(self, name: str, args: KarpenterArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:workloads:Karpenter", name, None, opts)
        charts = args.surge.charts

        def install(chart: str, values: Manifest, opts: pulumi.ResourceOptions) -> pulumi.Resource:
            address = f"{charts.rstrip('/')}/{chart}"
            # Karpenter's published chart has its definitions too, and those of two charts would be the same objects.
            release = objects.Release(
                chart, args.namespace, address, chart_version(charts), values, definitions=chart == DEFINITIONS
            )
            return objects.register_chart(release, opts=opts)

        definitions = install(DEFINITIONS, {}, pulumi.ResourceOptions(parent=self))
        controller = pulumi.ResourceOptions(parent=self, depends_on=[definitions], transforms=[look_every_second])
        install("karpenter", controller_values(args), controller)
        self.register_outputs({})


class SurgeNodes(pulumi.ComponentResource):
    """What Karpenter may start for the workers, and for jobs that ask for the nodes of a pool.

    The stack's job depends on it, so that it is deleted before.
    """

    def __init__(self, name: str, args: SurgeNodesArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:workloads:SurgeNodes", name, None, opts)
        ready, gone = f"{READY_MINUTES}m", f"{DRAIN_MINUTES}m"
        limits = pulumi.CustomTimeouts(create=ready, update=ready, delete=gone)

        def register(manifest: Manifest, *after: pulumi.Resource) -> pulumi.CustomResource:
            opts = pulumi.ResourceOptions(parent=self, depends_on=list(after), custom_timeouts=limits)
            name = manifest["metadata"]["name"]
            return objects.register_custom(f"{manifest['kind'].lower()}-{name}", manifest, opts=opts)

        for pool in args.stack.brought:
            node_class = register(node_class_manifest(args.stack, pool, args.site))
            register(node_pool_manifest(args.stack, pool), node_class)
        self.register_outputs({})


def _metadata(pool: settings.Pool) -> Manifest:
    """Return name and labels. Pulumi waits until Karpenter accepts the object, so a mistake in it ends `pulumi up`."""
    return metadata(pool.name, {labels.NAME: labels.APPLICATION}, annotations={"pulumi.com/waitFor": "condition=Ready"})


def _one_of(key: str, *values: str) -> Manifest:
    return {"key": key, "operator": "In", "values": list(values)}


def _number(key: str, operator: str, value: int) -> Manifest:
    return {"key": key, "operator": operator, "values": [str(value)]}
