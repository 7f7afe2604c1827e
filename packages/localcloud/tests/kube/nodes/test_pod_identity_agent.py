"""The exchange of a pod's token for its role's credentials."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from localcloud.kube.nodes import pod_identity_agent as agent

ANSWER = {
    "credentials": {"accessKeyId": "A", "secretAccessKey": "B", "sessionToken": "C", "expiration": 4000000000},
    "assumedRoleUser": {"arn": "arn:aws:sts::123456789012:assumed-role/trainer/eks-demo"},
}


class FakeExchange(agent.Exchange):
    """Accepts the token `good`, and counts the calls to EKS Auth."""

    def __init__(self) -> None:
        super().__init__("http://unused", "demo")
        self.asked = 0

    def _ask(self, token: str) -> dict[str, Any]:
        self.asked += 1
        if token != "good":
            raise agent.Refused(404, "No Pod Identity association found")
        return ANSWER


@pytest.fixture
def server() -> Iterator[agent.Server]:
    made = agent.Server("127.0.0.1", FakeExchange(), port=0)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def fetch(server: agent.Server, path: str, token: str) -> str:
    url = f"http://127.0.0.1:{server.server_address[1]}{path}"
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Authorization": token}), timeout=60) as response:
        text: str = response.read().decode()
    return text


def test_credentials_have_the_form_that_sdks_expect() -> None:
    made = agent.container_credentials(ANSWER)
    assert (made["AccessKeyId"], made["SecretAccessKey"], made["Token"]) == ("A", "B", "C")
    assert made["Expiration"] == "2096-10-02T07:06:40Z"
    assert made["AccountId"] == "123456789012"


def test_a_token_is_exchanged_once_while_the_credentials_are_fresh(server: agent.Server) -> None:
    for _ in range(2):
        assert json.loads(fetch(server, "/v1/credentials", "good"))["Token"] == "C"
    assert isinstance(server.exchange, FakeExchange)
    assert server.exchange.asked == 1


def test_credentials_that_expire_soon_are_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    exchange = FakeExchange()
    exchange.credentials("good")
    monkeypatch.setattr("time.time", lambda: 4000000000 - 60.0)
    exchange.credentials("good")
    assert exchange.asked == 2


@pytest.mark.parametrize(
    ("path", "token", "status"),
    [
        pytest.param("/v1/credentials", "bad", 404, id="no association"),
        pytest.param("/v1/credentials", "", 400, id="no token"),
        pytest.param("/latest/meta-data", "good", 404, id="other path"),
    ],
)
def test_refusals_are_passed_to_the_pod(server: agent.Server, path: str, token: str, status: int) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        fetch(server, path, token)
    assert caught.value.code == status
