"""Run the tests that a change can reach: `make check`.

python -m tests.suite.selection check -n 2 # modules that have not passed with the files that they reach now
python -m tests.suite.selection record     # remember the modules that passed in the runs of build/tests*.xml

A test module runs again when one of the files that it reaches has changed. It reaches:
- the modules that it imports, wherever in the file, the conftests of its folders, and what these import in turn;
- a module, if a string contains its dotted name, such as the argument of `python -m`;
- a file of another kind, if its name is in the text of one of these modules;
- the files in its folder, and in each folder with its path in the text, if one of these modules lists folders;
- every file but other tests and Markdown, if one of them asks git for the files: the tests of stacks copy all of them;
- the locked requirements and pyproject.toml.
"""

from __future__ import annotations

import ast
import hashlib
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from xml.etree import ElementTree

from scripts.toolchain import paths, torchx_python

ROOT = Path(__file__).resolve().parents[2]
REPORT = ROOT / "build" / "tests.xml"
ALWAYS = re.compile(r"pyproject\.toml|requirements/.*|trainer/requirements\.txt")
LISTS = re.compile(r"\b(?:glob|rglob|iterdir|os\.walk|copytree|package-data)\b")
ASKS_GIT = "ls-files"
SOAK = re.compile(r"^pytestmark = .*\bsoak\b", re.MULTILINE)
DOTTED = re.compile(r"[a-z_]\w*(?:\.\w+)+")
SHOWN = 20
OF_TORCHX = "packages/torchx/"


@dataclass(frozen=True)
class Tree:
    """The files of a checkout, by their paths in it, with their contents."""

    files: Mapping[str, bytes]

    @cached_property
    def modules(self) -> dict[str, str]:
        """The paths of all Python files by the dotted names of their modules."""
        return {module_name(path): path for path in self.files if path.endswith(".py")}

    @cached_property
    def texts(self) -> dict[str, str]:
        """The texts of all Python files."""
        return {path: self.files[path].decode() for path in self.modules.values()}

    @cached_property
    def others(self) -> dict[str, set[str]]:
        """The paths of all other files by their names."""
        found: dict[str, set[str]] = {}
        for path in self.files:
            if not path.endswith(".py"):
                found.setdefault(Path(path).name, set()).add(path)
        return found

    @cached_property
    def folders(self) -> dict[str, set[str]]:
        """The paths of all files but tests in each folder, at any depth."""
        found: dict[str, set[str]] = {}
        for path in self.files:
            for folder in () if is_test(path) else Path(path).parents[:-1]:
                found.setdefault(str(folder), set()).add(path)
        return found

    def _folders_of(self, part: str, own: Path) -> Iterator[str]:
        """Yield the folders that a part of a path may mean: a name alone is of the same part of the checkout."""
        for folder in self.folders:
            near = "/" in part or folder.split("/")[:2] == str(own).split("/")[:2]
            if folder == part or (near and folder.endswith(f"/{part}")):
                yield folder

    def tests(self) -> list[str]:
        """Return the test modules that `make test` runs."""
        return sorted(path for path in self.texts if is_test(path) and not SOAK.search(self.texts[path]))

    def direct(self, path: str) -> set[str]:
        """Return the files that one Python file reaches by itself."""
        text = self.texts[path]
        found = {file for name in names(text, module_name(path), path) for file in self._of(name)}
        found |= {file for name in self.modules.keys() & set(commands(text)) for file in self._of(name)}
        words = set(re.split(r"[^\w.-]+", text))
        found |= {file for word in words & self.others.keys() for file in self.others[word]}
        if is_test(path):
            found |= {each for each in map(str, conftests(path)) if each in self.files}
        if LISTS.search(text):
            own = Path(path).parent
            listed = {folder for part in paths_in(text) for folder in self._folders_of(part, own)}
            found |= {file for folder in listed | {str(own)} for file in self.folders.get(folder, set())}
        if ASKS_GIT in text:
            found |= {each for each in self.files if not is_test(each) and not each.endswith(".md")}
        return found

    def _of(self, name: str) -> Iterator[str]:
        """Yield the file of a module or of the module that a name is in, and what the packages around it import."""
        file = self._within(name)
        if file:
            yield file
            name = module_name(file)
        while name := name.rpartition(".")[0]:
            yield from self._around.get(self.modules.get(name, ""), set())

    @cached_property
    def _around(self) -> dict[str, set[str]]:
        """The files that are loaded with each package, itself included: functions in it have not run."""
        packages = {path: text for path, text in self.texts.items() if path.endswith("__init__.py")}
        return {
            path: {path, *(self._within(name) for name in names(text, module_name(path), path, at_once=True))} - {""}
            for path, text in packages.items()
        }

    def _within(self, name: str) -> str:
        """Return the file of a module or of the module that a name is in; empty for those of others."""
        while name and name not in self.modules:
            name = name.rpartition(".")[0]
        return self.modules.get(name, "")

    @cached_property
    def _direct(self) -> dict[str, set[str]]:
        return {path: self.direct(path) for path in self.texts}

    def reached(self, path: str) -> set[str]:
        """Return all files that a Python file reaches, itself included."""
        seen, todo = {path}, [path]
        while todo:
            for each in self._direct.get(todo.pop(), set()) - seen:
                seen.add(each)
                todo.append(each)
        return seen | {each for each in self.files if ALWAYS.fullmatch(each)}

    @cached_property
    def _digests(self) -> dict[str, bytes]:
        return {path: hashlib.sha256(content).digest() for path, content in self.files.items()}

    def key(self, path: str) -> str:
        """Return a text that is another one when a file that a test module reaches has changed."""
        digest = hashlib.sha256()
        for each in sorted(self.reached(path)):
            digest.update(each.encode() + b"\0" + self._digests[each])
        return digest.hexdigest()


def is_test(path: str) -> bool:
    """Return whether pytest looks for tests in a file."""
    return Path(path).name.startswith("test_") and path.endswith(".py")


def conftests(path: str) -> list[Path]:
    """Return where the conftests of a test module may be."""
    return [folder / "conftest.py" for folder in Path(path).parents]


def module_name(path: str) -> str:
    """Return the dotted name that imports a file."""
    parts = Path(path).with_suffix("").parts
    if parts[0] == "packages" and "src" in parts[2:3]:
        parts = parts[3:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def names(text: str, module: str, path: str, *, at_once: bool = False) -> Iterator[str]:
    """Yield the dotted names in the imports of a module, or only in those outside its functions."""
    package = (module if path.endswith("__init__.py") else module.rpartition(".")[0]).split(".")
    tree = ast.parse(text)
    for node in tree.body if at_once else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{source}.{alias.name}" for alias in node.names)


def commands(text: str) -> Iterator[str]:
    """Yield the dotted names in the strings of a module. A docstring runs nothing."""
    tree = ast.parse(text)
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield from DOTTED.findall(node.value)


def paths_in(text: str) -> set[str]:
    """Return what may be parts of paths in a module: strings with a slash, and those that `/` joins."""
    found = set[str]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            parts = list[str]()
            left: ast.expr = node
            while isinstance(left, ast.BinOp) and isinstance(left.right, ast.Constant):
                parts.insert(0, str(left.right.value))
                left = left.left
            found.add("/".join(parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "/" in node.value:
            found.add(node.value.strip("/"))
    return {each for each in found if each and not each.isspace()}


def checkout(root: Path) -> Tree:
    """Read the files that git tracks or would track."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout.split("\0")
    return Tree({path: (root / path).read_bytes() for path in listed if path and (root / path).is_file()})


def passed(report: Path) -> tuple[set[str], float]:
    """Return the test modules of a report in which nothing has failed, and when the run began."""
    suite = ElementTree.parse(report).getroot().find("testsuite")
    assert suite is not None
    good, bad = set[str](), set[str]()
    for case in suite.iter("testcase"):
        failed = case.find("failure") is not None or case.find("error") is not None
        (bad if failed else good).add(case.get("classname", "").replace(".", "/") + ".py")
    began = report.stat().st_mtime - float(suite.get("time", 0))
    return good - bad, began


def green() -> Path:
    """Return the folder with a file for each key with which a test module has passed on this machine."""
    return paths.cache() / "green"


def record(root: Path, report: Path) -> None:
    """Remember what has passed, unless a file that it reaches was changed after the run began."""
    tree = checkout(root)
    good, began = passed(report)
    green().mkdir(parents=True, exist_ok=True)
    late = {path for path in tree.files if (root / path).stat().st_mtime > began}
    for path in good & set(tree.tests()):
        if not tree.reached(path) & late:
            (green() / tree.key(path)).touch()


def check(root: Path, tests: Sequence[str]) -> int:
    """Run the test modules that have not passed with their current key; list the others. Return the exit status."""
    tree = checkout(root)
    every = tree.tests()
    due = [path for path in every if not (green() / tree.key(path)).exists()]
    print(
        f"{len(due)} of {len(every)} test modules are run. Left out, since they have passed with the files they reach:"
    )
    left = [path for path in every if path not in due]
    print("".join(f"  {path}\n" for path in left[:SHOWN]) + f"  … {len(left)} in total", flush=True)
    return max([_run(root, command, modules) for command, modules in _by_environment(due, tests)], default=0)


def _by_environment(due: Sequence[str], tests: Sequence[str]) -> Iterator[tuple[list[str], list[str]]]:
    """Yield pytest's command and its modules: those of TorchX's scheduler have an environment of their own."""
    own = [path for path in due if path.startswith(OF_TORCHX)]
    if other := [path for path in due if path not in own]:
        yield list(tests), other
    if own:
        yield [str(torchx_python()), *tests[1:]], own


def _run(root: Path, command: list[str], modules: list[str]) -> int:
    REPORT.unlink(missing_ok=True)
    status = subprocess.run([*command, *modules], cwd=root, check=False).returncode
    if REPORT.exists():
        record(root, REPORT)
    return status


if __name__ == "__main__":
    if sys.argv[1:] == ["record"]:
        for report in REPORT.parent.glob("tests*.xml"):
            record(ROOT, report)
    else:
        raise SystemExit(check(ROOT, [sys.executable, "-m", "pytest", *sys.argv[2:], f"--junitxml={REPORT}"]))
