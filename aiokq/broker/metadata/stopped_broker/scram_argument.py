"""The values of ``--add-scram``: SCRAM credentials for the first records of a metadata log.

    SCRAM-SHA-256=[name=alice,password=alice-secret]
    SCRAM-SHA-512=[name=alice,iterations=8192,salt="N3E=",saltedpassword="YCE="]

Error messages contain no part of a value that may be secret.

Source: Kafka ``ScramParser.java``, ``ScramFormatter.java``, RFC 5802.
Tests: ``tests/unit/broker/metadata/stopped_broker/test_scram_argument.py``.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from random import Random
from typing import Final

from aiokq.broker.log.config import INT_MAX
from aiokq.connection.sasl.scram_formulas import (
    DEFAULT_ITERATIONS,
    LEAST_ITERATIONS,
    MOST_ITERATIONS,
    SALT_BYTES,
    SCRAM_MECHANISMS,
    keys_of_salted_password,
    salted_password,
)
from aiokq.core.errors import ConfigError
from aiokq.core.numbers import parse_number
from aiokq.wire.principal_records import UserScramCredentialRecord

__all__ = ["parse_scram_argument"]

SHAPE: Final = (
    "SCRAM-SHA-256=[name=NAME,password=PASSWORD] or "
    "SCRAM-SHA-256=[name=NAME,salt=BASE64,saltedpassword=BASE64]"
)

KEYS: Final = frozenset(("name", "password", "salt", "saltedpassword", "iterations"))


def parse_scram_argument(text: str, random: Random) -> UserScramCredentialRecord:
    """Return the credential that a value of ``--add-scram`` describes.

    Args:
        random: source of the salt if the value has none; a ``SystemRandom`` outside of tests.

    Raises:
        ConfigError: the value is malformed, or lacks a part; the message says what to write.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError("a SCRAM credential is not valid UTF-8") from None
    name, equals, body = text.strip().partition("=")
    if not equals:
        raise ConfigError(f"a SCRAM credential has no equals sign: write {SHAPE}")
    if name not in SCRAM_MECHANISMS:
        known = ", ".join(SCRAM_MECHANISMS)
        raise ConfigError(f"SCRAM mechanism {name!r} is not supported: choose one of {known}")
    if not (body.startswith("[") and body.endswith("]") and len(body) > 1):
        raise ConfigError(f"a SCRAM credential is not in square brackets: write {SHAPE}")
    parts = _parts(body[1:-1])
    mechanism = SCRAM_MECHANISMS[name]
    iterations = _iterations(parts.get("iterations"))
    salt = _decoded(parts, "salt")
    if "password" in parts:
        if not parts["password"]:
            raise ConfigError("the password of a SCRAM credential is empty")
        if salt is None:
            salt = random.getrandbits(SALT_BYTES * 8).to_bytes(SALT_BYTES, "big")
        salted = salted_password(mechanism, parts["password"], salt, iterations)
    else:
        given = _decoded(parts, "saltedpassword")
        if not given:
            raise ConfigError(f"a SCRAM credential needs password or saltedpassword: write {SHAPE}")
        if salt is None:
            raise ConfigError(
                "a SCRAM credential with saltedpassword needs the salt with which it was made: "
                f"write {SHAPE}"
            )
        salted = given
    keys = keys_of_salted_password(mechanism, salted)
    return UserScramCredentialRecord(
        name=parts["name"],
        mechanism=mechanism.number,
        salt=salt,
        stored_key=keys.stored_key,
        server_key=keys.server_key,
        iterations=iterations,
    )


def _parts(text: str) -> dict[str, str]:
    found = {}
    for part in text.rstrip(",").split(","):
        key, equals, value = part.partition("=")
        if not equals:
            raise ConfigError(
                f"a part of a SCRAM credential has no equals sign: write {SHAPE}; a password with "
                "a comma cannot be given this way"
            )
        if key not in KEYS:  # the key is not shown, because it may be a part of a password
            raise ConfigError(
                f"a SCRAM credential has an unknown part: the parts are {', '.join(sorted(KEYS))}"
            )
        if len(value) >= 2 and value[0] == value[-1] == '"':
            value = value[1:-1]
        found[key] = value
    if "name" not in found:
        raise ConfigError(f"a SCRAM credential has no name: write {SHAPE}")
    return found


def _iterations(text: str | None) -> int:
    if text is None:
        return DEFAULT_ITERATIONS
    try:
        number = parse_number(text, INT_MAX)
    except ValueError as error:
        raise ConfigError(f"the iterations of a SCRAM credential are invalid: {error}") from error
    if not LEAST_ITERATIONS <= number <= MOST_ITERATIONS:
        raise ConfigError(
            f"a SCRAM credential has {number} iterations: choose a number from {LEAST_ITERATIONS} "
            f"to {MOST_ITERATIONS}"
        )
    return number


def _decoded(parts: Mapping[str, str], key: str) -> bytes | None:
    text = parts.get(key)
    if text is None:
        return None
    bare = text.rstrip("=")  # the padding may be missing
    try:
        return base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)
    except ValueError:
        # `from None`, because the context of the error can hold the value.
        raise ConfigError(f"{key} of a SCRAM credential is not base64") from None
