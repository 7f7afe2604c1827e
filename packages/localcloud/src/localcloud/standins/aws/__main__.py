"""`python -m localcloud.standins.aws ENGINE_ADDRESS`: started by the Pulumi engine."""

from __future__ import annotations

from localcloud.standins.aws.provider import AwsProvider
from localcloud.standins.serve import serve

if __name__ == "__main__":
    serve(AwsProvider(), package="pulumi-aws")
