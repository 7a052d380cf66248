"""The shapes of SCRAM credentials, and how many credentials of an image have each."""

from __future__ import annotations

import pytest

from aiokq.broker.metadata.image.principals_image import PrincipalsImage
from aiokq.broker.metadata.image.scram_shapes import KAFKA_SALT, ScramShape, shape_of
from aiokq.wire.principal_records import (
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)


def record(
    salt: bytes, *, name: str = "alice", mechanism: int = 1, iterations: int = 4096
) -> UserScramCredentialRecord:
    return UserScramCredentialRecord(
        name=name,
        mechanism=mechanism,
        salt=salt,
        stored_key=b"",
        server_key=b"",
        iterations=iterations,
    )


@pytest.mark.parametrize(
    ("salt", "length", "is_text"),
    [
        (b"1a3dl4dv7bnw2j5g4fwvmlyjta", KAFKA_SALT, True),
        (b"q3dl4dv7bnw2j5g4fwvmlyjta", KAFKA_SALT, True),
        (b"zq3dl4dv7bnw2j5g4fwvmlyjta", 26, True),  # more than 130 bits
        (b"0q3dl4dv7bnw2j5g4fwvmlyjta", 26, True),
        (b"abc", 3, True),
        (b"Q3dl4dv7bnw2j5g4fwvmlyjta", 25, False),
        (bytes(20), 20, False),
        (b"", 0, False),
        (b"1" * 32_000, 32_000, True),
    ],
)
def test_salts_of_kafkas_tools_are_one_shape(salt: bytes, length: int, is_text: bool) -> None:
    """Their length differs, because they are numbers."""
    assert shape_of(record(salt)) == ScramShape(1, 4096, length, is_text)


def test_an_image_counts_the_credentials_of_each_shape() -> None:
    """A change of a credential is a removal and an addition."""
    image = PrincipalsImage()
    image.replay(record(bytes(20)))
    image.replay(record(bytes(20), name="bob"))
    image.replay(record(bytes(20), mechanism=2))
    one, two = ScramShape(1, 4096, 20, False), ScramShape(2, 4096, 20, False)
    assert image.scram_shapes == {one: 2, two: 1}
    copied = image.copy()
    image.replay(record(bytes(64), iterations=8192))
    assert image.scram_shapes == {one: 1, two: 1, ScramShape(1, 8192, 64, False): 1}
    assert list(image.scram_credentials) == [("alice", 1), ("bob", 1), ("alice", 2)]
    assert copied.scram_shapes == {one: 2, two: 1}
    for name, mechanism in list(image.scram_credentials):
        image.replay(RemoveUserScramCredentialRecord(name=name, mechanism=mechanism))
    assert image.scram_shapes == {}
