"""What only AWS knows is checked before anything is made: zones, instance types, offerings and quotas.

    stack = preflight.check(wanted, account, login.run)      # in previews too; the first thing that the program does

All mistakes are reported at once, in the form of those that `settings` finds. The settings that come back have the
sizes of their instance types. There is no table of them here, so a type works on the day on which it comes out.

place     refuses another region, network, name or namespace for a stack that exists
region    what AWS says of the region and of the account, as plain data
lookup    asks for it: a few calls at the same time, by the provider's data sources
asking    what takes the plug-in's error about a thing that doesn't exist for an answer
fit       whether zones and instance types fit the settings; pure
cluster   whether an existing cluster is as the stack needs it, and the names on any are free; pure, but for what asks
vpc       whether an existing VPC, and file systems in it, are as the stack needs them; pure, but for what asks
counts    whether the quotas of VPCs, addresses and NAT gateways leave enough for the stack; pure
keys      whether the KMS keys of the nodes' disks and of the data can be used; pure
dataset   whether there is something at the dataset's address; pure, but for a request to a web server
login     whether the `aws` of the kubeconfig is in the provider's account; pure, but for one run of it
roles     whether the roles' path stays, their boundary allows what they do, and given ones fit; pure, but for what asks
people    whether the one who deploys is in no team, and people can get their access entries; pure
support   whether EKS supports the Kubernetes version, and for how long; pure
quotas    which quota counts which instance type, and whether it is enough; pure
"""

from __future__ import annotations

from datetime import UTC, datetime

import pulumi

import settings
from infra.account import Account
from infra.preflight import cluster, counts, dataset, fit, keys, login, people, quotas, support, vpc
from infra.preflight.cluster import taken
from infra.preflight.lookup import look_up
from infra.preflight.roles import boundary, given, path
from infra.preflight.vpc import files, lustre
from settings import versions


def check(
    wanted: settings.Settings, account: Account, run: login.Run, look: cluster.Look = cluster.look
) -> settings.Settings:
    """Return the settings with what AWS says of their instance types, and of what was there before.

    Args:
        run: runs the `aws` of this machine.
        look: asks the API server of the cluster.

    Raises:
        settings.ConfigurationError: with everything that the region or the account doesn't have.
    """
    region = look_up(wanted, account, run, look)
    wanted = taken.known(cluster.known(vpc.known(wanted, region.vpc), region.cluster), region.inside)
    needs = quotas.needs(wanted, region)
    mistakes = vpc.mistakes(wanted, region.vpc, region.zones) + cluster.mistakes(wanted, region.cluster, region.vpc)
    mistakes += files.mistakes(wanted, region.files) + lustre.mistakes(wanted, region.lustre)
    mistakes += fit.mistakes(wanted, region)
    mistakes += quotas.mistakes(wanted, region, needs) + login.mistakes(wanted, region.login)
    mistakes += taken.mistakes(wanted, region.inside, new=bool(region.cluster and region.cluster.role is None))
    mistakes += path.mistakes(wanted, region.role) + people.mistakes(wanted, region)
    mistakes += given.mistakes(wanted, region.roles, region.login.caller, region.inside)
    warnings = quotas.warnings(wanted, region, needs)
    for each in (counts, keys):
        mistakes += each.mistakes(wanted, region)
        warnings += each.warnings(wanted, region)
    # A stack that exists may have its data already, may never grow to maxWorkers, and its roles do their work.
    later = dataset.mistakes(wanted, region.dataset) + fit.addresses(wanted, region)
    later += boundary.mistakes(wanted, region.boundary)
    later += [] if region.exists or region.cluster else vpc.crowded(region.vpc)
    (warnings if region.exists else mistakes).extend(later)
    warnings += vpc.warnings(wanted, region.vpc) + cluster.warnings(wanted, region.cluster)
    warnings += boundary.warnings(wanted, region.boundary) + files.warnings(wanted, region.files)
    warnings += lustre.warnings(wanted, region.lustre)
    warnings += given.warnings(region.roles)
    warnings += dataset.warnings(wanted, region.dataset) + taken.warnings(wanted, region.inside)
    if region.support and not region.cluster:  # an existing one may have extended support
        version, newest = wanted.cluster.version, max(versions.KUBERNETES)
        mistakes += support.mistakes(version, region.support, newest)
        warnings += support.warnings(version, region.support, newest, datetime.now(UTC).date())
    for warning in warnings:
        pulumi.log.warn(warning)
    if mistakes:
        raise settings.ConfigurationError(mistakes)
    return wanted.with_hardware(region.types)


__all__ = ["check"]
