"""The entry point that the Pulumi engine starts."""

from __future__ import annotations

import sys

from localcloud.standins.kubernetes.engine import EngineLog
from localcloud.standins.kubernetes.provider import KubernetesProvider
from localcloud.standins.kubernetes.servicer import KubernetesServicer
from localcloud.standins.serve import serve

if __name__ == "__main__":
    engine = next((argument for argument in sys.argv[1:] if not argument.startswith("-")), "")
    serve(KubernetesProvider(EngineLog(engine)), package="pulumi-kubernetes", servicer=KubernetesServicer)
