"""ElasticJobs are read from files; wrong ones are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidewater.cli.errors import UsageError
from tidewater.cli.jobfile import from_file

JOB = """\
apiVersion: elastic.pytorch.org/v1alpha1
kind: ElasticJob
metadata: {name: imagenet, namespace: elastic-job}
spec: {rdzvEndpoint: "etcd:2379"}
"""
METADATA = "{name: imagenet, namespace: elastic-job}"


def test_a_file_is_taken_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(f"---\n{JOB}---\n")
    (found,) = from_file(str(file))
    assert found["spec"] == {"rdzvEndpoint": "etcd:2379"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("a: [", "is not YAML", id="no-yaml"),
        pytest.param("", "there is no ElasticJob", id="empty"),
        pytest.param("kind: Service", "document 1 is Service, not ElasticJob", id="another-kind"),
        pytest.param(JOB + "---\n- a", "document 2 is list, not ElasticJob", id="a-list"),
        pytest.param(JOB.replace("v1alpha1", "v1"), "apiVersion elastic.pytorch.org/v1", id="version"),
        pytest.param(JOB.replace("name: imagenet, ", ""), "has no metadata.name", id="nameless"),
        pytest.param(JOB.replace(METADATA, ""), "has no metadata.name", id="metadata-is-null"),
        pytest.param(
            JOB.replace(METADATA, "foo"), "metadata of document 1 is str, not a mapping", id="metadata-is-text"
        ),
        pytest.param(
            JOB.replace(METADATA, "[]"), "metadata of document 1 is list, not a mapping", id="metadata-is-a-list"
        ),
        pytest.param(JOB + "x: !!binary aGk=", "document 1 has what JSON can't express", id="bytes"),
        pytest.param(JOB + "x: .inf", "document 1 has what JSON can't express", id="infinity"),
        pytest.param(JOB + "x: &a [*a]", "document 1 has what JSON can't express", id="recursive"),
        pytest.param(JOB + "x: !!int z", "is not YAML", id="wrong-tag"),
    ],
)
def test_a_wrong_file_is_named_with_its_document(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    with pytest.raises(UsageError, match=expected) as caught:
        from_file(str(file))
    assert str(file) in str(caught.value)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(UsageError, match=r"-f nowhere\.yaml can't be read: No such file"):
        from_file("nowhere.yaml")


def test_a_namespace_other_than_the_files_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    with pytest.raises(UsageError, match="--namespace other is not the namespace of imagenet, elastic-job"):
        from_file(str(file), "other")


def test_dates_and_times_of_day_stay_text(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB.replace('"etcd:2379"', '"etcd:2379", args: [--from, 2024-01-01, 12:30:45]'))
    (found,) = from_file(str(file))
    assert found["spec"]["args"] == ["--from", "2024-01-01", "12:30:45"]


def test_a_null_namespace_is_none(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB.replace("namespace: elastic-job", "namespace:"))
    (found,) = from_file(str(file), "other")
    assert found["metadata"] == {"name": "imagenet", "namespace": "other"}
    (found,) = from_file(str(file))
    assert found["metadata"] == {"name": "imagenet"}
