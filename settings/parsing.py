"""Makes the tree in `model` from the keys and values of a configuration.

`Pulumi.yaml` describes every key with its type, its default and its meaning; the engine fills in the defaults.
All mistakes are reported at once, each with its key, its value and what is expected.
"""

from __future__ import annotations

import ipaddress
import itertools
import re
import shlex
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pulumi

from settings import code, existing, hardware, images, machines, networks, nodes, teams, versions
from settings.model import (
    MAX_JOB_NAME_LENGTH,
    MAX_NAME_LENGTH,
    MAX_TAGS,
    PROJECT,
    Checkpoints,
    Cluster,
    ConfigurationError,
    Dataset,
    FileThroughput,
    Monitoring,
    Roles,
    Settings,
    Training,
)
from settings.nodes import Workers
from settings.reader import Reader
from tidewater.contract.stack import LUSTRE_DIRECTORY

AWS = "aws:"
"""With it begin keys of Pulumi's default provider of AWS, which the program does not use."""
_DNS_LABEL = r"[a-z]([-a-z0-9]*[a-z0-9])?"
TAKEN_JOB_NAMES = ("etcd", "etcd-peers")
"""The names of the services in the training namespace. The ElasticJob controller makes one with the job's name."""
_FOLDER = r"s3://[a-z0-9.-]{3,63}/([\w.=-]+/)+"
"""Its name is part of a policy, where `*` and `?` would stand for other folders, and of a mount option."""
_ON_LUSTRE = rf"{LUSTRE_DIRECTORY}(/[\w=-][\w.=-]*)+"
_FORM = f"{LUSTRE_DIRECTORY}/FOLDER"
_ARCHIVE = r"(s3://[a-z0-9.-]{3,63}|https://[^/\s]+)/\S+\.(zip|tar\.gz|tgz)"
_TAKEN_TAGS = r"(?i)Project|Stack|ManagedBy|aws:.*|eks:.*|kubernetes\.io/cluster/.*|karpenter\.(sh|k8s\.aws)/.*"
"""The program's own, AWS's, and those that an EC2NodeClass refuses: https://karpenter.sh/docs/concepts/nodeclasses/#spectags
IAM takes no two keys that differ in case only: https://docs.aws.amazon.com/IAM/latest/UserGuide/id_tags.html"""
_TAG_KEY, _TAG_VALUE = r"[\w .:/=+@-]{1,128}", r"[\w .:/=+@-]{0,256}"
"""What IAM, the strictest of the services, takes: letters, digits, spaces and some signs.
https://docs.aws.amazon.com/IAM/latest/APIReference/API_Tag.html"""
_SPECIAL_RANGES = {
    "private": ("10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"),
    "documentation": ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"),
    "reserved": ("0.0.0.0/8", "192.0.0.0/24", "224.0.0.0/4", "240.0.0.0/4"),
}
"""From these no request reaches EKS over the internet, and it refuses them. 198.18.0.0/15 is left out: only networks
under test use it, and the one-machine cloud.
https://docs.aws.amazon.com/eks/latest/userguide/cluster-endpoint.html
https://www.iana.org/assignments/iana-ipv4-special-registry/iana-ipv4-special-registry.xhtml"""
_POLICY_ARN = r"arn:aws[a-z-]*:iam::(aws|\d{12}):policy/[\w+=,.@/-]+"
_ROLE_PATH = r"/([A-Za-z0-9_+=,.@-]+/)*"
_KEY_ARN = r"arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/[\w-]+"
_KEY = "the ARN of a KMS key, not of an alias"


def load() -> Settings:
    """The settings of the stack that is being deployed.

    Raises:
        ConfigurationError: the engine shows it as one message, and registers nothing.
    """
    prefix = f"{PROJECT}:"
    given = {**pulumi.runtime.config.get_config_env(), **pulumi.runtime.config.CONFIG.get()}
    ours = {key.removeprefix(prefix): value for key, value in given.items() if key.startswith((prefix, AWS))}
    secret = pulumi.runtime.config.is_config_secret
    secrets = [key for key in ours if secret(key if key.startswith(AWS) else f"{prefix}{key}")]
    return parse(ours, stack=pulumi.get_stack(), secrets=secrets)


def parse(config: Mapping[str, Any], *, stack: str, secrets: Collection[str] = ()) -> Settings:
    """Return the settings for `config`: keys without the project's prefix; values, or text as Pulumi stores it.

    Args:
        stack: the stack's name.
        secrets: the keys with values that no message may show.

    Raises:
        ConfigurationError: with every mistake at once.
    """
    read = Reader(config, secrets)
    if not re.fullmatch(_DNS_LABEL, stack) or len(f"{PROJECT}-{stack}") > MAX_NAME_LENGTH:
        longest = MAX_NAME_LENGTH - len(PROJECT) - 1
        read.mistake(f"the stack's name {stack!r}: must be lower-case letters, digits and hyphens, {longest} at most")
    settings = Settings(
        stack=stack,
        region=read.text("region", networks.REGION, "an AWS region such as us-west-2"),
        profile=read.text("profile", r"[\w.@-]*", "the name of an AWS profile"),
        allowed_accounts=read.texts("allowedAccountIds", "[0-9]{12}", "the 12 digits of an AWS account"),
        tags=_tags(read),
        protect=read.boolean("protect"),
        roles=_roles(read),
        network=(network := networks.network(read)),
        cluster=(cluster := _cluster(read)),
        node_image=nodes.image(read),
        node_disk_key=_key_of_region(read, "nodeDiskKeyArn", "EBS needs"),
        data_key=_key_of_region(read, "dataKeyArn", "EFS, EKS and CloudWatch Logs need"),
        file_throughput=_file_throughput(read),
        file_iam=read.choice("fileAccess", ("vpc", "iam")) == "iam",
        file_system=existing.file_system(read),
        lustre=existing.lustre(read),
        system=nodes.system(read),
        workers=(workers := nodes.workers(read)),
        surge=(surge := nodes.surge(read, workers)),
        pools=(pools := nodes.pools(read, surge)),
        machines=machines.machines(read, network, workers),
        training=(training := _training(read)),
        teams=_teams(read, training, cluster, workers, pools=bool(pools)),
        monitoring=_monitoring(read),
        image_cache=images.cache(read, PROJECT, stack),
    )
    registry = images.registry(read)
    _check_members(read, settings)
    _check_replicas(read, settings)
    _check_file_access(read, settings)
    _check_lustre(read, settings)
    _check_proxy(read, settings)
    existing.check_roles(read, settings.roles.arns, settings.role_names)
    for key in sorted(each for each in config if each.startswith(AWS)):
        own = {"region": "region", "profile": "profile", "defaultTags": "tags"}.get(key.removeprefix(AWS))
        instead = f"set tidewater:{own} instead, and remove it" if own else "remove it"
        read.unused(
            key, f"has no effect, as the stack has an AWS provider of its own; {instead}: pulumi config rm {key}"
        )
    read.finish()
    if read.mistakes:
        raise ConfigurationError(read.mistakes)
    return settings.with_images(lambda image: images.mirrored(image, registry)) if registry else settings


def _tags(read: Reader) -> dict[str, str]:
    tags = read.text_map("tags")
    for key in (each for each in tags if re.fullmatch(_TAKEN_TAGS, each)):
        read.wrong("tags", key, "this tag is set by the program, or kept for AWS and Karpenter; use another name")
    signs = "letters, digits, spaces and _.:/=+-@ only"
    for key, value in tags.items():
        if not re.fullmatch(_TAG_KEY, key):
            read.wrong("tags", key, f"the name of a tag may have {signs}, 128 at most")
        if not re.fullmatch(_TAG_VALUE, value) and read.are_right(f"tags.{key}"):
            read.wrong(f"tags.{key}", value, f"a tag may have {signs}, 256 at most")
    for key, other in itertools.combinations(tags, 2):
        if key.lower() == other.lower():
            read.wrong("tags", key, f"IAM takes it for the same tag as {other}; remove one")
    if len(tags) > MAX_TAGS:
        remedy = f"{MAX_TAGS} at most: S3 allows 10 on an object, and the program sets 3; remove {len(tags) - MAX_TAGS}"
        read.wrong("tags", f"{len(tags)} tags", remedy)
    return tags


def _roles(read: Reader) -> Roles:
    what = "/, or names of letters, digits and +=,.@_- between slashes, as in /ml/"
    path = read.text("rolePath", _ROLE_PATH, what, longest=512)
    if path.startswith(existing.AWS_PATHS):
        read.wrong("rolePath", path, "belongs to AWS's own roles; choose another path")
    boundary = read.text("permissionsBoundary", f"({_POLICY_ARN})?", "the ARN of an IAM policy")
    return Roles(path or "/", boundary, existing.roles(read))


def _check_members(read: Reader, found: Settings) -> None:
    # Two members on one node are lost together, and with them the majority.
    members, nodes_ = found.training.etcd_members, found.system.desired
    if members > nodes_ and read.are_right("systemNodes"):
        remedy = (
            f"each member needs a system node of its own, and systemNodes is {nodes_}; set systemNodes to {members}, "
            "or etcdMembers to 1"
        )
        read.wrong("etcdMembers", members, remedy)


def _check_replicas(read: Reader, found: Settings) -> None:
    each, own = found.workers.per_replica, found.training.script or found.training.code
    if each > 1 and not own and read.are_right("workersPerReplica", code.KEY, code.SCRIPT):
        remedy = (
            f"the stack's own script divides no model; set {code.SCRIPT} to one that calls fully_shard, or remove it"
        )
        read.wrong("workersPerReplica", each, remedy)


def _teams(
    read: Reader, training: Training, cluster: Cluster, workers: Workers, *, pools: bool
) -> tuple[teams.Team, ...]:
    limits = teams.Limits(training.namespace, cluster.admin_arns, workers.minimum, workers.maximum, pools)
    return teams.teams(read, limits)


def _check_file_access(read: Reader, found: Settings) -> None:
    if found.teams and found.file_system:
        remedy = (
            "with teams the stack needs a file system of its own: it doesn't change the policy of others', which keeps "
            "pods from mounting the folder of another team; remove it, or teams"
        )
        read.wrong("fileSystemId", found.file_system, remedy)
    elif found.teams and not found.file_iam and read.are_right("fileAccess"):
        remedy = "with teams it must be iam, or pods could mount the folder of another team without credentials"
        read.wrong("fileAccess", "vpc", remedy)


def _check_lustre(read: Reader, found: Settings) -> None:
    if found.teams and found.lustre:
        remedy = "can't be divided, so with teams the pods of each would see the files of all; remove it, or teams"
        read.wrong("lustre", found.lustre.id, remedy)
    for key, folder in (("dataset", found.training.dataset.path), ("checkpoints", found.training.checkpoints.folder)):
        if folder and found.lustre is None and read.are_right("lustre", "lustre.fileSystemId", "lustre.mountName"):
            read.wrong(key, folder, "is on a file system of FSx for Lustre, and none is named; set lustre too")


def _check_proxy(read: Reader, found: Settings) -> None:
    proxy = found.training.proxy
    if proxy and found.network.existing is None and read.are_right("httpProxy", "vpcId"):
        read.wrong("httpProxy", proxy.url, "needs vpcId and privateSubnetIds, the network that reaches the proxy")
    if proxy and found.node_image <= versions.NO_ENVIRONMENT and read.are_right("nodeImageVersion"):
        remedy = f"nodes set no variables for httpProxy up to {versions.NO_ENVIRONMENT}; choose a newer release"
        read.wrong("nodeImageVersion", found.node_image, remedy)


def _cluster(read: Reader) -> Cluster:
    cidrs = read.cidrs("publicAccessCidrs")
    if "0.0.0.0/0" in cidrs and not read.boolean("publicAccessFromAnywhere"):
        read.wrong(
            "publicAccessCidrs",
            "0.0.0.0/0",
            "opens the Kubernetes API to everyone; name your own addresses, or set publicAccessFromAnywhere to true",
        )
    for cidr in (each for each in cidrs if each != "0.0.0.0/0"):
        if kind := _special(ipaddress.IPv4Network(cidr)):
            remedy = "set your network's own on the internet: `curl -s https://checkip.amazonaws.com` prints it"
            read.wrong("publicAccessCidrs", cidr, f"has {kind} addresses; {remedy}")
    read.boolean("publicAccessFromAnywhere")
    version = read.choice("kubernetesVersion", tuple(versions.KUBERNETES))
    return Cluster(
        version=version,
        addons=versions.KUBERNETES[version].addons if version in versions.KUBERNETES else {},
        public_access_cidrs=cidrs,
        admin_arns=read.texts("adminArns", teams.PRINCIPAL_ARN, teams.PRINCIPAL),
        log_retention_days=read.choice_of_integers("logRetentionDays", hardware.LOG_RETENTION_DAYS),
        existing=existing.cluster(read),
    )


def _key_of_region(read: Reader, name: str, who_needs: str) -> str:
    key, region = read.text(name, f"({_KEY_ARN})?", _KEY), read.config.get("region")
    if key and key.split(":")[3] != region:
        read.wrong(name, key, f"is in another region than the stack; {who_needs} one in {region}")
    return key


def _file_throughput(read: Reader) -> FileThroughput:
    allowed = hardware.FILE_THROUGHPUT
    what = f"elastic, bursting or a number of MiB/s from {allowed.start} to {allowed.stop - 1}"
    value = read.text("fileThroughput", r"elastic|bursting|\d{1,4}", what)
    if not value.isdecimal():
        return FileThroughput(value or "elastic")
    if int(value) not in allowed:
        read.wrong("fileThroughput", value, f"must be {what}")
    return FileThroughput("provisioned", int(value))


def _special(cidr: ipaddress.IPv4Network) -> str | None:
    """Return what kind of addresses a range has that are not of the internet, if it has some."""
    for kind, ranges in _SPECIAL_RANGES.items():
        if any(cidr.overlaps(ipaddress.IPv4Network(each)) for each in ranges):
            return kind
    return None


def _training(read: Reader) -> Training:
    name = "lower-case letters, digits and hyphens, beginning with a letter"
    namespace = read.text("namespace", _DNS_LABEL, name, longest=63)
    if belongs_to := teams.owner(namespace):
        read.wrong("namespace", namespace, f"belongs to {belongs_to}; choose another name")
    if namespace == "system" or namespace.startswith("system-"):
        read.wrong("namespace", namespace, "names of priority classes can't begin with it; choose another name")
    job = read.text("jobName", _DNS_LABEL, name, longest=MAX_JOB_NAME_LENGTH)
    if job in TAKEN_JOB_NAMES:
        read.wrong("jobName", job, "the stack's etcd has a service of this name; choose another name")
    dataset = _dataset(read)
    script, folder, packages, image = code.script(read), code.folder(read), code.packages(read), read.image("image")
    code.check_imports(read, script, folder, packages, image)
    return Training(
        namespace=namespace,
        job=job,
        etcd_members=read.choice_of_integers("etcdMembers", (1, 3)),
        dataset=dataset,
        dataset_minutes=read.integer("datasetMinutes", 5, 1440),
        script=script,
        code=folder,
        packages=packages,
        trainer_args=_trainer_args(read),
        secret_args="trainerArgs" in read.secrets,
        policy_arns=read.texts("trainerPolicyArns", _POLICY_ARN, "the ARN of an IAM policy"),
        checkpoints=Checkpoints.of(
            read.text("checkpoints", f"efs|s3|both|{_ON_LUSTRE}", f"efs or s3 or both, or a folder on Lustre: {_FORM}"),
            keep=read.integer("keepCheckpoints", 1, 1000),
        ),
        log_days=read.integer("jobLogDays", 0, 3650),
        images=images.images(read),
        pull_secret=images.pull_secret(read),
        proxy=networks.proxy(read),
    )


def _dataset(read: Reader) -> Dataset:
    what = (
        "digits, or the s3:// or https:// address of a .zip or .tar.gz, or of a folder in S3 that ends with /, or a "
        f"folder on Lustre: {_FORM}"
    )
    text = read.text("dataset", rf"digits|{_ARCHIVE}|{_FOLDER}|{_ON_LUSTRE}", what)
    storage = read.choice("datasetStorage", ("efs", "s3"))
    found = Dataset.of(text)
    if found.mounted and storage == "efs":
        read.wrong(
            "dataset", text, "is a folder, which is read where it is; set datasetStorage to s3, or name an archive"
        )
    if text and not found.mounted and storage == "s3":
        read.wrong(
            "datasetStorage", storage, "needs a folder in S3 as dataset, such as s3://BUCKET/images/; set it to efs"
        )
    key = read.text("datasetKeyArn", f"({_KEY_ARN})?", _KEY)
    if key and text and not text.startswith("s3://"):
        read.wrong("datasetKeyArn", key, "is for a dataset in S3; remove it, or set dataset to an s3:// address")
    return replace(found, key_arn=key)


def _monitoring(read: Reader) -> Monitoring | None:
    who = read.choice("monitoring", ("none", "prometheus", "managed"))
    found = Monitoring(
        managed=who == "managed", image=read.image("prometheusImage"), gpu_exporter=read.image("gpuExporterImage")
    )
    return None if who == "none" else found


def _trainer_args(read: Reader) -> tuple[str, ...]:
    text = read.text("trainerArgs", r"[^\n]*", "arguments on one line")
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        read.wrong("trainerArgs", text, f"can't be split as a shell would: {error}")
        return ()
