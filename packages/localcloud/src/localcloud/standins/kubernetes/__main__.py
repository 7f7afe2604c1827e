"""The entry point that the Pulumi engine starts. It also serves construct, for the one component that is covered."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from pulumi.runtime.proto import provider_pb2

from localcloud.standins.components import ComponentServicer, Constructed
from localcloud.standins.kubernetes.engine import EngineLog, Severity
from localcloud.standins.kubernetes.helm import chart
from localcloud.standins.kubernetes.helm.arguments import ChartArguments
from localcloud.standins.kubernetes.helm.command import Rendered, Target, render, run_helm
from localcloud.standins.kubernetes.metadata import Object
from localcloud.standins.kubernetes.provider import KubernetesProvider
from localcloud.standins.monitor import Monitor
from localcloud.standins.serve import PluginError, serve
from tidewater.kube.errors import ClusterError, MissingKind, NoAccess


@dataclass(frozen=True)
class ProviderHost:
    """What a provider's cluster means to a chart."""

    provider: KubernetesProvider

    def render(self, arguments: ChartArguments) -> Rendered:
        """Run helm for the provider's cluster, with the versions and APIs that the cluster serves now."""
        cluster = self.provider.cluster()
        target = Target(
            connection=cluster.connection,
            namespace=self.default_namespace(),
            version=str(cluster.version()["gitVersion"]),
            api_versions=tuple(cluster.api_versions()),
        )
        return render(arguments, target, run_helm)

    def default_namespace(self) -> str:
        """Return the provider's namespace, else the kubeconfig's."""
        return self.provider.config.namespace or self.provider.cluster().connection.namespace

    def namespaced(self, obj: Object, others: Sequence[Object]) -> bool:
        """Return whether an object lives in a namespace.

        Raises:
            PluginError: Its kind is defined neither in the chart nor in the cluster.
        """
        known = self.provider.scopes.namespaced(obj, others)
        if known is not None:
            return known
        api_version, kind = str(obj["apiVersion"]), str(obj["kind"])
        try:
            return self.provider.cluster().resource_type(api_version, kind).namespaced
        except MissingKind as error:
            message = f"failed to determine if the following GVK is namespaced: {api_version}, Kind={kind}"
            raise PluginError(message) from error

    def warn(self, urn: str, message: str) -> None:
        """Show a warning next to a resource."""
        self.provider.log.log(urn, Severity.WARNING, message)


class KubernetesServicer(ComponentServicer):
    """Serves the requests of the engine."""

    async def construct(self, monitor: Monitor, request: provider_pb2.ConstructRequest) -> Constructed:
        """Expand a chart."""
        assert isinstance(self._provider, KubernetesProvider)
        try:
            return await chart.construct(monitor, request, ProviderHost(self._provider))
        except NoAccess as error:
            raise PluginError(f"configured Kubernetes cluster is unreachable: {error}") from error
        except ClusterError as error:
            raise PluginError(str(error)) from error


if __name__ == "__main__":
    engine = next((argument for argument in sys.argv[1:] if not argument.startswith("-")), "")
    serve(KubernetesProvider(EngineLog(engine)), package="pulumi-kubernetes", servicer=KubernetesServicer)
