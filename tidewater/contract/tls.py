"""What the clients of an API server change in Python's TLS settings.

accept_eks(context)
"""

from __future__ import annotations

import ssl


def accept_eks(context: ssl.SSLContext) -> None:
    """Accept certificates without an Authority Key Identifier, as those of EKS are.

    From Python 3.13 on a flag that is set by default refuses them. Chain, dates and host name are checked without it
    too. https://github.com/kubernetes-client/python/issues/2394
    """
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
