"""Selection of the partitions to read, by ``assign``, ``subscribe`` or ``subscribePattern``.

This module does no I/O; offset_reader.py looks up which of the partitions exist.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from aiokq import TopicPartition
from aiokq.errors import ConfigError
from aiokq.spark.offsets import parse_partitions
from aiokq.spark.option_values import of_option

__all__ = ["Assign", "Pattern", "Strategy", "Subscribe", "parse_strategy"]

STRATEGIES: Final = ("subscribe", "subscribePattern", "assign")
_STRATEGY_NAMES: Final = ", ".join(name.lower() for name in STRATEGIES)


@dataclass(frozen=True)
class Assign:
    """The query reads exactly these partitions."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True)
class Subscribe:
    """The query reads all partitions of these topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True)
class Pattern:
    """The query reads the topics whose names contain a match, except Kafka's internal topics."""

    pattern: str


Strategy: TypeAlias = Assign | Subscribe | Pattern


def parse_strategy(given: Mapping[str, str]) -> Strategy:
    """Return the strategy that the options name.

    Args:
        given: options by lower-case names.

    Raises:
        ConfigError: not exactly one of the three options is given, or its value is malformed.
    """
    chosen = [name for name in STRATEGIES if name.lower() in given]
    if len(chosen) != 1:
        word = "Only one" if chosen else "One"
        must = "can be" if chosen else "must be"
        raise ConfigError(
            f"{word} of the following options {must} specified for Kafka source: "
            f"{_STRATEGY_NAMES}. See the docs for more details."
        )
    value = given[chosen[0].lower()]
    match chosen[0]:
        case "assign":
            if not value.strip().startswith("{"):
                raise ConfigError(
                    "No topicpartitions to assign as specified value for option 'assign' is "
                    f"'{value}'"
                )
            with of_option("assign"):
                return Assign(parse_partitions(value))
        case "subscribe":
            topics = [topic.strip() for topic in value.split(",") if topic.strip()]
            if not topics:
                raise ConfigError(
                    "No topics to subscribe to as specified value for option 'subscribe' is "
                    f"'{value}'"
                )
            return Subscribe(tuple(dict.fromkeys(topics)))
        case _:
            if not value.strip():
                raise ConfigError(
                    "Pattern to subscribe is empty as specified value for option "
                    f"'subscribePattern' is '{value}'"
                )
            try:
                re.compile(value.strip())
            except re.error as error:
                raise ConfigError(
                    f"option subscribePattern: {value!r} is not a regular expression: {error}"
                ) from error
            return Pattern(value.strip())
