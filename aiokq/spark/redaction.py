"""Hides secret options in the plans, web pages and event logs of Spark.

Spark prints the options of a source in some plans. It hides options whose name or value matches
`spark.redaction.regex` (by default: secret, password, token, access key) or
`spark.sql.redaction.options.regex` (by default: url). Options for passwords match, and so do JAAS
texts that contain the word password. A private key as PEM text and the passphrase of a key do not
match, so `redact_secrets` extends the second pattern.

Tests: ``tests/unit/spark/test_redaction.py``, ``tests/spark/test_secrets.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["REDACTED", "SETTING", "redact_secrets", "warn_of_shown_secrets"]

logger = logging.getLogger("aiokq.spark")

SETTING: Final = "spark.sql.redaction.options.regex"
SPARKS_DEFAULT: Final = "(?i)url"
PATTERN: Final = "(?i:jaas|keystore[._]key|certificate|passphrase|password|secret)"
"""Matches the names of all options that are secrets."""

REDACTED: Final = "_redacted"
"""Internal option, set if `redact_secrets` has been called for the session."""

NOT_HIDDEN_BY_SPARK: Final = ("keystore.key", "passphrase")
"""An option whose name contains one of these texts is a secret, but Spark does not hide it."""


def redact_secrets(spark: SparkSession) -> None:
    """Make a Spark session hide aiokq's secret options, in addition to Spark's own."""
    found = spark.conf.get(SETTING, SPARKS_DEFAULT) or SPARKS_DEFAULT
    if PATTERN not in found:
        spark.conf.set(SETTING, f"(?:{found})|{PATTERN}")


def warn_of_shown_secrets(names: Collection[str]) -> None:
    """Log a warning, once in this process, for each secret that Spark shows by default.

    The check uses Spark's default patterns, because a source in the planner's process does not know
    the session's settings.
    """
    if REDACTED in names:
        return
    for name in names:
        plain = name.lower().replace("_", ".")
        if any(part in plain for part in NOT_HIDDEN_BY_SPARK):
            _warn_once(name)


@lru_cache(maxsize=16)
def _warn_once(name: str) -> None:
    logger.warning(
        "Spark's plans, pages and event logs may show the value of %s: call "
        "aiokq.spark.register(spark), or set %s to %s|%s",
        name,
        SETTING,
        SPARKS_DEFAULT,
        PATTERN,
    )
