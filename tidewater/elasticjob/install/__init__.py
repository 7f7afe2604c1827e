"""What a cluster needs to run ElasticJobs, as pure functions: the definition, the controller, and its rights.

    wanted = Installation(Program.read(ROOT))
    install.manifests(wanted)              # in the order in which they must be applied

`tidewater install` prints them, and `workloads` makes Pulumi resources of them. The controller runs twice: one of the
two leads, and the other takes over. Its packages come from the image, or an init container installs them.

program   the controller's sources as a zip, which a ConfigMap holds
zip_main  what runs first in that zip
access    what the controller may do
pods      the Deployment of the controller and its disruption budget
"""

from __future__ import annotations

from tidewater.contract import labels
from tidewater.contract.pod_defaults import RESTRICTED_NAMESPACE
from tidewater.elasticjob import crd
from tidewater.elasticjob.install import access, pods
from tidewater.elasticjob.install.pods import Installation, Manifest, deployment
from tidewater.elasticjob.install.program import Program

__all__ = ["Installation", "Manifest", "Program", "definition", "deployment", "manifests", "namespace", "surroundings"]


def manifests(wanted: Installation) -> list[Manifest]:
    """Return all objects in the order in which they must be applied."""
    return [definition(), namespace(wanted), *surroundings(wanted), deployment(wanted)]


def definition() -> Manifest:
    """Return the CustomResourceDefinition of ElasticJob."""
    found: Manifest = crd.definition()
    return found


def namespace(wanted: Installation) -> Manifest:
    """Return the controller's namespace, which accepts only pods without privileges."""
    own = {labels.NAME: labels.APPLICATION, **RESTRICTED_NAMESPACE}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": wanted.namespace, "labels": own},
    }


def surroundings(wanted: Installation) -> list[Manifest]:
    """Return what the Deployment needs, in its namespace and around it."""
    return [*access.manifests(wanted), pods.program_map(wanted), pods.disruption_budget(wanted)]
