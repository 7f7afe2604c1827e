"""After a person's address has changed, EKS gets those of the config, and the state follows."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts import address
from scripts.session import Session, UpError
from scripts.toolchain import paths
from tests.scripts.test_destroy import CLUSTER, PROVIDER

MINE, OLD = "8.8.4.4/32", "8.8.8.8/32"
DONE = {"id": "u-1", "status": "Successful"}
WAITING = {"id": "u-1", "status": "InProgress"}


@dataclass(frozen=True)
class FakeSession(Session):
    """Answers as Pulumi and the AWS CLI do."""

    state: Path = Path("/nowhere")
    environ: Mapping[str, str] = field(default_factory=dict)
    resources_: tuple[Mapping[str, Any], ...] = (PROVIDER, CLUSTER)
    has: tuple[str, ...] = (OLD,)
    updates: list[Mapping[str, Any]] = field(default_factory=lambda: [WAITING, DONE])
    asked: list[tuple[str, ...]] = field(default_factory=list)

    def ask(self, *command: str) -> str:
        self.asked.append(command)
        if command[:3] == ("pulumi", "stack", "--show-name"):
            return "dev\n"
        if command[:3] == ("pulumi", "stack", "export"):
            return json.dumps({"deployment": {"resources": self.resources_}})
        if "describe-cluster" in command:
            access = {"endpointPublicAccess": bool(self.has), "publicAccessCidrs": self.has}
            return json.dumps({"cluster": {"resourcesVpcConfig": access}})
        return json.dumps({"update": self.updates.pop(0) if "describe-update" in command else WAITING})

    def run(self, *command: str, remedy: str) -> None:
        self.asked.append(command)

    def one(self, verb: str) -> tuple[str, ...]:
        """Return the only command with this verb."""
        (found,) = (each for each in self.asked if verb in each)
        return found


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that writes the stack's config, next to the project's."""
    (tmp_path / "Pulumi.yaml").write_text((paths.CHECKOUT / "Pulumi.yaml").read_text())
    monkeypatch.setattr(paths, "CHECKOUT", tmp_path)
    monkeypatch.setattr(address, "ASK_SECONDS", 0.0)

    def write(*cidrs: str) -> None:
        secret = {"secure": "v1:hidden"}  # a key that was set with --secret
        values = {"tidewater:publicAccessCidrs": list(cidrs), "tidewater:trainerArgs": secret}
        (tmp_path / "Pulumi.dev.yaml").write_text(yaml.safe_dump({"config": values}))

    return write


def test_eks_gets_the_addresses_and_only_then_the_state(config: Any, capsys: pytest.CaptureFixture[str]) -> None:
    config(MINE, OLD)
    session = FakeSession()
    address.change(session, None)
    access = f"endpointPublicAccess=true,publicAccessCidrs={MINE},{OLD}"
    assert session.one("update-cluster-config")[-1] == access
    assert {"--region", "eu-west-1", "--profile", "lab", "tidewater-dev"} <= set(session.one("update-cluster-config"))
    assert session.asked[-1] == session.one("refresh")
    assert session.one("refresh")[-2:] == ("--target", "urn:c")
    assert "waiting for EKS to change the addresses" in capsys.readouterr().out


def test_a_cluster_that_has_them_is_not_updated(config: Any) -> None:
    config(MINE, OLD)
    session = FakeSession(has=(OLD, MINE))
    address.change(session, "dev")
    assert not [each for each in session.asked if "update-cluster-config" in each]
    assert session.one("refresh")


@pytest.mark.parametrize(
    ("cidrs", "session", "says"),
    [
        pytest.param((), FakeSession(), "publicAccessCidrs of the stack dev is empty: set your address", id="none"),
        pytest.param(("10.1.2.3/32",), FakeSession(), "10.1.2.3/32: has private addresses", id="private"),
        pytest.param(
            (MINE,), FakeSession(resources_=(PROVIDER,)), "has no cluster of its own: run `pulumi up`", id="unmade"
        ),
        pytest.param(
            (MINE,),
            FakeSession(updates=[{"id": "u-1", "status": "Failed", "errors": [{"errorMessage": "no such range"}]}]),
            "EKS's update u-1 is Failed: no such range",
            id="refused",
        ),
    ],
)
def test_what_cannot_be_done_is_said_before_the_state_is_touched(
    config: Any, cidrs: tuple[str, ...], session: FakeSession, says: str
) -> None:
    config(*cidrs)
    with pytest.raises(UpError, match=re.escape(says)):
        address.change(session, "dev")
    assert not [each for each in session.asked if "refresh" in each]


def test_a_wait_for_eks_has_a_limit() -> None:
    with pytest.raises(UpError, match="u-1 is not done after 0 s: run this again later"):
        address.wait(lambda: WAITING, -1.0)
