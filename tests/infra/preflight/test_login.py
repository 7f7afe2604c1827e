"""The `aws` of the kubeconfig must be in the provider's account, or the preview says in one sentence why it isn't."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest

import settings
from infra.preflight import login
from infra.preflight.login import Ended
from tests import graph
from tests.infra.preflight import world

OURS, OTHER = graph.ACCOUNT, "210987654321"
NO_DEPENDENCY = "Missing Dependency: Using the login credential provider requires an additional dependency."
EXPIRED = "Error when retrieving token from sso: Token has expired and refresh failed"
TWO, ONE = Ended(0, "aws-cli/2.32.8 Python/3.13.9 Linux/6.1 exe/x86_64\n"), Ended(0, "", "aws-cli/1.46.2 Python/3.11\n")


def identity(account: str) -> Ended:
    return Ended(0, json.dumps({"UserId": "A", "Account": account, "Arn": f"arn:aws:iam::{account}:user/a"}))


def found(answer: Ended | OSError, version: Ended = TWO, **changes: str) -> list[str]:
    """Return the mistakes if `aws` answers so."""

    def aws(arguments: tuple[str, ...]) -> Ended:
        if isinstance(answer, OSError):
            raise answer
        return version if arguments == ("--version",) else answer

    stack = world.stack(**changes)
    return login.mistakes(stack, login.look(stack, OURS, aws))


def test_an_aws_in_the_account_of_the_provider_is_right() -> None:
    assert found(identity(OURS)) == []


@pytest.mark.parametrize(
    ("answer", "version", "sentence"),
    [
        pytest.param(FileNotFoundError(2, "No such file"), TWO, "is not on PATH; install version 2: http", id="none"),
        pytest.param(PermissionError(13, "Permission denied"), TWO, "can't be started (Permission denied)", id="right"),
        pytest.param(Ended(255, "", f"\n{NO_DEPENDENCY}\n"), ONE, "It is version 1.46.2, which has neither", id="one"),
        pytest.param(Ended(255, "", f"\n{EXPIRED}\n"), TWO, f"255: {EXPIRED}. Log in again: `aws login`", id="expired"),
        pytest.param(Ended(None), TWO, "did not end within 60 s; the profile may wait for a code", id="hangs"),
        pytest.param(Ended(0, "hello"), TWO, "named no account; `aws` on PATH must be the AWS CLI", id="other program"),
        pytest.param(identity(OTHER), TWO, f"is in the account {OTHER}, and the provider in {OURS};", id="account"),
    ],
)
def test_an_aws_that_would_fail_after_a_quarter_of_an_hour_is_one_sentence(
    answer: Ended | OSError, version: Ended, sentence: str
) -> None:
    (mistake,) = found(answer, version)
    assert mistake.startswith("aws: ")
    assert "with which the cluster's kubeconfig logs in" in mistake
    assert sentence in mistake


def test_a_profile_is_used_as_in_the_kubeconfig_and_named_in_what_to_do() -> None:
    asked: list[tuple[str, ...]] = []

    def aws(arguments: tuple[str, ...]) -> Ended:
        asked.append(arguments)
        return Ended(255, "", EXPIRED)

    stack = world.stack(profile="work")
    (mistake,) = login.mistakes(stack, login.look(stack, OURS, aws))
    # By the option: keys of the shell come before AWS_PROFILE, but not before it.
    assert asked[0][-2:] == ("--profile", "work")
    assert "`aws sso login --profile work`" in mistake
    assert "(profile = work)" in found(identity(OTHER), profile="work")[0]


def test_what_ends_is_told_with_its_status_and_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError):
        login.run(("--version",))
    command = tmp_path / "aws"
    command.write_text('#!/bin/sh\necho "$@"\necho why >&2\nexit 3\n')
    command.chmod(0o755)
    assert login.run(("sts", "work")) == Ended(3, "sts work\n", "why\n")
    monkeypatch.setattr(login, "LIMIT_SECONDS", 0.1)
    command.write_text("#!/bin/sh\nwhile :; do :; done\n")
    assert login.run(("sts",)) == Ended(None)


def test_the_program_refuses_another_account_together_with_its_other_mistakes() -> None:
    def aws(arguments: tuple[str, ...]) -> Ended:
        return identity(OTHER)

    config = {**graph.defaults(), "availabilityZones": "us-west-2a,us-west-2z"}
    with pytest.raises(settings.ConfigurationError, match="2 mistakes") as error:
        graph.run(functools.partial(graph.program, aws), config)
    assert [each for each in error.value.mistakes if each.startswith("aws: ") and OTHER in each]
