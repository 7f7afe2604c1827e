"""Keeps an elastic Indexed Job at a number of workers: sets `parallelism` and `completions`, always together.

    python3 scale.py --namespace training --job digits --workers 3

It reads the Job every few seconds and corrects it, so it may be started or killed at any time, and two may run at
once. It does not change a finished Job. It uses the standard library only: it runs from a ConfigMap in any image with
Python.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import ssl
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Protocol

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
INTERVAL_SECONDS = 3.0
SETTLING_SECONDS = 0.25
RETRY_SECONDS = 1.0
TIMEOUT_SECONDS = 10.0
FIELD_MANAGER = "tidewater-scaler"

Job = dict[str, Any]


class Jobs(Protocol):
    """Access to one Job."""

    def get(self) -> Job:
        """Return the Job."""

    def patch(self, change: Job) -> Job:
        """Change the Job and return it."""


def finished(job: Job) -> bool:
    """Return whether the Job is complete or has failed."""
    conditions = job.get("status", {}).get("conditions", [])
    return any(each["type"] in ("Complete", "Failed") and each["status"] == "True" for each in conditions)


def correction(job: Job, workers: int) -> Job | None:
    """Return the patch that gives `job` its size; None if it needs no change."""
    spec = job["spec"]
    if finished(job) or (spec.get("parallelism"), spec.get("completions")) == (workers, workers):
        return None
    return {"spec": {"parallelism": workers, "completions": workers}}


def settled(job: Job, workers: int) -> bool:
    """Return whether the Job has its size, and all pods above it are ending or have ended.

    Pulumi removes nodes as soon as the scaler is ready, so Kubernetes must have chosen the pods to end by then.
    """
    return finished(job) or (correction(job, workers) is None and job.get("status", {}).get("active", 0) <= workers)


class Api:
    """One Job in the API server, with the rights of the pod's service account."""

    def __init__(self, namespace: str, job: str) -> None:
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
        self._url = f"https://{host}:{port}/apis/batch/v1/namespaces/{namespace}/jobs/{job}"
        self._tls = ssl.create_default_context(cafile=str(SERVICE_ACCOUNT / "ca.crt"))

    def get(self) -> Job:
        """Return the Job."""
        return self._request("GET", self._url)

    def patch(self, change: Job) -> Job:
        """Change the Job and return it."""
        return self._request("PATCH", f"{self._url}?fieldManager={FIELD_MANAGER}", change)

    def _request(self, method: str, url: str, body: Job | None = None) -> Job:
        request = urllib.request.Request(url, method=method, data=None if body is None else json.dumps(body).encode())
        # The token is read each time, since the kubelet renews it.
        request.add_header("Authorization", f"Bearer {(SERVICE_ACCOUNT / 'token').read_text()}")
        if body is not None:
            request.add_header("Content-Type", "application/merge-patch+json")
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS, context=self._tls) as response:
            found: Job = json.load(response)
        return found


def hold(api: Jobs, workers: int, ready: Path) -> bool:
    """Read the Job once and correct it. Return whether it is settled; create `ready` when it is.

    Raises:
        OSError: the API server can't be reached or refuses the request. The caller tries again.
    """
    job = api.get()
    change = correction(job, workers)
    if change is not None:
        job = api.patch(change)
        print(f"event=scaled workers={workers}", flush=True)
    if not settled(job, workers):
        return False
    ready.touch()
    return True


def main() -> None:
    """Keep the Job at its size until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--job", required=True)
    parser.add_argument("--workers", required=True, type=int)
    parser.add_argument("--ready-file", required=True, type=Path)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # without a handler, process 1 ignores SIGTERM
    api = Api(arguments.namespace, arguments.job)
    while True:
        try:
            done = hold(api, arguments.workers, arguments.ready_file)
            time.sleep(INTERVAL_SECONDS if done else SETTLING_SECONDS)
        except (OSError, ValueError) as error:
            reason = error.read().decode(errors="replace") if isinstance(error, urllib.error.HTTPError) else error
            print(f"event=retry reason={json.dumps(str(reason))}", flush=True)
            time.sleep(RETRY_SECONDS)


if __name__ == "__main__":
    main()
