"""Amazon Managed Service for Prometheus: a workspace, its alert rules, and the collector of the cluster's metrics.

managed = ManagedPrometheus(name, ManagedPrometheusArgs(account, network, …), account.options(cluster))
managed.endpoint
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.account import Account
from infra.network import Network


@dataclass(frozen=True)
class ManagedPrometheusArgs:
    """Where the collector is, what it reads, and the alert rules.

    Attributes:
        cluster: the name of the cluster.
        configuration: as in prometheus.yml, without rules.
        rules: the content of a rule file.
    """

    account: Account
    cluster: str
    network: Network
    security_group_id: pulumi.Input[str]
    configuration: str
    rules: str


class ManagedPrometheus(pulumi.ComponentResource):
    """Workspace, rules and collector of the stack that the component is named after.

    The collector has network interfaces in the private subnets and in the cluster's security group, so that it reaches
    pods and API server. It needs subnets in two zones and the private endpoint, which every stack has (a cluster that
    was there before is asked for it). Amazon gives its
    service-linked role access to a cluster that uses access entries.
    https://docs.aws.amazon.com/prometheus/latest/userguide/AMP-collector-how-to.html

    The workspace has no key of its own: "workspaces created with customer managed keys cannot use AWS managed
    collectors" (there). Its metrics are encrypted with a key of AWS.
    """

    endpoint: pulumi.Output[str]

    def __init__(self, name: str, args: ManagedPrometheusArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:infra:ManagedPrometheus", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        account = args.account
        workspace = aws.amp.Workspace(name, alias=name, tags={"Name": name}, opts=child)
        aws.amp.RuleGroupNamespace(
            name, name="tidewater", workspace_id=workspace.id, data=args.rules, tags={"Name": name}, opts=child
        )
        cluster_arn = pulumi.Output.format(
            "arn:{0}:eks:{1}:{2}:cluster/{3}", account.partition, account.region, account.id, args.cluster
        )
        aws.amp.Scraper(
            name,
            alias=name,
            scrape_configuration=args.configuration,
            source=aws.amp.ScraperSourceArgs(
                eks=aws.amp.ScraperSourceEksArgs(
                    cluster_arn=cluster_arn,
                    subnet_ids=args.network.first_subnet_ids,
                    security_group_ids=[args.security_group_id],
                )
            ),
            destination=aws.amp.ScraperDestinationArgs(
                amp=aws.amp.ScraperDestinationAmpArgs(workspace_arn=workspace.arn)
            ),
            tags={"Name": name},
            opts=child,
        )
        self.endpoint = workspace.prometheus_endpoint
        self.register_outputs({"endpoint": self.endpoint})
