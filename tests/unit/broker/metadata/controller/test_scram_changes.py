"""The SCRAM credentials that AlterUserScramCredentials stores, deletes and refuses."""

from __future__ import annotations

import base64

import pytest

from aiokq.broker.metadata.controller.scram_changes import alter_scram_credentials
from aiokq.broker.metadata.image.features import METADATA_VERSION
from aiokq.broker.metadata.image.image import MetadataImage
from aiokq.connection.turn import at_once
from aiokq.wire.alter_user_scram_credentials import (
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from aiokq.wire.principal_records import RemoveUserScramCredentialRecord, UserScramCredentialRecord

SALTED = bytes.fromhex("c4a49510323ab4f952cac1fa99441939e78ea74d6be81ddf7096e87513dc615d")
"""The salted password of the example of RFC 7677: user, pencil."""


def upsertion(name="alice", mechanism=1, iterations=4096, salt=b"salt", salted=SALTED):
    return ScramCredentialUpsertion(
        name=name,
        mechanism=mechanism,
        iterations=iterations,
        salt=salt,
        salted_password=salted,
    )


def deletion(name="alice", mechanism=1):
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


def image(*names, level=25):
    made = MetadataImage()
    made.features[METADATA_VERSION] = level
    for name in names:
        record = UserScramCredentialRecord(
            name=name, mechanism=1, salt=b"", stored_key=b"", server_key=b"", iterations=4096
        )
        made.principals.replay(record)
    return made


def asked(state, *changes):
    """Return the error codes by user, and the records."""
    answer, records = at_once(
        alter_scram_credentials(
            state,
            [one for one in changes if isinstance(one, ScramCredentialDeletion)],
            [one for one in changes if isinstance(one, ScramCredentialUpsertion)],
        )
    )
    return {name: 0 if error is None else error.code for name, error in answer.items()}, records


def test_the_keys_come_from_the_salted_password():
    """The password of the user is never stored."""
    codes, [record] = asked(image(), upsertion())
    assert codes == {"alice": 0}
    assert (record.name, record.mechanism, record.salt, record.iterations) == (
        "alice",
        1,
        b"salt",
        4096,
    )
    assert record.stored_key.hex() == (
        "586e5df283e6dceb5c3e791d8b8528ec191e664045ce971792e2e6b5bb13e2a6"
    )
    assert record.server_key.hex() == (
        "c1f3cbc1c13a9d35a14c0990eed97629ea225863e566a4314ab99f3f00e5d9d5"
    )
    assert base64.b64encode(SALTED) not in repr(record).encode()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (upsertion(name=""), 93),
        (upsertion(iterations=4095), 93),
        (upsertion(iterations=16385), 93),
        (upsertion(iterations=-1), 93),
        (upsertion(salted=b""), 93),
        (upsertion(mechanism=0), 33),
        (upsertion(mechanism=3), 33),
        (upsertion(mechanism=-1), 33),
        (deletion(name=""), 93),
        (deletion(mechanism=3), 33),
        (deletion(name="nobody"), 91),
        (deletion(name="bob", mechanism=2), 91),
    ],
)
def test_kafkas_errors(change, code):
    """An error of one user does not concern another."""
    codes, records = asked(image("bob"), change, upsertion(name="carol"))
    assert codes == {change.name: code, "carol": 0}
    assert [record.name for record in records] == ["carol"]


@pytest.mark.parametrize(
    "changes",
    [
        (upsertion(), upsertion(mechanism=2)),
        (deletion(), deletion(mechanism=2)),
        (deletion(), upsertion(mechanism=2)),
        (upsertion(), upsertion(), upsertion()),
        (deletion(), deletion(), upsertion()),
    ],
)
def test_a_user_that_is_named_twice_is_not_changed(changes):
    """Not even with different mechanisms."""
    codes, records = asked(image("alice", "bob"), *changes, deletion("bob"))
    assert codes == {"alice": 92, "bob": 0}
    assert records == [RemoveUserScramCredentialRecord(name="bob", mechanism=1)]


def test_an_old_metadata_version_has_no_credentials():
    """Its records could not be read by the nodes of that version."""
    codes, records = asked(image(level=10), upsertion())
    assert (codes, records) == ({"alice": 35}, [])


def test_odd_names_and_empty_salts_are_stored():
    """As in Kafka, where such a user may be unable to log in."""
    codes, records = asked(image(), upsertion(name="ä=,", salt=b""), upsertion(name="User:x"))
    assert set(codes.values()) == {0}
    assert len(records) == 2
