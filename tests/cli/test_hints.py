"""What the command line advises works as it is written: with the given flags, and for the words of other programs."""

from __future__ import annotations

import importlib.metadata

import pytest

from tests.cli.conftest import Run
from tests.cli.fake import FakeCluster, job, pod
from tidewater.cli.session import Target
from tidewater.elasticjob.names import JOBS
from tidewater.kube.kinds import PODS

SUBMIT = ("job", "submit", "digits", "--image", "i")


def test_the_given_flags_are_repeated_as_a_shell_reads_them() -> None:
    assert Target().repeated == ""
    assert Target("prod", "a b", "~/x").repeated == " -n prod --context 'a b' --kubeconfig '~/x'"


def test_what_submit_advises_has_the_namespace_of_the_job(run: Run) -> None:
    assert run(*SUBMIT, "-n", "prod").stderr == "follow it: tidewater job logs digits -f -n prod\n"
    again = run(*SUBMIT, "-n", "prod").stderr
    assert "tidewater job delete digits -n prod. " in again
    assert "tidewater job scale digits WORKERS -n prod" in again


def test_the_namespace_of_a_manifest_is_that_of_the_advice(run: Run) -> None:
    printed = run(*SUBMIT, "-n", "prod", "--dry-run").stdout
    submitted = run("job", "submit", "-f", "-", text=printed)
    assert submitted.stderr == "follow it: tidewater job logs digits -f -n prod\n"


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        pytest.param(("wait", "digits", "--timeout", "5s"), "tidewater job describe digits -n prod", id="timeout"),
        pytest.param(
            ("wait", "digits", "--for", "size"), "Start it again: tidewater job resume digits -n prod", id="suspended"
        ),
        pytest.param(
            ("delete", "digits", "--timeout", "5s"), "kubectl get pods -l 'job-name in (digits)' -n prod", id="delete"
        ),
        pytest.param(("describe", "digits"), "`tidewater job resume digits -n prod` starts it again", id="describe"),
    ],
)
def test_what_is_advised_about_a_job_has_the_namespace(
    run: Run, cluster: FakeCluster, words: tuple[str, ...], advice: str
) -> None:
    cluster.namespace = "prod"
    suspended = job(state="Suspended")
    suspended["spec"]["suspend"] = True
    cluster.put(JOBS, suspended)
    cluster.put(PODS, pod(0))
    result = run("job", *words, "-n", "prod")
    assert advice in result.stdout + result.stderr


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("job", "ls"), "tidewater job list"),
        (("ls",), "tidewater job list"),
        (("job", "get", "digits"), "tidewater job describe NAME"),
        (("job", "status", "digits"), "tidewater job describe NAME"),
        (("job", "rm", "digits"), "tidewater job delete NAME"),
        (("submit", "digits"), "tidewater job submit"),
        (("job", "top"), "tidewater top"),
        (("version",), "tidewater --version"),
    ],
)
def test_the_words_of_other_programs_lead_to_the_right_command(run: Run, words: tuple[str, ...], meant: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: there is no command tidewater ")
    assert meant in result.stderr.splitlines()[1]


def test_a_word_that_means_nothing_is_a_usage_error(run: Run) -> None:
    result = run("job", "frobnicate")
    assert (result.exit_code, "No such command 'frobnicate'" in result.stderr) == (2, True)


def test_the_version_is_that_which_pip_has_installed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", {"tidewater": "1.2.3"}.__getitem__)
    assert run("--version").stdout == "tidewater 1.2.3\n"


def test_a_checkout_that_is_not_installed_says_so(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert run("--version").stdout.startswith("tidewater from the checkout /")
