"""Checkpoints in S3 have the same guarantees as those on a disk."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.elastic.checkpoint.conftest import LINE, Told, at, keys, large, loaded, save, small
from tests.elastic.checkpoint.conftest import same as same_bits
from tests.elastic.workers import free_port
from tidewater.elastic.checkpoint import Checkpoints, Unreadable, bucket, place
from tidewater.elastic.checkpoint.manifest import Manifest, Score
from tidewater.elastic.checkpoint.places import Upload
from tidewater.elastic.storage import s3 as storage

WHERE = "s3://there/checkpoints/digits"
Open = Callable[..., Checkpoints]


def names(client: Any) -> list[str]:
    return sorted({key.split("/")[2][: len("step-000000000000")] for key in keys(client)})


def test_a_saved_checkpoint_is_loaded_and_only_the_newest_are_kept(s3: Any, open_places: Open, told: Told) -> None:
    save(open_places(WHERE), 10, 20, 30)
    found = loaded(open_places(WHERE))
    assert found.step == 30
    assert found.path.startswith(f"{WHERE}/step-000000000030-")
    assert same_bits(found.tree, small(30))
    assert names(s3) == ["step-000000000020", "step-000000000030"]
    assert told.of("checkpoint_saved")[-1]["path"] == found.path


def test_a_bucket_without_a_prefix_is_accepted(s3: Any, open_places: Open) -> None:
    save(open_places("s3://there"), 10)
    assert all(key.startswith("step-000000000010-") for key in keys(s3))
    assert open_places("s3://there/").load(LINE) is not None


def test_a_large_file_is_uploaded_in_parts(s3: Any, open_places: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket, "_PART", 5 << 20)  # the minimum that S3 accepts
    state = large(10, 13 << 20)
    assert open_places(WHERE).save(at(10), state, wait=True)
    (key,) = [key for key in keys(s3) if key.endswith(".distcp")]
    assert s3.head_object(Bucket="there", Key=key)["ETag"].endswith('-3"')
    assert same_bits(loaded(open_places(WHERE)).tree, state)
    assert not s3.list_multipart_uploads(Bucket="there").get("Uploads")


def test_a_checkpoint_of_the_evaluated_state_gets_the_score(s3: Any, open_places: Open) -> None:
    checkpoints = open_places(WHERE)
    save(checkpoints, 10)
    stored, score = keys(s3), Score(0.5, "max")
    assert checkpoints.save(at(10), small(10), wait=True, score=score, if_best=True)
    assert keys(s3) == stored
    (manifest,) = [key for key in stored if key.endswith("manifest.json")]
    assert Manifest.decode(s3.get_object(Bucket="there", Key=manifest)["Body"].read()).score == score
    save(checkpoints, 20, 30, 40)
    assert names(s3) == [f"step-{step:012}" for step in (10, 30, 40)]


def test_a_checkpoint_without_a_manifest_is_ignored(s3: Any, open_places: Open) -> None:
    checkpoints = open_places(WHERE)
    save(checkpoints, 10, 20)
    (manifest,) = [key for key in keys(s3) if "step-000000000020" in key and key.endswith("manifest.json")]
    s3.delete_object(Bucket="there", Key=manifest)
    assert loaded(checkpoints).step == 10


def test_a_damaged_checkpoint_is_skipped_and_the_previous_one_is_used(s3: Any, open_places: Open, told: Told) -> None:
    checkpoints = open_places(WHERE)
    save(checkpoints, 10, 20)
    (data,) = [key for key in keys(s3) if "step-000000000020" in key and key.endswith(".distcp")]
    s3.put_object(Bucket="there", Key=data, Body=b"x")
    assert loaded(checkpoints).step == 10
    assert "__0_0.distcp has 1 bytes" in str(told.of("checkpoint_skipped")[0]["reason"])
    save(checkpoints, 15)
    assert names(s3) == ["step-000000000010", "step-000000000015"]


def test_two_writers_of_one_step_do_not_mix_their_files(s3: Any, open_places: Open) -> None:
    one, two = place(WHERE).begin(10), place(WHERE).begin(10)
    for upload, text in ((one, b"one"), (two, b"two")):
        stream = upload.create("file")
        stream.write(memoryview(text))
        stream.close()
    assert one.commit(b"{}") != two.commit(b"{}")
    assert len(keys(s3)) == 4


def half_written() -> Upload:
    """Return an upload of step 5: one file is complete, another one is uploaded in part."""
    upload = place(WHERE).begin(5)
    done = upload.create("tree.json")
    done.write(memoryview(b"{}"))
    done.close()
    upload.create("__0_0.distcp").write(memoryview(bytes(6 << 20)))
    return upload


def test_leftovers_of_a_dead_writer_are_removed_and_uploads_of_a_live_writer_stay(
    s3: Any, open_places: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket, "_PART", 5 << 20)
    half_written()
    checkpoints = open_places(WHERE)
    save(checkpoints, 10)
    assert names(s3) == ["step-000000000005", "step-000000000010"]
    assert len(s3.list_multipart_uploads(Bucket="there")["Uploads"]) == 1
    monkeypatch.setattr(bucket, "_SILENT", timedelta(seconds=-2))
    save(checkpoints, 20)
    assert names(s3) == ["step-000000000010", "step-000000000020"]
    assert not s3.list_multipart_uploads(Bucket="there").get("Uploads")


def test_an_aborted_upload_leaves_nothing(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket, "_PART", 5 << 20)
    half_written().abort()
    assert keys(s3) == []
    assert not s3.list_multipart_uploads(Bucket="there").get("Uploads")


def test_a_missing_bucket_fails_the_checkpoint_and_is_named(s3: Any, open_places: Open, told: Told) -> None:
    checkpoints = open_places("s3://nowhere/digits")
    assert checkpoints.load(LINE) is None
    assert not checkpoints.save(at(10), small(10), wait=True)
    (failed,) = told.of("checkpoint_failed")
    assert failed["place"] == "s3://nowhere/digits"
    wanted = r"s3://nowhere/digits/\S+: there is no bucket nowhere \(NoSuchBucket\): create it, or correct the address"
    assert re.fullmatch(wanted, str(failed["reason"]))


def test_an_unreachable_s3_fails_the_checkpoint_and_prevents_a_start(
    s3: Any, open_places: Open, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setattr(storage, "_ATTEMPTS", 2)
    storage.client.cache_clear()
    checkpoints = open_places(WHERE)
    assert not checkpoints.save(at(10), small(10), wait=True)
    assert "Could not connect" in str(told.of("checkpoint_failed")[0]["reason"])
    assert not checkpoints.finished()
    with pytest.raises(Unreadable, match="Could not connect"):
        checkpoints.load(LINE)


def test_a_denied_access_to_s3_is_an_error_with_the_remedy(
    s3: Any, open_places: Open, told: Told, denied: Callable[[str], None]
) -> None:
    checkpoints = open_places(WHERE)
    denied("PutObject")
    assert not checkpoints.save(at(10), small(10), wait=True)
    (failed,) = told.of("checkpoint_failed")
    assert "AccessDenied" in str(failed["reason"])
    assert "role of the training pods" in str(failed["reason"])


def test_if_deleting_is_denied_saving_continues_and_it_is_reported_once(
    s3: Any, open_places: Open, told: Told, denied: Callable[[str], None]
) -> None:
    checkpoints = open_places(WHERE, keep=1)
    denied("DeleteObject")
    save(checkpoints, 10, 20, 30)
    assert len(names(s3)) == 3
    (kept,) = told.of("checkpoint_kept")
    assert kept["place"] == WHERE
    assert "AccessDenied" in str(kept["reason"])


def test_a_disk_and_a_bucket_together_survive_the_loss_of_either(
    s3: Any, open_places: Open, folder: Any, told: Told
) -> None:
    both = f"{WHERE},{folder}"
    save(open_places(both), 10)
    assert str(told.of("checkpoint_saved")[0]["path"]).startswith(str(folder))
    (folder / "step-000000000010" / "__0_0.distcp").unlink()
    assert loaded(open_places(both)).path.startswith("s3://")
    for key in keys(s3):
        s3.delete_object(Bucket="there", Key=key)
    save(open_places(folder), 20)
    assert loaded(open_places(both)).path == str(folder / "step-000000000020")


def test_the_end_of_the_job_is_recorded(s3: Any, open_places: Open) -> None:
    assert not open_places(WHERE).finished()
    checkpoints = open_places(WHERE)
    save(checkpoints, 10)
    checkpoints.finish(b"{}")
    assert open_places(WHERE).finished()
    assert not open_places("s3://there/checkpoints").finished()


@pytest.fixture
def denied(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that makes S3 deny an operation to all clients, as a policy would."""
    from botocore.client import BaseClient
    from botocore.exceptions import ClientError

    call = BaseClient._make_api_call  # type: ignore[attr-defined]

    def deny(operation: str) -> None:
        def answer(client: BaseClient, name: str, arguments: dict[str, Any]) -> Any:
            if name == operation:
                raise ClientError({"Error": {"Code": "AccessDenied", "Message": "Access Denied"}}, name)
            return call(client, name, arguments)

        monkeypatch.setattr(BaseClient, "_make_api_call", answer)

    return deny
