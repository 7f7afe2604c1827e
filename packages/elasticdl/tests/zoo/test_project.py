"""The folder of a zoo: what `init` writes works, and what is shipped is the same everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from elasticdl.errors import ZooError
from elasticdl.zoo.project import InitOptions, build, files, init


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    """Return a folder that `init` has filled."""
    init(tmp_path / "zoo", InitOptions())
    return tmp_path / "zoo"


def test_init_writes_the_image_and_two_examples(tmp_path: Path) -> None:
    written = init(tmp_path / "zoo", InitOptions(base_image="my/base:1", extra_pypi_index="https://mirror/simple"))
    names = {path.relative_to(tmp_path / "zoo").as_posix() for path in written}
    examples = {"mnist/mnist_functional_api.py", "recommender/wide_and_deep.py"}
    assert names == {"Dockerfile", "README.md", "requirements.txt", *examples}
    dockerfile = (tmp_path / "zoo" / "Dockerfile").read_text()
    assert "FROM my/base:1\n" in dockerfile
    assert "--extra-index-url https://mirror/simple -r" in dockerfile
    assert "@" not in dockerfile
    assert "\nWORKDIR /\n" in dockerfile  # a relative --model_zoo is found, whatever the base image's folder is


def test_init_again_changes_nothing(zoo: Path) -> None:
    before = files(zoo)
    init(zoo, InitOptions())
    assert files(zoo) == before


def test_init_does_not_overwrite(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM mine\n")
    with pytest.raises(ZooError, match=f"{tmp_path}/Dockerfile is there already"):
        init(tmp_path, InitOptions())
    assert [path.name for path in tmp_path.iterdir()] == ["Dockerfile"]


def test_init_in_a_zoo_with_modules_writes_no_examples(tmp_path: Path) -> None:
    (tmp_path / "mine.py").touch()
    written = init(tmp_path, InitOptions())
    assert sorted(path.name for path in written) == ["Dockerfile", "README.md", "requirements.txt"]


def test_the_files_of_a_zoo_are_all_but_hidden_ones_and_caches(zoo: Path) -> None:
    wanted = {path.relative_to(zoo).as_posix(): path.read_bytes() for path in zoo.rglob("*") if path.is_file()}
    for name in ("__pycache__/x.pyc", ".git/config"):
        (zoo / name).parent.mkdir()
        (zoo / name).touch()
    assert files(zoo) == wanted


def test_a_link_out_of_the_zoo_is_refused(zoo: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").touch()
    (zoo / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(ZooError, match=f"{zoo}/link is a link to"):
        files(zoo)


@pytest.mark.parametrize("there", [True, False])
def test_an_empty_zoo_is_refused(tmp_path: Path, there: bool) -> None:
    folder = tmp_path if there else tmp_path / "nothing"
    with pytest.raises(ZooError, match=f"--model_zoo={folder}"):
        files(folder)


def test_a_folder_without_a_dockerfile_is_named(tmp_path: Path) -> None:
    with pytest.raises(ZooError, match=f"{tmp_path} has no Dockerfile"):
        build(tmp_path, "registry/zoo:1")
