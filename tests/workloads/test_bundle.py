"""The code bundle: the same sources give the same bytes, and it runs."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
import zipfile
from pathlib import Path

import pytest

import settings
from tests import graph
from tidewater.contract import env, exit_codes
from tidewater.contract.archive import to_zip
from tidewater.contract.code import RUNTIME
from workloads import bundle, packages
from workloads.in_bundle import start


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with one file in each folder that is packed."""
    for folder in ("tidewater", *RUNTIME, bundle.DEFAULT_SCRIPT):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text("")
    return tmp_path


def test_the_order_and_age_of_files_do_not_matter(checkout: Path) -> None:
    one = bundle.pack(checkout)
    os.utime(checkout / "tidewater" / "elastic" / "__init__.py", (0, time.time() - 1e6))
    assert bundle.pack(checkout) == one


@pytest.mark.parametrize("folder", [*RUNTIME, bundle.DEFAULT_SCRIPT])
def test_a_changed_file_changes_the_key(checkout: Path, folder: str) -> None:
    before = bundle.pack(checkout).key
    (checkout / folder / "new.py").write_text("x = 1\n")
    assert bundle.pack(checkout).key != before
    assert before.startswith("code/")
    assert before.endswith(".zip")


def test_it_contains_only_code(tmp_path: Path) -> None:
    path = tmp_path / "bundle.zip"
    path.write_bytes(bundle.pack().content)
    names = zipfile.ZipFile(path).namelist()
    assert "tidewater/elastic/__main__.py" in names
    assert "tidewater/contract/env.py" in names
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]


def test_a_script_can_import_the_packages_for_libraries_and_a_change_of_them_restarts_no_other_workers(
    checkout: Path, tmp_path: Path
) -> None:
    own, before = tmp_path / "own.py", bundle.pack(checkout)
    own.write_text("import tidewater_transformers.course\n")
    source = checkout / "packages" / "transformers" / "src" / "tidewater_transformers"
    source.mkdir(parents=True)
    (source / "__init__.py").write_text("")
    (source / "course.py").write_text("print('imported')\n")
    path = tmp_path / "bundle.zip"
    path.write_bytes(bundle.pack(checkout, own).content)
    run = [sys.executable, "-c", "import tidewater_transformers.course"]
    shown = subprocess.run(run, env={"PYTHONPATH": str(path)}, capture_output=True, text=True, check=True)
    assert shown.stdout == "imported\n"
    assert bundle.pack(checkout) == before


def test_a_change_of_the_controller_or_its_definition_does_not_restart_the_workers(checkout: Path) -> None:
    before = bundle.pack(checkout)
    elsewhere = [f"tidewater/{name}/new.py" for name in ("cli", "controller", "elasticjob")]
    for name in [*bundle.LEFT_OUT, *elsewhere]:
        (checkout / name).parent.mkdir(exist_ok=True)
        (checkout / name).write_text("x = 1\n")
    assert bundle.pack(checkout) == before


def test_workers_import_nothing_that_is_left_out() -> None:
    left_out = [Path(name).stem for name in bundle.LEFT_OUT]
    imported = re.compile(rf"(contract\.|from tidewater\.contract import .*\b)({'|'.join(left_out)})\b")
    assert imported.search("from tidewater.contract import env, pod_defaults")
    for folder in ("tidewater/elastic", bundle.DEFAULT_SCRIPT):
        for path in (bundle.ROOT / folder).rglob("*.py"):
            assert not imported.search(path.read_text()), path


def test_it_runs_the_trainer_with_its_arguments(tmp_path: Path) -> None:
    files = {
        "__main__.py": bundle.START.read_bytes(),
        "packages/yaml/yaml.py": b"raise AssertionError('the image has it')",
        "trainer/__init__.py": b"",
        "trainer/train.py": b"import sys, yaml; print('images', sys.argv[1:])",
    }
    path = tmp_path / "bundle.zip"
    path.write_bytes(to_zip(files))
    ran = subprocess.run([sys.executable, path, "train", "--x"], capture_output=True, text=True, check=True)
    assert ran.stdout == "images ['--x']\n"


def test_the_users_own_script_replaces_the_default_one(tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    script.write_text(
        "import sys, tidewater\n"
        "if __name__ == '__main__':\n"
        "    print(sys.argv[1:], tidewater.run.__name__, tidewater.run.__module__)\n"
    )
    path = tmp_path / "bundle.zip"
    path.write_bytes(bundle.pack(script=script).content)
    ran = subprocess.run([sys.executable, path, "train", "--lr", "1"], capture_output=True, text=True, check=True)
    assert ran.stdout == "['--lr', '1'] run tidewater.elastic.runtime\n"
    assert bundle.pack(script=script).key != bundle.pack().key


@pytest.mark.parametrize("name", ["train.py", "trainer.py", "tidewater.py", "cli.py"])
def test_a_users_script_of_any_name_has_the_images_modules_of_any_name(tmp_path: Path, name: str) -> None:
    modules = ("trainer", "cli", "controller", "contract", "settings", "utils", "tidewater_utils", "packages")
    (tmp_path / "image").mkdir()
    for module in modules:
        (tmp_path / "image" / f"{module}.py").write_text('OWNER = "image"\n')
    script, path = tmp_path / name, tmp_path / "bundle.zip"
    script.write_text(
        f"import tidewater, {', '.join(modules)}\n"
        f"print(tidewater.run.__module__, *(each.OWNER for each in ({', '.join(modules)})))\n"
    )
    path.write_bytes(bundle.pack(script=script).content)
    ran = subprocess.run(
        [sys.executable, path, "train"],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "image")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.stdout, ran.stderr) == (f"tidewater.elastic.runtime{' image' * len(modules)}\n", "")


WITHOUT_SITE_PACKAGES = ("-I", "-S")


def run_in_an_empty_image(tmp_path: Path, files: dict[str, bytes], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a bundle in a Python without packages but an empty `torch`, `numpy` and `PIL`, like a bare image."""
    path = tmp_path / "bundle.zip"
    stand_ins = {f"{name}.py": b"" for name in ("torch", "numpy", "PIL")}
    given = {"__main__.py": bundle.START.read_bytes(), **stand_ins, **files}
    path.write_bytes(to_zip(given))
    return subprocess.run(
        [sys.executable, *WITHOUT_SITE_PACKAGES, path, *arguments], capture_output=True, text=True, check=False
    )


def test_packages_that_the_image_lacks_come_from_the_bundle_without_a_network(tmp_path: Path) -> None:
    modules = (packages.METRICS, packages.S3)
    files = {f"packages/{name}/{path}": data for name in modules for path, data in packages.contents(name).items()}
    files |= {"tidewater/__init__.py": b"", "tidewater/elastic/__init__.py": b""}
    files["tidewater/elastic/__main__.py"] = (
        b"import boto3, prometheus_client\n"
        b"s3 = boto3.client('s3', region_name='us-west-2', aws_access_key_id='a', aws_secret_access_key='b')\n"
        b"print(s3.meta.service_model.service_name, boto3.__version__, prometheus_client.__name__)\n"
    )
    versions = packages.locked(packages.LOCK.read_text())
    for _ in range(2):  # the second start of a container finds what the first has unpacked
        ran = run_in_an_empty_image(tmp_path, files, "dataset")
        assert (ran.stderr, ran.stdout) == ("", f"s3 {versions['boto3']} prometheus_client\n")
    assert sorted(path.name for path in (tmp_path / "packages").iterdir()) == ["boto3", "prometheus_client"]


def test_the_digits_are_in_the_bundle(tmp_path: Path) -> None:
    path = tmp_path / "bundle.zip"
    path.write_bytes(bundle.pack().content)
    subprocess.run([sys.executable, path, "dataset", "--name", "digits", "--out", tmp_path / "digits"], check=True)
    assert len(list((tmp_path / "digits").rglob("*.png"))) == 1797


def test_an_image_without_pytorch_is_refused_for_good_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "bundle.zip"
    path.write_bytes(bundle.pack().content)
    command = [sys.executable, *WITHOUT_SITE_PACKAGES, str(path), "train"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == exit_codes.USAGE
    assert ran.stderr.startswith("trainer: this image lacks torch and numpy and PIL: use one with PyTorch")


def test_unpacking_is_undone_if_another_process_was_faster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bundle.zip"
    path.write_bytes(to_zip({"packages/one/one.py": b"x = 1"}))
    rename = Path.rename

    def beaten(draft: Path, folder: Path) -> Path:
        shutil.copytree(draft, folder)
        return rename(draft, folder)

    monkeypatch.setattr(Path, "rename", beaten)
    folder = start.unpack(path, "one", tmp_path / "packages")
    assert (folder / "one.py").read_text() == "x = 1"
    assert list((tmp_path / "packages").iterdir()) == [folder]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        pytest.param({}, {packages.METRICS}, id="efs"),
        pytest.param({"checkpoints": "both"}, {packages.METRICS, packages.S3}, id="both"),
        pytest.param({"trainerArgs": "--checkpoints=s3://b/a"}, {packages.METRICS, packages.S3}, id="s3-by-flag"),
        pytest.param({"dataset": "s3://bucket/a.zip"}, {packages.METRICS, packages.S3}, id="dataset-from-s3"),
        pytest.param({"dataset": "https://host/a.zip"}, {packages.METRICS}, id="dataset-from-the-web"),
    ],
)
def test_boto3_travels_only_if_something_is_in_s3(tmp_path: Path, config: dict[str, str], expected: set[str]) -> None:
    training = settings.parse(graph.stack_config("Pulumi.local.yaml") | config, stack="local").training
    path = tmp_path / "bundle.zip"
    path.write_bytes(bundle.bundle_for(training).content)
    assert set(start.brought(zipfile.ZipFile(path).namelist())) == expected


def test_the_constants_repeated_in_the_bundle_equal_the_contract() -> None:
    assert (f"{start.SCRIPT}.py", start.PROJECT) == (bundle.SCRIPT, bundle.PROJECT)
    ours = (start.USAGE, start.LEFT, start.INSTALLED)
    assert ours == (exit_codes.USAGE, exit_codes.LEFT, env.PACKAGES)


def test_a_run_that_reads_the_file_is_not_disturbed_by_one_that_writes_it(tmp_path: Path) -> None:
    packed = bundle.Bundle(b"code")
    with packed.write(tmp_path).open("rb") as read:
        again = packed.write(tmp_path)
        assert os.fstat(read.fileno()).st_ino != again.stat().st_ino
        assert read.read() == again.read_bytes() == packed.content
    assert list(tmp_path.iterdir()) == [again]


def test_the_code_is_uploaded_under_its_digest() -> None:
    deployed = graph.deploy(graph.stack_config("Pulumi.local.yaml"))
    uploaded = deployed.one("aws:s3/bucketObjectv2:BucketObjectv2")
    assert uploaded.inputs["key"] == bundle.pack().key
    assert deployed.outputs["codeUri"].endswith(bundle.pack().key)


def test_packages_that_a_job_has_installed_come_before_the_images(tmp_path: Path) -> None:
    folder, image = tmp_path / "packages" / str(sysconfig.get_config_var("SOABI")), tmp_path / "image"
    for place, names in ((folder, ("alpha", "yaml")), (image, ("alpha", "beta"))):
        place.mkdir(parents=True)
        for name in names:
            (place / f"{name}.py").write_text(f"OWNER = {place.name!r}\n")
    script = b"import alpha, beta, brought, yaml\nfor each in (alpha, beta, brought, yaml): print(each.OWNER)"
    files = {
        "__main__.py": bundle.START.read_bytes(),
        "packages/brought/alpha.py": b"OWNER = 'bundle'",
        "packages/brought/brought.py": b"import alpha; OWNER = 'bundle'",
        "training_script.py": script,
    }
    path = tmp_path / "bundle.zip"
    path.write_bytes(to_zip(files))
    environ = {**os.environ, env.PACKAGES: str(folder.parent)}
    environ["PYTHONPATH"] = f"{image}{os.pathsep}{environ['PYTHONPATH']}"
    ran = subprocess.run([sys.executable, path, "train"], env=environ, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == [folder.name, "image", "bundle", folder.name]


def test_packages_that_are_not_there_are_named(tmp_path: Path) -> None:
    path = tmp_path / "bundle.zip"
    path.write_bytes(to_zip({"__main__.py": bundle.START.read_bytes(), "training_script.py": b""}))
    environ = {**os.environ, env.PACKAGES: str(tmp_path)}
    ran = subprocess.run([sys.executable, path, "train"], env=environ, capture_output=True, text=True, check=False)
    assert ran.returncode == exit_codes.USAGE
    assert f"{tmp_path}/cpython-" in ran.stderr
    assert "is missing: the job that installs `trainingPackages` makes it" in ran.stderr


def test_workers_get_neither_pip_nor_the_installer() -> None:
    names = zipfile.ZipFile(io.BytesIO(bundle.pack().content)).namelist()
    assert not [name for name in names if "pip/" in name or name.startswith("tidewater/elastic/packages/")]


def test_the_installer_changes_with_the_lock_and_its_wheels_only(tmp_path: Path) -> None:
    (tmp_path / "a.whl").write_bytes(b"a")
    one, other = settings.Packages("alpha==1\n", ()), settings.Packages("alpha==1\n", (tmp_path / "a.whl",))
    assert bundle.installer(one) == bundle.installer(one)
    assert bundle.installer(one) != bundle.installer(other)
    names = zipfile.ZipFile(io.BytesIO(bundle.installer(other).content)).namelist()
    assert {"pip/__main__.py", "packaging/version.py", "lock/requirements.txt", "lock/wheels/a.whl"} <= set(names)
