"""What is created before what, and deleted after it: the promises that keep `pulumi up` and `pulumi destroy` going.

Each row names two resources. Pulumi creates the first after the second and deletes it before the second.
"""

from __future__ import annotations

import pytest

from tests import graph

Name = tuple[str, str]
"""A type, and a part of the name."""

CLUSTER = ("eks:index:Cluster", "")
IDENTITY_AGENT = ("aws:eks/addon:Addon", "eks-pod-identity-agent")
SYSTEM_NODES = ("aws:eks/nodeGroup:NodeGroup", "-system")
WORKER_NODES = ("aws:eks/nodeGroup:NodeGroup", "-workers")
NODES = (SYSTEM_NODES, WORKER_NODES)
COREDNS = ("aws:eks/addon:Addon", "coredns")
EFS_DRIVER = ("aws:eks/addon:Addon", "aws-efs-csi-driver")
EFS_IDENTITY = ("aws:eks/podIdentityAssociation:PodIdentityAssociation", "efs-csi")
KUBERNETES = ("pulumi:providers:kubernetes", "")
VOLUME = ("kubernetes:core/v1:PersistentVolume", "persistentvolume-")
CLAIM = ("kubernetes:core/v1:PersistentVolumeClaim", "")
NAMESPACE = ("kubernetes:core/v1:Namespace", "namespace-training")
TRAINER_IDENTITY = ("aws:eks/podIdentityAssociation:PodIdentityAssociation", "trainer")
DATASET = ("kubernetes:batch/v1:Job", "job-dataset")
JOB = ("kubernetes:elastic.pytorch.org/v1alpha1:ElasticJob", "")
DEFINITION = ("kubernetes:apiextensions.k8s.io/v1:CustomResourceDefinition", "")
RIGHTS = ("kubernetes:rbac.authorization.k8s.io/v1:ClusterRoleBinding", "tidewater-controller")
USERS_RIGHTS = ("kubernetes:rbac.authorization.k8s.io/v1:ClusterRole", "elasticjobs-edit")
CONTROLLER = ("kubernetes:apps/v1:Deployment", "tidewater-controller")
ETCD = ("kubernetes:apps/v1:StatefulSet", "etcd")
CODE = ("aws:s3/bucketObjectv2:BucketObjectv2", "")

ORDER: dict[str, tuple[Name, Name]] = {
    "the log group exists before EKS writes to it": (CLUSTER, ("aws:cloudwatch/logGroup:LogGroup", "")),
    "CoreDNS has a node to run on": (COREDNS, SYSTEM_NODES),
    "the EFS driver has a node to run on": (EFS_DRIVER, SYSTEM_NODES),
    "the EFS driver's pods get their role": (EFS_DRIVER, EFS_IDENTITY),
    "objects find their addons": (KUBERNETES, EFS_DRIVER),
    "volumes are released while their driver runs": (VOLUME, EFS_DRIVER),
    "the file system's policy applies to the first mount": (VOLUME, ("aws:efs/fileSystemPolicy:FileSystemPolicy", "")),
    "mounts pass the firewall": (VOLUME, ("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", "nfs")),
    "etcd has its volume": (ETCD, VOLUME),
    "the dataset has its volume": (DATASET, VOLUME),
    "the dataset job gets the role for its code": (DATASET, TRAINER_IDENTITY),
    "the dataset job finds its code": (DATASET, CODE),
    "the job finds the dataset": (JOB, DATASET),
    "the job finds etcd": (JOB, ETCD),
    "the controller finds the definition of its jobs": (CONTROLLER, DEFINITION),
    "the controller may read its jobs": (CONTROLLER, RIGHTS),
    "users have rights on jobs": (CONTROLLER, USERS_RIGHTS),
    "the job finds its controller": (JOB, CONTROLLER),
    "the job grows when its nodes are there": (JOB, WORKER_NODES),
    "nodes with GPUs come when the dataset is there": (WORKER_NODES, DATASET),
    "code is encrypted": (
        CODE,
        ("aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration", ""),
    ),
    "code is versioned": (CODE, ("aws:s3/bucketVersioning:BucketVersioning", "")),
    "code goes to a bucket that requires TLS": (CODE, ("aws:s3/bucketPolicy:BucketPolicy", "")),
    "code goes to a bucket that is not public": (CODE, ("aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock", "")),
}


@pytest.fixture(scope="module")
def production() -> graph.Graph:
    """The production example, with a job that is named as in the defaults."""
    return graph.production()


@pytest.mark.parametrize(("later", "earlier"), ORDER.values(), ids=ORDER.keys())
def test_order(production: graph.Graph, later: Name, earlier: Name) -> None:
    assert production.needs(production.one(*later), production.one(*earlier))
    assert not production.needs(production.one(*earlier), production.one(*later))


@pytest.mark.parametrize("group", NODES, ids=["system", "workers"])
@pytest.mark.parametrize(
    "type_",
    [
        "eks:index:Cluster",  # with vpc-cni and the nodes' access entries, which are its children
        "aws:iam/rolePolicyAttachment:RolePolicyAttachment",
        "aws:iam/rolePolicy:RolePolicy",
        "aws:ec2/route:Route",
        "aws:ec2/routeTableAssociation:RouteTableAssociation",
        "aws:ec2/natGateway:NatGateway",
    ],
)
def test_what_a_node_needs_stays_until_the_node_is_gone(production: graph.Graph, group: Name, type_: str) -> None:
    nodes = production.one(*group)
    # What belongs to Karpenter and its nodes: tests/workloads/karpenter/test_karpenter.py
    needed = [each for each in production.all(type_) if "KarpenterAccess" not in each.parent]
    assert needed
    assert [each.name for each in needed if not production.needs(nodes, each)] == []


@pytest.mark.parametrize("group", NODES, ids=["system", "workers"])
def test_pods_on_new_nodes_get_credentials(production: graph.Graph, group: Name) -> None:
    assert production.needs(production.one(*group), production.one(*IDENTITY_AGENT))


def test_every_object_is_gone_before_the_cluster_and_its_system_nodes(production: graph.Graph) -> None:
    objects = [each for each in production.resources if each.type.startswith("kubernetes:")]
    assert len(objects) > 20
    for earlier in (CLUSTER, SYSTEM_NODES, COREDNS, IDENTITY_AGENT):
        left = [each.name for each in objects if not production.needs(each, production.one(*earlier))]
        assert left == [], f"may outlive {earlier}"


def test_mount_targets_outlive_the_last_mount(production: graph.Graph) -> None:
    targets = production.all("aws:efs/mountTarget:MountTarget")
    assert len(targets) == 3
    for pods in (ETCD, DATASET, JOB, NAMESPACE):
        assert all(production.needs(production.one(*pods), target) for target in targets)


def test_a_destroy_ends_pods_that_the_state_lacks_before_it_waits_for_what_they_mount(
    production: graph.Graph,
) -> None:
    """The deletion of the namespace ends them. A claim that is deleted before would wait for them."""
    cluster = production.one("tidewater:infra:Cluster").urn
    assert [production.one(*each).deleted_with for each in (CLAIM, VOLUME)] == [cluster, cluster]
    assert [production.one(*each).deleted_with for each in (NAMESPACE, JOB, ETCD)] == ["", "", ""]


def test_no_object_is_deleted_after_its_replacement_has_adopted_it(production: graph.Graph) -> None:
    """So neither `pulumi up --replace` nor an update that fails and is set back deletes a live object."""
    kinds = [each for each in production.resources if each.type.startswith("kubernetes:")]
    objects = [each for each in kinds if not each.type.startswith("kubernetes:helm.sh/")]
    assert len(objects) > 20
    assert [each.name for each in objects if not each.deleted_first] == []


@pytest.mark.parametrize(("members", "expected"), [(1, {ETCD, DATASET, JOB}), (3, {DATASET, JOB})])
def test_with_another_volume_all_that_mounts_it_is_replaced_and_nothing_else(members: int, expected: set[Name]) -> None:
    """A volume that has to name another access point is deleted when its claim is, and that when no pod mounts it."""
    made = graph.production(etcdMembers=members)
    claim, volume = made.one(*CLAIM), made.one(*VOLUME).urn
    name = claim.inputs["metadata"]["name"]
    mounting = [each for each in made.resources if f"{{'claimName': '{name}'}}" in str(each.inputs)]
    assert {each.urn for each in mounting} == {made.one(*each).urn for each in expected}
    assert [each.name for each in mounting if claim.urn not in each.needs] == [], "it is deleted before the claim"
    assert {each.urn for each in made.resources if volume in each.replaced_with} == {each.urn for each in mounting}
    # Not so the claim: the engine deletes those in any order, and after them what it replaces for a property.
    assert (claim.replaced_with, claim.replaced_on) == ((), ("spec",))
    assert claim.property_needs["spec"] == (volume,)


def test_code_is_uploaded_while_the_cluster_is_created(production: graph.Graph) -> None:
    assert not production.needs(production.one(*CODE), production.one(*CLUSTER))


def test_every_resource_belongs_to_a_component(production: graph.Graph) -> None:
    stack = {each.parent for each in production.resources if each.type.startswith("tidewater:infra:")}
    top = {each.type for each in production.resources if each.parent in stack}
    assert {type_ for type_ in top if not type_.startswith("tidewater:")} == {
        "pulumi:providers:aws",
        "pulumi:providers:kubernetes",
    }


def test_the_code_of_an_older_stack_is_not_replaced_for_its_new_parent(production: graph.Graph) -> None:
    code = production.one(*CODE)
    assert code.name == "code"
    assert code.was_top_level
