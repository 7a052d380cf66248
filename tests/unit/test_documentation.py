"""The documents are consistent: links have targets, and decisions have their four parts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    [
        *(ROOT / name for name in ("README.md", "CHANGELOG.md", "benchmarks/README.md")),
        *(ROOT / "docs").rglob("*.md"),
    ],
)
DECISIONS = sorted((ROOT / "docs" / "adr").glob("0*.md"))
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files(document: Path) -> None:
    """A page that moves must be updated in other pages."""
    targets = [target for target in LINK.findall(document.read_text()) if "://" not in target]
    assert [target for target in targets if not (document.parent / target).exists()] == []


@pytest.mark.parametrize("decision", DECISIONS, ids=lambda path: path.stem)
def test_a_decision_has_its_four_parts(decision: Path) -> None:
    """A decision needs its rejected alternatives and its consequences."""
    headings = re.findall(r"^## (.+)$", decision.read_text(), re.MULTILINE)
    assert headings == ["Context", "Decision", "Rejected", "Consequences"]


def test_every_decision_is_listed() -> None:
    """The list is where readers look."""
    contents = (ROOT / "docs" / "adr" / "README.md").read_text()
    assert [path.name for path in DECISIONS if f"({path.name})" not in contents] == []


@pytest.mark.parametrize("decision", DECISIONS, ids=lambda path: path.stem)
def test_the_files_that_a_decision_names_exist(decision: Path) -> None:
    """Code that moves must be updated in the decision."""
    named = re.findall(r"`((?:\w+/)+[\w.]+\.py)`", decision.read_text())
    places = (ROOT, ROOT / "aiokq")
    assert [name for name in named if not any((place / name).exists() for place in places)] == [
        name for name in named if "NN" in name
    ]
