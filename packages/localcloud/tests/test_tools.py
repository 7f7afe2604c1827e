"""The programs that the cloud runs come from one folder, which an environment variable names."""

from __future__ import annotations

from pathlib import Path

import pytest
from localcloud import tools
from localcloud.errors import ToolMissing


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Everything that the cloud needs, each in the form of a link."""
    (tmp_path / "real").mkdir()
    folder = tmp_path / "tools"
    (folder / "bin").mkdir(parents=True)
    for name in tools.PROGRAMS:
        (tmp_path / "real" / name).touch()
        (folder / "bin" / name).symlink_to(tmp_path / "real" / name)
    for name in ("node-image", "site-packages"):
        (folder / name).symlink_to(tmp_path / "real")
    monkeypatch.setenv("LOCALCLOUD_TOOLS", str(folder))
    return folder


def test_what_is_found_is_the_thing_itself_and_no_link(folder: Path) -> None:
    tools.check()
    assert tools.binary("etcd") == folder.parent / "real" / "etcd"
    assert tools.node_image() == tools.site_packages() == folder.parent / "real"


def test_without_the_variable_its_name_and_the_remedy_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCALCLOUD_TOOLS", raising=False)
    with pytest.raises(ToolMissing, match=r"LOCALCLOUD_TOOLS is not set, so bin/etcd .*activate"):
        tools.check()


@pytest.mark.parametrize("part", ["bin/kubelet", "node-image", "site-packages"])
def test_a_missing_part_is_named_with_the_remedy(folder: Path, part: str) -> None:
    (folder / part).unlink()
    with pytest.raises(ToolMissing, match=rf"{part} is missing \(LOCALCLOUD_TOOLS is {folder}\).*make install"):
        tools.check()


def test_a_link_that_leads_nowhere_counts_as_missing(folder: Path) -> None:
    (folder.parent / "real" / "kubelet").unlink()
    with pytest.raises(ToolMissing, match="kubelet is missing"):
        tools.check()


def test_another_version_of_kubernetes_is_used_where_it_is_asked_for(folder: Path) -> None:
    assert tools.kubernetes_versions() == [tools.KUBERNETES]
    older = folder / "kubernetes" / "1.9"
    older.mkdir(parents=True)
    (older / "kubelet").touch()
    assert tools.kubernetes_versions() == ["1.9", tools.KUBERNETES]
    assert tools.kubernetes("1.9", "kubelet") == older / "kubelet"
    assert tools.kubernetes(tools.KUBERNETES, "kubelet") == tools.binary("kubelet")
    with pytest.raises(ToolMissing, match=r"kubernetes/1\.9/kube-proxy is missing"):
        tools.kubernetes("1.9", "kube-proxy")
