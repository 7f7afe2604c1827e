"""What only AWS knows is checked before anything is made: zones, instance types, offerings and quotas.

    stack = preflight.check(wanted, account)      # in previews too; the first thing that the program does

All mistakes are reported at once, in the form of those that `settings` finds. The settings that come back have the
sizes of their instance types. There is no table of them here, so a type works on the day on which it comes out.

place     refuses another region, network, name or namespace for a stack that exists
region    what AWS says of the region and of the account, as plain data
lookup    asks for it: a few calls at the same time, by the provider's data sources
fit       whether zones and instance types fit the settings; pure
quotas    which quota counts which instance type, and whether it is enough; pure
"""

from __future__ import annotations

import pulumi

import settings
from infra.account import Account
from infra.preflight import fit, quotas
from infra.preflight.lookup import look_up


def check(wanted: settings.Settings, account: Account) -> settings.Settings:
    """Return the settings with what AWS says of their instance types.

    Raises:
        settings.ConfigurationError: with everything that the region or the account doesn't have.
    """
    region = look_up(wanted, account)
    mistakes = fit.mistakes(wanted, region)
    needs = quotas.needs(wanted, region)
    for warning in quotas.warnings(wanted, region, needs):
        pulumi.log.warn(warning)
    mistakes += quotas.mistakes(wanted, region, needs)
    if mistakes:
        raise settings.ConfigurationError(mistakes)
    return wanted.with_hardware(region.types)


__all__ = ["check"]
