"""How many stacks, clusters and lone API servers the tests make: a stack takes two minutes, an API server 15 seconds.

A test that needs one uses one that is there. If that is impossible, raise the budget and say why in the commit.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.sources import ROOT, imports, sources, written

STACKS = {
    *("tests/e2e/faults", "tests/e2e/guest", "tests/e2e/life", "tests/e2e/nodegroup", "tests/e2e/production"),
    "tests/e2e/upgrade",
}
"""The folders that have a cloud with a stack; the last one only in `make soak`. That of `guest` is on a cluster
that something else made."""

STARTERS = (
    "tests.e2e.checkout.Checkout.copy_to",
    "packages.localcloud.tests.kube.harness.running_cluster",
    "packages.localcloud.tests.kube.karpenter_cloud.karpenter_cloud",
    "tests.control_plane.Plane",
    "tests.control_plane.running",
)

MADE = {
    "tests/e2e/conftest.py": ["copy_to"],
    "tests/e2e/takeover/test_takeover.py": ["copy_to", "copy_to"],  # only in `make soak`
    "packages/localcloud/tests/kube/conftest.py": ["running_cluster"],
    "packages/localcloud/tests/kube/test_karpenter_e2e.py": ["karpenter_cloud"],
    "packages/localcloud/tests/kube/test_upgrade_e2e.py": ["running_cluster"],  # only in `make soak`
    "packages/localcloud/tests/standins/kubernetes/conftest.py": ["Plane"],
    "packages/elasticdl/tests/client/job/test_accepted_e2e.py": ["running"],
    "packages/torchx/tests/test_api_server_e2e.py": ["running"],
    "tests/benchmarks/controller/test_training_operator.py": ["Plane"],
    "tests/cli/test_server_e2e.py": ["running"],
    "tests/cli/test_top_and_doctor_e2e.py": ["running"],
    "tests/controller/test_real_api_server.py": ["Plane"],
    "tests/elasticjob/test_refusals_e2e.py": ["running"],
    "tests/test_control_plane.py": ["Plane"],
    "tests/workloads/karpenter/test_karpenter_e2e.py": ["running"],
    "tests/workloads/test_teams_e2e.py": ["running"],  # with the controllers that count quotas and put roles together
}
"""Test module → what it calls to start a cloud, a cluster or an API server."""


def collected(paths: Iterable[Path]) -> list[Path]:
    """Return the modules in which pytest looks for tests and fixtures."""
    return [path for path in paths if path.name.startswith("test_") or path.name == "conftest.py"]


def started(path: Path, root: Path) -> list[str]:
    """Return the last names of the starters that a module calls, once for each call."""
    imported = {name.rpartition(".")[2]: name for _, name in imports(path, root)}
    calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    called = [ast.unparse(function).partition(".") for function in calls]
    names = [f"{imported.get(first, first)}{dot}{rest}" for first, dot, rest in called]
    return [name.rpartition(".")[2] for name in names if name in STARTERS]


def with_a_cloud(paths: Iterable[Path], root: Path) -> Iterator[str]:
    """Yield the folders in tests/e2e with a test that uses the fixture `checkout`."""
    place = root / "tests" / "e2e"
    for path in paths:
        if place in path.parents[1:]:
            functions = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]
            if any(argument.arg == "checkout" for function in functions for argument in function.args.args):
                yield str(path.relative_to(root).parents[-4])


def test_nothing_more_is_started() -> None:
    names = tuple(name.rpartition(".")[2] for name in STARTERS)
    paths = [path for path in collected(sources()) if any(name in path.read_text() for name in names)]
    found = {str(path.relative_to(ROOT)): started(path, ROOT) for path in paths}
    gone = sorted(MADE.keys() - {name for name, calls in found.items() if calls})
    assert gone == [], "they start nothing any more: take them out of the budget"
    over = {name: calls for name, calls in found.items() if sorted(calls) != sorted(MADE.get(name, []))}
    assert over == {}, "use a cloud, a cluster or an API server that is there, or change the budget and say why"


def test_no_folder_has_a_stack_of_its_own_but_these() -> None:
    found = set(with_a_cloud(collected(sources()), ROOT))
    assert found == STACKS, "put the tests into a folder that has a stack, or change the budget and say why"


def test_a_start_and_a_cloud_too_many_are_found(tmp_path: Path) -> None:
    text = "from tests.e2e.checkout import Checkout\nfrom tests import control_plane\n"
    text += "def test_it(checkout):\n    Checkout.copy_to(1)\n    control_plane.Plane(2)\n    Plane(3)\n"
    (path,) = written(tmp_path, {"tests/e2e/more/test_more.py": text})
    assert started(path, tmp_path) == ["copy_to", "Plane"]
    assert list(with_a_cloud([path], tmp_path)) == ["tests/e2e/more"]
