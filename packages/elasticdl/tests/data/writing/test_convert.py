"""A dataset is written whole or not at all, and reads back as what it was made from."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from elasticdl.data.examples.fields import decode
from elasticdl.data.opening import open_reader
from elasticdl.data.writing.convert import Options, Part, write
from elasticdl.data.writing.sources import Asked
from elasticdl.errors import DataError, InputError, MissingData
from sklearn.datasets import load_digits


def read_all(address: object) -> list[dict[str, Any]]:
    with open_reader(str(address)) as reader:
        return [decode(record) for shard in reader.shards() for record in reader.read(shard)]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_digits_are_those_of_scikit_learn_in_two_parts(tmp_path: Path) -> None:
    out = tmp_path / "digits"
    train, test = write("digits", str(out), Options(records_per_shard=500))
    assert (train.address, train.files, test.files) == (f"{out}/train", 3, 1)
    found = read_all(out / "train") + read_all(out / "test")
    assert (len(found), train.records + test.records) == (1797, 1797)
    assert 0.17 < test.records / 1797 < 0.23

    def key(image: Any, label: int) -> tuple[bytes, int]:
        return np.asarray(image, np.uint8).tobytes(), label

    data = load_digits()
    expected = sorted(key(np.minimum(image * 16, 255), int(label)) for image, label in zip(*data_of(data), strict=True))
    assert sorted(key(each["image"], int(each["label"])) for each in found) == expected


def data_of(data: Any) -> tuple[Any, Any]:
    return data.images, data.target


def test_writing_twice_gives_the_same_bytes_and_says_that_clicks_are_generated(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write("generated-clicks", str(tmp_path / name), Options(asked=Asked(records=300)))
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert b"clicks (generated: no person clicked)" in contents(tmp_path / "a")["train/_manifest.json"]


def test_a_column_of_csv_is_what_all_its_rows_are(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("id,price,name,code\n1,1,a,007\n-2,1.5,3,1_0\n")
    (part,) = write(str(tmp_path / "data.csv"), str(tmp_path / "out"), Options())
    assert part.records == 2
    first, second = read_all(tmp_path / "out")
    assert (first["id"].item(), first["price"].item(), first["name"], first["code"]) == (1, 1.0, "a", "007")
    assert (second["id"].item(), second["price"].item(), second["name"], second["code"]) == (-2, 1.5, "3", "1_0")


def test_a_dataset_is_written_to_a_bucket(tmp_path: Path, bucket: Any) -> None:
    options = Options(asked=Asked(records=200))
    parts = write("generated-clicks", "s3://there/clicks", options)
    write("generated-clicks", str(tmp_path / "clicks"), options)
    keys = [each["Key"] for each in bucket.list_objects_v2(Bucket="there")["Contents"]]
    found = {key: bucket.get_object(Bucket="there", Key=key)["Body"].read() for key in keys}
    assert found == {f"clicks/{name}": content for name, content in contents(tmp_path / "clicks").items()}
    assert parts[0] == Part("s3://there/clicks/train", 1, parts[0].records, parts[0].bytes)
    with pytest.raises(DataError, match="s3://there/clicks is not empty"):
        write("generated-clicks", "s3://there/clicks", options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (Options(records_per_shard=0), "records_per_shard is 0"),
        (Options(test_share=1), "test_share is 1"),
        (Options(test_share=-0.1), "test_share is -0.1"),
    ],
)
def test_a_wrong_option_leaves_nothing(tmp_path: Path, options: Options, said: str) -> None:
    with pytest.raises(InputError, match=said):
        write("digits", str(tmp_path / "out"), options)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_source_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("a,b\n1,2\n3\n")
    with pytest.raises(DataError, match="row 1"):
        write(str(tmp_path / "data.csv"), str(tmp_path / "out"), Options())
    assert [path.name for path in tmp_path.iterdir()] == ["data.csv"]


def test_what_is_there_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    with pytest.raises(DataError, match="is there already"):
        write("digits", str(tmp_path / "out"), Options())
    assert contents(tmp_path / "out") == {"mine": b""}


def test_a_dataset_whose_package_is_absent_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(MissingData, match="digits: scikit-learn, which ships them, is not installed"):
        write("digits", str(tmp_path / "out"), Options())
