"""Creates the errors that a transactional producer raises; each message names the next step.

The functions have no state: their callers decide which error applies. Each transaction needs the
results of `outside` and `being_ended`, so these are created once; callers raise copies of them.
"""

from __future__ import annotations

import functools
from typing import Final

from aiokq.core.errors import (
    BrokerError,
    CommitOutcomeUnknown,
    ConfigError,
    InvalidTxnTimeout,
    KafkaError,
    ProducerFenced,
    TransactionAborted,
    copy_error,
)
from aiokq.producer.transactions.error_kinds import FENCED_CODES

__all__ = [
    "aborted",
    "being_ended",
    "finished",
    "not_aborted_yet",
    "not_started",
    "outside",
    "unknown",
]

NEXT_STEPS: Final = "create a new producer, and read the committed offsets before it writes"


@functools.cache
def outside() -> ConfigError:
    """Return the error of a record that is sent while no transaction is open."""
    return ConfigError(
        "no transaction is open: send records inside `async with producer.transaction()`"
    )


@functools.cache
def being_ended(*, commits: bool) -> ConfigError:
    """Return the error of a record that is sent while the transaction is being ended."""
    verb = "committed" if commits else "aborted"
    return ConfigError(f"the transaction is being {verb}: begin another one")


def aborted(cause: KafkaError | None) -> TransactionAborted:
    """Return the error of records and calls whose transaction cannot be committed any more.

    Args:
        cause: the reason; None if the transaction was aborted by its user.
    """
    if cause is None:
        return TransactionAborted("the transaction was aborted; begin another one")
    return _because(
        cause, f"the transaction cannot be committed: {cause}; abort it, and begin another one"
    )


def not_committed(cause: KafkaError) -> TransactionAborted:
    """Return the error of a commit whose transaction was aborted instead."""
    return _because(
        cause,
        f"the transaction could not be committed, and was aborted: {cause}; begin another one",
    )


def finished(cause: KafkaError, transactional_id: str) -> KafkaError:
    """Return the error of a producer that can only be closed."""
    if getattr(cause, "code", 0) in FENCED_CODES:
        error: KafkaError = ProducerFenced(
            f"another producer with the transactional id {transactional_id!r} was started, or a "
            "transaction lasted longer than transaction_timeout_ms, or the id has expired: "
            f"{NEXT_STEPS}"
        )
        error.__cause__ = cause
        return error
    error = copy_error(cause)
    error.add_note(f"This producer can only be closed: {NEXT_STEPS}.")
    return error


def not_started(cause: KafkaError) -> KafkaError:
    """Return the error of a producer that got no producer id at its start."""
    error = copy_error(cause)
    if isinstance(error, InvalidTxnTimeout):
        error.add_note(
            "Lower transaction_timeout_ms, or raise transaction.max.timeout.ms of the brokers."
        )
    elif isinstance(error, BrokerError) and not error.retriable:
        error.add_note("Correct the permissions or the settings, then create another producer.")
    return error


def unknown(cause: KafkaError) -> CommitOutcomeUnknown:
    """Return the error after a commit that was not answered."""
    error = CommitOutcomeUnknown(
        "no response showed whether the transaction was committed: commit it again, or close "
        f"this producer, {NEXT_STEPS}"
    )
    error.__cause__ = cause
    return error


def not_aborted_yet(cause: KafkaError) -> TransactionAborted:
    """Return the error of calls after an abort to which the coordinator did not respond."""
    return _because(cause, "the last transaction is not aborted yet: abort it again")


def _because(cause: KafkaError, message: str) -> TransactionAborted:
    error = TransactionAborted(message, principal=cause.principal)
    error.__cause__ = cause
    return error
