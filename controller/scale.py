"""Holds an elastic Indexed Job at a number of workers: `parallelism` and `completions`, always together.

    python3 scale.py --namespace training --job digits --workers 3

Level-triggered: it looks at the Job every few seconds and corrects what it finds, so it may be started, killed or
doubled at any time. A finished Job is left alone. Standard library only: it runs from a ConfigMap in any image
with Python.
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
    """Where the Job is read and changed."""

    def get(self) -> Job:
        """The Job as it is."""

    def patch(self, change: Job) -> Job:
        """The Job after `change`."""


def finished(job: Job) -> bool:
    """Whether the Job has come to its end, good or bad."""
    conditions = job.get("status", {}).get("conditions", [])
    return any(each["type"] in ("Complete", "Failed") and each["status"] == "True" for each in conditions)


def correction(job: Job, workers: int) -> Job | None:
    """The patch that gives `job` its size; None where nothing is to be done."""
    spec = job["spec"]
    if finished(job) or (spec.get("parallelism"), spec.get("completions")) == (workers, workers):
        return None
    return {"spec": {"parallelism": workers, "completions": workers}}


def settled(job: Job, workers: int) -> bool:
    """Whether the Job has its size and no pod too many: those above it are ending, if they haven't yet.

    Pulumi goes on to take nodes away once the scaler is ready, so the pods that are to go must be marked by then.
    """
    return finished(job) or (correction(job, workers) is None and job.get("status", {}).get("active", 0) <= workers)


class Api:
    """One Job, as the API server shows it to the pod's service account."""

    def __init__(self, namespace: str, job: str) -> None:
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
        self._url = f"https://{host}:{port}/apis/batch/v1/namespaces/{namespace}/jobs/{job}"
        self._tls = ssl.create_default_context(cafile=str(SERVICE_ACCOUNT / "ca.crt"))

    def get(self) -> Job:
        """The Job as it is."""
        return self._request("GET", self._url)

    def patch(self, change: Job) -> Job:
        """The Job after `change`."""
        return self._request("PATCH", f"{self._url}?fieldManager={FIELD_MANAGER}", change)

    def _request(self, method: str, url: str, body: Job | None = None) -> Job:
        request = urllib.request.Request(url, method=method, data=None if body is None else json.dumps(body).encode())
        # Read each time: the kubelet renews the token while we run.
        request.add_header("Authorization", f"Bearer {(SERVICE_ACCOUNT / 'token').read_text()}")
        if body is not None:
            request.add_header("Content-Type", "application/merge-patch+json")
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS, context=self._tls) as response:
            found: Job = json.load(response)
        return found


def hold(api: Jobs, workers: int, ready: Path) -> bool:
    """Looks once, and corrects; says whether the Job is settled. `ready` exists from the first time on that it is.

    Raises:
        OSError: the API server can't be reached, or refuses; try again.
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
    """Holds the Job until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--job", required=True)
    parser.add_argument("--workers", required=True, type=int)
    parser.add_argument("--ready-file", required=True, type=Path)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # process 1 ignores it otherwise
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
