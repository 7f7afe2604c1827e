"""Code and zoo go with a job: packed by content, stored once, unpacked so that Python finds them."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from elasticdl.client.flags.mistakes import WrongCommand
from elasticdl.client.job import shipping

from packages.elasticdl.tests.client import seed
from tidewater.cli.errors import CliError
from tidewater.contract import code

BUCKET = "there"
HELP = """
import contextlib, runpy, sys
sys.argv[1:] = ["--help"]
for module in ("master", "ps", "worker"):
    with contextlib.suppress(SystemExit):
        runpy.run_module(f"elasticdl.{module}", run_name="__main__")
"""
"""The three processes in one, which imports torch once."""


def names(archive: code.Archive) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(archive.content)) as packed:
        return packed.getnames()


def test_the_processes_run_from_the_unpacked_archive(tmp_path: Path) -> None:
    archive = shipping.pack(seed.zoo(tmp_path))
    subprocess.run(["tar", "-xf", "-", "-C", tmp_path], input=archive.content, check=True)
    done = subprocess.run(
        [sys.executable, "-c", HELP],
        cwd=tmp_path / "zoo",
        env={**os.environ, "PYTHONPATH": str(tmp_path / "packages")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n  --job_args JOB_ARGS") == 3
    assert (tmp_path / "zoo" / "mnist" / "mnist_functional_api.py").is_file()


def test_the_same_files_have_the_same_key(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    assert shipping.pack(seed.zoo(first)).key == shipping.pack(seed.zoo(second)).key
    (second / "model_zoo" / "mnist" / "mnist_functional_api.py").write_text("other = 1\n")
    assert shipping.pack(str(first / "model_zoo")).key != shipping.pack(str(second / "model_zoo")).key


def test_caches_and_hidden_files_stay_behind(tmp_path: Path) -> None:
    zoo = Path(seed.zoo(tmp_path))
    for name in (".git/config", "mnist/__pycache__/x.pyc", ".env"):
        (zoo / name).parent.mkdir(parents=True, exist_ok=True)
        (zoo / name).write_text("x")
    found = names(shipping.pack(str(zoo)))
    assert [name for name in found if name.startswith("zoo/")] == ["zoo/mnist/mnist_functional_api.py"]
    assert not [name for name in found if "__pycache__" in name]


def test_without_a_zoo_there_is_an_empty_folder() -> None:
    assert [name for name in names(shipping.pack("")) if name.startswith("zoo")] == ["zoo"]


def test_a_zoo_that_is_too_large_is_refused_with_what_is_large(tmp_path: Path) -> None:
    zoo = Path(seed.zoo(tmp_path))
    (zoo / "data").mkdir()
    (zoo / "data" / "large").write_bytes(bytes(2 << 20))
    with pytest.raises(WrongCommand, match=r"has 2\.0 MiB, and at most 1\.0 MiB go with a job") as caught:
        shipping.pack(str(zoo), limit_bytes=1 << 20)
    assert "data (2.0 MiB)" in caught.value.remedy


def test_an_archive_is_stored_in_the_bucket(bucket: Any) -> None:
    archive = code.Archive(b"code")
    shipping.upload(archive, BUCKET)
    assert shipping.address(archive, BUCKET) == f"s3://{BUCKET}/{archive.key}"
    assert bucket.get_object(Bucket=BUCKET, Key=archive.key)["Body"].read() == b"code"


def test_a_bucket_that_is_not_there_is_an_error_with_the_remedy(bucket: Any) -> None:
    with pytest.raises(CliError, match="can't be stored at s3://no-such-bucket/code/") as caught:
        shipping.upload(code.Archive(b"code"), "no-such-bucket")
    assert "--image_name" in caught.value.remedy
