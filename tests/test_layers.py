"""Who may import whom (see docs and the style guide): an import that isn't listed here is a mistake.

Imports go one way, settings → infra → workloads, and only `__main__.py` composes. The processes that run elsewhere
(trainer, controller, command line, localcloud) share `contract`, those that ask an API server the leaf `kube`. No
modules and no folders import each other.
"""

from __future__ import annotations

import ast
import graphlib
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

import tidewater
from tests.sources import ROOT, imports, module_name, product, sources, written

PUBLIC = {f"tidewater.{name}" for name in tidewater.__all__}

# Part → the parts of this repository that it may import, in addition to itself.
MAY_IMPORT = {
    "tidewater": {"tidewater"},
    "tidewater.contract": set[str](),
    "tidewater.kube": {"tidewater.contract"},
    "tidewater.elasticjob": {"tidewater.contract", "tidewater.kube.kinds"},
    "tidewater.elastic": {"tidewater.contract"},
    "tidewater.controller": {
        "tidewater.contract",
        "tidewater.elasticjob",
        "tidewater.kube.errors",
        "tidewater.kube.kinds",
    },
    "tidewater.project": {"tidewater.contract.code"},
    "tidewater.cli": {"tidewater.contract", "tidewater.elasticjob", "tidewater.kube", "tidewater.project"},
    "tidewater.cli.run": {
        "tidewater.contract",
        "tidewater.cli",
        "tidewater.project",
        "tidewater.elastic.errors",
        "tidewater.elastic.launch",
        "tidewater.elastic.observe",
        "tidewater.elastic.packages.install",
    },
    "tidewater.cli.rehearse": {"tidewater.contract", "tidewater.cli", "tidewater.elastic.launch"},
    "settings": {"tidewater.contract", "tidewater.elasticjob", "tidewater.project"},
    "infra": {"settings", "tidewater.contract"},
    "infra.preflight.cluster": {
        "settings",
        "infra",
        "tidewater.contract",
        "tidewater.elasticjob.names",
        "tidewater.kube",
    },
    "workloads": {"settings", "tidewater.contract", "tidewater.elasticjob", "tidewater.project.pack", "infra.outputs"},
    "workloads.in_bundle": {"tidewater.elastic.launch.project"},
    "trainer": {*PUBLIC, "tidewater.contract", "tidewater.elastic.data.folders"},
    "tidewater_accelerate": {
        *PUBLIC,
        "tidewater.contract",
        "tidewater.elastic.config",
        "tidewater.elastic.errors",
        "tidewater.elastic.flags",
        "tidewater.elastic.launch.device",
        "tidewater.elastic.launch.program",
        "tidewater.elastic.script.entry",
        "tidewater.elastic.script.own_loop",
    },
    "tidewater_torchx": {
        "tidewater.contract",
        "tidewater.elasticjob",
        "tidewater.kube",
        "tidewater.cli.errors",
        "tidewater.cli.job.lines",
    },
    "tidewater_lightning": {
        *PUBLIC,
        "tidewater.contract",
        "tidewater.elastic.launch.device",
        "tidewater.elastic.script.entry",
    },
    "localcloud": set[str](),
    "localcloud.standins": set[str](),
    "localcloud.standins.kubernetes": {"tidewater.kube", "localcloud.standins"},
    "scripts.toolchain": set[str](),
    "scripts": {"settings"},
    "scripts.policy": {"settings", "scripts", "infra.identity", "infra.policies"},
    "scripts.roles": {"settings", "scripts", "infra.policies"},
    "examples": {"tidewater"},
    "examples.elasticdl": {"elasticdl"},
    "elasticdl": {
        *PUBLIC,
        "tidewater.contract",
        "tidewater.elasticjob",
        "tidewater.elastic.buffers.agreement",
        "tidewater.elastic.data.sampler",
        "tidewater.elastic.data.seeds",
        "tidewater.elastic.errors",
        "tidewater.elastic.etcd",
        "tidewater.elastic.group.reducer",
        "tidewater.elastic.method",
        "tidewater.elastic.session.assembly",
        "tidewater.elastic.session.session",
        "tidewater.elastic.session.step.Outcome",
        "tidewater.elastic.session.worker",
        "tidewater.elastic.storage",
        "tidewater.elastic.training",
    },
    "elasticdl.client": {"tidewater.contract", "tidewater.elasticjob", "tidewater.kube", "tidewater.cli", "elasticdl"},
    "__main__": {"settings", "tidewater.contract", "tidewater.elasticjob", "infra", "workloads"},
}
# Tests and benchmarks may import every part. Benchmarks use these helpers of the tests, and only tests of benchmarks
# import benchmarks, so that no import goes round.
EVERY_PART = {part.partition(".")[0] for part in MAY_IMPORT}
HELPERS = {
    "tests.control_plane",
    "tests.processes",
    "tests.elastic.workers",
    "tests.e2e.checkout",
    "tests.e2e.elasticjob",
    "tests.e2e.nodes",
    "tests.e2e.training",
}
MAY_IMPORT |= {
    "tests": {*EVERY_PART, "packages"},
    "packages": {*EVERY_PART, "tests"},
    "tests.benchmarks": {*EVERY_PART, "packages", "tests", "benchmarks"},
    "benchmarks": {*EVERY_PART, *HELPERS},
    "benchmarks.harness": set[str](),
}
OURS = {part.partition(".")[0] for part in MAY_IMPORT}
STANDARD_LIBRARY_ONLY = (
    "tidewater/__init__.py",
    "tidewater/contract",
    "scripts/toolchain",
    "tidewater/controller/start.py",
    "workloads/in_bundle",
    "workloads/devices/in_pod",
    "workloads/logs/in_pod",
)
PROGRAM = ("settings", "infra", "workloads", "__main__")


def part_of(path: Path, root: Path) -> str | None:
    """Return the part of `MAY_IMPORT` that a file belongs to, the narrowest one; None if there is none."""
    name = module_name(path, root)
    return max((part for part in MAY_IMPORT if within(name, part)), key=len, default=None)


def within(name: str, part: str) -> bool:
    """Return whether a dotted name is `part` or lies in it."""
    return name == part or name.startswith(f"{part}.")


def forbidden(path: Path, root: Path) -> list[str]:
    """Return the imports in a file that the table does not allow."""
    part = part_of(path, root)
    if part is None:
        return []
    allowed = {part, *MAY_IMPORT[part]}
    return [
        f"{path.relative_to(root)}:{line} imports {name}, and {part} may import of ours only {sorted(allowed)}"
        for line, name in imports(path, root)
        if name.split(".")[0] in OURS and not any(within(name, other) for other in allowed)
    ]


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


def test_imports_follow_the_table() -> None:
    wrong = [line for path in sources() for line in forbidden(path, ROOT)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("file", "imported"),
    [
        ("tidewater/contract/env.py", "settings"),
        ("settings/model.py", "infra.network"),
        ("infra/cluster.py", "workloads.etcd"),
        ("workloads/etcd.py", "infra.cluster"),
        ("workloads/etcd.py", "trainer"),
        ("tidewater/elastic/step.py", "trainer"),
        ("tidewater/elastic/step.py", "elasticdl.layers"),
        ("packages/elasticdl/src/elasticdl/api/update.py", "tidewater.elastic.session.loop"),
        ("packages/elasticdl/src/elasticdl/api/update.py", "tidewater.elastic.membership.coordinator"),
        ("tidewater/cli/app.py", "localcloud.tools"),
        ("tidewater/elasticjob/install/pods.py", "tidewater.controller.main"),
        ("tidewater/controller/main.py", "tidewater.elastic.session.state"),
        ("tidewater/controller/main.py", "tidewater.kube.server"),
        ("tidewater/kube/server.py", "tidewater.elasticjob.names"),
        ("tidewater/cli/app.py", "tidewater.controller.main"),
        ("tidewater/cli/session.py", "settings"),
        ("tidewater/cli/app.py", "tidewater_torchx.job"),
        ("packages/torchx/src/tidewater_torchx/job.py", "tidewater.controller.decide"),
        ("packages/torchx/src/tidewater_torchx/job.py", "tidewater.cli.app"),
        ("trainer/train.py", "settings"),
        ("packages/localcloud/src/localcloud/daemon.py", "tidewater.contract.labels"),
        ("packages/localcloud/src/localcloud/daemon.py", "scripts.progress"),
        ("packages/localcloud/src/localcloud/daemon.py", "tidewater.kube.server"),
        ("packages/localcloud/src/localcloud/standins/aws/provider.py", "localcloud.instance"),
        ("packages/localcloud/src/localcloud/standins/kubernetes/provider.py", "localcloud.instance"),
        ("scripts/toolchain/paths.py", "scripts.progress"),
        ("scripts/toolchain/paths.py", "localcloud.instance"),
        ("__main__.py", "trainer"),
        ("benchmarks/nodes/turn.py", "tests.e2e.test_1_life"),
        ("benchmarks/harness/plan.py", "benchmarks.nodes.turn"),
        ("tests/cli/fake.py", "benchmarks.controller.jobs"),
        ("tests/e2e/checkout.py", "benchmarks.stack"),
        ("packages/torchx/tests/test_job.py", "benchmarks.lifecycle"),
    ],
)
def test_a_forbidden_import_is_found(tmp_path: Path, file: str, imported: str) -> None:
    (module,) = written(tmp_path, {file: f"import json\n\ndef late():\n    import {imported}\n"})
    (line,) = forbidden(module, tmp_path)
    assert line.startswith(f"{file}:4 imports {imported}, ")


def test_an_allowed_import_is_not_reported(tmp_path: Path) -> None:
    text = "import pulumi\nimport settings\nfrom infra import network\nfrom . import bucket\n"
    (module,) = written(tmp_path, {"infra/cluster.py": text})
    assert forbidden(module, tmp_path) == []


@pytest.mark.parametrize("place", STANDARD_LIBRARY_ONLY)
def test_what_runs_on_a_bare_python_imports_nothing_else(place: str) -> None:
    known = sys.stdlib_module_names | OURS
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in sources()
        if path.is_relative_to(ROOT / place)
        for line, name in imports(path, ROOT)
        if name.split(".")[0] not in known
    ]
    assert not wrong, "\n".join(wrong)


def test_only_settings_reads_the_configuration() -> None:
    readers = {
        str(path.relative_to(ROOT))
        for path in sources()
        if part_of(path, ROOT) in PROGRAM
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "pulumi.Config"
    }
    assert readers <= {"settings/parsing.py"}


def test_the_program_never_asks_whether_it_runs_on_the_one_machine_cloud() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sources()
        if part_of(path, ROOT) in PROGRAM
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.If | ast.IfExp) and "local" in ast.unparse(node.test).lower()
    ]
    assert not wrong, f"decide by a setting instead: {', '.join(wrong)}"


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
