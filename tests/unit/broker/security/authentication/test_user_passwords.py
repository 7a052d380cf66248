"""aiokq.broker.security.authentication.user_passwords: credentials of given users."""

from __future__ import annotations

from aiokq.broker.security.authentication.user_passwords import missing_credentials
from aiokq.connection.sasl.scram_formulas import SCRAM_MECHANISMS, keys_of_salted_password
from aiokq.wire.principal_records import UserScramCredentialRecord


def stored(upsertions):
    found = {}
    for one in upsertions:
        mechanism = next(m for m in SCRAM_MECHANISMS.values() if m.number == one.mechanism)
        keys = keys_of_salted_password(mechanism, one.salted_password)
        found[one.name, one.mechanism] = UserScramCredentialRecord(
            name=one.name,
            mechanism=one.mechanism,
            salt=one.salt,
            stored_key=keys.stored_key,
            server_key=keys.server_key,
            iterations=one.iterations,
        )
    return found


def test_only_what_is_missing_or_different_is_stored():
    """A restart with the same users must not add records."""
    users = {"alice": "a", "bob": "b"}
    first = missing_credentials(users, {})
    assert [[one.name for one in of] for of in first] == [["alice", "bob"]] * 2
    assert len({one.salt for of in first for one in of}) == 4
    records = stored([one for of in first for one in of])
    assert missing_credentials(users, records) == [[], []]
    changed = missing_credentials({**users, "bob": "c"}, records)
    assert [[one.name for one in of] for of in changed] == [["bob"]] * 2
