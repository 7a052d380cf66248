"""Rules for topic names. Source: Kafka's `Topic.java`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from aiokq.core.errors import InvalidTopic

__all__ = [
    "INTERNAL_TOPICS",
    "OFFSETS_TOPIC",
    "TRANSACTIONS_TOPIC",
    "check_topic_name",
    "colliding_topic",
]

MAX_NAME_LENGTH: Final = 249
OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"

INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})
"""Topics to which the broker writes its own records; clients can read them."""

CLUSTER_METADATA: Final = "__cluster_metadata"
"""The name of the metadata log's topic. No client can create this topic."""

_LEGAL: Final = r"[a-zA-Z0-9._-]+"


def check_topic_name(name: str) -> None:
    """Check that Kafka would accept the name of a topic.

    Raises:
        InvalidTopic: the message says what is wrong.
    """
    if not name:
        raise InvalidTopic("Topic name is invalid: the empty string is not allowed")
    if name in (".", ".."):
        raise InvalidTopic("Topic name is invalid: '.' or '..' is not allowed")
    if name == CLUSTER_METADATA:
        raise InvalidTopic(f"Topic name is invalid: {name} is reserved for the metadata log")
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidTopic(
            f"Topic name is invalid: the length of '{name}' is longer than the max allowed length "
            f"{MAX_NAME_LENGTH}"
        )
    if not re.fullmatch(_LEGAL, name):
        raise InvalidTopic(
            f"Topic name is invalid: '{name}' contains one or more characters other than ASCII "
            "alphanumerics, '.', '_' and '-'"
        )


def colliding_topic(name: str, existing: Iterable[str]) -> str | None:
    """Return an existing topic whose name equals `name` if '.' and '_' count as the same character.

    The result is None if there is no such topic. The metrics of two such topics would have the same
    name.
    """
    if "." not in name and "_" not in name:
        return None
    flat = name.replace(".", "_")
    return next((other for other in existing if other.replace(".", "_") == flat), None)
