"""When Services, volumes, claims and CustomResourceDefinitions are ready."""

from __future__ import annotations

from localcloud.standins.kubernetes.awaiting.decision import (
    Decision,
    Failed,
    Object,
    Ready,
    Related,
    Waiting,
    condition,
    full_name,
    is_true,
    spec,
    status,
)

_NO_PODS = (
    "Service does not target any Pods. Selected Pods may not be ready, or field '.spec.selector' may not match labels "
    "on any Pods"
)
_NO_ADDRESS = "Service was not allocated an IP address; does your cloud provider support this?"


def decide_service(service: Object, related: Related) -> Decision:
    """Ready when it has an endpoint and, for a load balancer, an address.

    Headless and ExternalName services, and those without a selector, need no endpoints.
    """
    wanted, name = spec(service), service.get("metadata", {}).get("name")
    exempt = wanted.get("clusterIP") == "None" or wanted.get("type") == "ExternalName" or not wanted.get("selector")
    targeted = exempt or any(
        endpoint.get("conditions", {}).get("ready") is not False
        for each in related["EndpointSlice"]
        if (each["metadata"].get("labels") or {}).get("kubernetes.io/service-name") == name
        for endpoint in each.get("endpoints") or ()
    )
    addressed = wanted.get("type") != "LoadBalancer" or bool(status(service).get("loadBalancer", {}).get("ingress"))
    problems = (() if targeted else (_NO_PODS,)) + (() if addressed else (_NO_ADDRESS,))
    if not problems:
        return Ready()
    if targeted:
        return Waiting("[2/3] Attempting to allocate IP address to Service", problems)
    return Waiting("[1/3] Finding Pods to direct traffic to", problems)


def decide_volume(volume: Object, related: Related) -> Decision:
    """A PersistentVolume is ready when it is available or bound."""
    phase = status(volume).get("phase")
    if phase in ("Available", "Bound"):
        return Ready()
    if phase == "Failed":
        return Failed((f'PersistentVolume "{full_name(volume)}" failed: {status(volume).get("message", "")}',))
    return Waiting(f'PersistentVolume "{full_name(volume)}" is {phase or "new"}')


def decide_claim(claim: Object, related: Related) -> Decision:
    """A claim is ready when bound; with a class that waits for the first consumer, as soon as it is pending."""
    phase, wanted = status(claim).get("phase"), spec(claim).get("storageClassName")
    late = any(
        each.get("volumeBindingMode") == "WaitForFirstConsumer"
        for each in related["StorageClass"]
        if each["metadata"]["name"] == wanted
    )
    if phase == "Bound" or (late and phase == "Pending"):
        return Ready()
    return Waiting(f'PersistentVolumeClaim "{full_name(claim)}" is not ready. status.phase currently at: {phase}')


def decide_definition(definition: Object, related: Related) -> Decision:
    """A CustomResourceDefinition is ready when it is established: its objects can be made."""
    if is_true(definition, "Established"):
        return Ready()
    names = condition(definition, "NamesAccepted")
    if names.get("status") == "False":
        return Failed((f"[{names.get('reason')}] {names.get('message')}",))
    return Waiting("Waiting for the CustomResourceDefinition to be established")
