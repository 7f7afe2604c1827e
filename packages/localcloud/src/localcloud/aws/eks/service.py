"""The EKS endpoint: call the function of an operation, return its reply or error."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

from werkzeug.wrappers import Request, Response

from localcloud.aws import replies
from localcloud.aws.access import Authorized
from localcloud.aws.eks.errors import EksError
from localcloud.aws.eks.model import Json
from localcloud.aws.eks.operations import (
    access_entries,
    addons,
    clusters,
    idempotency,
    nodegroups,
    pod_identities,
    tags,
)
from localcloud.aws.eks.state import Eks
from localcloud.aws.principals import Principal

log = logging.getLogger(__name__)

Handler = Callable[[Eks, Principal, Mapping[str, Any]], Json]
OPERATIONS: Mapping[str, Handler] = {
    "CreateCluster": clusters.create,
    "DescribeCluster": clusters.describe,
    "ListClusters": clusters.list_all,
    "DeleteCluster": clusters.delete,
    "UpdateClusterConfig": clusters.update_config,
    "UpdateClusterVersion": clusters.update_version,
    "DescribeClusterVersions": clusters.describe_versions,
    "DescribeUpdate": clusters.describe_update,
    "ListUpdates": clusters.list_updates,
    "CreateNodegroup": nodegroups.create,
    "DescribeNodegroup": nodegroups.describe,
    "ListNodegroups": nodegroups.list_all,
    "DeleteNodegroup": nodegroups.delete,
    "UpdateNodegroupConfig": nodegroups.update_config,
    "UpdateNodegroupVersion": nodegroups.update_version,
    "CreateAddon": addons.create,
    "DescribeAddon": addons.describe,
    "ListAddons": addons.list_all,
    "UpdateAddon": addons.update,
    "DeleteAddon": addons.delete,
    "DescribeAddonVersions": addons.versions,
    "DescribeAddonConfiguration": addons.configuration_schema,
    "CreateAccessEntry": access_entries.create,
    "DescribeAccessEntry": access_entries.describe,
    "ListAccessEntries": access_entries.list_all,
    "UpdateAccessEntry": access_entries.update,
    "DeleteAccessEntry": access_entries.delete,
    "AssociateAccessPolicy": access_entries.associate_policy,
    "DisassociateAccessPolicy": access_entries.disassociate_policy,
    "ListAssociatedAccessPolicies": access_entries.list_associated,
    "ListAccessPolicies": access_entries.list_policies,
    "CreatePodIdentityAssociation": pod_identities.create,
    "DescribePodIdentityAssociation": pod_identities.describe,
    "ListPodIdentityAssociations": pod_identities.list_all,
    "UpdatePodIdentityAssociation": pod_identities.update,
    "DeletePodIdentityAssociation": pod_identities.delete,
    "TagResource": tags.tag,
    "UntagResource": tags.untag,
    "ListTagsForResource": tags.list_all,
}


class EksService:
    """`gateway.Service` for every call that is signed for `eks`; moto's EKS is not used."""

    def __init__(self, eks: Eks) -> None:
        self._eks = eks

    def handle(self, call: Authorized) -> Response:
        """Answer one call."""
        name = call.operation.name
        if name not in OPERATIONS:
            return replies.json_error(400, "InvalidRequestException", f"{name} is not supported by this cloud")
        region, here = call.operation.region, self._eks.settings.region
        if name == "CreateCluster" and region != here:
            remedy = f"run `localcloud stop`, then `localcloud start --region {region}`"
            message = f"This cloud has clusters in one region, which is {here} and not {region}: {remedy}"
            return replies.json_error(400, "InvalidRequestException", message)
        try:
            found = answer(self._eks, call.caller, name, call.operation.params)
        except EksError as error:
            return replies.json_error(error.status, error.code, error.message, **error.members)
        except KeyError as error:
            return replies.json_error(400, "InvalidParameterException", f"The parameter {error} is missing")
        return Response(json.dumps(found), 200, content_type="application/json")


def answer(eks: Eks, caller: Principal, operation: str, params: Mapping[str, Any]) -> Json:
    """Return an operation's reply. A create call that is repeated with its token is not carried out again."""
    return idempotency.once(eks, operation, params, lambda: OPERATIONS[operation](eks, caller, params))


def auth_app(eks: Eks) -> Callable[[dict[str, Any], Callable[..., Any]], Any]:
    """Return the application of the EKS Auth endpoint, where a pod's token is the credential.

    The pod identity agent of a node calls it; the API server that issued the token checks it.
    """

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        request = Request(environ)
        cluster = request.path.split("/")[2]
        try:
            token = str(json.loads(request.get_data() or b"{}").get("token", ""))
            answer = pod_identities.assume_role(eks, cluster, token)
            response = Response(json.dumps(answer), 200, content_type="application/json")
        except EksError as error:
            response = replies.json_error(error.status, error.code, error.message, **error.members)
        except ValueError as error:
            response = replies.json_error(400, "InvalidParameterException", f"The request's body is not JSON: {error}")
        return response(environ, start_response)

    return app


def is_auth_call(method: str, path: str) -> bool:
    """Return whether a request is for the EKS Auth endpoint."""
    parts = path.split("/")
    return (
        method == "POST"
        and len(parts) == 4
        and parts[1] == "clusters"
        and (parts[3] in ("assume-role-for-pod-identity", "assume-role-for-pod-identity/"))
    )
