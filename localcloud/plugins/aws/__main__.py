"""`python -m localcloud.plugins.aws ENGINE_ADDRESS`: started by the Pulumi engine."""

from __future__ import annotations

from localcloud.plugins.aws.provider import AwsProvider
from localcloud.plugins.serve import serve

if __name__ == "__main__":
    serve(AwsProvider(), package="pulumi-aws")
