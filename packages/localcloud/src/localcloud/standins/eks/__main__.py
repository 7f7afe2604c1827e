"""`python -m localcloud.standins.eks ENGINE_ADDRESS`: started by the Pulumi engine."""

from __future__ import annotations

from localcloud.standins.eks.provider import EksProvider, EksServicer
from localcloud.standins.serve import serve

if __name__ == "__main__":
    serve(EksProvider(), package="pulumi-eks", servicer=EksServicer)
