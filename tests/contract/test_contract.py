"""The names and numbers that the processes share."""

from __future__ import annotations

import re
import signal

from tidewater.contract import env, exit_codes, keys, labels, leaving


def test_the_selector_of_a_jobs_workers_is_stable_and_names_the_job() -> None:
    selector = labels.selector(labels.worker_pods("digits"))
    assert selector == labels.selector(dict(reversed(labels.worker_pods("digits").items())))
    assert "tidewater.dev/job=digits" in selector.split(",")


def test_every_label_key_is_one_that_kubernetes_accepts() -> None:
    for key in labels.worker_pods("digits"):
        assert re.fullmatch(r"[a-z0-9.-]+/[a-z0-9-]+", key), key


def test_environment_variables_have_one_prefix_and_distinct_names() -> None:
    names = [value for name, value in vars(env).items() if name.isupper() and isinstance(value, str)]
    assert all(name.startswith("TIDEWATER_") for name in names)
    assert len(set(names)) == len(names)


def test_every_key_of_a_job_has_its_prefix_and_no_other_jobs() -> None:
    for key in (keys.generation("a"), keys.member("a", "x"), keys.saved("a"), keys.finished("a")):
        assert key.startswith(keys.job("a"))
        assert not key.startswith(keys.job("a2"))


def test_every_key_of_a_rendezvous_has_its_prefix_and_not_that_of_jobs() -> None:
    for key in (keys.rendezvous_round("a"), keys.rendezvous_node("a", "x"), keys.rendezvous_closed("a")):
        assert key.startswith(keys.rendezvous("a"))
        assert not key.startswith(f"{keys.ROOT}/")


def test_every_key_of_an_elasticdl_run_has_its_prefix_and_no_other_runs() -> None:
    own = (keys.elasticdl_state("a", "1"), keys.elasticdl_master("a", "1", "x"), keys.elasticdl_part("a", "1", 0, 7))
    for key in own:
        assert key.startswith(keys.elasticdl("a", "1"))
        assert not key.startswith((keys.elasticdl("a", "12"), keys.elasticdl("a2", "1"), f"{keys.ROOT}/"))
    assert not keys.elasticdl_part("a", "1", 12, 7).startswith(keys.elasticdl_parts("a", "1", 1))


def test_the_exit_code_of_leaving_is_not_success() -> None:
    assert exit_codes.LEFT == 128 + 15
    assert exit_codes.FINISHED not in exit_codes.NOT_THE_WORKERS_FAULT


def test_a_wrong_command_line_is_not_retried() -> None:
    retried = {*exit_codes.RETRYABLE, *exit_codes.ALWAYS_RETRIED}
    assert not {exit_codes.FINISHED, exit_codes.USAGE} & retried


def test_no_signal_has_the_code_of_a_failure_of_the_machine() -> None:
    assert 128 + max(signal.valid_signals()) < exit_codes.DEVICE_FAILED < exit_codes.UNCONNECTED < 256


def test_a_worker_has_left_before_its_spot_instance_ends() -> None:
    assert leaving.STEP_SECONDS + leaving.FLUSH_SECONDS < leaving.GRACE_SECONDS <= 120
