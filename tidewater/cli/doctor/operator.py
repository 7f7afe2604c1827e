"""Checks of ElasticJob itself: the CRD, the controller, its leader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from tidewater.cli.doctor.place import Place
from tidewater.cli.doctor.results import Result, fine, fix, note
from tidewater.cli.show import plural
from tidewater.contract import labels
from tidewater.elasticjob import crd, names
from tidewater.elasticjob.install.pods import NAMESPACE
from tidewater.kube.cluster import ALL_NAMESPACES, Object, Selection
from tidewater.kube.errors import Forbidden, NotFound
from tidewater.kube.kinds import DEFINITIONS, DEPLOYMENTS, LEASES

CONTROLLER = {labels.NAME: labels.APPLICATION, labels.COMPONENT: labels.COMPONENT_CONTROLLER}
LEASE = names.FIELD_MANAGER

_INSTALL = "`tidewater install | kubectl apply -f -` installs it; with the stack, `pulumi up` does."
_LOOK_SECONDS = 1.0
_MOST_LOOKS = 12
"""A Lease is renewed every 2 s, and lasts 10 s."""


def definition(place: Place) -> Result:
    """Check that the API server knows ElasticJobs, and that it checks them by the current schema."""
    try:
        place.cluster.read(f"/apis/{names.API_VERSION}")
    except NotFound:
        return fix(f"the CRD {names.CRD_NAME} is not installed", _INSTALL)
    try:
        installed = place.cluster.get(DEFINITIONS, names.CRD_NAME)
    except Forbidden:
        return fine(f"{names.API_VERSION} is served; the user may not read the CRD, so its schema was not compared")
    where = difference(crd.definition()["spec"], installed["spec"])
    if where:
        return fix(
            f"the CRD {names.CRD_NAME} is another one than that of this version: it differs at {where}",
            f"Apply the current one; jobs are kept. {_INSTALL}",
        )
    return fine(f"{names.CRD_NAME}, {names.VERSION}")


def difference(ours: Any, theirs: Any, path: str = "spec") -> str:
    """Return where two parts of a CRD differ; empty if they agree.

    What the API server adds does not count, but for fields: a field that we don't have belongs to another version.
    """
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        if path.endswith(".properties") and (more := theirs.keys() - ours.keys()):
            return f"{path}.{min(more)}"
        pairs = ((f"{path}.{key}", value, theirs.get(key)) for key, value in ours.items())
    elif isinstance(ours, Sequence) and not isinstance(ours, str) and isinstance(theirs, Sequence):
        if len(ours) != len(theirs):
            return path
        pairs = ((f"{path}[{index}]", ours[index], theirs[index]) for index in range(len(ours)))
    else:
        return "" if ours == theirs else path
    return next((found for where, one, other in pairs if (found := difference(one, other, where))), "")


def controller(place: Place) -> Result:
    """Check that the controller runs."""
    found = deployments(place)
    if not found:
        return fix("the ElasticJob controller is not installed: jobs get no pods", _INSTALL)
    deployment = found[0]
    name, namespace = deployment["metadata"]["name"], deployment["metadata"]["namespace"]
    wanted = int(deployment["spec"].get("replicas", 1))
    ready = int((deployment.get("status") or {}).get("readyReplicas", 0))
    text = f"{ready} of {plural(wanted, 'replica')} of {namespace}/{name} ready"
    remedy = f"`kubectl describe pods -n {namespace} -l {labels.selector(CONTROLLER)}` says why."
    if ready == 0:
        return fix(text, remedy)
    return note(text, remedy) if ready < wanted else fine(text)


def deployments(place: Place) -> Sequence[Object]:
    """Return the controller's Deployments; empty only if there is none in any namespace.

    Raises:
        Forbidden: the rights do not go as far as all namespaces, and there is none where the user may look.
    """
    chosen = labels.selector(CONTROLLER)
    try:
        return place.cluster.list(DEPLOYMENTS, Selection(ALL_NAMESPACES, labels=chosen)).items
    except Forbidden as error:
        refused = error
    for namespace in (place.cluster.namespace, NAMESPACE):
        with suppress(Forbidden):
            if found := place.cluster.list(DEPLOYMENTS, Selection(namespace, labels=chosen)).items:
                return found
    raise refused


def leader(place: Place) -> Result:
    """Check that a replica of the controller acts: that the Lease is being renewed.

    The times in a Lease are those of its holder's clock. So two readings are compared, not a reading with our clock.
    """
    namespace = deployments(place)[0]["metadata"]["namespace"]
    first = _lease(place, namespace)
    for _ in range(_MOST_LOOKS):
        place.clock.sleep(_LOOK_SECONDS)
        now = _lease(place, namespace)
        holder = (now.get("spec") or {}).get("holderIdentity")
        if holder and now["metadata"]["resourceVersion"] != first.get("metadata", {}).get("resourceVersion"):
            return fine(f"{holder} leads")
    return fix(
        f"no replica of the controller leads: Lease {namespace}/{LEASE} is not renewed",
        f"`kubectl logs -n {namespace} -l {labels.selector(CONTROLLER)} --tail=20` says why.",
    )


def _lease(place: Place, namespace: str) -> Object:
    try:
        return place.cluster.get(LEASES, LEASE, namespace)
    except NotFound:
        return {}
