"""What is wrong with an application, before anything is asked or made. Pure.

check(app)      # raises Refused, with the role and the remedy
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict

from torchx.specs import MISSING, NONE, AppDef, BindMount, DeviceMount, Resource, RetryPolicy, Role, VolumeMount

from tidewater.elasticjob.model import MOST_REPLICAS
from tidewater_torchx.errors import Refused

_UNSET = ("", MISSING, NONE)
_ENV_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")


def check(app: AppDef) -> None:
    """Check what no option and no cluster changes.

    Raises:
        Refused: a role can't run as it is.
    """
    if not app.roles:
        raise Refused(f"application {app.name!r} has no roles; it needs at least one")
    for name in (app.name, *(role.name for role in app.roles)):
        if not isinstance(name, str):
            raise Refused(f"{name!r} can't be the name of an application or a role; it must be a text")
    for role in app.roles:
        _check_program(role)
        _check_environment(role)
        _check_numbers(role)
        _check_resource(role)
        _check_mounts(role)


def _check_program(role: Role) -> None:
    if not isinstance(role.image, str) or role.image.strip() in _UNSET:
        raise Refused(f"role {role.name}: its image is missing; name one, with --image for the components of TorchX")
    if any(each.isspace() for each in role.image):
        raise Refused(
            f"role {role.name}: image {role.image!r} can't have blanks; it is a name as example.com/team/image:1"
        )
    if not isinstance(role.entrypoint, str) or role.entrypoint in _UNSET:
        raise Refused(f"role {role.name}: its entrypoint is missing; it is the program that its replicas run")
    if wrong := [each for each in role.args if not isinstance(each, str)]:
        raise Refused(f"role {role.name}: argument {wrong[0]!r} must be a text")


def _check_environment(role: Role) -> None:
    for name, value in role.env.items():
        if not isinstance(name, str) or not _ENV_NAME.fullmatch(name):
            raise Refused(f"role {role.name}: {name!r} can't be the name of an environment variable")
        if not isinstance(value, str):
            raise Refused(f"role {role.name}: the value of variable {name} is {value!r}, and must be a text")


def _check_numbers(role: Role) -> None:
    for key in ("num_replicas", "min_replicas", "max_retries"):
        value = getattr(role, key)
        if type(value) is not int and not (value is None and key == "min_replicas"):
            raise Refused(f"role {role.name}: {key}={value!r} must be a whole number")
    most, fewest = role.num_replicas, role.min_replicas
    if not 1 <= most <= MOST_REPLICAS:
        raise Refused(f"role {role.name}: num_replicas={most} must be between 1 and {MOST_REPLICAS}")
    if fewest is not None and fewest < 1:
        raise Refused(f"role {role.name}: min_replicas={fewest} must be at least 1")
    if fewest is not None and fewest > most:
        raise Refused(
            f"role {role.name}: min_replicas={fewest} must not be above num_replicas={most};"
            " for dist.ddp it is -j MIN:MAXxPROCESSES"
        )
    if role.max_retries < 0:
        raise Refused(f"role {role.name}: max_retries={role.max_retries} must not be negative")
    if not isinstance(role.retry_policy, RetryPolicy):
        known = ", ".join(each.value for each in RetryPolicy)
        raise Refused(f"role {role.name}: retry_policy={role.retry_policy!r} must be one of {known}")


def _check_resource(role: Role) -> None:
    resource = role.resource
    if not isinstance(resource, Resource):
        raise Refused(f"role {role.name}: resource={resource!r} must be a Resource")
    where = f"role {role.name}: resource:"
    for key in ("devices", "capabilities"):
        if not isinstance(value := getattr(resource, key), Mapping):
            raise Refused(f"{where} {key}={value!r} must be a mapping")
    for key in ("cpu", "memMB"):
        value = getattr(resource, key)
        if type(value) not in (int, float) or not math.isfinite(value):
            raise Refused(f"{where} {key}={value!r} must be a number")
    if type(resource.gpu) is not int:
        raise Refused(f"{where} gpu={resource.gpu!r} must be a whole number")
    for name, count in resource.devices.items():
        if type(count) is not int or count < 0:
            raise Refused(f"{where} devices: {name}={count!r} must be a whole number of 0 or more")


def _check_mounts(role: Role) -> None:
    for mount in role.mounts:
        if not isinstance(mount, BindMount | VolumeMount | DeviceMount):
            continue  # refused with the kinds that there are, where the pod is described
        for key, value in asdict(mount).items():
            if key != "read_only" and (not isinstance(value, str) or not value):
                raise Refused(f"role {role.name}: {type(mount).__name__}: {key}={value!r} must be a text, not empty")
