"""The code bundle: the same sources give the same bytes, and it runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from contract import env, exit_codes
from contract.archive import to_zip
from tests import graph
from workloads import bundle
from workloads.in_bundle import start


def test_the_order_and_age_of_files_do_not_matter(tmp_path: Path) -> None:
    for package in bundle.PACKAGES:
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("")
    one = bundle.pack(tmp_path)
    os.utime(tmp_path / "trainer" / "__init__.py", (0, time.time() - 1e6))
    assert bundle.pack(tmp_path) == one


def test_a_changed_file_changes_the_key(tmp_path: Path) -> None:
    for package in bundle.PACKAGES:
        (tmp_path / package).mkdir()
    before = bundle.pack(tmp_path).key
    (tmp_path / "trainer" / "new.py").write_text("x = 1\n")
    assert bundle.pack(tmp_path).key != before
    assert before.startswith("code/")
    assert before.endswith(".zip")


def test_it_contains_only_code(tmp_path: Path) -> None:
    path = tmp_path / "bundle.zip"
    path.write_bytes(bundle.pack().content)
    names = zipfile.ZipFile(path).namelist()
    assert "trainer/__main__.py" in names
    assert "contract/env.py" in names
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]


def test_a_change_of_the_controller_or_its_definition_does_not_restart_the_workers(tmp_path: Path) -> None:
    for package in bundle.PACKAGES:
        (tmp_path / package).mkdir()
    before = bundle.pack(tmp_path)
    for name in bundle.LEFT_OUT:
        path = tmp_path / (name if name.endswith(".py") else f"{name}new.py")
        path.parent.mkdir(exist_ok=True)
        path.write_text("x = 1\n")
    assert bundle.pack(tmp_path) == before


def test_workers_import_nothing_that_is_left_out() -> None:
    left_out = [re.escape(name.removesuffix(".py").strip("/").rpartition("/")[2]) for name in bundle.LEFT_OUT]
    imported = re.compile(rf"(contract\.|from contract import .*\b)({'|'.join(left_out)})\b")
    assert imported.search("from contract import env, pod_defaults")
    for package in ("trainer", "examples"):
        for path in (bundle.ROOT / package).rglob("*.py"):
            assert not imported.search(path.read_text()), path


def test_it_runs_the_trainer_with_its_arguments(tmp_path: Path) -> None:
    files = {
        "__main__.py": bundle.START.read_bytes(),
        "requirements/train.txt": b"pyyaml==1.0\n",  # here in another version, which is left alone
        "examples/__init__.py": b"",
        "examples/images/__init__.py": b"",
        "examples/images/train.py": b"import sys; print('images', sys.argv[1:])",
    }
    path = tmp_path / "bundle.zip"
    path.write_bytes(to_zip(files, compressed=False))
    ran = subprocess.run([sys.executable, path, "train", "--x"], capture_output=True, text=True, check=True)
    assert ran.stdout == "images ['--x']\n"


def test_the_users_own_script_replaces_the_default_one(tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    script.write_text(
        "import sys, trainer\n"
        "if __name__ == '__main__':\n"
        "    print(sys.argv[1:], trainer.run.__name__, trainer.run.__module__)\n"
    )
    path = tmp_path / "bundle.zip"
    path.write_bytes(bundle.pack(script=script).content)
    ran = subprocess.run([sys.executable, path, "train", "--lr", "1"], capture_output=True, text=True, check=True)
    assert ran.stdout == "['--lr', '1'] run trainer.runtime\n"
    assert bundle.pack(script=script).key != bundle.pack().key


def test_only_missing_packages_are_installed() -> None:
    assert start.missing(["pyyaml==1.0", "no-such-package==2.0"]) == ["no-such-package==2.0"]


@pytest.mark.parametrize(
    ("arguments", "checkpoints", "needs"),
    [
        pytest.param(["train"], "/data/checkpoints/a", {"numpy"}, id="efs"),
        pytest.param(["train"], "/data/checkpoints/a,s3://bucket/a", {"numpy", "boto3"}, id="both"),
        pytest.param(["train", "--checkpoints=s3://bucket/a"], "", {"numpy", "boto3"}, id="s3-by-flag"),
        pytest.param(["dataset", "--uri", "s3://bucket/a.zip"], "", {"scikit-learn", "boto3"}, id="dataset-from-s3"),
        pytest.param(["dataset", "--uri", "https://host/a.zip"], "", {"scikit-learn"}, id="dataset-from-the-web"),
        pytest.param(["report", "s3.log"], "", set(), id="unknown-command"),
    ],
)
def test_boto3_is_needed_only_for_s3(tmp_path: Path, arguments: list[str], checkpoints: str, needs: set[str]) -> None:
    path = tmp_path / "bundle.zip"
    path.write_bytes(bundle.pack().content)
    found = {line.split("==")[0] for line in start.requirements(path, arguments, checkpoints)}
    assert found & {"numpy", "scikit-learn", "boto3"} == needs


def test_the_constants_repeated_in_the_bundle_equal_the_contract() -> None:
    assert f"{start.SCRIPT}.py" == bundle.SCRIPT
    assert (start.CHECKPOINTS, start.LEFT) == (env.CHECKPOINTS, exit_codes.LEFT)


def test_requirements_are_pinned_as_in_the_lock() -> None:
    locked = "wheel==2.4.2 \\\n    --hash=sha256:aa\ntorch==2.15.0\n"
    assert bundle.pinned(locked, ("wheel",)) == "wheel==2.4.2\n"
    with pytest.raises(KeyError):
        bundle.pinned(locked, ("absent",))


def test_the_code_is_uploaded_under_its_digest() -> None:
    deployed = graph.deploy(graph.stack_config("Pulumi.local.yaml"))
    uploaded = deployed.one("aws:s3/bucketObjectv2:BucketObjectv2")
    assert uploaded.inputs["key"] == bundle.pack().key
    assert deployed.outputs["codeUri"].endswith(bundle.pack().key)
