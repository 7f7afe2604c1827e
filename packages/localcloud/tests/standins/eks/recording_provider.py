"""A provider plug-in that creates nothing and records its requests: `recording_provider.py PACKAGE ENGINE_ADDRESS`.

Each created resource is a line of JSON in the file `$RECORD`; the outputs are the inputs and what EKS would add.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

from localcloud.standins.serve import serve
from localcloud.standins.values import UNKNOWN, from_plain, to_plain
from pulumi.provider.experimental import provider as sdk

_LOCK = threading.Lock()
COMPUTED: dict[str, dict[str, Any]] = {
    "aws:eks/cluster:Cluster": {
        "name": "c-eksCluster-1234567",
        "arn": "arn:aws:eks:us-west-2:123456789012:cluster/c-eksCluster-1234567",
        "endpoint": "https://cluster.example",
        "certificateAuthority": {"data": "Q0E="},
        "version": "1.34",
        "vpcConfig": {"clusterSecurityGroupId": "sg-of-eks"},
        "identities": [{"oidcs": [{"issuer": "https://oidc.example/id/ABC"}]}],
    },
    "aws:iam/role:Role": {"arn": "arn:aws:iam::123456789012:role/r", "name": "r"},
}
FUNCTIONS: dict[str, dict[str, Any]] = {
    "aws:index/getPartition:getPartition": {"partition": "aws", "dnsSuffix": "amazonaws.com"},
    "aws:eks/getAddonVersion:getAddonVersion": {"version": "v1.2.3-eksbuild.1"},
}


def _record(**line: Any) -> None:
    with _LOCK, open(os.environ["RECORD"], "a", encoding="utf-8") as file:
        file.write(json.dumps(line, default=repr) + "\n")


class Recorder(sdk.Provider):
    """Accepts every request."""

    async def diff(self, request: sdk.DiffRequest) -> sdk.DiffResponse:
        old = to_plain(getattr(request, "old_inputs", {}))
        return sdk.DiffResponse(changes=old != to_plain(request.new_inputs))

    async def invoke(self, request: sdk.InvokeRequest) -> sdk.InvokeResponse:
        _record(invoke=request.tok, args=to_plain(request.args))
        return sdk.InvokeResponse(from_plain(FUNCTIONS[request.tok]))

    async def create(self, request: sdk.CreateRequest) -> sdk.CreateResponse:
        inputs = to_plain(request.properties)
        token = request.type
        if request.preview:
            unknown = dict.fromkeys(COMPUTED.get(token, {}), UNKNOWN)
            return sdk.CreateResponse("", from_plain({**unknown, **inputs}))
        if inputs.get("addonName") == "fails":
            raise ValueError("the addon fails")
        _record(create=token, name=request.name, inputs=inputs)
        return sdk.CreateResponse(f"id-{request.name}", from_plain({**COMPUTED.get(token, {}), **inputs}))

    async def read(self, request: sdk.ReadRequest) -> sdk.ReadResponse:
        token, id_ = request.urn.split("::")[2].split("$")[-1], request.resource_id
        _record(read=token, id=id_)
        found = {**COMPUTED.get(token, {}), "arn": f"arn:{id_}", "name": id_}
        return sdk.ReadResponse(id_, from_plain(found), request.inputs)

    async def update(self, request: sdk.UpdateRequest) -> sdk.UpdateResponse:
        return sdk.UpdateResponse(request.news)

    async def delete(self, request: sdk.DeleteRequest) -> None:
        _record(delete=request.urn.rsplit("::", 1)[-1])


if __name__ == "__main__":
    serve(Recorder(), package=f"pulumi-{sys.argv[1]}", argv=sys.argv[2:])
