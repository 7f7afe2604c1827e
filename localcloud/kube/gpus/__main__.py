"""Entry point of the plug-in, started as the container's command."""

from __future__ import annotations

import os
import sys

from localcloud.kube.gpus import plugin

if __name__ == "__main__":
    sys.exit(plugin.run(os.environ))
