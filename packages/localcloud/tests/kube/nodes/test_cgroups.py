"""A node's cgroups in the layouts of v1 and v2, on a plain directory tree."""

from __future__ import annotations

from pathlib import Path

from localcloud.kube.nodes import cgroups


def test_v1_gets_one_folder_per_hierarchy_but_none_for_links_or_v2(tmp_path: Path) -> None:
    for name in ("cpu,cpuacct", "memory", "unified"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cgroup.procs").write_text("")
    (tmp_path / "cpu").symlink_to("cpu,cpuacct")
    made = cgroups.create("lc-1/i-1", tmp_path)
    assert made == [tmp_path / "cpu,cpuacct/lc-1/i-1", tmp_path / "memory/lc-1/i-1"]


def test_v2_delegates_controllers_to_the_node_which_makes_its_own_leaf(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory")
    (tmp_path / "cgroup.procs").write_text("")
    (tmp_path / "lc-1").mkdir()  # the kernel creates the file; a plain directory does not
    (tmp_path / "lc-1" / "cgroup.controllers").write_text("cpu memory")
    assert cgroups.create("lc-1/i-1", tmp_path) == [tmp_path / "lc-1/i-1"]
    assert (tmp_path / "lc-1/cgroup.subtree_control").read_text() == "+memory"
    assert not (tmp_path / "lc-1/i-1/cgroup.subtree_control").exists()
    assert cgroups.for_init("lc-1/i-1", tmp_path)["cgroups"] == [[str(tmp_path / "lc-1/i-1"), ""]]


def test_a_nodes_cgroups_have_the_names_of_the_hosts_hierarchies(tmp_path: Path) -> None:
    (tmp_path / "cpu,cpuacct").mkdir()
    (tmp_path / "cpu,cpuacct" / "cgroup.procs").write_text("")
    (tmp_path / "cpu").symlink_to("cpu,cpuacct")
    plan = cgroups.for_init("lc-1/i-1", tmp_path)
    assert plan == {
        "joined": [str(tmp_path / "cpu,cpuacct/lc-1/i-1")],
        "cgroups": [[str(tmp_path / "cpu,cpuacct/lc-1/i-1"), "cpu,cpuacct"]],
        "cgroup_links": {"cpu": "cpu,cpuacct"},
    }


def test_a_node_joins_v2_in_addition_to_v1_but_does_not_see_it(tmp_path: Path) -> None:
    (tmp_path / "unified").mkdir()
    (tmp_path / "unified" / "cgroup.controllers").write_text("")
    assert cgroups.create_v2("lc-1/i-1", tmp_path) == tmp_path / "unified/lc-1/i-1"
    plan = cgroups.for_init("lc-1/i-1", tmp_path)
    assert (plan["joined"], plan["cgroups"]) == ([str(tmp_path / "unified/lc-1/i-1")], [])


def test_nested_cgroups_are_removed(tmp_path: Path) -> None:
    (tmp_path / "memory/lc-1/i-1/kubepods/pod1").mkdir(parents=True)
    cgroups.destroy("lc-1/i-1", tmp_path)
    assert not (tmp_path / "memory/lc-1/i-1").exists()
    assert (tmp_path / "memory/lc-1").exists()
