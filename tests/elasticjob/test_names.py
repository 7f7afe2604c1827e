"""The names that people's selectors and scripts contain."""

from __future__ import annotations

import re

import pytest

from tidewater.elasticjob import names


def test_a_pod_has_the_name_that_the_old_controller_gave_it() -> None:
    assert names.pod_name("imagenet", names.WORKER, 1) == "imagenet-worker-1"


@pytest.mark.parametrize("job", ["imagenet", "1net", "image.net", "9.a", "a" * 63, f"{'a' * 61}.b"])
@pytest.mark.parametrize("suffix", ["-worker-0", f"-{'t' * 40}-4999", "-master"])
def test_the_names_in_dns_are_labels_and_those_of_the_objects_where_these_can_be(job: str, suffix: str) -> None:
    service, host = names.service_name(job), names.host_name(job, suffix)
    assert re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", service)
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", host)
    assert host.endswith(suffix)
    assert (service == job) is (job in ("imagenet", "a" * 63))
    assert (host == job + suffix) is ("." not in job and len(job + suffix) <= 63)


def test_jobs_with_similar_names_have_different_names_in_dns() -> None:
    jobs = ["a.b", "a-b", "1a", "job-1a", "1.a", "1-a", "a" * 62 + ".b", "a" * 62 + ".c"]
    assert len({names.service_name(job) for job in jobs}) == len(jobs)
    assert len({names.host_name(job, "-worker-0") for job in jobs}) == len(jobs)


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
