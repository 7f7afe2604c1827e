"""The root file system of a node."""

from __future__ import annotations

import tomllib
from pathlib import Path

from localcloud.kube.nodes import config, rootfs


def image(folder: Path) -> Path:
    """A containerd root with one blob, two layers and a database."""
    (folder / rootfs.CONTENT / "blobs").mkdir(parents=True)
    (folder / rootfs.CONTENT / "blobs" / "blob").touch()
    for layer in "12":
        (folder / config.SNAPSHOTS / layer / "fs").mkdir(parents=True)
    (folder / "meta.db").write_text("database")
    return folder


def planned(tmp_path: Path) -> dict[str, list[list[str]]]:
    sources = rootfs.Sources(
        image=image(tmp_path / "image"),
        trainer=Path("/cache/trainer"),
        programs={"kubelet": Path("/cache/kubelet")},
        efs=Path("/efs"),
        lustre=Path("/lustre"),
        logs=Path("/l"),
    )
    python = rootfs.Python(Path("/home/me/python"), Path("/home/me/packages"), f"{config.TOOLS}/python/bin/python3")
    return rootfs.mounts(tmp_path / "i-1", sources, python)


def test_host_folders_in_a_node_are_read_only_except_file_systems_and_logs(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    efs, lustre, *logs = plan["read_write"]
    assert (efs, lustre) == (["/efs", config.EFS_DIR], ["/lustre", config.LUSTRE_DIR])
    assert all(source.endswith(".log") for source, _ in logs)
    read_only = dict(plan["read_only"])
    assert read_only["/usr"] == "/usr"
    assert read_only["/home/me/python"] == f"{config.TOOLS}/python"
    assert read_only["/cache/kubelet"] == rootfs.program("kubelet")


def test_image_layers_are_mounted_read_only_and_blobs_through_an_overlay(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    layers = [target for _, target in plan["read_only"] if config.SNAPSHOTS in target]
    assert [target.rsplit("/", 1)[1] for target in layers] == ["1", "2"]
    assert plan["overlays"][0][0] == str(tmp_path / "image" / rootfs.CONTENT)
    assert plan["overlays"][0][1] == str(tmp_path / "i-1" / "content" / "upper")


def test_only_the_databases_of_the_image_are_copied(tmp_path: Path) -> None:
    rootfs.copy_image_databases(image(tmp_path / "image"), tmp_path / "root")
    assert [path.name for path in (tmp_path / "root").rglob("*") if path.is_file()] == ["meta.db"]
    assert (tmp_path / "root" / rootfs.CONTENT).is_dir()


def test_a_node_has_no_users_of_the_host_and_an_empty_home(tmp_path: Path) -> None:
    rootfs.prepare(tmp_path, "ip-10-0-0-5", "10.0.0.5", "0" * 32)
    assert list((tmp_path / "root").iterdir()) == list((tmp_path / "home").iterdir()) == []
    assert not (tmp_path / "etc" / "shadow").exists()
    assert "10.0.0.5 ip-10-0-0-5" in (tmp_path / "etc" / "hosts").read_text()


def test_a_nodes_containerd_shares_nothing_with_one_of_the_host(tmp_path: Path) -> None:
    plan, own = planned(tmp_path), tomllib.loads(config.containerd_config())
    plugins = own["plugins"]
    cri = plugins["io.containerd.grpc.v1.cri"]
    paths = [own["root"], own["state"], own["grpc"]["address"], plugins["io.containerd.internal.v1.opt"]["path"]]
    paths += [cri["cni"]["conf_dir"], cri["containerd"]["runtimes"]["runc"]["base_runtime_spec"], "/etc/containerd"]
    mounted = [*plan["read_only"], *plan["read_write"], *([lower, target] for lower, _, _, target in plan["overlays"])]
    for source, target in mounted:
        assert not source.startswith(
            ("/run/containerd", "/var/lib/containerd", "/etc/containerd", "/etc/cni", "/opt/cni")
        )
        if any(Path(path).is_relative_to(target) or Path(target).is_relative_to(path) for path in paths):
            assert source.startswith(str(tmp_path))  # the node's own folder, or the image's
