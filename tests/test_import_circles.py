"""No module imports itself by a detour, and no two folders import each other."""

from __future__ import annotations

import graphlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from tests.test_layers import ROOT, imports, module_name, product, sources, written


def cycle(paths: Iterable[Path], root: Path) -> list[str]:
    """Return the modules of an import cycle, the first one again at the end; empty if there is none.

    Imports inside functions and under TYPE_CHECKING count: a reader needs both modules to understand either.
    """
    files = {module_name(path, root): path for path in paths}
    graph = {}
    for name, path in files.items():
        found = {_module(imported, files) for _, imported in imports(path, root)}
        graph[name] = sorted(found - {"", name})
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(reversed(error.args[1]))
    return []


def _module(name: str, files: Mapping[str, Path]) -> str:
    """Return the module that an imported name is or lies in; empty for modules of others."""
    while name and name not in files:
        name = name.rpartition(".")[0]
    return name


def circle(paths: Iterable[Path], root: Path, *, modules: bool) -> list[str]:
    """Return the rooms of a circle of imports, the first one again at the end; empty if there is none.

    The rooms of a folder are the folders in it, each with all that it contains, and with `modules` also its modules. A
    folder is no room next to those in it, since its own modules are what they share and what is made of them.
    """
    files = {module_name(path, root): path for path in paths}
    single = {name for name, path in files.items() if path.name != "__init__.py"}
    graphs: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for name, path in files.items():
        for _, imported in imports(path, root):
            parent, one, other = _rooms(name, _module(imported, files))
            if one and (modules or not single & {one, other}):
                graphs[parent][one].add(other)
    for graph in graphs.values():
        try:
            graphlib.TopologicalSorter(graph).prepare()
        except graphlib.CycleError as error:
            return list(reversed(error.args[1]))
    return []


def _rooms(name: str, other: str) -> tuple[str, str, str]:
    """Return the folder that holds two modules, and the room of each in it; all empty if one is in the other."""
    ours, theirs = name.split("."), other.split(".")
    pairs = zip(ours, theirs, strict=False)
    depth = next((depth for depth, (mine, its) in enumerate(pairs) if mine != its), None)
    if not other or depth is None:
        return "", "", ""
    return ".".join(ours[:depth]), ".".join(ours[: depth + 1]), ".".join(theirs[: depth + 1])


def test_no_module_is_part_of_an_import_cycle() -> None:
    found = cycle(sources(), ROOT)
    assert not found, f"import cycle: {' → '.join(found)}; move what both sides need into a module of its own"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("from p import a", id="at-the-top"),
        pytest.param("from p.a import thing", id="by-a-name-in-the-module"),
        pytest.param("from . import a", id="relative"),
        pytest.param("def late():\n    import p.a", id="in-a-function"),
        pytest.param("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.a import A", id="for-types-only"),
    ],
)
def test_an_import_cycle_is_found(tmp_path: Path, text: str) -> None:
    files = {"p/__init__.py": "", "p/a.py": "from p import b\n", "p/b.py": "import p.c\n", "p/c.py": text}
    found = cycle(written(tmp_path, files), tmp_path)
    assert found[0] == found[-1]
    assert sorted(found[1:]) == ["p.a", "p.b", "p.c"]


def test_a_cycle_through_a_packages_own_init_is_found(tmp_path: Path) -> None:
    files = {"p/__init__.py": "from p.a import A\n", "p/a.py": "from p import VERSION\n"}
    assert sorted(set(cycle(written(tmp_path, files), tmp_path))) == ["p", "p.a"]


def test_modules_that_share_a_third_one_are_no_cycle(tmp_path: Path) -> None:
    files = {"p/__init__.py": "", "p/a.py": "from p import b, c\n", "p/b.py": "from p import c\n", "p/c.py": ""}
    assert cycle(written(tmp_path, files), tmp_path) == []


def test_no_two_folders_import_each_other() -> None:
    found = circle(product(), ROOT, modules=False)
    assert not found, f"folders in a circle: {' → '.join(found)}; move what both need into a third one below them"


def test_the_runtimes_rooms_lie_above_each_other() -> None:
    runtime = [path for path in product() if path.is_relative_to(ROOT / "tidewater" / "elastic")]
    found = circle(runtime, ROOT, modules=True)
    assert not found, f"rooms in a circle: {' → '.join(found)}; move what both need into a third one below them"


@pytest.mark.parametrize(
    ("files", "found"),
    [
        pytest.param({"p/q/a.py": "import p.r.b", "p/r/c.py": "from p.q import d"}, True, id="mutual"),
        pytest.param(
            {"p/q/a.py": "import p.r.b", "p/r/b.py": "import p.s.e", "p/s/e.py": "import p.q.d"}, True, id="3"
        ),
        pytest.param({"p/q/x/a.py": "import p.r.b", "p/r/y/c.py": "import p.q.d"}, True, id="deeper"),
        pytest.param({"p/q/a.py": "import p.r.b"}, False, id="one-way"),
        pytest.param({"p/q/a.py": "import p.errors", "p/main.py": "import p.q.a"}, False, id="a-folder-and-one-in-it"),
    ],
)
def test_folders_that_import_each_other_are_found(tmp_path: Path, files: dict[str, str], found: bool) -> None:
    shared = {"p/q/d.py": "", "p/r/b.py": "", "p/errors.py": ""}
    packages = {f"{folder}/__init__.py": "" for name in (*shared, *files) for folder in list(Path(name).parents)[:-1]}
    rooms = circle(written(tmp_path, {**packages, **shared, **files}), tmp_path, modules=False)
    assert ({"p.q", "p.r"} <= set(rooms)) is found
    assert bool(rooms) is found


def test_a_module_and_a_folder_that_import_each_other_are_found(tmp_path: Path) -> None:
    files = {
        "p/__init__.py": "",
        "p/q/__init__.py": "",
        "p/q/a.py": "import p.b",
        "p/q/c.py": "",
        "p/b.py": "import p.q.c",
    }
    paths = written(tmp_path, files)
    assert sorted(set(circle(paths, tmp_path, modules=True))) == ["p.b", "p.q"]
    assert circle(paths, tmp_path, modules=False) == []
