"""The folder with people's training code: what goes to the workers, and a sentence for each mistake."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

import settings
from tests import graph
from tidewater.project.folder import LARGEST_MIB

MIB = 1 << 20


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a script, a package, a configuration file, and what never goes."""
    folder = tmp_path / "project"
    add(folder, "train.py", "tools/job/run.py", "tools/job/__main__.py", "net/model.py", "conf/small.yaml")
    add(folder, ".git/HEAD", "net/__pycache__/model.pyc", ".gitignore", "venv/pyvenv.cfg", "venv/lib/x.py")
    add(folder, "env/conda-meta/history", ".mypy_cache/CACHEDIR.TAG", ".mypy_cache/3.11/x.json")
    return folder


EVERYTHING = {"train.py", "tools/job/run.py", "tools/job/__main__.py", "net/model.py", "conf/small.yaml"}


def add(folder: Path, *names: str, text: str = "") -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def found(folder: Path, script: str = "train.py") -> settings.Code:
    training = graph.parsed(trainingCode=str(folder), trainingScript=script).training
    assert training.code
    assert training.script is None
    return training.code


def mistake(**changes: str) -> str:
    with pytest.raises(settings.ConfigurationError) as refused:
        graph.parsed(**changes)
    (text,) = refused.value.mistakes
    return text


def test_everything_goes_but_version_control_environments_and_caches(project: Path) -> None:
    assert set(found(project).files) == EVERYTHING


@pytest.mark.parametrize(
    ("files", "left"),
    [
        pytest.param({".gitignore": "conf\n*.pyc"}, EVERYTHING - {"conf/small.yaml"}, id="gitignore"),
        pytest.param(
            {".gitignore": "conf", ".tidewaterignore": "/net/"}, EVERYTHING - {"net/model.py"}, id="own-first"
        ),
        pytest.param({".gitignore": "conf", ".tidewaterignore": ""}, EVERYTHING, id="an-empty-one-of-its-own"),
        pytest.param({".gitignore": "tools/*\n!tools/job"}, EVERYTHING, id="taken-in-again"),
        pytest.param(
            {".gitignore": "conf/\n!conf/small.yaml"}, EVERYTHING - {"conf/small.yaml"}, id="not-from-a-folder-left-out"
        ),
        pytest.param(
            {".gitignore": "*.py\n!net/\n!/train.py"},
            {"train.py", "conf/small.yaml"},
            id="a-folder-taken-in-and-not-its-files",
        ),
        pytest.param(
            {".gitignore": "*\n!net\n!net/**\n!*.py"},
            {"train.py", "net/model.py"},
            id="a-folder-taken-in-with-its-files",
        ),
        pytest.param({".gitignore": "/*/**\n!*.yaml "}, {"train.py", "conf/small.yaml"}, id="files-not-folders"),
        pytest.param({".gitignore": "conf\n!conf\nconf"}, EVERYTHING - {"conf/small.yaml"}, id="twice"),
        pytest.param({".gitignore": "**/model.py\r\n#net\r\n"}, EVERYTHING - {"net/model.py"}, id="other-line-ends"),
        pytest.param({".gitignore": "!\n\\\nconf"}, EVERYTHING - {"conf/small.yaml"}, id="lines-without-a-meaning"),
    ],
)
def test_what_an_ignore_file_names_is_left_out(project: Path, files: Mapping[str, str], left: set[str]) -> None:
    for name, text in files.items():
        add(project, name, text=text)
    assert set(found(project).files) == left


def test_links_inside_the_folder_stay_links(project: Path) -> None:
    (project / "conf" / "default.yaml").symlink_to("small.yaml")
    (project / "conf" / "absolute.py").symlink_to(project / "net" / "model.py")
    (project / "tools" / "net").symlink_to("../../project/net")
    (project / ".#train.py").symlink_to("me@host.1234")  # Emacs' lock
    assert found(project).links == {
        "conf/default.yaml": "small.yaml",
        "conf/absolute.py": "../net/model.py",
        "tools/net": "../net",
    }


@pytest.mark.parametrize("script", ["train.py", "./net/../train.py", "tools/job/run.py", "latest.py", "linked/run.py"])
def test_a_script_in_the_folder_may_run(project: Path, script: str) -> None:
    (project / "latest.py").symlink_to("train.py")
    (project / "linked").symlink_to("tools/job")
    assert found(project, script).script == script


@pytest.mark.parametrize("module", ["train", "tools.job.run", "tools.job"])
def test_a_module_in_the_folder_may_run(project: Path, module: str) -> None:
    assert found(project, f"-m {module}").script == f"-m {module}"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        pytest.param("", 'trainingScript = "": must name a .py file in trainingCode', id="none"),
        pytest.param("model.py", "is not in trainingCode ({root}); give its path from that folder", id="no-such-file"),
        pytest.param("{root}/train.py", "is outside trainingCode ({root}); give the path", id="absolute"),
        pytest.param("../other.py", "is outside trainingCode ({root}); give the path of a file in that", id="outside"),
        pytest.param("-m net", "has neither net.py nor net/__main__.py", id="a-package-that-does-not-run"),
        pytest.param("-m torch.distributed.run", "which has neither torch/distributed/run.py nor", id="not-ours"),
        pytest.param("old/x.py", "is left out: .gitignore has the line 'old/'", id="ignored-folder"),
        pytest.param("-m old.x", "is left out: .gitignore has the line 'old/'", id="ignored-module"),
        pytest.param("test_it.py", "is left out: .gitignore has the line 'test_*'", id="ignored-file"),
        pytest.param("venv/lib/x.py", "is left out: venv/ has pyvenv.cfg, and environments", id="environment"),
        pytest.param("__pycache__/x.py", "is left out: __pycache__ never goes to the workers", id="cache"),
    ],
)
def test_a_script_that_would_not_be_there_is_refused(project: Path, script: str, words: str) -> None:
    add(project, ".gitignore", text="# old\n\nold/\ntest_*\n")
    add(project, "old/x.py", "test_it.py", "__pycache__/x.py")
    text = mistake(trainingCode=str(project), trainingScript=script.format(root=project))
    assert text.startswith("trainingScript = ")
    assert words.format(root=project) in text


def test_the_path_of_a_script_from_elsewhere_is_corrected(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project.parent)
    text = mistake(trainingCode="project", trainingScript="project/tools/job/run.py")
    assert text.endswith("is not in trainingCode (project); give its path from that folder: tools/job/run.py")


def test_a_script_alone_must_be_a_file() -> None:
    assert "is not a file; give its path from" in mistake(trainingScript="no-such.py")
    assert "needs the folder with the module: set trainingCode" in mistake(trainingScript="-m package.module")


@pytest.mark.parametrize(
    ("files", "words"),
    [
        pytest.param({}, "has no file that can go", id="empty"),
        pytest.param({".git/HEAD": ""}, "has no file that can go", id="only-what-never-goes"),
        pytest.param({"a.py": "", ".gitignore": "*"}, "no file is left of it: .gitignore leaves out", id="all-ignored"),
    ],
)
def test_a_folder_without_files_is_refused(tmp_path: Path, files: Mapping[str, str], words: str) -> None:
    for name, text in files.items():
        add(tmp_path, name, text=text)
    text = mistake(trainingCode=str(tmp_path), trainingScript="train.py")
    assert text.startswith(f"trainingCode = {tmp_path}: {words}")


def test_a_file_is_no_folder(project: Path) -> None:
    assert "is not a folder; give its path from" in mistake(trainingCode=str(project / "train.py"))


def test_a_folder_that_is_too_large_is_refused_with_its_largest_files(project: Path) -> None:
    for name, mib in {"data/a.bin": 1500, "data/b.bin": 500, "model.pt": 48, "ignored.bin": 4000}.items():
        add(project, name)
        os.truncate(project / name, mib * MIB)  # takes no space
    add(project, ".gitignore", text="ignored.bin")
    text = mistake(trainingCode=str(project), trainingScript="train.py")
    assert "has 2048.0 MiB, and 256 MiB can go to the workers; name what isn't code in .gitignore, and put data" in text
    assert "The largest files: data/a.bin (1500.0 MiB), data/b.bin (500.0 MiB), model.pt (48.0 MiB), " in text
    add(project, ".tidewaterignore", text="*.bin\nmodel.pt")
    assert set(found(project).files) == EVERYTHING


def test_a_link_that_leads_out_of_the_folder_is_refused_by_name(project: Path) -> None:
    (project / "data").symlink_to("/mnt/images")
    (project / "up.py").symlink_to("../other.py")
    text = mistake(trainingCode=str(project), trainingScript="train.py")
    assert "data, up.py: a link that leads out of the folder can't go" in text
    assert "or name the link in .gitignore" in text
    add(project, ".gitignore", text="data\nup.py")
    assert found(project).links == {}


def test_a_link_to_what_is_left_out_is_refused_by_name(project: Path) -> None:
    add(project, ".gitignore", text="runs/")
    add(project, "runs/1/best.pt")
    (project / "best.pt").symlink_to("runs/1/best.pt")
    text = mistake(trainingCode=str(project), trainingScript="train.py")
    assert "best.pt → runs/1/best.pt: the link stays and what it leads to is left out" in text


def test_a_message_names_some_of_many_links(project: Path) -> None:
    for number in range(9):
        (project / f"link{number}").symlink_to("/tmp")
    text = mistake(trainingCode=str(project), trainingScript="train.py")
    assert "link0, link1, link2, link3, link4 and 4 more: a link" in text


def test_the_size_limit_is_the_one_in_the_description() -> None:
    assert f"{LARGEST_MIB} MiB at most" in (graph.ROOT / "Pulumi.yaml").read_text().partition("trainingCode:\n")[2]
