"""A command gets from the command line to the daemon, if the caller may give it."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from localcloud import control
from localcloud.errors import CloudError, NotRunning
from localcloud.instance import Instance

from packages.localcloud.tests.commands import served


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    return Instance.create(tmp_path / "state")


def echo(params: Mapping[str, Any]) -> Any:
    return {"got": params}


def fail(params: Mapping[str, Any]) -> Any:
    raise CloudError("instance i-1 is On-Demand")


def test_the_answer_comes_back(instance: Instance) -> None:
    with served(instance, {"echo": echo}) as cloud:
        assert control.call(cloud, "echo", {"a": ["ü", 1]}) == {"got": {"a": ["ü", 1]}}


def test_the_daemons_reason_is_the_error(instance: Instance) -> None:
    with served(instance, {"fail": fail}) as cloud, pytest.raises(CloudError, match=r"^instance i-1 is On-Demand$"):
        control.call(cloud, "fail", {})


def test_an_unknown_command_is_answered_with_those_there_are(instance: Instance) -> None:
    with (
        served(instance, {"fail": fail, "echo": echo}) as cloud,
        pytest.raises(CloudError, match="commands are echo, fail"),
    ):
        control.call(cloud, "explode", {})


def test_who_may_do_everything_in_ec2_may_not_interrupt_its_instances(instance: Instance) -> None:
    policy = {"Statement": [{"Effect": "Allow", "Action": "ec2:*", "Resource": "*"}]}
    with (
        served(instance, {"echo": echo}, policy) as cloud,
        pytest.raises(CloudError, match="to perform: localcloud:echo"),
    ):
        control.call(cloud, "echo", {})


def test_a_pod_without_credentials_is_refused(instance: Instance) -> None:
    with served(instance, {"echo": echo}) as cloud:
        request = urllib.request.Request(f"{cloud.endpoint}{control.PATH}echo", b"{}", method="POST")
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request, timeout=60)
    assert caught.value.code == 403


def test_a_request_that_is_signed_for_another_service_is_refused(instance: Instance) -> None:
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    keys = instance.credentials()
    with served(instance, {"echo": echo}) as cloud:
        url = f"{cloud.endpoint}{control.PATH}echo"
        signed = AWSRequest("POST", url, data=b"{}")
        SigV4Auth(Credentials(keys.access_key, keys.secret_key), "ec2", instance.region).add_auth(signed)
        request = urllib.request.Request(url, b"{}", dict(signed.headers.items()), method="POST")
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request, timeout=60)
    assert "not authorized" in json.loads(caught.value.read())["message"]


def test_without_a_daemon_the_remedy_is_named(instance: Instance) -> None:
    with pytest.raises(NotRunning, match="localcloud start"):
        control.call(instance, "echo", {})


def test_a_daemon_that_does_not_answer_in_time_is_not_taken_for_a_missing_one(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "TIMEOUT_SECONDS", 0.2)
    over = threading.Event()
    with served(instance, {"wait": lambda _: over.wait()}) as cloud:
        with pytest.raises(CloudError, match="no answer within"):
            control.call(cloud, "wait", {})
        over.set()
