"""The engine finds the stand-ins among its plug-ins, and the user's official plug-ins stay usable."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scripts.toolchain import paths, plugins, stack_python

BIN = paths.CHECKOUT / "packages/localcloud/src/localcloud/standins/bin"


@pytest.fixture
def users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the user's plug-in cache, with an official aws plug-in and another one."""
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "pulumi"))
    cache = tmp_path / "pulumi" / "plugins"
    for name in ("aws", "random"):
        folder = cache / f"resource-{name}-v99.0.0"
        folder.mkdir(parents=True)
        (folder / f"pulumi-resource-{name}").write_text("official")
    return cache


def installed(tmp_path: Path, *standins: str) -> Path:
    """Return the plug-in cache after an installation in `tmp_path`."""
    plugins.install(tmp_path / "bin", tmp_path / "home", stack_python(), standins)
    return tmp_path / "home" / "plugins"


def test_a_provider_stand_in_has_the_version_that_the_installed_sdk_requires(tmp_path: Path, users: Path) -> None:
    cache = installed(tmp_path, "eks")
    (folder,) = cache.glob("resource-eks-v*")
    assert folder.name == f"resource-eks-v{plugins._version(stack_python(), 'eks')}"
    assert (folder / "pulumi-resource-eks").resolve() == BIN / "pulumi-resource-eks"


def test_the_language_host_is_next_to_the_engines_own_executable(tmp_path: Path, users: Path) -> None:
    installed(tmp_path, "aws")
    engine = tmp_path / "bin" / "pulumi"
    assert engine.resolve() == engine
    assert os.access(engine.with_name("pulumi-language-python"), os.X_OK)


def test_the_engine_is_copied_where_hard_links_are_impossible(
    tmp_path: Path, users: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(plugins, "binary", lambda name: BIN / "pulumi-resource-aws")
    installed(tmp_path, "aws")
    copied = (tmp_path / "bin" / "pulumi").stat().st_ino
    installed(tmp_path, "aws")
    assert (tmp_path / "bin" / "pulumi").stat().st_ino == copied, "an unchanged engine is not copied again"


def test_a_stand_in_replaces_the_official_plug_in_unless_it_is_switched_off(tmp_path: Path, users: Path) -> None:
    assert not (installed(tmp_path, "aws", "eks") / "resource-aws-v99.0.0").exists()
    cache = installed(tmp_path, "eks")
    assert (cache / "resource-aws-v99.0.0" / "pulumi-resource-aws").read_text() == "official"
    assert [path.name for path in cache.glob("resource-aws-*")] == ["resource-aws-v99.0.0"]


def test_other_official_plug_ins_are_in_folders_that_the_engine_lists(tmp_path: Path, users: Path) -> None:
    folder = installed(tmp_path, "aws") / "resource-random-v99.0.0"
    assert folder.is_dir()
    assert not folder.is_symlink()  # the engine lists only real folders
    assert (folder / "pulumi-resource-random").read_text() == "official"


def test_a_plug_in_removed_from_the_users_cache_disappears_and_a_downloaded_one_stays(
    tmp_path: Path, users: Path
) -> None:
    cache = installed(tmp_path, "aws")
    (cache / "resource-tls-v1.0.0").mkdir()
    (cache / "resource-tls-v1.0.0" / "pulumi-resource-tls").write_text("downloaded by the engine")
    (users / "resource-random-v99.0.0").rename(users.parent / "elsewhere")
    installed(tmp_path, "aws")
    assert not (cache / "resource-random-v99.0.0").exists()
    assert (cache / "resource-tls-v1.0.0" / "pulumi-resource-tls").exists()


def test_nothing_is_written_into_the_users_cache(tmp_path: Path, users: Path) -> None:
    before = sorted(users.rglob("*"))
    installed(tmp_path, *plugins.STANDINS)
    assert sorted(users.rglob("*")) == before


def test_without_stand_ins_the_cache_is_the_users_own(tmp_path: Path, users: Path) -> None:
    installed(tmp_path, "aws")
    assert installed(tmp_path).resolve() == users


def test_the_users_cache_is_found_from_within_an_activated_shell(
    tmp_path: Path, users: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path, "aws")
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "home"))
    assert (installed(tmp_path, "eks") / "resource-aws-v99.0.0").is_dir()
    assert installed(tmp_path).resolve() == users
