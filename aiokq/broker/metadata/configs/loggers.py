"""The loggers of this process as BROKER_LOGGER resources (KIP-412).

Kafka's levels are translated to Python's. Only loggers of aiokq are shown and changed, because an
embedded broker shares its process with other code. Changes are lost at a restart. The loggers of
the audit log are shown, but only code of this process can change them, because administrators must
not silence the log of their own changes.

Source: Kafka ``RuntimeLoggerManager.java``.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from aiokq.broker.metadata.configs.config_changes import DELETE, SET
from aiokq.core.errors import InvalidConfiguration, InvalidRequest

__all__ = ["alter_loggers", "logger_levels"]

logger = logging.getLogger("aiokq.broker")

ROOT: Final = "aiokq"
AUDIT: Final = "aiokq.audit"
LEVELS: Final[dict[str, int]] = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
"""Kafka's names of levels, the most verbose first."""

_has_kept = False
"""Whether `_keep_audit_level` has given the audit log its level."""


def logger_levels() -> dict[str, str]:
    """Return the effective level of each logger, its own or that of an ancestor."""
    return {name: _word(logging.getLogger(name).getEffectiveLevel()) for name in _names()}


def alter_loggers(
    changes: Sequence[tuple[str, int, str | None]], *, validate_only: bool = False
) -> None:
    """Set the levels of loggers (SET), or reset loggers to the level of their parent (DELETE).

    No level changes if one of the changes is invalid.

    Args:
        changes: name, operation and value of each change.

    Raises:
        InvalidConfiguration: the logger or the level does not exist, or the logger belongs to the
            audit log.
        InvalidRequest: an operation other than SET and DELETE.
    """
    known = set(_names())
    levels: dict[str, int] = {}
    for name, operation, value in changes:
        if operation not in (SET, DELETE):
            raise InvalidRequest("a logger supports only the operations SET and DELETE")
        if name not in known:
            raise InvalidConfiguration(f"Logger {name} does not exist!")
        if name == AUDIT or name.startswith(f"{AUDIT}."):
            raise InvalidConfiguration(
                f"Logger {name} belongs to the audit log, whose levels are not changed by requests"
            )
        if operation == SET and value not in LEVELS:
            raise InvalidConfiguration(
                f"Cannot set the log level of {name} to {value} as it is not a supported log "
                f"level. Valid log levels are {', '.join(LEVELS)}"
            )
        levels[name] = LEVELS[value or ""] if operation == SET else logging.NOTSET
    if validate_only:
        return
    if ROOT in levels:
        _keep_audit_level(is_reset=levels[ROOT] == logging.NOTSET)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
        logger.info("log level changed: logger=%s level=%s", name, logging.getLevelName(level))


def _keep_audit_level(*, is_reset: bool) -> None:
    """Give the audit log its own level, so that it does not inherit a change of `ROOT`.

    If `ROOT` is reset, a level that this function gave to the audit log is removed again.
    """
    global _has_kept
    audit = logging.getLogger(AUDIT)
    if is_reset and _has_kept:
        audit.setLevel(logging.NOTSET)
        _has_kept = False
    elif not is_reset and audit.level == logging.NOTSET:
        audit.setLevel(audit.getEffectiveLevel())
        _has_kept = True


def _names() -> list[str]:
    below = f"{ROOT}."
    found = [name for name in logging.Logger.manager.loggerDict if name.startswith(below)]
    return [ROOT, *sorted(found)]


def _word(level: int) -> str:
    for word, least in reversed(LEVELS.items()):
        if level >= least:
            return word
    return "TRACE"
