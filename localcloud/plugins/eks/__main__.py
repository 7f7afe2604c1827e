"""`python -m localcloud.plugins.eks ENGINE_ADDRESS`: started by the Pulumi engine."""

from __future__ import annotations

from localcloud.plugins.eks.provider import EksProvider, EksServicer
from localcloud.plugins.serve import serve

if __name__ == "__main__":
    serve(EksProvider(), package="pulumi-eks", servicer=EksServicer)
