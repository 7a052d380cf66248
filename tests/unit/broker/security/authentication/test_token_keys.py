"""aiokq.broker.security.authentication.token_keys: fetching, renewal, keys that do not count."""

from __future__ import annotations

import asyncio
import logging

import pytest

pytest.importorskip("jwt")

from cryptography.hazmat.primitives.asymmetric import ec

from aiokq.broker.security.authentication.token_keys import TokenKeys, parse_key_set
from aiokq.core.offload import InlineOffload
from tests.sim.harness.simulation import run
from tests.unit.broker.security.authentication.token_makers import (
    ec_key,
    ed_key,
    jwk,
    key_set,
    rsa_key,
)


def ids(text):
    return [one.key_id for one in parse_key_set(text)]


def test_only_public_keys_for_signatures_count():
    """A key set may contain keys for encryption, and keys of algorithms that nobody knows."""
    keys = [
        jwk(rsa_key(), "rsa"),
        jwk(ec_key(), "ec", use="sig"),
        jwk(ed_key(), "ed", key_ops=["verify"]),
        jwk(rsa_key(), "encrypts", use="enc"),
        jwk(rsa_key(), "signs", key_ops=["sign"]),
        jwk(rsa_key(2, 1024), "short"),
        {"kty": "oct", "k": "c2VjcmV0", "kid": "symmetric"},
        {"kty": "new", "kid": "unknown"},
        {"kty": "RSA", "kid": "broken", "n": "AQAB"},
        {"kty": ["RSA"], "kid": "list"},
        {**jwk(ec_key()), "kid": 5},
        "text",
        None,
    ]
    assert ids(key_set(*keys)) == ["rsa", "ec", "ed"]
    assert ids(key_set(jwk(rsa_key()))) == [None]
    curves = [one.curve for one in parse_key_set(key_set(*keys[:3]))]
    assert curves == [None, "P-256", "Ed25519"]


def test_a_private_key_in_the_set_counts_as_its_public_part():
    """It should not be there, and it must not stop a broker."""
    from jwt.algorithms import RSAAlgorithm

    private = RSAAlgorithm.to_jwk(rsa_key(), as_dict=True)
    [found] = parse_key_set(key_set({**private, "key_ops": ["verify"]}))
    assert not hasattr(found.key, "private_numbers")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        b'{"keys": 5}',
        b'{"keys": []}',
        b"<html>",
        b"[" * 100_000,
        key_set({"kty": "oct", "k": "c2VjcmV0"}),
        key_set(*[{}] * 1001),
    ],
)
def test_what_is_no_key_set_is_refused(text):
    """An error page must not replace the keys."""
    with pytest.raises(ValueError, match="it "):
        parse_key_set(text)


class Source:
    """A source whose content a test sets: bytes, an error, or None."""

    def __init__(self, *answers, is_file=False):
        self.answers = list(answers)
        self.is_file = is_file
        self.reads = 0

    def __str__(self):
        return "https://issuer/keys"

    def read(self):
        self.reads += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer


def made(simulation, source, **settings):
    every = {"refresh": 3600.0, "backoff": 0.1, "longest_backoff": 10.0, **settings}
    return TokenKeys(source, clock=simulation.environment().clock, offload=InlineOffload(), **every)


A, B = key_set(jwk(rsa_key(), "a")), key_set(jwk(rsa_key(1), "a"), jwk(rsa_key(), "b"))


def with_keys(source, main, **settings):
    async def start(simulation):
        keys = made(simulation, source, **settings)
        tasks = []
        keys.start(lambda work, name: tasks.append(asyncio.get_running_loop().create_task(work)))
        await asyncio.sleep(0.01)
        try:
            await main(keys)
        finally:
            for task in tasks:
                task.cancel()

    run(1, start, limit=100_000)


def test_the_keys_are_fetched_at_the_start_and_then_at_intervals():
    """`jwks.endpoint.refresh.ms`; the last ones stay while the server is down."""
    source = Source(A, B, OSError("down"))

    async def main(keys):
        assert len(await keys.find("a", "RSA", None)) == 1
        assert await keys.find(None, "EC", "P-256") == []
        await asyncio.sleep(3600)
        assert len(await keys.find(None, "RSA", None)) == 2
        await asyncio.sleep(3600)
        assert source.reads > 2
        assert len(await keys.find(None, "RSA", None)) == 2

    with_keys(source, main)


def test_an_unknown_key_id_fetches_the_keys_and_waits_for_them():
    """A new key can be used at once, where Kafka refuses its first token."""
    source = Source(A, B)

    async def main(keys):
        await asyncio.sleep(10)
        assert len(await keys.find("b", "RSA", None)) == 1
        assert source.reads == 2

    with_keys(source, main)


def test_invented_key_ids_do_not_flood_the_server():
    """A thousand tokens with random key ids in a minute cause six fetches."""
    source = Source(A)

    async def main(keys):
        for number in range(1000):
            assert await keys.find(f"x{number}", "RSA", None) == []
            await asyncio.sleep(0.06)
        assert source.reads <= 8

    with_keys(source, main)


def test_a_server_that_is_down_is_asked_again_with_growing_pauses(caplog):
    """Until the first keys arrive, nobody can log in; the log says so, and not a hundred times."""
    source = Source(*[OSError("refused")] * 6, A)

    async def main(keys):
        assert await keys.find("a", "RSA", None) == []
        await asyncio.sleep(20)
        assert len(await keys.find("a", "RSA", None)) == 1
        assert source.reads == 7

    with caplog.at_level(logging.WARNING):
        with_keys(source, main)
    assert "no client can log in" in caplog.text
    assert len(caplog.records) <= 5


class SlowOffload:
    """Runs the first reads quickly; the later ones do not end."""

    def __init__(self, quick):
        self.quick = quick

    async def run(self, fn, *args):
        if fn is not parse_key_set:
            self.quick -= 1
            if self.quick < 0:
                await asyncio.Event().wait()
        return fn(*args)


def test_a_server_that_sends_slowly_does_not_keep_logins_waiting(caplog):
    """A fetch ends after fifteen seconds; the last keys stay in use, and are fetched again."""
    source = Source(A)

    async def main(keys):
        keys._offload = offload = SlowOffload(0)
        await asyncio.sleep(10)
        began = asyncio.get_running_loop().time()
        assert await keys.find("b", "RSA", None) == []
        assert asyncio.get_running_loop().time() - began == pytest.approx(15)
        assert len(await keys.find("a", "RSA", None)) == 1
        offload.quick = 10
        source.answers = [B]
        await asyncio.sleep(10)
        assert len(await keys.find("b", "RSA", None)) == 1

    with caplog.at_level(logging.WARNING):
        with_keys(source, main)
    assert "no complete answer within 15 s" in caplog.text


class Panic(BaseException):
    """As of a Rust extension."""


@pytest.mark.parametrize("error", [Panic, GeneratorExit, asyncio.CancelledError])
def test_whatever_reading_the_keys_raises_is_a_failed_fetch(error, caplog):
    """Regression: a panic of `cryptography` failed the broker's supervisor, and so the node."""
    source = Source(A, error("broken"), B)

    async def main(keys):
        await asyncio.sleep(11)
        assert await keys.find("b", "RSA", None) == []
        assert len(await keys.find("a", "RSA", None)) == 1
        await asyncio.sleep(11)
        assert len(await keys.find("b", "RSA", None)) == 1

    with caplog.at_level(logging.WARNING):
        with_keys(source, main)
    assert "keys of tokens cannot be read" in caplog.text


def test_an_error_page_does_not_replace_the_keys():
    """A proxy may answer 200 with HTML."""
    source = Source(A, b"<html>")

    async def main(keys):
        await asyncio.sleep(20)
        assert await keys.find("b", "RSA", None) == []
        assert len(await keys.find("a", "RSA", None)) == 1

    with_keys(source, main)


def test_a_file_is_looked_at_again_after_a_second():
    """A key that is removed from the file must not count for an hour; None means no change."""
    source = Source(A, None, B, is_file=True)

    async def main(keys):
        await keys.find("a", "RSA", None)
        assert source.reads == 1
        await asyncio.sleep(1.1)
        await keys.find("a", "RSA", None)
        assert source.reads == 2
        await asyncio.sleep(1.1)
        assert len(await keys.find("b", "RSA", None)) == 1

    with_keys(source, main)


def test_concurrent_logins_share_one_fetch():
    """A thousand clients that wait for a new key must not fetch it a thousand times."""
    source = Source(A, B)

    async def main(keys):
        await asyncio.sleep(10)
        found = await asyncio.gather(*(keys.find("b", "RSA", None) for _ in range(100)))
        assert all(found)
        assert source.reads == 2

    with_keys(source, main)


class Gate:
    """Runs reads once it is open."""

    def __init__(self):
        self.opened = asyncio.Event()

    async def run(self, fn, *args):
        await self.opened.wait()
        return fn(*args)


def test_a_login_that_is_cancelled_leaves_the_fetch_to_the_others():
    """Strangers who send tokens with invented key ids and disconnect must not hold up a new key."""
    source = Source(A, B)

    async def main(keys):
        await asyncio.sleep(10)
        keys._offload = gate = Gate()
        stranger = asyncio.ensure_future(keys.find("invented", "RSA", None))
        await asyncio.sleep(0.1)
        login = asyncio.ensure_future(keys.find("b", "RSA", None))
        await asyncio.sleep(0.1)
        stranger.cancel()
        await asyncio.sleep(0.1)
        gate.opened.set()
        assert len(await login) == 1
        assert stranger.cancelled()

    with_keys(source, main)


def test_a_curve_is_part_of_the_type():
    """P-384 is not P-256."""
    found = parse_key_set(key_set(jwk(ec_key(ec.SECP384R1), "k")))
    assert [one.curve for one in found] == ["P-384"]
