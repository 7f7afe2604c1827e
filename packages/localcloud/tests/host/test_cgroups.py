"""A node's cgroups in the layouts of v1 and v2: on a plain directory tree, and on this machine's own hierarchies.

On a machine with v1 the real hierarchy of v2 is the one without controllers that is mounted next to v1.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from localcloud.errors import KernelFeature
from localcloud.host import cgroups
from localcloud.instance import Instance

from packages.localcloud.tests.kube.harness import traces

ALL = "cpuset cpu io memory hugetlb pids"
V2_ROOT = cgroups.CGROUP_ROOT if cgroups.is_v2() else cgroups.CGROUP_ROOT / cgroups.V2_HYBRID


def v2_tree(root: Path, controllers: str = ALL, inherited: str = ALL) -> Path:
    """Make the folders and files that the kernel would make for `cgroups.check("lc-check")`."""
    for folder in (root, root / "lc-check", root / "lc-check/node"):
        folder.mkdir(exist_ok=True)
        (folder / "cgroup.controllers").write_text(controllers if folder == root else inherited)
        (folder / "cgroup.procs").write_text("")
    return root


@pytest.fixture
def cgroup() -> Iterator[str]:
    """The name of a cgroup in the real hierarchy of v2."""
    name = f"lctest-{os.getpid()}"
    cgroups.create_v2(name, V2_ROOT)
    yield name
    cgroups.destroy(name, V2_ROOT)


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


@pytest.mark.e2e
def test_nodes_can_have_cgroups_on_this_machine_and_the_check_leaves_none() -> None:
    cgroups.check("lctest-check")
    assert cgroups.folders("lctest-check") == []


def test_controllers_that_v2_lacks_are_named(tmp_path: Path) -> None:
    with pytest.raises(KernelFeature, match="lacks the cgroup controllers cpuset, pids: "):
        cgroups.check("lc-check", v2_tree(tmp_path, "cpu io memory"))


def test_hierarchies_that_v1_lacks_are_named(tmp_path: Path) -> None:
    for name in ("cpu,cpuacct", "cpuset", "pids"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cgroup.procs").write_text("")
    with pytest.raises(KernelFeature, match="lacks the cgroup controllers devices, memory: mount them"):
        cgroups.check("lc-check", tmp_path)


def test_controllers_that_do_not_reach_the_second_level_are_named(tmp_path: Path) -> None:
    with pytest.raises(KernelFeature, match="don't get cpu, cpuset, memory, pids: "):
        cgroups.check("lc-check", v2_tree(tmp_path, inherited=""))


def test_a_controller_that_the_kernel_refuses_is_an_error(tmp_path: Path) -> None:
    (v2_tree(tmp_path) / "cgroup.subtree_control").mkdir()
    with pytest.raises(KernelFeature, match=r"can't be made below .*subtree_control"):
        cgroups.check("lc-check", tmp_path)


def test_a_cgroup_that_takes_no_process_is_an_error(tmp_path: Path) -> None:
    procs = v2_tree(tmp_path) / "lc-check/node/cgroup.procs"
    procs.unlink()
    procs.mkdir()
    with pytest.raises(KernelFeature, match="a process can't join"):
        cgroups.check("lc-check", tmp_path)


def test_a_kernel_that_refuses_the_device_program_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "DEATH_SECONDS", 0.0)
    with pytest.raises(KernelFeature, match="devices of nodes can't be restricted"):
        cgroups.check("lc-check", v2_tree(tmp_path))  # not a cgroup, so nothing can be attached to it


@pytest.mark.parametrize(
    ("number", "text"),
    [(errno.EROFS, "read-only"), (errno.EBUSY, "has processes of its own"), (errno.EOPNOTSUPP, "take none")],
)
def test_what_a_container_lacks_is_said_in_words(number: int, text: str) -> None:
    sentence = cgroups.refused(OSError(number, os.strerror(number), "/x"), Path("/sys/fs/cgroup"))
    assert text in sentence
    assert "virtual machine" in sentence


@pytest.mark.e2e
def test_a_process_of_another_pid_namespace_is_killed_and_the_caller_is_not(cgroup: str) -> None:
    outsider = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        (V2_ROOT / cgroup / "cgroup.procs").write_text(str(outsider.pid))
        code = (
            "import sys; from pathlib import Path; from localcloud.host import cgroups\n"
            "name, root = sys.argv[1], Path(sys.argv[2])\n"
            "assert cgroups.processes(name, root) == {cgroups.OUTSIDE}\n"
            "cgroups.destroy(name, root)\n"
            "assert cgroups.folders(name, root) == []\n"
        )
        inside = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", code, cgroup, str(V2_ROOT)]
        done = subprocess.run(inside, start_new_session=True, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert outsider.wait(60) == -9
    finally:
        outsider.kill()
        outsider.wait()


def test_no_signal_goes_to_pid_0_without_cgroup_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "DEATH_SECONDS", 0.1)
    signalled: list[int] = []
    monkeypatch.setattr("os.kill", lambda pid, number: signalled.append(pid))
    (tmp_path / "memory/lc-1").mkdir(parents=True)
    (tmp_path / "memory/lc-1/cgroup.procs").write_text("0\n4194303\n")
    cgroups.destroy("lc-1", tmp_path)
    assert set(signalled) == {4194303}


def test_the_search_for_leftovers_knows_v1_and_v2(tmp_path: Path) -> None:
    instance = Instance.create(tmp_path / "state")
    roots = {"v1": tmp_path / "v1", "v2": v2_tree(tmp_path / "v2")}
    left = [roots["v1"] / "memory" / instance.cgroup, roots["v2"] / instance.cgroup]
    for folder, root in zip(left, roots.values(), strict=True):
        folder.mkdir(parents=True)
        assert str(folder) in traces(instance, root)
