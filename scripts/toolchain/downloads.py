"""The environment of what downloads: uv, pip, Go and apt use the proxy and the certificates that this machine has.

    subprocess.run(["go", "env", "GOVERSION"], env=downloads.environment(os.environ))

Each of them reads other variables than the others: apt only `http_proxy` and `https_proxy`, Go not `ALL_PROXY`, and uv
brings the certificates of Mozilla unless a variable asks for the system's store.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

STORE = Path("/etc/ssl/certs/ca-certificates.crt")
"""What Debian's package ca-certificates writes, with the authorities that an administrator added."""
_OF_PIP = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_OF_UV = ("UV_SYSTEM_CERTS", "UV_NATIVE_TLS")
_KINDS = ("http", "https", "all", "no")


def environment(environ: Mapping[str, str], store: Path = STORE) -> dict[str, str]:
    """Return `environ` with all spellings of its proxies, and with the system's certificates unless it names others."""
    result = {**environ, **_proxies(environ)}
    if not any(name in environ for name in _OF_UV):
        result["UV_SYSTEM_CERTS"] = "true"
    if not any(name in environ for name in _OF_PIP):
        bundle = environ.get("SSL_CERT_FILE") or (str(store) if store.is_file() else "")
        result |= {"REQUESTS_CA_BUNDLE": bundle} if bundle else {}  # pip prefers the `cert` of its configuration
    return result


def _proxies(environ: Mapping[str, str]) -> dict[str, str]:
    given = {kind: environ.get(f"{kind}_proxy") or environ.get(f"{kind}_PROXY".upper()) for kind in _KINDS}
    proxies = {kind: given[kind] or (given["all"] if kind in ("http", "https") else None) for kind in _KINDS}
    spelled = {name: value for kind, value in proxies.items() for name in (f"{kind}_proxy", f"{kind}_proxy".upper())}
    return {name: value for name, value in spelled.items() if value}
