"""A tool is missed only where it is needed, and every finding has its remedy."""

from __future__ import annotations

import pytest

from tests.cli.doctor.places import Surroundings
from tidewater.cli.doctor import account, machine
from tidewater.cli.doctor.place import Ended
from tidewater.cli.doctor.results import Outcome
from tidewater.kube.errors import NoKubeconfig

EKS = {"exec": {"command": "aws", "args": ["eks", "get-token"], "apiVersion": "client.authentication.k8s.io/v1"}}
IDENTITY = "aws sts get-caller-identity --output json"


def test_all_tools_are_found_with_their_versions(here: Surroundings) -> None:
    results = [check(here.place) for check in (machine.python, machine.pulumi, machine.kubectl, machine.aws)]
    assert {result.outcome for result in results} == {Outcome.FINE}
    assert [result.text for result in results[1:]] == ["pulumi 3.250.0", "kubectl 1.34.4", "aws 2.31.0"]


def test_a_missing_pulumi_must_be_installed_only_where_the_stack_is_deployed_from(here: Surroundings) -> None:
    del here.answers["pulumi version"]
    assert machine.pulumi(here.place).outcome is Outcome.NOTE
    here.program()
    missing = machine.pulumi(here.place)
    assert missing.outcome is Outcome.FIX
    assert "pulumi.com/docs/install" in missing.remedy


def test_an_old_or_broken_tool_is_named_with_its_version_or_its_words(here: Surroundings) -> None:
    here.program()
    here.answers["pulumi version"] = "v3.9.1"
    assert "pulumi 3.9.1 is older than 3.250" in machine.pulumi(here.place).text
    here.answers["pulumi version"] = Ended(1, "", "Segmentation fault")
    assert machine.pulumi(here.place).text == "pulumi does not work: Segmentation fault"


def test_the_aws_cli_is_needed_where_the_kubeconfig_logs_in_with_it(here: Surroundings) -> None:
    del here.answers["aws --version"]
    here.kubeconfig(token="t")
    assert machine.aws(here.place).outcome is Outcome.NOTE
    here.kubeconfig(**EKS)
    assert machine.aws(here.place).outcome is Outcome.FIX


def test_a_kubeconfig_is_needed_and_its_login_program_too(here: Surroundings) -> None:
    with pytest.raises(NoKubeconfig):
        machine.kubeconfig_names_a_cluster(here.place)
    here.kubeconfig(token="t")
    found = machine.kubeconfig_names_a_cluster(here.place)
    assert (found.outcome, found.text) == (Outcome.FINE, "context test, namespace training, https://cluster.test")
    here.kubeconfig(exec={"command": "gke-plugin", "apiVersion": "client.authentication.k8s.io/v1"})
    missing = machine.kubeconfig_names_a_cluster(here.place)
    assert (missing.outcome, "gke-plugin" in missing.remedy) == (Outcome.FIX, True)


def test_the_account_is_checked_only_where_one_is_used(here: Surroundings) -> None:
    assert account.credentials(here.place).outcome is Outcome.SKIPPED
    here.kubeconfig(**EKS)
    refused = account.credentials(here.place)
    assert (refused.outcome, "aws configure" in refused.remedy) == (Outcome.FIX, True)
    here.answers[IDENTITY] = '{"Arn": "arn:aws:iam::123456789012:user/ann"}'
    assert account.credentials(here.place).text == "arn:aws:iam::123456789012:user/ann"


def test_the_region_is_that_of_the_environment_or_of_the_configuration(here: Surroundings) -> None:
    here.program()
    assert account.region(here.place).outcome is Outcome.NOTE
    here.answers["aws configure get region"] = "eu-west-1\n"
    assert account.region(here.place).text == "eu-west-1"
    here.environment["AWS_DEFAULT_REGION"] = "us-west-2"
    assert account.region(here.place).text == "us-west-2"


def test_an_account_without_gpu_instances_is_told_how_to_ask_for_them(here: Surroundings) -> None:
    quota = "aws service-quotas get-service-quota --service-code ec2 --quota-code {} --query Quota.Value --output text"
    assert account.quotas(here.place).outcome is Outcome.UNCHECKED
    here.answers |= {quota.format(code): "0.0\n" for code in account.QUOTAS}
    none = account.quotas(here.place)
    assert (none.outcome, "request-service-quota-increase" in none.remedy) == (Outcome.NOTE, True)
    here.answers[quota.format("L-3819A6DF")] = "64.0\n"
    assert (account.quotas(here.place).outcome, "Spot G and VT: 64" in account.quotas(here.place).text) == (
        Outcome.FINE,
        True,
    )
