"""Waiting for a new cluster's API server to answer."""

from __future__ import annotations

import ssl
import time
import urllib.error
import urllib.request
from typing import Final

_PATIENCE_SECONDS: Final = 300.0
_PAUSE_SECONDS: Final = 5.0
_REQUEST_SECONDS: Final = 1.0


def reachable(url: str) -> bool:
    """Wait until `URL/healthz` answers; give up without an error: the first use of the cluster reports a better one.

    Any answer counts, a refusal of the anonymous caller too: the server is there.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    anybody = ssl.create_default_context()
    anybody.check_hostname = False
    anybody.verify_mode = ssl.CERT_NONE
    while True:
        try:
            urllib.request.urlopen(f"{url}/healthz", timeout=_REQUEST_SECONDS, context=anybody).close()
            return True
        except urllib.error.HTTPError as error:
            if error.code < 500:
                return True
        except OSError:
            pass  # not there yet
        if time.monotonic() + _PAUSE_SECONDS > deadline:
            return False
        time.sleep(_PAUSE_SECONDS)
