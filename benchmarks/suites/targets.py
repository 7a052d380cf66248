"""What was asked of the log before it was written, and what came of it: of suite `log`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from benchmarks.report import Section

AIOKQ: Final = "aiokq"
APACHE: Final = "Apache Kafka"


class Target(NamedTuple):
    """One figure, as text."""

    figure: str
    asked: str
    measured: str
    met: bool

    @classmethod
    def ratio(cls, figure: str, asked: float, measured: float) -> Target:
        """So many times Apache Kafka's figure, or more."""
        return cls(
            figure, f"{asked:g} x {APACHE}'s", f"{measured:.1f} x", round(measured, 1) >= asked
        )

    @classmethod
    def share(cls, figure: str, asked: float, measured: float) -> Target:
        """The so-manieth part of Apache Kafka's figure, or less."""
        return cls(
            figure, f"1/{asked:g} of {APACHE}'s", f"1/{measured:.1f}", round(measured, 1) >= asked
        )

    @classmethod
    def at_least(cls, figure: str, asked: float, measured: float, unit: str) -> Target:
        return cls(figure, f"{asked:g} {unit}", f"{measured:.1f} {unit}", measured >= asked)

    @classmethod
    def within(cls, figure: str, asked: float, measured: float) -> Target:
        """Seconds that it may take."""
        if asked < 1:
            words = f"{1000 * asked:.0f} ms", f"{1000 * measured:.0f} ms"
        else:
            words = f"{asked:g} s", f"{measured:.2f} s"
        return cls(figure, *words, measured <= asked)


def targets_section(targets: Iterable[Target]) -> Section:
    """All of them in one table."""
    return Section(
        "log-targets",
        "What the log was to reach",
        "From the tables below, same run.",
        ("figure", "asked", "measured", "met"),
        [[each.figure, each.asked, each.measured, "yes" if each.met else "no"] for each in targets],
    )
