"""A stack from its creation: `make up`, and what a user looks at first.

The modules of this folder use one stack, with Karpenter, in the order of their names. Each test uses the stack as the
one before left it, so a single test needs those above it.
"""

from __future__ import annotations

import re

import pytest

from tests.e2e.checkout import Checkout
from tests.e2e.nodes import node_groups
from tests.e2e.stopping import stop_when
from tests.e2e.training import identities, running_workers, wait_for_world

SECRET_SIGNATURE = "4dabf18193072939515e22adb298388d"
"""The key that marks a secret value in Pulumi's state."""

CLOUD_IS_UP = "localcloud is up"

pytestmark = [pytest.mark.e2e, pytest.mark.incremental, pytest.mark.timeout(1800)]


def test_make_up_completes_one_that_was_killed_and_returns_when_training_progresses(checkout: Checkout) -> None:
    stop_when(checkout, "make up", lambda said: CLOUD_IS_UP in said and node_groups(checkout))
    output = checkout.make("up")
    assert "pulumi config set workers" in output.text  # what to run next
    assert "pulumi destroy" in output.text
    assert "step=" in output.text  # the report that it has waited for
    wait_for_world(checkout, 2)  # one worker may train before the other has joined


def test_after_a_refresh_of_the_healthy_stack_make_up_changes_nothing(checkout: Checkout) -> None:
    before = identities(checkout)
    checkout.run("pulumi refresh --yes --skip-preview")
    assert re.search(r"Resources:\s+\d+ unchanged\s+Duration", checkout.make("up").text)
    assert identities(checkout) == before


def test_outputs_exist_and_the_kubeconfig_is_a_secret(checkout: Checkout) -> None:
    for name in ("clusterName", "namespace", "jobName", "workerSelector", "bucket", "codeUri"):
        assert checkout.outputs[name]
    assert checkout.outputs["fileSystemId"].startswith("fs-")
    shown = checkout.json("pulumi stack output --json")
    assert shown["kubeconfig"] == "[secret]"
    recorded = checkout.json("pulumi stack export")["deployment"]["resources"]
    stack = next(r for r in recorded if r["type"] == "pulumi:pulumi:Stack")
    assert set(stack["outputs"]["kubeconfig"]) == {SECRET_SIGNATURE, "ciphertext"}


def test_kubectl_logs_exec_describe_and_port_forward_work(checkout: Checkout) -> None:
    pod, namespace = running_workers(checkout)[0], checkout.namespace
    assert "step=" in checkout.run(f"kubectl logs -n {namespace} {pod} --tail=20").text
    shell = checkout.run(f"kubectl exec -n {namespace} {pod} -- sh -c 'echo I am $HOSTNAME'")
    assert f"I am {pod}\n" in shell.text
    assert "Scheduled" in checkout.run(f"kubectl describe pod -n {namespace} {pod}").text
    forwarded = checkout.run(
        f"kubectl port-forward -n {namespace} svc/etcd :2379 >forward.log & forward=$!; "
        "for i in $(seq 300); do grep -q Forwarding forward.log && break; sleep 0.2; done; "
        "port=$(sed -n 's/.*127.0.0.1:\\([0-9]*\\).*/\\1/p' forward.log); "
        "curl -sS --max-time 30 http://127.0.0.1:$port/version; kill $forward"
    )
    assert "etcdserver" in forwarded.text


def test_an_identity_without_an_access_entry_is_refused(checkout: Checkout) -> None:
    checkout.aws("iam create-user --user-name stranger")
    key = checkout.aws("iam create-access-key --user-name stranger")["AccessKey"]
    credentials = f"export AWS_ACCESS_KEY_ID={key['AccessKeyId']} AWS_SECRET_ACCESS_KEY={key['SecretAccessKey']}"
    refused = checkout.fails(f"{credentials}; kubectl get pods -A")
    assert "Unauthorized" in refused.text or "must be logged in" in refused.text
    checkout.run(
        f"aws iam delete-access-key --user-name stranger --access-key-id {key['AccessKeyId']} && "
        "aws iam delete-user --user-name stranger"
    )


def test_a_worker_may_do_what_its_role_allows_and_nothing_else(checkout: Checkout) -> None:
    pod = running_workers(checkout)[0]
    inside = f"kubectl exec -n {checkout.namespace} {pod} -- python3 -m awscli"
    assert ":assumed-role/" in checkout.run(f"{inside} sts get-caller-identity").text
    code = checkout.outputs["codeUri"]
    checkout.run(f"{inside} s3 cp {code} - >/dev/null")
    assert "AccessDenied" in checkout.fails(f"{inside} iam list-users").text
    assert "AccessDenied" in checkout.fails(f"{inside} s3 rm {code}").text
