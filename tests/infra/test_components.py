"""Every component of the program is made in the way of Pulumi's own: `Component(name, args, opts)`."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import pkgutil
import typing

import pulumi
import pytest

import infra
import workloads
from tests.graph import ROOT


def components() -> list[type[pulumi.ComponentResource]]:
    """Return the component classes of `infra` and `workloads`."""
    modules = [
        importlib.import_module(f"{package.__name__}.{found.name}")
        for package in (infra, workloads)
        for found in pkgutil.iter_modules(package.__path__)
    ]
    return [
        each
        for module in modules
        for each in vars(module).values()
        if inspect.isclass(each) and issubclass(each, pulumi.ComponentResource) and each.__module__ == module.__name__
    ]


def test_all_components_are_seen() -> None:
    assert len(components()) >= 15


@pytest.mark.parametrize("component", components(), ids=lambda each: each.__name__)
def test_a_component_takes_name_args_and_opts(component: type[pulumi.ComponentResource]) -> None:
    assert list(inspect.signature(component).parameters) == ["name", "args", "opts"]
    args = typing.get_type_hints(component.__init__)["args"]
    assert args.__name__ == f"{component.__name__}Args"
    assert dataclasses.is_dataclass(args)


def test_the_program_uses_no_name_of_an_sdk_for_something_else() -> None:
    tree = ast.parse((ROOT / "__main__.py").read_text())
    bound = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert not (bound | imported) & {"pulumi", "aws", "eks", "kubernetes"}
