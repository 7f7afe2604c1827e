"""Prometheus and what it reads, as Pulumi resources."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

import settings
from workloads import objects
from workloads.manifests import Manifest
from workloads.monitoring import gpus, server
from workloads.monitoring.scrape import Parts


def parts(stack: settings.Settings) -> Parts:
    """Return what there is to measure in a stack."""
    return Parts(gpus=stack.workers.gpus > 0, karpenter=stack.surge is not None)


@dataclass(frozen=True)
class MonitoringArgs:
    """The stack, and who reads its metrics."""

    stack: settings.Settings
    wanted: settings.Monitoring


class Monitoring(pulumi.ComponentResource):
    """What reads the metrics on the cluster, what measures GPUs, and the dashboard.

    Nothing depends on it: training goes on without. With GPUs it needs the namespace of the GPUs' device plug-in.
    """

    def __init__(self, name: str, args: MonitoringArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tidewater:workloads:Monitoring", name, None, opts)
        self._stack, self._wanted = args.stack, args.wanted
        space = self._register(server.namespace_manifest())
        self._register(server.dashboard_manifest(parts(args.stack)), space)
        if args.stack.workers.gpus:
            self._register(gpus.exporter_manifest(args.wanted.gpu_exporter))
        if args.wanted.managed:
            source = server.addresses_source(args.stack.network.cidr)
        else:
            source = server.pods_source()
            self._server(space)
        self._register(server.etcd_policy_manifest(args.stack.training.namespace, source))
        self.register_outputs({})

    def _server(self, space: pulumi.Resource) -> None:
        content = server.configuration_manifest(server.files(parts(self._stack)))
        before = [self._register(each, space) for each in [*server.access_manifests(), content]]
        deployment = server.deployment_manifest(self._wanted.image, content["metadata"]["name"])
        pods = self._register(deployment, *before)
        # Pulumi waits until a Service has a ready pod.
        self._register(server.service_manifest(), pods)

    def _register(self, manifest: Manifest, *after: pulumi.Resource) -> pulumi.Resource:
        return objects.register(manifest, opts=pulumi.ResourceOptions(parent=self, depends_on=list(after)))
