"""Entry point of the plug-in, started as the container's command."""

from __future__ import annotations

import os
import signal
import sys

from localcloud.kube.gpus import plugin

if __name__ == "__main__":
    # The first process of a container gets no signal without a handler: the pod would end only after its grace period.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    sys.exit(plugin.run(os.environ))
