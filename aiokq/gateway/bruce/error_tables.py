"""The effect of each error code in a Produce response on the messages, in four tables.

`seed`, `bruce-2016` and `dory` are those of Bruce and its successor; `modern` is computed from the
error classes of aiokq. docs/reference/gateway-errors.md is generated from here.
Tests: tests/unit/gateway/bruce/test_error_tables.py.

Source: Bruce's design document, "Response from Bruce"; Bruce and Dory, `kafka_error_code.cc`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from aiokq import errors
from aiokq.errors import BrokerError

__all__ = ["ACTIONS", "ERROR_TABLES", "Action", "ErrorTable", "error_classes"]

UNKNOWN_TOPIC_OR_PARTITION: Final = 3
REQUEST_TIMED_OUT: Final = 7
MESSAGE_TOO_LARGE: Final = 10
RECORD_LIST_TOO_LARGE: Final = 18
INVALID_TIMESTAMP: Final = 32
INVALID_RECORD: Final = 87
UNKNOWN_TOPIC_ID: Final = 100


class Action(Enum):
    """The reaction of the engine to a message set that a broker refused."""

    RESEND = "resend"
    PAUSE = "pause"
    SPLIT = "split"
    DISCARD = "discard"
    DISCARD_AND_PAUSE = "discard and pause"


ACTIONS: Final[Mapping[Action, str]] = {
    Action.RESEND: "They are sent again to the same broker after a wait, at first a fiftieth of "
    "`pause_initial_ms`, then four times the last, up to six times `pause_initial_ms`. It "
    "counts as a failure of each message.",
    Action.PAUSE: "After a pause and new metadata all messages are routed again, those of other "
    "brokers, too. It counts as a failure of each refused message.",
    Action.SPLIT: "The halves of the batch are sent separately; a single message is discarded.",
    Action.DISCARD: "They are discarded as `error_ack`.",
    Action.DISCARD_AND_PAUSE: "Both; no code has this action.",
}
"""The meanings of the actions."""


class ErrorTable:
    """The action for each error code.

    Attributes:
        name: as in the configuration.
        actions: action by code; messages with any other code are discarded.
        bad_topic: codes for which a message that failed too often is discarded with the reason
            bad_topic instead of attempt_limit.
    """

    def __init__(
        self, name: str, actions: Mapping[int, Action], bad_topic: frozenset[int] = frozenset()
    ) -> None:
        self.name = name
        self.actions = actions
        self.bad_topic = bad_topic

    def action(self, code: int) -> Action:
        """Return the action for an error code."""
        return self.actions.get(code, Action.DISCARD)

    def __repr__(self) -> str:
        return f"<ErrorTable {self.name}>"


def error_classes() -> dict[int, type[BrokerError]]:
    """Return the error classes of Kafka's codes, in the order of the codes."""
    found = {
        cls.code: cls
        for cls in (getattr(errors, name) for name in errors.__all__)
        if isinstance(cls, type) and issubclass(cls, BrokerError) and "code" in cls.__dict__
    }
    return dict(sorted(found.items()))


def _modern(code: int, cls: type[BrokerError]) -> Action:
    """Return the action of the table `modern` for an error class.

    Batches that are too large are split. Batches with a bad record that the broker does not name
    (before Produce version 8) are also split, so that a bad record fails no other message. Errors
    that new metadata may resolve cause a pause; other retriable errors cause a resend.
    REQUEST_TIMED_OUT causes a pause, as in the other tables, because the broker has already had the
    whole time for an acknowledgement.
    """
    if code in (MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_TIMESTAMP, INVALID_RECORD):
        return Action.SPLIT
    if not cls.retriable:
        return Action.DISCARD
    if cls.refresh_metadata or code in (REQUEST_TIMED_OUT, UNKNOWN_TOPIC_ID):
        return Action.PAUSE
    return Action.RESEND


def _table(name: str, pauses: tuple[int, ...]) -> ErrorTable:
    """Return a table from before 2017.

    UNKNOWN_TOPIC_ID has the action of UNKNOWN_TOPIC_OR_PARTITION, because brokers returned
    UNKNOWN_TOPIC_OR_PARTITION before requests had topic ids.
    """
    actions = {2: Action.RESEND, **dict.fromkeys(pauses, Action.PAUSE)}
    return ErrorTable(name, {**actions, UNKNOWN_TOPIC_ID: actions[UNKNOWN_TOPIC_OR_PARTITION]})


ERROR_TABLES: Final[Mapping[str, ErrorTable]] = {
    "seed": _table("seed", (3, 5, 6, 7, 8, 9)),
    "bruce-2016": _table("bruce-2016", (3, 5, 6, 7)),
    "dory": _table("dory", (3, 5, 6, 7, 13)),
    "modern": ErrorTable(
        "modern",
        {
            code: action
            for code, cls in error_classes().items()
            if (action := _modern(code, cls)) is not Action.DISCARD
        },
        frozenset({UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID}),
    ),
}
"""The tables by the names of the configuration."""
