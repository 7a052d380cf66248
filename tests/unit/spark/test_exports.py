"""Exports of aiokq.spark: each name exists, and type checkers see the same names."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
import aiokq.spark


@pytest.mark.parametrize("name", aiokq.spark.__all__)
def test_what_is_exported_is_there(name: str) -> None:
    """The table of modules and the list of names are two lists."""
    assert getattr(aiokq.spark, name) is not None
    assert name in dir(aiokq.spark)


def test_type_checkers_see_the_same_names() -> None:
    """An editor must not offer fewer or more names than exist."""
    assert aiokq.spark.__file__ is not None
    tree = ast.parse(Path(aiokq.spark.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.name
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == set(aiokq.spark.__all__) == {*aiokq.spark._HOMES, "bridge"}
    with pytest.raises(AttributeError, match="has no attribute 'lod'"):
        aiokq.spark.lod  # noqa: B018


def test_a_name_is_imported_when_it_is_used() -> None:
    """Workers import the package for each task; imports for a load would slow down their start."""
    code = "import sys, aiokq.spark; assert not {'pyspark', 'pyarrow'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", code], check=True)
