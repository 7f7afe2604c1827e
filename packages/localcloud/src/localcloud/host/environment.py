"""The environment of what runs in the cloud. It is made anew, so that no variable of a person's shell gets there.

    Popen(command, env=environment.of_host(os.environ))     # the daemon, and what it starts on the host
    Popen(command, env=environment.BARE)                    # process 1 of a node; its services inherit it

Many programs of the cloud read variables that a shell may have: every Go program its proxies, etcd ETCD_*, moto and
boto3 AWS_*. An API server that asks a company's proxy for its kubelets shows no logs, for example.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BARE: Mapping[str, str] = {"PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8"}
KEPT = ("LOCALCLOUD_TOOLS", "PYTHONPATH", "LD_LIBRARY_PATH")
"""What the daemon needs of the shell that starts it: where its programs are, and what its Python needs."""
UMASK = 0o022
"""Pods that aren't root read files that the daemon and its programs create. Files with secrets have modes of their own.
"""


def of_host(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process on the host, of what `environ` has.

    A person's PATH may name a folder with containerd. After `su` it lacks those of the administrator's programs.
    """
    kept = {name: environ[name] for name in KEPT if name in environ}
    return {**BARE, "PATH": path_of_host(environ.get("PATH", "")), **kept}


def path_of_host(path: str) -> str:
    """Return PATH with the standard folders in addition."""
    folders = [folder for folder in path.split(os.pathsep) if folder]
    return os.pathsep.join(dict.fromkeys([*folders, *PATH.split(os.pathsep)]))
