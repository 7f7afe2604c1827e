"""All checks of `tidewater doctor`, in the order in which they are shown."""

from __future__ import annotations

from tidewater.cli.doctor import account, cluster, jobs, machine, operator
from tidewater.cli.doctor.results import Check

MACHINE, ACCOUNT, CLUSTER, ELASTICJOB = "This machine", "This AWS account", "This cluster", "ElasticJob"

CHECKS = (
    Check(MACHINE, "python", machine.python),
    Check(MACHINE, "pulumi", machine.pulumi, seconds=10),
    Check(MACHINE, "kubectl", machine.kubectl, seconds=10),
    Check(MACHINE, "aws", machine.aws, seconds=10),
    Check(MACHINE, "kubeconfig", machine.kubeconfig_names_a_cluster),
    Check(ACCOUNT, "credentials", account.credentials, seconds=15),
    Check(ACCOUNT, "region", account.region, seconds=10),
    Check(ACCOUNT, "GPU quotas", account.quotas, needs="credentials", seconds=15),
    Check(CLUSTER, "API server", cluster.api_server, needs="kubeconfig", seconds=15),
    Check(CLUSTER, "your rights", cluster.rights, needs="API server"),
    Check(CLUSTER, "nodes", cluster.nodes, needs="API server"),
    Check(CLUSTER, "GPUs", cluster.gpus, needs="API server"),
    Check(CLUSTER, "EFS driver", cluster.efs, needs="API server"),
    Check(ELASTICJOB, "CRD", operator.definition, needs="API server"),
    Check(ELASTICJOB, "controller", operator.controller, needs="API server"),
    Check(ELASTICJOB, "leader", operator.leader, needs="controller", seconds=20),
    Check(ELASTICJOB, "etcd", jobs.etcd, needs="CRD", seconds=10),
    Check(ELASTICJOB, "jobs", jobs.waiting, needs="CRD", seconds=10),
)
