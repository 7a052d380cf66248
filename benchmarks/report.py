"""Tables for the terminal and for Markdown, and bar charts as SVG.

results.json has the sections of every suite with the day of measurement: a run of one suite
replaces its own sections only.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table


@dataclass(slots=True)
class Section:
    """A table: title, common conditions, columns, rows, and the bars of its plot."""

    name: str
    title: str
    conditions: str
    columns: Sequence[str]
    rows: list[list[str]] = field(default_factory=list)
    bars: list[tuple[str, float]] = field(default_factory=list)
    unit: str = ""
    suite: str = ""
    when: str = ""


def machine() -> str:
    """Return a description of the machine: cores, processor, interpreter."""
    model = ""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    except OSError:
        model = platform.processor()
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{os.cpu_count()} cores, {model}, {platform.system()}, {python}"


def show(console: Console, section: Section) -> None:
    table = Table(title=section.title, title_justify="left", caption=section.conditions)
    for index, column in enumerate(section.columns):
        table.add_column(column, justify="left" if index == 0 else "right")
    for row in section.rows:
        table.add_row(*row)
    console.print(table)


def markdown(sections: Sequence[Section]) -> str:
    lines = ["# Benchmarks", "", f"On {machine()}. Made by `make bench`.", ""]
    for section in sections:
        made = f"Measured {section.when} (`make bench BENCH={section.suite}`)."
        lines += [f"## {section.title}", "", f"{section.conditions} {made}", ""]
        lines.append("| " + " | ".join(section.columns) + " |")
        lines.append("|---" + "|--:" * (len(section.columns) - 1) + "|")
        lines += ["| " + " | ".join(row) + " |" for row in section.rows]
        if section.bars:
            lines += ["", f"![{section.title}]({section.name}.svg)"]
        lines.append("")
    return "\n".join(lines)


def plot(section: Section, path: Path) -> None:
    """Draw a horizontal bar chart, with aiokq's bars highlighted."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "aiokq"
    from matplotlib import pyplot

    labels = [label for label, _ in section.bars][::-1]
    values = [value for _, value in section.bars][::-1]
    figure, axes = pyplot.subplots(figsize=(8, 0.8 + 0.36 * len(labels)))
    colours = ["#1f6feb" if label.startswith("aiokq") else "#9aa4b1" for label in labels]
    bars = axes.barh(labels, values, color=colours)
    axes.bar_label(bars, labels=[f"{value:,.3g}" for value in values], padding=3, fontsize=8)
    axes.set_title(section.title, fontsize=10, loc="left")
    axes.set_xlabel(section.unit)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.12)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def read(directory: Path) -> list[Section]:
    """Return the sections of earlier runs."""
    try:
        document = json.loads((directory / "results.json").read_text())
    except FileNotFoundError:
        return []
    return [Section(**section) for section in document["sections"]]


def write(measured: Sequence[Section], directory: Path, order: Sequence[str]) -> None:
    """Write README.md, results.json and the plots into `directory`.

    Args:
        measured: sections of the suites that ran; the sections of other suites are kept.
        order: order of the suites.
    """
    directory.mkdir(parents=True, exist_ok=True)
    suites = {section.suite for section in measured}
    kept = [section for section in read(directory) if section.suite not in suites]
    sections = sorted([*kept, *measured], key=lambda section: order.index(section.suite))
    (directory / "README.md").write_text(markdown(sections))
    document = {"machine": machine(), "sections": [asdict(section) for section in sections]}
    (directory / "results.json").write_text(json.dumps(document, indent=1) + "\n")
    for section in measured:
        if section.bars:
            plot(section, directory / f"{section.name}.svg")
