"""The types in the public API can be named without importing a private module."""

from __future__ import annotations

import ast
import importlib
from functools import cache
from pathlib import Path

import pytest

import aiokq

UNNAMED = {
    "BatchStream": "is iterated where it is made",
    "BootstrapAddress": "a plain str or (host, port)",
    "BrokerNode": "the broker's inside",
    "ClientCounters": "read through aiokq.metrics",
    "Cursor": "what a PartitionRecords is made of",
    "EventKey": "what events replace each other by",
    "ProducerTimeouts": "what the settings follow; Producer.health() has the numbers",
    "SendNowait": "what Producer.send_nowait is: call it",
}
"""Classes that users never need to name, and why."""


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(Path(str(importlib.import_module(module).__file__)).read_text())


@cache
def classes(module: str) -> dict[str, str]:
    """Return each aiokq class that a module imports or defines, with its module of origin."""
    found: dict[str, str] = {}
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("aiokq"):
            for alias in node.names:
                if isinstance(
                    getattr(importlib.import_module(str(node.module)), alias.name, 0), type
                ):
                    found[alias.asname or alias.name] = str(node.module)
        elif isinstance(node, ast.ClassDef):
            found[node.name] = module
    return found


def names_in(annotation: ast.expr | None) -> set[str]:
    if annotation is None:
        return set()
    return {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)}


def taken_and_given(module: str, name: str) -> set[str]:
    """Return aiokq's classes in the annotations of a class's and its bases' public members."""
    known = classes(module)
    result: set[str] = set()
    for found in tree(module).body:
        if not isinstance(found, ast.ClassDef) or found.name != name:
            continue
        for base in found.bases:
            if isinstance(base, ast.Name) and base.id in known:
                result |= taken_and_given(known[base.id], base.id)
        seen: set[str] = set()
        for node in found.body:
            if isinstance(node, ast.AnnAssign) and not ast.unparse(node.target).startswith("_"):
                seen |= names_in(node.annotation)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (
                not node.name.startswith("_") or node.name == "__getitem__"
            ):
                seen |= names_in(node.returns)
                for argument in (*node.args.args, *node.args.kwonlyargs):
                    seen |= names_in(argument.annotation)
        result |= seen & known.keys()
    return result


EXPORTED = sorted((name, module) for module, names in aiokq._HOMES.items() for name in names)


@pytest.mark.parametrize(("name", "module"), EXPORTED)
def test_what_a_public_class_takes_and_gives_is_public(name: str, module: str) -> None:
    """Regression: `def show(topic: TopicDescription)` needed an import from aiokq.admin.topics."""
    public = {*aiokq.__all__, *aiokq.errors.__all__, *aiokq.wire.__all__, *UNNAMED}
    assert not taken_and_given(module, name) - public
