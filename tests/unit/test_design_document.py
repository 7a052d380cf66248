"""docs/DESIGN.md: the journeys name functions that exist in the files they give."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HOP = re.compile(r"^\| `([\w.]+)` \| `(aiokq/[\w/]+\.py)` \|", re.MULTILINE)
HOPS = HOP.findall((ROOT / "docs" / "DESIGN.md").read_text())


@cache
def defined(path: Path) -> set[str]:
    """Return functions by name, and methods as Class.method."""
    names: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names |= {
                f"{node.name}.{member.name}"
                for member in node.body
                if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef)
            }
    return names


def test_all_journeys_are_there() -> None:
    """If the form of the table changed, the test below would have no cases."""
    assert len(HOPS) > 40


@pytest.mark.parametrize(("name", "file"), HOPS)
def test_a_hop_of_the_journey_exists(name: str, file: str) -> None:
    """A renamed function must be renamed in the document, too."""
    assert name in defined(ROOT / file)


@pytest.mark.parametrize("item", [11, 25, 26, 30, 34])
def test_an_invariant_of_the_metadata_names_its_test(item: int) -> None:
    """The facts of these items moved into Kafka's records; each keeps its test."""
    named = f"*Non-obvious* {item})"
    tests = [
        node.name
        for path in (ROOT / "tests").rglob("test_*.py")
        if named in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and named in (ast.get_docstring(node) or "")
    ]
    assert tests, f"no test has {named} in its docstring"
