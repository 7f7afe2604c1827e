"""The versions in the table equal those in the Go modules and the locked requirements."""

from __future__ import annotations

import re

import pytest

from scripts.toolchain import paths
from scripts.toolchain.table import (
    BENCH_TOOLS,
    HELM_KUBERNETES,
    MONITORING_TOOLS,
    PREVIOUS_TOOLS,
    PULUMI,
    TOOLS,
    TORCH,
    Tool,
)

EVERY = [*TOOLS.values(), *PREVIOUS_TOOLS.values(), *BENCH_TOOLS.values(), *MONITORING_TOOLS.values()]


@pytest.mark.parametrize("tool", EVERY, ids=lambda tool: f"{tool.name} {tool.version}")
def test_go_mod_pins_the_version_in_the_table(tool: Tool) -> None:
    folder = paths.HERE / tool.module
    text = (folder / "go.mod").read_text()
    if tool.package == f"tidewater.dev/toolchain/{tool.module}":
        (package,) = re.findall(r'^\t"(\S+)"$', (folder / "main.go").read_text(), re.MULTILINE)
    else:
        package = tool.package
        assert re.search(rf"^(tool |\t){re.escape(package)}$", text, re.MULTILINE), "no tool directive names it"
    pinned = {
        version
        for module, version in re.findall(r"^\t?(?:require )?(\S+) (v\S+)", text, re.MULTILINE)
        if package == module or package.startswith(f"{module}/")
    }
    assert tool.version in pinned


def test_the_tools_of_a_module_are_built_with_the_same_flags() -> None:
    flags = {(tool.module, tool.ldflags, tool.tags) for tool in EVERY}
    assert len(flags) == len({tool.module for tool in EVERY})


def test_the_versions_of_a_tool_are_built_in_different_modules() -> None:
    assert not {tool.module for tool in TOOLS.values()} & {tool.module for tool in PREVIOUS_TOOLS.values()}


def test_the_version_of_kubernetes_before_is_one_minor_version_older() -> None:
    newest, previous = (table["kubelet"].version.split(".") for table in (TOOLS, PREVIOUS_TOOLS))
    assert (previous[0], int(previous[1]) + 1) == (newest[0], int(newest[1]))
    assert PREVIOUS_TOOLS["kubelet"].folder != TOOLS["kubelet"].folder


def test_helm_says_which_kubernetes_it_is_built_with() -> None:
    text = (paths.HERE / "helm" / "go.mod").read_text()
    (minor,) = re.findall(r"^\tk8s\.io/client-go v0\.(\d+)\.", text, re.MULTILINE)
    assert ("1", minor) == HELM_KUBERNETES


@pytest.mark.parametrize(("lock", "pin"), [("stack", f"pulumi=={PULUMI[1:]}"), ("trainer", f"torch=={TORCH}")])
def test_locked_packages_have_the_version_in_the_table(lock: str, pin: str) -> None:
    assert re.search(rf"^{re.escape(pin)} ", paths.lock(lock).read_text(), re.MULTILINE)


@pytest.mark.parametrize("lock", ["uv", "stack", "dev", "trainer", "bench", "torchx"])
def test_every_locked_package_has_a_hash(lock: str) -> None:
    text = paths.lock(lock).read_text()
    entries = re.split(r"^(?=\S+==)", text, flags=re.MULTILINE)[1:]
    assert entries
    assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []


def test_torchx_has_the_versions_of_the_stack_but_for_urllib3() -> None:
    """Its tests import packages of both environments: two versions of one package would not fit together."""
    stack, torchx = (pins(lock) for lock in ("stack", "torchx"))
    different = {name for name in stack.keys() & torchx.keys() if stack[name] != torchx[name]}
    assert different == {"urllib3"}


def pins(lock: str) -> dict[str, str]:
    text = paths.lock(lock).read_text()
    return dict(re.findall(r"^(\S+)==([^ ;]+)", text, re.MULTILINE))
