"""`ScramShape`: the properties of a SCRAM credential that any client can see, except its salt.

The image counts the credentials of each shape. The broker uses the counts to invent credentials for
unknown users that look like stored ones (``security/authentication/scram.py``).

Source: Kafka ``ScramFormatter.secureRandomString``.
Tests: ``tests/unit/broker/metadata/image/test_scram_shapes.py``.
"""

from __future__ import annotations

import string
from typing import TYPE_CHECKING, Final

from aiokq.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokq.wire.principal_records import UserScramCredentialRecord

__all__ = ["BASE_36", "KAFKA_SALT", "KAFKA_SALT_BITS", "ScramShape", "shape_of"]

BASE_36: Final = string.digits.encode() + string.ascii_lowercase.encode()
"""The digits of the salts that Kafka's tools make."""

KAFKA_SALT_BITS: Final = 130
"""Random bits in a salt of Kafka's tools, which write the bits as a number in base 36."""

KAFKA_SALT: Final = -1
"""`ScramShape.salt_bytes` of a salt that Kafka's tools could have made.

The length of such salts varies: they have 26 digits or slightly fewer.
"""

_LEAST_KAFKA_SALT: Final = 24


class ScramShape(NamedTuple):
    """The shape of a credential.

    Attributes:
        mechanism: number of the mechanism.
        iterations: number of iterations of PBKDF2.
        salt_bytes: length of the salt, or `KAFKA_SALT`.
        is_text: whether the salt has only digits of `BASE_36`.
    """

    mechanism: int
    iterations: int
    salt_bytes: int
    is_text: bool


def shape_of(credential: UserScramCredentialRecord) -> ScramShape:
    """Return the shape of a credential."""
    salt = bytes(credential.salt)
    is_text = bool(salt) and not salt.strip(BASE_36)
    length = KAFKA_SALT if is_text and _is_of_kafka(salt) else len(salt)
    return ScramShape(credential.mechanism, credential.iterations, length, is_text)


def _is_of_kafka(salt: bytes) -> bool:
    return (
        len(salt) >= _LEAST_KAFKA_SALT
        and not salt.startswith(b"0")
        and len(salt) <= KAFKA_SALT_BITS
        and int(salt, 36) < 1 << KAFKA_SALT_BITS
    )
