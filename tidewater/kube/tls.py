"""Which certificates are accepted, and which one is shown.

context(connection.cluster, connection.user)
"""

from __future__ import annotations

import base64
import ssl
import tempfile
from contextlib import ExitStack
from pathlib import Path

import httpx2

from tidewater.contract.tls import accept_eks
from tidewater.kube.kubeconfig import Section


def context(cluster: Section, user: Section) -> ssl.SSLContext:
    """Return the TLS settings of a kubeconfig's cluster and user. Their file names are absolute.

    Raises:
        OSError, ValueError: a certificate or a key can't be read.
    """
    if cluster.get("certificate-authority"):
        made = ssl.create_default_context(cafile=cluster["certificate-authority"])
    elif cluster.get("certificate-authority-data"):
        made = ssl.create_default_context(cadata=_decoded(cluster, "certificate-authority-data").decode())
    else:
        made = httpx2.create_ssl_context(verify=not cluster.get("insecure-skip-tls-verify"))
    accept_eks(made)
    with ExitStack() as files:
        shown = [_file(user, key, files) for key in ("client-certificate", "client-key")]
        if any(shown):
            made.load_cert_chain(shown[0] or "", shown[1] or None)
    return made


def _file(user: Section, key: str, files: ExitStack) -> str:
    """Return the name of a file with a certificate or a key, since Python's ssl module reads no other; empty: none."""
    if not user.get(f"{key}-data"):
        return str(user.get(key) or "")
    path = Path(files.enter_context(tempfile.TemporaryDirectory()), key)  # open to this user alone
    path.write_bytes(_decoded(user, f"{key}-data"))
    return str(path)


def _decoded(section: Section, key: str) -> bytes:
    """Return what is written in base64.

    Raises:
        ValueError: it isn't, or is nothing: with an empty authority, Python would trust every public one.
    """
    found = base64.b64decode("".join(str(section[key]).split()), validate=True)
    if not found:
        raise ValueError(f"{key} is empty")
    return found
