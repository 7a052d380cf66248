"""Targets that were set for the log before it was written, and the results; in suite `log`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from benchmarks.report import Section

AIOKQ: Final = "aiokq"
APACHE: Final = "Apache Kafka"


class Target(NamedTuple):
    """One target and its result, as text."""

    figure: str
    asked: str
    measured: str
    met: bool

    @classmethod
    def ratio(cls, figure: str, asked: float, measured: float) -> Target:
        """Return a target of at least `asked` times Apache Kafka's figure."""
        return cls(
            figure, f"{asked:g} x {APACHE}'s", f"{measured:.1f} x", round(measured, 1) >= asked
        )

    @classmethod
    def share(cls, figure: str, asked: float, measured: float) -> Target:
        """Return a target of at most 1/`asked` of Apache Kafka's figure."""
        return cls(
            figure, f"1/{asked:g} of {APACHE}'s", f"1/{measured:.1f}", round(measured, 1) >= asked
        )

    @classmethod
    def at_least(cls, figure: str, asked: float, measured: float, unit: str) -> Target:
        return cls(figure, f"{asked:g} {unit}", f"{measured:.1f} {unit}", measured >= asked)

    @classmethod
    def at_most(cls, figure: str, asked: float, measured: float, unit: str) -> Target:
        return cls(figure, f"{asked:g} {unit}", f"{measured:.1f} {unit}", measured <= asked)

    @classmethod
    def within(cls, figure: str, asked: float, measured: float) -> Target:
        """Return a target of at most `asked` seconds."""
        if asked < 1:
            words = f"{1000 * asked:.0f} ms", f"{1000 * measured:.0f} ms"
        else:
            words = f"{asked:g} s", f"{measured:.2f} s"
        return cls(figure, *words, measured <= asked)


def targets_section(targets: Iterable[Target]) -> Section:
    """Return all targets in one table."""
    return Section(
        "log-targets",
        "What the log was to reach",
        "From the tables below, same run.",
        ("figure", "asked", "measured", "met"),
        [[each.figure, each.asked, each.measured, "yes" if each.met else "no"] for each in targets],
    )
