"""The run options of the scheduler: `torchx run --scheduler_args queue=team,etcd=etcd:2379`.

    run_opts()                                  # what `torchx runopts tidewater` prints
    Options.of({"queue": "team", ...})          # typed, after TorchX has filled in the defaults

TorchX ignores an option that it doesn't know, takes `yes` for false on the command line, and a number that is none ends
it without the option's name. `Strict` reports all three, also in a `.torchxconfig`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from configparser import ConfigParser
from dataclasses import dataclass, fields

from torchx.specs import CfgVal, runopts
from torchx.specs.api import InvalidRunConfigException
from torchx.util.types import to_dict

from tidewater.elasticjob import names
from tidewater_torchx.errors import Refused

RESERVED_MILLICPU = 100
RESERVED_MEMMB = 1024
"""What TorchX takes off a role's resources, since it assumes that a replica takes a whole node. Kubernetes keeps a
part of each node for itself."""

_ADDRESS = re.compile(r"[A-Za-z0-9.:,/_\[\]-]+")
_REPOSITORY = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._:/-]*")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_NONE = "None"
"""What `torchx configure` writes for an option that isn't set."""

_LABEL = re.compile(names.DNS_LABEL)
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of one submission, each of its type. None: not given.

    Attributes:
        namespace: where the application runs; the kubeconfig's own if it isn't given.
        queue: ElasticJobs of a queue start whole, one after the other.
        service_account: of the pods; the stack's if it isn't given and there is a stack in the namespace.
        priority_class: of the pods.
        validate_spec: whether the API server is asked, by a dry run, what it thinks of the job and of its pods.
        reserved_millicpu: thousandths of a CPU that a pod requests less than its limit.
        reserved_memmb: megabytes of memory that a pod requests less than its limit.
        efa_device_count: Elastic Fabric Adapters of each replica, instead of what the resource says; 0: none.
        etcd: `host:port` of the etcd in which workers of an elastic torchrun meet; the stack's if it isn't given.
        bucket: where a workspace is stored; the stack's if it isn't given.
        image_repo: where an image with the workspace is pushed.
        quiet: whether the build of an image prints nothing.
    """

    namespace: str | None = None
    queue: str | None = None
    service_account: str | None = None
    priority_class: str | None = None
    validate_spec: bool = True
    reserved_millicpu: int = RESERVED_MILLICPU
    reserved_memmb: int = RESERVED_MEMMB
    efa_device_count: int | None = None
    etcd: str | None = None
    bucket: str | None = None
    image_repo: str | None = None
    quiet: bool = False

    @classmethod
    def of(cls, cfg: Mapping[str, CfgVal]) -> Options:
        """Return the options of a configuration that `Strict.resolve` has checked.

        Raises:
            Refused: a value is of the right type and still impossible.
        """
        given = {field.name: cfg[field.name] for field in fields(cls) if cfg.get(field.name) is not None}
        options = cls(**given)  # `Strict` has checked the types
        for key, pattern, rule in _PATTERNS:
            value = given.get(key)
            if isinstance(value, str) and not pattern.fullmatch(value):
                raise Refused(f"option {key}={value}: {rule}")
        for key in ("reserved_millicpu", "reserved_memmb", "efa_device_count"):
            if isinstance(value := given.get(key), int) and value < 0:
                raise Refused(f"option {key}={value}: must not be negative")
        return options


_NAME_RULE = "must consist of small letters, digits and dashes, 63 characters at most"
_PATTERNS = (
    ("namespace", _LABEL, _NAME_RULE),
    ("queue", _LABEL, _NAME_RULE),
    ("service_account", _SUBDOMAIN, "must be the name of a ServiceAccount"),
    ("priority_class", _SUBDOMAIN, "must be the name of a PriorityClass"),
    ("etcd", _ADDRESS, "must be an address as etcd:2379, or several with commas between them"),
    ("bucket", _BUCKET, "must be the name of an S3 bucket, without s3://"),
    ("image_repo", _REPOSITORY, "must be a repository as example.com/team/image, without a tag"),
)


class Strict(runopts):
    """TorchX's run options, which also report what TorchX passes over."""

    def resolve(self, cfg: Mapping[str, CfgVal]) -> dict[str, CfgVal]:
        """Return the options with their defaults.

        Raises:
            InvalidRunConfigException: there is no such option, or its value is of another type.
        """
        for key, value in cfg.items():
            self._known(key, cfg)
            # A truth value is a number for Python, but not for the user who wrote reserved_memmb=true.
            option = self.get(key)
            if isinstance(value, bool) and option is not None and option.opt_type is not bool:
                wanted = option.opt_type.__name__
                raise InvalidRunConfigException(
                    f"Run option: {key}, must be of type: {wanted}, but was: bool", key, cfg
                )
        resolved: dict[str, CfgVal] = super().resolve(cfg)
        return resolved

    def cfg_from_str(self, cfg_str: str) -> dict[str, CfgVal]:
        """Return the options of a command line, each of its type.

        Raises:
            InvalidRunConfigException: there is no such option, or its value can't be read.
        """
        try:
            given: dict[str, str] = to_dict(cfg_str) if cfg_str else {}
        except ValueError as error:
            raise InvalidRunConfigException(f"Run options {cfg_str}: {error}", cfg_str, {}) from None
        for key in given:
            self._check_text(key, given, ("true", "false"))
        found: dict[str, CfgVal] = super().cfg_from_str(cfg_str) if cfg_str else {}
        return found

    def check_section(self, section: Mapping[str, str], file: str) -> None:
        """Check the options of a `.torchxconfig`, which TorchX reads before anything else sees them.

        Raises:
            InvalidRunConfigException: there is no such option, or its value can't be read.
        """
        for key, text in section.items():
            if text == _NONE:
                self._known(key, section, f"{file}: ")
            else:
                self._check_text(key, section, ConfigParser.BOOLEAN_STATES, f"{file}: ")

    def _check_text(self, key: str, given: Mapping[str, str], truths: Collection[str], where: str = "") -> None:
        self._known(key, given, where)
        option, text = self.get(key), given[key]
        if option is not None and not _readable(text, option.opt_type, truths):
            wanted = "true or false" if option.opt_type is bool else f"of type {option.opt_type.__name__}"
            raise InvalidRunConfigException(f"{where}Run option: {key}, must be {wanted}, but was: {text}", key, given)

    def _known(self, key: str, cfg: Mapping[str, CfgVal], where: str = "") -> None:
        if self.get(key) is None:
            known = ", ".join(sorted(name for name, _ in self))
            raise InvalidRunConfigException(f"{where}Unknown run option: {key}; there are {known}", key, cfg)


def run_opts() -> Strict:
    """Return the options, as TorchX prints and checks them."""
    opts = Strict()
    for name, type_, help_, default in _TABLE:
        opts.add(name, type_=type_, help=help_, default=default)
    return opts


def _readable(text: str, type_: type, truths: Collection[str]) -> bool:
    if type_ is bool:
        return text.lower() in truths
    if type_ is int:
        return re.fullmatch(r"[+-]?\d+", text) is not None
    return True


_TABLE: tuple[tuple[str, type, str, CfgVal], ...] = (
    ("namespace", str, "Kubernetes namespace; by default that of the kubeconfig's context", None),
    ("queue", str, "queue in which the job waits until all of it can start; several roles always start together", None),
    ("service_account", str, "service account of the pods; by default that of the stack in the namespace", None),
    ("priority_class", str, "PriorityClass of the pods", None),
    ("validate_spec", bool, "ask the API server by a dry run before anything is made", True),
    ("reserved_millicpu", int, "thousandths of a CPU that pods request less than their limit", RESERVED_MILLICPU),
    ("reserved_memmb", int, "MB of memory that pods request less than their limit", RESERVED_MEMMB),
    ("efa_device_count", int, "EFA devices of each replica: unset = as the resource says, 0 = none", None),
    ("etcd", str, "host:port of the etcd for elastic dist.ddp; by default that of the stack in the namespace", None),
    ("bucket", str, "S3 bucket for the workspace; by default that of the stack in the namespace", None),
    ("image_repo", str, "repository to push an image with the workspace to, which needs Docker", None),
    ("quiet", bool, "print nothing while an image is built", False),
)
