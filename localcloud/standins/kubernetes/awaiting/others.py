"""When Services, Ingresses, volumes, claims, quotas, token Secrets and definitions count as ready."""

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


def decide_service(service: Object, related: Related) -> Decision:
    """Ready when it has an endpoint and, for a load balancer, an address.

    Headless and ExternalName services, and those without a selector, are not asked for endpoints.
    """
    wanted = spec(service)
    addressed = wanted.get("type") != "LoadBalancer" or bool(status(service).get("loadBalancer", {}).get("ingress"))
    free = wanted.get("clusterIP") == "None" or wanted.get("type") == "ExternalName" or not wanted.get("selector")
    targeted = free or any(
        _serves(endpoint) for each in related.endpoint_slices for endpoint in each.get("endpoints") or ()
    )
    if targeted and addressed:
        return Ready("Service initialization complete")
    problems: tuple[str, ...] = () if targeted else (_NO_PODS,)
    if not addressed:
        problems += ("Service was not allocated an IP address; does your cloud provider support this?",)
    message = (
        "[2/3] Attempting to allocate IP address to Service" if targeted else "[1/3] Finding Pods to direct traffic to"
    )
    return Waiting(message, problems)


def _serves(endpoint: Object) -> bool:
    return endpoint.get("conditions", {}).get("ready") is not False


def decide_ingress(ingress: Object, related: Related) -> Decision:
    """Ready when its controller gave it an address."""
    if status(ingress).get("loadBalancer", {}).get("ingress"):
        return Ready("Ingress initialization complete")
    problem = "Ingress .status.loadBalancer field was not updated with a hostname/IP address"
    return Waiting("Waiting for update of .status.loadBalancer with hostname/IP", (problem,))


def decide_volume(volume: Object, related: Related) -> Decision:
    """A PersistentVolume is ready when it is available or bound."""
    phase = status(volume).get("phase")
    if phase in ("Available", "Bound"):
        return Ready("PV marked available" if phase == "Available" else "PV has been bound")
    if phase == "Failed":
        return Failed((f'PersistentVolume "{full_name(volume)}" failed: {status(volume).get("message", "")}',))
    message = f'PersistentVolume "{full_name(volume)}" is {phase or "new"}'
    return Waiting(message, (message,))


def decide_claim(claim: Object, related: Related) -> Decision:
    """A claim is ready when bound; one whose class waits for the first consumer is, as soon as it is pending."""
    phase = status(claim).get("phase")
    late = (related.storage_class or {}).get("volumeBindingMode") == "WaitForFirstConsumer"
    if phase == "Bound" or (late and phase == "Pending"):
        return Ready()
    message = f'PersistentVolumeClaim "{full_name(claim)}" is not ready. status.phase currently at: {phase}'
    return Waiting(message, (message,))


def decide_quota(quota: Object, related: Related) -> Decision:
    """A ResourceQuota is ready when its controller has taken its limits over."""
    if spec(quota).get("hard") == status(quota).get("hard"):
        return Ready()
    return Waiting("Waiting for the quota's status", ("Quotas don't match after creation",))


def decide_secret(secret: Object, related: Related) -> Decision:
    """A service account's token Secret is ready when it has data; any other at once."""
    if secret.get("type") != "kubernetes.io/service-account-token" or secret.get("data"):
        return Ready()
    return Waiting("Waiting for the token", ("The token controller put no data into the Secret",))


def decide_definition(definition: Object, related: Related) -> Decision:
    """A CustomResourceDefinition is ready when it is established, so that its objects can be made."""
    if is_true(definition, "Established"):
        return Ready()
    names = condition(definition, "NamesAccepted")
    if names.get("status") == "False":
        return Failed((f"[{names.get('reason')}] {names.get('message')}",))
    return Waiting(
        "Waiting for the CustomResourceDefinition to be established", ("The definition was not established",)
    )
