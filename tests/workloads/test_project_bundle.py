"""A folder with training code: the same bytes for the same code, and it runs in a worker as it runs at home."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests import graph
from tidewater.contract import exit_codes
from workloads import bundle

SCRIPT = """\
import json, os, pathlib, sys
import net.model, plain
from conf import NAME
print(json.dumps([__name__, NAME, net.model.NAME, plain.NAME, os.path.basename(os.getcwd()), sys.argv[1:]]))
print(pathlib.Path("conf/small.yaml").read_text(), pathlib.Path("conf/default.yaml").read_text())
import tidewater
print(tidewater.run.__module__)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a script in three places, modules, a configuration file and a link to it."""
    folder = tmp_path / "project"
    files = {
        "train.py": SCRIPT,
        "tools/__init__.py": "",
        "tools/train.py": SCRIPT,
        "net/model.py": "NAME = 'model'\n",
        "plain.py": "NAME = 'plain'\n",
        "conf/__init__.py": "NAME = 'conf'\n",
        "conf/small.yaml": "small",
        "tidewater.py": "raise AssertionError('the runtime comes from the bundle')\n",
        ".gitignore": "*.log\n",
        "run.log": "",
        "run.sh": "#!/bin/sh\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "run.sh").chmod(0o755)
    (folder / "conf" / "default.yaml").symlink_to("small.yaml")
    return folder


def packed(folder: Path, script: str = "train.py") -> bundle.Bundle:
    return bundle.bundle_for(graph.parsed(trainingCode=str(folder), trainingScript=script).training)


def run(tmp_path: Path, folder: Path, script: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a folder as a worker's container does."""
    place = tmp_path / "code"
    place.mkdir(exist_ok=True)
    (place / "bundle.zip").write_bytes(packed(folder, script).content)
    command = [sys.executable, str(place / "bundle.zip"), "train", "--lr", "1"]
    env = {**os.environ, **environ}
    return subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("script", ["train.py", "-m train", "-m tools.train"])
def test_modules_configuration_files_and_links_are_there_as_at_home(tmp_path: Path, project: Path, script: str) -> None:
    expected = (
        '["__main__", "conf", "model", "plain", "training_project", ["--lr", "1"]]\n'
        "small small\n"
        "tidewater.elastic.runtime\n"
    )
    for _ in range(2):  # a container that starts again finds the folder
        ran = run(tmp_path, project, script)
        assert (ran.stdout, ran.stderr) == (expected, "")
    assert sorted(path.name for path in (tmp_path / "code").iterdir()) == ["bundle.zip", "training_project"]
    assert os.access(tmp_path / "code" / "training_project" / "run.sh", os.X_OK)
    assert os.readlink(tmp_path / "code" / "training_project" / "conf" / "default.yaml") == "small.yaml"


def test_a_script_in_a_folder_of_the_folder_imports_what_is_next_to_it(tmp_path: Path, project: Path) -> None:
    (project / "tools" / "train.py").write_text("import sys, helper; print(helper.NAME, sys.path[0], sys.argv[0])")
    (project / "tools" / "helper.py").write_text("NAME = 'helper'")
    folder = tmp_path / "code" / "training_project" / "tools"
    assert run(tmp_path, project, "tools/train.py").stdout.split() == ["helper", str(folder), f"{folder}/train.py"]


def test_order_age_and_ignored_files_do_not_change_the_key(project: Path) -> None:
    before = packed(project)
    for path in sorted(project.rglob("*"), reverse=True):
        if path.is_file():
            content = path.read_bytes()
            mode = path.stat().st_mode
            if not path.is_symlink():
                path.unlink()
                path.write_bytes(content)
                path.chmod(mode | 0o040)
                os.utime(path, (1, 1))
    (project / "run.log").write_text("more")
    (project / ".gitignore").write_text("# what a run writes\n*.log\n")
    (project / "net" / "__pycache__").mkdir()
    (project / "net" / "__pycache__" / "model.pyc").write_bytes(b"x")
    assert packed(project) == before


@pytest.mark.parametrize("name", ["train.py", "net/model.py", "conf/small.yaml", "new.py"])
def test_a_changed_file_changes_the_key(project: Path, name: str) -> None:
    before = packed(project).key
    (project / name).write_text("x = 2\n")
    assert packed(project).key != before


def test_another_script_link_or_executable_changes_the_key(project: Path) -> None:
    keys = {packed(project).key, packed(project, "-m train").key}
    (project / "run.sh").chmod(0o644)
    keys.add(packed(project).key)
    (project / "again.yaml").symlink_to("conf/small.yaml")
    keys.add(packed(project).key)
    assert len(keys) == 4


def test_the_archive_has_only_what_goes(project: Path) -> None:
    zipped = zipfile.ZipFile(io.BytesIO(packed(project).content))
    with tarfile.open(fileobj=io.BytesIO(zipped.read(f"{bundle.PROJECT}.tar"))) as tar:
        names = tar.getnames()
    assert f"{bundle.PROJECT}/train.py" in names
    assert not [name for name in names if name.endswith((".log", ".gitignore"))]
    assert not [name for name in zipped.namelist() if name.startswith(f"{bundle.DEFAULT_SCRIPT}/")]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        pytest.param("import json\nimport no_such_library.layers\n", "training_project/train.py, line 2", id="script"),
        pytest.param("import net.lacks\n", "training_project/net/lacks.py, line 1", id="module"),
    ],
)
def test_a_module_that_is_not_there_is_one_sentence_with_the_remedy(
    tmp_path: Path, project: Path, text: str, place: str
) -> None:
    (project / "train.py").write_text(text)
    (project / "net" / "lacks.py").write_text("import no_such_library\n")
    for script in ("train.py", "-m train"):
        ran = run(tmp_path, project, script)
        assert ran.returncode == exit_codes.USAGE
        assert ran.stderr.startswith(
            f"trainer: {tmp_path / 'code' / place}, imports no_such_library, and the worker has"
        )
        assert "to the lock of trainingPackages; if it is a module of yours, set trainingCode to" in ran.stderr
        assert ran.stderr.count("\n") == 1


def test_a_single_script_that_lacks_a_module_names_it_too(tmp_path: Path) -> None:
    script, path = tmp_path / "train.py", tmp_path / "bundle.zip"
    script.write_text("import my_helpers\n")
    path.write_bytes(bundle.pack(script=script).content)
    ran = subprocess.run([sys.executable, path, "train"], capture_output=True, text=True, check=False)
    assert ran.returncode == exit_codes.USAGE
    assert f"{path}/training_script.py, line 1, imports my_helpers, and the worker has no such module" in ran.stderr


def test_other_errors_of_the_script_keep_their_traceback(tmp_path: Path, project: Path) -> None:
    (project / "train.py").write_text("import json\njson.no_such_function()\n")
    ran = run(tmp_path, project, "train.py")
    assert ran.returncode == exit_codes.FAILED
    assert "AttributeError: module 'json' has no attribute 'no_such_function'" in ran.stderr


def test_processes_that_the_script_starts_find_its_modules(tmp_path: Path, project: Path) -> None:
    (project / "train.py").write_text(
        "import multiprocessing\n"
        "from net.model import NAME\n"
        "class Data:\n"
        "    def name(self): return NAME\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print(pool.apply(Data().name))\n"
    )
    ran = run(tmp_path, project, "train.py")
    assert (ran.stdout, ran.stderr) == ("model\n", "")


def test_the_folder_is_uploaded_under_its_digest(project: Path) -> None:
    config = graph.stack_config("Pulumi.local.yaml") | {"trainingCode": str(project), "trainingScript": "train.py"}
    uploaded = graph.deploy(config).one("aws:s3/bucketObjectv2:BucketObjectv2")
    assert uploaded.inputs["key"] == packed(project).key
