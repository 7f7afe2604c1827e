"""Who may import whom (see docs and the style guide): an import that isn't listed here is a mistake.

Imports go one way, settings → infra → workloads, and only `__main__.py` composes. The processes that run elsewhere
(trainer, controller, command line, localcloud) share `contract`, those that ask an API server the leaf `kube`. That
imports go round in no circle is checked in `test_import_circles`.
"""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

import tidewater

ROOT = Path(__file__).resolve().parents[1]
MAX_LINES = 400
MAX_MODULES = 14

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
    "tidewater.cli": {"tidewater.contract", "tidewater.elasticjob", "tidewater.kube"},
    "settings": {"tidewater.contract", "tidewater.elasticjob"},
    "infra": {"settings", "tidewater.contract"},
    "workloads": {"settings", "tidewater.contract", "tidewater.elasticjob", "infra.outputs"},
    "trainer": {*PUBLIC, "tidewater.contract", "tidewater.elastic.data.folders"},
    "tidewater_torchx": {
        "tidewater.contract",
        "tidewater.elasticjob",
        "tidewater.kube",
        "tidewater.cli.errors",
        "tidewater.cli.job.lines",
    },
    "localcloud": set[str](),
    "localcloud.standins": set[str](),
    "localcloud.standins.kubernetes": {"tidewater.kube", "localcloud.standins"},
    "scripts.toolchain": set[str](),
    "scripts": set[str](),
    "examples": {"tidewater"},
    "examples.elasticdl": {"elasticdl"},
    "elasticdl": {
        *PUBLIC,
        "tidewater.contract",
        "tidewater.elasticjob",
        "tidewater.elastic.data.sampler",
        "tidewater.elastic.errors",
        "tidewater.elastic.etcd",
        "tidewater.elastic.group.reducer",
        "tidewater.elastic.session.assembly",
        "tidewater.elastic.session.session",
        "tidewater.elastic.session.step.Outcome",
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
)
PROGRAM = ("settings", "infra", "workloads", "__main__")

# Packages with an `__init__` that names every module and package in it.
WITH_A_TABLE = (
    "tidewater/cli",
    "tidewater/contract",
    "tidewater/controller",
    "tidewater/elastic/group",
    "tidewater/elastic/membership",
    "tidewater/elastic/peer",
    "tidewater/elastic/session",
    "tidewater/elasticjob",
    "tidewater/elasticjob/install",
    "tidewater/kube",
    "infra",
    "infra/preflight",
    "packages/torchx/src/tidewater_torchx",
    "scripts",
    "settings",
    "workloads",
    "workloads/devices",
)


def sources() -> list[Path]:
    """Return the checkout's Python files, tracked or about to be."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.py"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def product() -> list[Path]:
    """Return the files of `sources` that are neither tests nor benchmarks."""
    return [
        path for path in sources() if module_name(path, ROOT).split(".")[0] not in ("tests", "benchmarks", "packages")
    ]


def written(root: Path, files: Mapping[str, str]) -> list[Path]:
    """Write a small source tree for a test and return its files."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return [root / name for name in files]


def module_name(path: Path, root: Path) -> str:
    """Return the dotted name that imports a file."""
    parts = path.relative_to(root).with_suffix("").parts
    if parts[0] == "packages" and parts[2:3] == ("src",):
        parts = parts[3:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path, root: Path) -> Iterator[tuple[int, str]]:
    """Yield line and full name of everything that a file imports, wherever in the file."""
    package = path.relative_to(root).parent.parts
    for node in _nodes(path):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        else:
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


@functools.cache
def _nodes(path: Path) -> tuple[ast.Import | ast.ImportFrom, ...]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return tuple(node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom))


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


def overfull(paths: Iterable[Path], root: Path) -> dict[str, int]:
    """Return the folders with more modules than they may hold, and how many they hold."""
    count = Counter(path.relative_to(root).parent.as_posix() for path in paths if path.name != "__init__.py")
    return {folder: held for folder, held in count.items() if held > MAX_MODULES}


def unmentioned(package: Path) -> list[str]:
    """Return the modules and packages that a package's docstring does not name at the beginning of a line."""
    inside = {path.stem for path in package.glob("*.py")} | {path.parent.name for path in package.glob("*/__init__.py")}
    lines = (ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or "").splitlines()
    named = {line.split()[0].strip("/") for line in lines if line.strip()}
    return sorted(inside - {"__init__"} - named)


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
        ("tidewater/cli/install.py", "tidewater.controller.main"),
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


def test_no_file_is_too_long_to_read() -> None:
    lines = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in sources()}
    long = {name: count for name, count in lines.items() if count > MAX_LINES}
    assert not long, f"more than {MAX_LINES} lines, split by reason to change: {long}"


def test_no_folder_holds_too_many_modules() -> None:
    found = overfull(sources(), ROOT)
    assert not found, f"more than {MAX_MODULES} modules, make packages of what belongs together: {found}"


def test_an_overfull_folder_is_found(tmp_path: Path) -> None:
    files = {f"p/{letter}.py": "" for letter in "abcdefghijklmno"}
    paths = written(tmp_path, {"p/__init__.py": "", **files})
    assert overfull(paths, tmp_path) == {"p": 15}
    assert overfull(paths[:-1], tmp_path) == {}


def test_every_package_has_a_docstring() -> None:
    empty = [
        str(path.relative_to(ROOT))
        for path in sources()
        if path.name == "__init__.py" and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert not empty, f"say in the docstring what a reader finds where: {empty}"


@pytest.mark.parametrize("package", WITH_A_TABLE)
def test_a_packages_docstring_names_what_is_in_it(package: str) -> None:
    missing = unmentioned(ROOT / package)
    assert not missing, f"{package}/__init__.py does not say what these are for: {', '.join(missing)}"


def test_a_module_that_the_docstring_leaves_out_is_found(tmp_path: Path) -> None:
    written(
        tmp_path,
        {"p/__init__.py": '"""Things.\n\na  the first\n"""\n', "p/a.py": "", "p/b.py": "", "p/q/__init__.py": ""},
    )
    assert unmentioned(tmp_path / "p") == ["b", "q"]
