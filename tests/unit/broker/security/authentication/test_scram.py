"""aiokq.broker.security.authentication.scram: proofs, and users that do not exist."""

from __future__ import annotations

import base64
import random
import string
from collections import Counter
from collections.abc import Callable, Mapping

import pytest

from aiokq.broker.metadata.image.scram_shapes import ScramShape, shape_of
from aiokq.broker.security.authentication.exchange import ExchangeFailed
from aiokq.broker.security.authentication.scram import ScramCredentials, ScramExchange
from aiokq.connection.sasl.scram_formulas import (
    SCRAM_MECHANISMS,
    client_key,
    client_proof,
    keys_of_password,
    salted_password,
    server_signature,
)
from aiokq.connection.sasl.scram_messages import (
    ClientFinal,
    ClientFirst,
    ServerFinal,
    ServerFirst,
    auth_message,
)
from aiokq.wire.principal_records import UserScramCredentialRecord

SHA_256 = SCRAM_MECHANISMS["SCRAM-SHA-256"]
Stored = Mapping[tuple[str, int], UserScramCredentialRecord]


def record(
    name: str,
    password: str,
    *,
    mechanism: str = "SCRAM-SHA-256",
    salt: bytes = b"0123456789abcdefghijklmnop",
    iterations: int = 4096,
) -> UserScramCredentialRecord:
    scram = SCRAM_MECHANISMS[mechanism]
    keys = keys_of_password(scram, password, salt, iterations)
    return UserScramCredentialRecord(
        name=name,
        mechanism=scram.number,
        salt=salt,
        stored_key=keys.stored_key,
        server_key=keys.server_key,
        iterations=iterations,
    )


def stored(*records: UserScramCredentialRecord) -> dict[tuple[str, int], UserScramCredentialRecord]:
    return {(one.name, one.mechanism): one for one in records}


def of(
    records: Stored, mechanism: str = "SCRAM-SHA-256", secret: bytes = b"secret"
) -> ScramCredentials:
    return ScramCredentials(
        mechanism, lambda: records, lambda: Counter(map(shape_of, records.values())), secret
    )


async def log_in(
    credentials: ScramCredentials,
    name: str,
    password: str,
    *,
    first: ClientFirst | None = None,
    before_proof: Callable[[], None] = lambda: None,
) -> tuple[ScramExchange, bytes]:
    """Log in as a client; return the exchange and the last answer.

    Args:
        before_proof: called between the answer to the first message and the final message.
    """
    exchange = ScramExchange(credentials)
    first = first or ClientFirst(name, "rOprNGfwEbeRWgbNEkqO")
    challenge = ServerFirst.parse(await exchange.respond(first.render()))
    assert challenge.nonce.startswith(first.nonce)
    assert len(challenge.nonce) >= len(first.nonce) + 22
    mechanism = credentials.mechanism
    salted = salted_password(mechanism, password, challenge.salt, challenge.iterations)
    final = ClientFinal(challenge.nonce)
    signed = auth_message(first, challenge, final)
    proof = client_proof(mechanism, client_key(mechanism, salted), signed)
    before_proof()
    answer = await exchange.respond(ClientFinal(challenge.nonce, proof).render())
    keys = keys_of_password(mechanism, password, challenge.salt, challenge.iterations)
    assert ServerFinal.parse(answer).signature == server_signature(
        mechanism, keys.server_key, signed
    )
    return exchange, answer


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("name", ["alice", "a=b,c", "CN=x,OU=y"])
async def test_a_client_with_the_password_is_authenticated(mechanism: str, name: str) -> None:
    """The broker proves that it knows the credential."""
    records = stored(record(name, "pencil", mechanism=mechanism, iterations=5000))
    exchange, _ = await log_in(of(records, mechanism), name, "pencil")
    assert exchange.outcome is not None
    assert str(exchange.outcome.principal) == f"User:{name}"


@pytest.mark.parametrize("name", ["alice", "nobody"])
async def test_a_wrong_password_and_an_unknown_user_fail_at_the_same_point(name: str) -> None:
    """After the proof, with the same text; Kafka refuses an unknown user before."""
    records = stored(record("alice", "pencil"))
    with pytest.raises(ExchangeFailed) as failed:
        await log_in(of(records), name, "wrong")
    assert failed.value.told is None
    assert failed.value.reason == "unknown user or wrong password"


@pytest.mark.parametrize(
    "later",
    [
        None,
        record("alice", "new"),
        record("alice", "pencil", salt=b"another salt of 26 letters"),
        record("alice", "pencil", iterations=8192),
        record("alice", "pencil", mechanism="SCRAM-SHA-512"),
    ],
    ids=["deleted", "password", "salt", "iterations", "mechanism"],
)
async def test_a_credential_that_changes_during_the_login_fails_as_a_wrong_password(
    later: UserScramCredentialRecord | None,
) -> None:
    """A change is in force for the next login, and for one that is in progress."""
    records = stored(record("alice", "pencil"))

    def change() -> None:
        records.clear()
        records.update(stored(later) if later else {})

    with pytest.raises(ExchangeFailed) as failed:
        await log_in(of(records), "alice", "pencil", before_proof=change)
    assert failed.value.told is None
    assert failed.value.reason == "unknown user or wrong password"


async def test_a_credential_that_is_stored_again_unchanged_still_counts() -> None:
    """Changes of other users do not fail a login."""
    records = stored(record("alice", "pencil"))

    def change() -> None:
        records.update(stored(record("alice", "pencil"), record("bob", "x")))

    exchange, _ = await log_in(of(records), "alice", "pencil", before_proof=change)
    assert exchange.outcome is not None


async def test_a_credential_of_another_mechanism_does_not_count() -> None:
    """A user may have a credential for one mechanism only."""
    records = stored(record("alice", "pencil", mechanism="SCRAM-SHA-512"))
    with pytest.raises(ExchangeFailed, match="unknown user"):
        await log_in(of(records), "alice", "pencil")


def test_an_invented_salt_stays_the_same_and_looks_like_a_real_one() -> None:
    """Otherwise two attempts would tell whether a user exists."""
    kafka = record("alice", "pencil", iterations=8192)  # Kafka's tools write text
    records = stored(kafka)
    credentials = of(records)
    found = credentials.of("nobody")
    assert not found.is_genuine
    assert found.salt == credentials.of("nobody").salt == of(records).of("nobody").salt
    assert len(found.salt) == len(kafka.salt)
    assert found.salt.isalnum()
    assert found.iterations == 8192
    assert found.salt != credentials.of("nobody2").salt
    assert found.salt != of(records, secret=b"2").of("nobody").salt
    without = of({}).of("nobody")
    assert (len(without.salt), without.iterations) == (20, 4096)


def test_an_invented_salt_stays_the_same_in_later_versions() -> None:
    """Only the salts of unknown users would change with a version, which would tell who exists."""
    given = of({}, secret=b"secret").of("nobody")
    assert (given.salt.hex(), given.iterations) == (
        "a5afd4fe06807feb3e31eb8ea89272a6d072fe84",
        4096,
    )


def shaped(name: str, salt: bytes, iterations: int = 4096) -> UserScramCredentialRecord:
    """Return a credential without its keys, which take time."""
    keys = {"stored_key": b"", "server_key": b""}
    return UserScramCredentialRecord(
        name=name, mechanism=1, salt=salt, iterations=iterations, **keys
    )


def kafka_salt(number: int) -> bytes:
    """Return a salt as Kafka's tools make it."""
    value, digits = random.Random(number).getrandbits(130), ""
    while value:
        value, digit = divmod(value, 36)
        digits = (string.digits + string.ascii_lowercase)[digit] + digits
    return digits.encode()


@pytest.mark.parametrize("size", [0, 1, 20, 63, 64, 65, 1000])
def test_an_invented_salt_has_any_length_in_use(size: int) -> None:
    """Users of other tools may have any salts."""
    salt = random.Random(size).randbytes(size)
    credentials = of({("alice", 1): shaped("alice", salt)})
    found = credentials.of("nobody").salt
    assert len(found) == size
    assert found == credentials.of("nobody").salt
    if size > 1:
        assert found != credentials.of("nobody2").salt


def test_shapes_of_invented_credentials_are_those_in_use() -> None:
    """As often as in use, within a factor of two, and each name keeps its shape and its salt.

    Otherwise the iterations or the length of a salt would tell whether a user exists.
    """
    made = [
        *(("kafka", kafka_salt(n), 4096) for n in range(60)),
        *(("librdkafka", random.Random(n).randbytes(64), 8192) for n in range(30)),
        *(("own", random.Random(n).randbytes(20), 4096) for n in range(10)),
        *(("few iterations", bytes(7), 100),) * 50,
    ]
    records = {
        (f"user-{n}", 1): shaped(f"user-{n}", salt, iterations)
        for n, (_, salt, iterations) in enumerate(made)
    }
    records["other", 2] = record("other", "", mechanism="SCRAM-SHA-512", salt=bytes(5))
    shapes = Counter(map(shape_of, records.values()))
    credentials = ScramCredentials("SCRAM-SHA-256", lambda: records, lambda: shapes, b"secret")
    names = [f"nobody-{n}" for n in range(1000)]
    invented = {name: credentials.of(name) for name in names}
    counts = Counter(
        shape_of(shaped(name, one.salt, one.iterations)) for name, one in invented.items()
    )
    real = Counter(shape_of(one) for one in records.values() if one.iterations > 4000)
    real = Counter({shape: n for shape, n in real.items() if shape.mechanism == 1})
    assert set(counts) == set(real)
    for shape, number in counts.items():
        assert real[shape] * 10 / 2.5 < number < real[shape] * 10 * 2.5
    salts = [bytes(one.salt) for one in invented.values()]
    assert len(set(salts)) == len(salts)
    # Kafka's salts of 26 digits begin with 1, because they have 130 bits, and none begins with 0.
    longest = [salt for salt in salts if len(salt) == 26 and salt.isalnum()]
    assert len(longest) > 100
    assert {salt[:1] for salt in longest} == {b"1"}
    # A new credential of a known shape changes nothing, and a new shape little.
    salt = random.Random(-1).randbytes(20)
    shapes[shape_of(shaped("new", salt))] += 1
    assert all(credentials.of(name).salt == invented[name].salt for name in names)
    shapes[shape_of(shaped("odd", salt, 16384))] += 1
    changed = [name for name in names if credentials.of(name).salt != invented[name].salt]
    assert 0 < len(changed) < 60
    assert {credentials.of(name).iterations for name in changed} == {16384}


def test_many_shapes_cost_a_login_little() -> None:
    """The most frequent ones are considered."""
    one = record("x", "")
    shapes = {ScramShape(1, 4096 + n, 20, False): n + 1 for n in range(1000)}
    credentials = ScramCredentials("SCRAM-SHA-256", lambda: {("x", 1): one}, lambda: shapes, b"s")
    chosen = {credentials.of(f"nobody-{n}").iterations for n in range(100)}
    assert 1 < len(chosen) <= 64
    assert min(chosen) >= 4096 + 1000 - 64


async def test_no_proof_fits_an_invented_credential() -> None:
    """Not even the one that fits its keys by chance."""
    credentials = of({})
    exchange = ScramExchange(credentials)
    first = ClientFirst("nobody", "abc")
    challenge = ServerFirst.parse(await exchange.respond(first.render()))
    with pytest.raises(ExchangeFailed):
        await exchange.respond(ClientFinal(challenge.nonce, bytes(32)).render())
    assert exchange.outcome is None


async def test_a_change_of_a_credential_holds_for_the_next_login() -> None:
    """Also between the two messages of a login, the credential is that of its beginning."""
    records = stored(record("alice", "old"))
    credentials = of(records)
    await log_in(credentials, "alice", "old")
    records.update(stored(record("alice", "new", salt=b"other salt")))
    await log_in(credentials, "alice", "new")
    with pytest.raises(ExchangeFailed):
        await log_in(credentials, "alice", "old")
    records.clear()
    with pytest.raises(ExchangeFailed):
        await log_in(credentials, "alice", "new")


async def test_a_credential_with_few_iterations_is_none() -> None:
    """Kafka refuses it, too."""
    records = stored(record("alice", "pencil", iterations=4095))
    with pytest.raises(ExchangeFailed):
        await log_in(of(records), "alice", "pencil")


@pytest.mark.parametrize("name", ["alice", "nobody"])
async def test_another_authorization_id_is_refused_before_the_user_is_looked_up(name: str) -> None:
    """Its text must not tell whether the user exists (CVE-2017-12610)."""
    exchange = ScramExchange(of(stored(record("alice", "pencil"))))
    with pytest.raises(ExchangeFailed) as failed:
        await exchange.respond(f"n,a=eve,n={name},r=abc".encode())
    assert failed.value.told is not None
    assert "authorization id" in failed.value.told
    exchange, _ = await log_in(
        of(stored(record("alice", "pencil"))),
        "alice",
        "pencil",
        first=ClientFirst("alice", "abc", authzid="alice"),
    )
    assert exchange.outcome is not None


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"y,,n=alice,r=abc",
        b"p=tls-unique,,n=alice,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=alice,r=",
        b"n,,m=x,n=alice,r=abc",
        b"n,,n=al=ice,r=abc",
        b"n,,n=alice,r=a c",
        b"n,,n=alice\0,r=abc",
        b"\xff\xfe",
        b"n,,n=alice,r=" + b"a" * 500_000,
        b"n,,n=alice,r=abc,tokenauth=true",
    ],
)
async def test_malformed_first_messages_are_refused_with_the_text_for_all(message: bytes) -> None:
    """No part of the message is in the error."""
    exchange = ScramExchange(of(stored(record("alice", "pencil"))))
    with pytest.raises(ExchangeFailed) as failed:
        await exchange.respond(message)
    assert failed.value.told is None
    assert "alice" not in failed.value.reason


async def test_the_log_names_the_clients_that_repeat_their_nonce() -> None:
    """librdkafka before 2.6.1; otherwise an administrator would look for a wrong password."""
    exchange = ScramExchange(of(stored(record("alice", "pencil"))))
    first = ClientFirst("alice", "abcdef")
    challenge = ServerFirst.parse(await exchange.respond(first.render()))
    final = ClientFinal(first.nonce + challenge.nonce, bytes(32))
    with pytest.raises(ExchangeFailed, match=r"librdkafka before 2\.6\.1") as raised:
        await exchange.respond(final.render())
    assert raised.value.told is None


async def test_hostile_final_messages_are_refused() -> None:
    """A nonce of another exchange (CVE-2024-56128), proofs of other lengths, and garbage."""
    records = stored(record("alice", "pencil"))
    proof = base64.b64encode(bytes(32)).decode()
    for make in (
        lambda nonce: f"c=biws,r=abc,p={proof}",
        lambda nonce: f"c=biws,r={nonce}x,p={proof}",
        lambda nonce: f"c=biws,r={nonce[:-1]},p={proof}",
        lambda nonce: f"c=biws,r={nonce},p=",
        lambda nonce: f"c=biws,r={nonce},p=AAAA",
        lambda nonce: f"c=biws,r={nonce}",
        lambda nonce: f"c=biws,r={nonce},p={base64.b64encode(bytes(300_000)).decode()}",
        lambda nonce: "",
    ):
        exchange = ScramExchange(of(records))
        challenge = ServerFirst.parse(await exchange.respond(b"n,,n=alice,r=abc"))
        with pytest.raises(ExchangeFailed) as failed:
            await exchange.respond(make(challenge.nonce).encode())
        assert failed.value.told is None
        assert exchange.outcome is None
