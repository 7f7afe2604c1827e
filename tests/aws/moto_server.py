"""An AWS account in a process of its own: moto with the rules of the one-machine cloud, on a free port.

    with moto_server.serve({"L-DB2E81BA": 0}) as endpoint:
        moto_server.client("ec2", endpoint)

moto's state belongs to its process, and other tests of this process reset it. Zones, instance types and offerings are
copies of AWS's own answers for each region.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3

ROOT = Path(__file__).resolve().parents[2]
KEYS = {"aws_access_key_id": "localcloud", "aws_secret_access_key": "localcloud"}
REGION = "us-west-2"


@contextmanager
def serve(quotas: Mapping[str, float] | None = None) -> Iterator[str]:
    """Serve an empty account; yield its endpoint.

    Args:
        quotas: vCPUs by the quota's code, in the region; None: those of the one-machine cloud.
    """
    argv = [sys.executable, "-m", "tests.aws.moto_server", json.dumps(dict(quotas or {}))]
    with subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        endpoint = process.stdout.readline().strip()
        assert endpoint.startswith("http://"), "the server has not started; its error is above"
        yield endpoint
        # It ends when its input does, even if this process is killed.
        process.communicate()


def client(service: str, endpoint: str) -> Any:
    """Return boto3's client of a service in the account."""
    connect: Any = boto3.client  # its type lists every service by name
    return connect(service, REGION, endpoint_url=endpoint, **KEYS)


def main() -> None:
    """Serve until the input ends."""
    from localcloud.aws.compute import quotas
    from moto.ec2.models import ec2_backends

    from packages.localcloud.tests.aws.account import serve_account
    from packages.localcloud.tests.aws.fakes import ACCOUNT

    account = serve_account()
    endpoint = next(account)
    quotas.grant(ec2_backends[ACCOUNT][REGION], json.loads(sys.argv[1]))
    print(endpoint, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
