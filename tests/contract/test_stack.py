"""What a stack tells the tools that submit jobs to it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidewater.contract import stack

FACTS = stack.Facts(
    bucket="b", service_account="trainer", fetch_image="f", image="i", etcd="etcd:2379", data_claim="c", posix_id="1000"
)


def test_facts_survive_the_config_map() -> None:
    assert stack.Facts.of(FACTS.data) == FACTS
    assert FACTS.data["fetchImage"] == "f"


def test_facts_of_a_newer_stack_can_be_read() -> None:
    assert stack.Facts.of({**FACTS.data, "later": "x"}) == FACTS


def test_an_absent_fact_is_named() -> None:
    with pytest.raises(KeyError, match="dataClaim"):
        stack.Facts.of({name: value for name, value in FACTS.data.items() if name != "dataClaim"})


def test_jobs_mount_the_shared_files_and_a_lustre_file_system_that_is_named() -> None:
    assert FACTS.claims == {"/data": "c"}
    assert "lustreClaim" not in FACTS.data
    named = replace(FACTS, lustre_claim="l")
    assert stack.Facts.of(named.data).claims == {"/data": "c", "/lustre": "l"}


def test_pods_may_run_on_worker_nodes_and_leave_a_lost_node_soon() -> None:
    keys = {each["key"] for each in stack.tolerations()}
    assert keys == {"tidewater.dev/worker", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}


def test_a_pod_in_the_training_namespace_is_not_root() -> None:
    assert stack.non_root(1000)["runAsUser"] == 1000
    assert stack.non_root(1000)["runAsNonRoot"] is True


def test_jobs_learn_the_proxy_in_both_spellings() -> None:
    assert FACTS.variables == {}
    assert "httpProxy" not in FACTS.data
    named = replace(FACTS, http_proxy="http://proxy:3128", no_proxy="localhost,.svc")
    found = stack.Facts.of(named.data).variables
    assert {name.upper() for name in found} == {"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"}
    assert found["http_proxy"] == found["HTTPS_PROXY"] == "http://proxy:3128"
    assert found["no_proxy"] == found["NO_PROXY"] == "localhost,.svc"
