"""The names that people's selectors and scripts contain."""

from __future__ import annotations

from tidewater.elasticjob import names


def test_a_pod_has_the_name_that_the_old_controller_gave_it() -> None:
    assert names.pod_name("imagenet", names.WORKER, 1) == "imagenet-worker-1"


def test_a_pods_name_leads_to_its_job() -> None:
    assert names.job_of_pod(names.pod_name("a-b", "PS", 12), "ps", 12) == "a-b"
    assert names.job_of_pod(names.single_pod_name("a-b", "Master"), "Master", 0) == "a-b"
    assert names.job_of_pod(names.pod_name("x-0", names.WORKER, 0), names.WORKER, 0) == "x-0"


def test_a_pod_has_the_labels_that_the_old_controller_gave_it() -> None:
    assert names.pod_labels("imagenet", names.WORKER, 1) == {
        "group-name": "elastic.pytorch.org",
        "job-name": "imagenet",
        "replica-type": "worker",
        "replica-index": "1",
    }


def test_the_selectors_of_a_type_and_of_a_job_select_its_pods() -> None:
    pod = names.pod_labels("imagenet", "PS", 0).items()
    assert names.type_labels("imagenet", "PS").items() <= pod
    assert names.job_labels("imagenet").items() <= pod
    assert not names.type_labels("imagenet", names.WORKER).items() <= pod
