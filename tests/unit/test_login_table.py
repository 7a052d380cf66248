"""The table of logins in the guide, and the tests that it stands on."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.peers.login_table import BOTH, CELLS, COLUMNS, ROWS, Shown, table

ROOT = Path(__file__).resolve().parents[2]


def test_the_guide_has_the_table():
    """A new combination, or a new reason for an empty cell, is in the guide."""
    guide = (ROOT / "docs" / "guides" / "sasl.md").read_text()
    assert table() in guide, f"docs/guides/sasl.md must have:\n{table()}"


def test_every_cell_has_a_test_or_a_reason():
    """A cell that is not tested with both protocols has a reason, too."""
    assert CELLS.keys() == {(row, column) for row in ROWS for column in COLUMNS}
    for place, cell in CELLS.items():
        assert cell.how == BOTH or cell.reason if isinstance(cell, Shown) else cell, place


@pytest.mark.parametrize(
    "test", sorted({cell.test for cell in CELLS.values() if isinstance(cell, Shown)})
)
def test_the_test_of_a_cell_exists(test):
    file, _, function = test.partition("::")
    tree = ast.parse((ROOT / "tests" / "interop" / file).read_text())
    found = {
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert function in found
