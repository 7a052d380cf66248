"""Subscriptions by regular expression; `re2_expressions` compiles the expressions.

Source: KIP-848 (SubscribedTopicRegex); Kafka matches the whole name with RE2/J.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["RegexCompiler", "ResolvedRegex", "resolve"]

RegexCompiler: TypeAlias = Callable[[str], Callable[[str], object]]
"""Compiles an expression into a function that returns whether a whole name matches."""


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """The topics that an expression matched when it was last resolved.

    Attributes:
        timestamp_ms: the time of the last resolution that changed `topics`.
    """

    topics: frozenset[str]
    timestamp_ms: int


def resolve(match: Callable[[str], object], names: Iterable[str]) -> frozenset[str]:
    return frozenset(name for name in names if match(name))
