"""The provider's own configuration: its settings, and when a change of it means another cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from localcloud.standins.values import UNKNOWN
from tidewater.kube import kubeconfig
from tidewater.kube.errors import NoKubeconfig
from tidewater.kube.kubeconfig import Access, Connection

_NOT_COVERED: Final = ("renderYamlToDirectory", "alwaysRender", "helmReleaseSettings")
_KNOWN: Final = frozenset(
    "renderYamlToDirectory alwaysRender cluster clusterIdentifier context deleteUnreachable enableConfigMapMutable "
    "enablePatchForce enableSecretMutable enableServerSideApply helmReleaseSettings kubeClientSettings kubeconfig "
    "namespace pluginDownloadURL skipUpdateUnreachable strictMode suppressDeprecationWarnings suppressHelmHookWarnings "
    "upsertExistingObjects version".split()
)
_LONGEST_PATH: Final = 4096
_CLUSTER_KEYS: Final = ("kubeconfig", "context", "cluster")


@dataclass(frozen=True)
class Config:
    """The provider's settings. Each flag has an environment variable too; the provider's own value comes first."""

    kubeconfig: str = ""
    context: str | None = None
    cluster: str | None = None
    namespace: str | None = None
    delete_unreachable: bool = False
    skip_update_unreachable: bool = False
    patch_force: bool = False
    config_map_mutable: bool = False
    secret_mutable: bool = False
    upsert: bool = False

    @staticmethod
    def read(values: Mapping[str, Any], environment: Mapping[str, str]) -> Config:
        """Read the settings as the engine passes them; the SDK writes booleans as JSON text."""

        def flag(key: str, variable: str) -> bool:
            return _truth(values[key]) if values.get(key) not in (None, "") else environment.get(variable) == "true"

        def text(key: str) -> str | None:
            return str(values[key]) if values.get(key) else None

        kubeconfig = values.get("kubeconfig") or ""
        return Config(
            kubeconfig=kubeconfig if isinstance(kubeconfig, str) else json.dumps(kubeconfig),
            context=text("context"),
            cluster=text("cluster"),
            namespace=text("namespace"),
            delete_unreachable=flag("deleteUnreachable", "PULUMI_K8S_DELETE_UNREACHABLE"),
            skip_update_unreachable=flag("skipUpdateUnreachable", "PULUMI_K8S_SKIP_UPDATE_UNREACHABLE"),
            patch_force=flag("enablePatchForce", "PULUMI_K8S_ENABLE_PATCH_FORCE"),
            config_map_mutable=flag("enableConfigMapMutable", "PULUMI_K8S_ENABLE_CONFIGMAP_MUTABLE"),
            secret_mutable=flag("enableSecretMutable", "PULUMI_K8S_ENABLE_SECRET_MUTABLE"),
            upsert=flag("upsertExistingObjects", "PULUMI_K8S_UPSERT_EXISTING_OBJECTS"),
        )

    def connection(self, environment: Mapping[str, str]) -> Connection:
        """Return how to reach the configured cluster.

        Raises:
            NoKubeconfig: The kubeconfig doesn't say.
        """
        try:
            return kubeconfig.load(self.access, environment)
        except NoKubeconfig as error:
            given = "failed to parse kubeconfig data in `kubernetes:config:kubeconfig`"
            found = "unable to load Kubernetes client configuration from kubeconfig file"
            remedy = "Set the provider's `kubeconfig`, or KUBECONFIG"
            raise NoKubeconfig(f"{given if self.kubeconfig else found}: {error.message}", remedy) from error

    @property
    def access(self) -> Access:
        """Return where the kubeconfig is, and what of it is meant. The setting has its contents, or names a file."""
        text = self.kubeconfig
        is_path = "\n" not in text and len(text) < _LONGEST_PATH and not text.lstrip().startswith("{")
        named = is_path and Path(text).expanduser().is_file()
        place = {"kubeconfig": text} if named else {"text": text}
        return Access(**place, context=self.context or "", cluster=self.cluster or "")


def problems(values: Mapping[str, Any]) -> dict[str, str]:
    """Return what is wrong with a configuration, by property."""
    found = {key: f'unknown property "{key}" of the kubernetes provider' for key in sorted(values.keys() - _KNOWN)}
    covered = "is not covered by the local stand-in of the kubernetes provider"
    found |= {key: f'property "{key}" {covered}' for key in _NOT_COVERED if values.get(key) not in (None, "")}
    if "enableServerSideApply" in values and not _truth(values["enableServerSideApply"]):
        found["enableServerSideApply"] = f'client-side apply (property "enableServerSideApply" set to false) {covered}'
    return found


@dataclass(frozen=True)
class ConfigDiff:
    """The properties that changed, and those that replace the provider (and with it every resource)."""

    changed: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()


def diff(old: Mapping[str, Any], new: Mapping[str, Any]) -> ConfigDiff:
    """Compare two configurations.

    A `clusterIdentifier` decides where both have one: the same is no replacement, another is. Otherwise the provider is
    replaced when the active cluster's entry in the kubeconfig changes, or is not known yet.
    """
    changed = tuple(sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key)))
    if not changed:
        return ConfigDiff()
    identified = new.get("clusterIdentifier")
    if identified and identified == old.get("clusterIdentifier"):
        return ConfigDiff(changed)
    replaces = []
    if identified and old.get("clusterIdentifier"):
        replaces.append("clusterIdentifier")
    unknown = next((key for key in _CLUSTER_KEYS if new.get(key) is UNKNOWN), None)
    if unknown is not None:
        return ConfigDiff((unknown,), (*replaces, unknown))
    before, after = _active_cluster(old), _active_cluster(new)
    if before != after:
        replaces += [key for key in _CLUSTER_KEYS if key in changed]
    return ConfigDiff(changed, tuple(replaces))


def _active_cluster(values: Mapping[str, Any]) -> Mapping[str, Any]:
    settings = Config.read({key: values.get(key) for key in _CLUSTER_KEYS}, {})
    if not settings.kubeconfig:
        return {}
    return kubeconfig.active_cluster(settings.access, {})


def _truth(value: Any) -> bool:
    return value is True or value == "true"
