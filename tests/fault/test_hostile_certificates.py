"""Certificates that a listener refuses, each in bounded time and with the reason in the audit log.

A working client is served meanwhile. What a trusted authority has signed may be large; it is let in
under the name that its certificate has, whatever the name contains.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ssl
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID

from aiokq.connection.server import Server
from aiokq.connection.tls.tls_contexts import TlsContexts
from tests.fault.support import LoopFactory, both_loops, run
from tests.fault.test_tls_faults import ask, client_context, contexts, gone, serving
from tests.peers.hostile_certificates import (
    DAY,
    Issuer,
    chain_of,
    issue,
    large_rsa_key,
    slow_chain,
    write,
)

ROOT = issue(None, "root of the clients", authority=True, end=2 * DAY)
STRANGER = issue(None, "another root", authority=True, end=2 * DAY)

LONGEST_PAUSE = 2.0
"""Seconds that a working client may wait; in a loop of its own it is some 10 ms."""


def listener() -> TlsContexts:
    return contexts(
        client_auth="required",
        truststore_certificates=ROOT.certificate.public_bytes(serialization.Encoding.PEM).decode(),
    )


def context_for(identity: Issuer, directory: Path) -> ssl.SSLContext:
    context = client_context()
    context.load_cert_chain(write(identity, directory / "hostile.pem"))
    return context


class Working:
    """A client that asks all the time, and notes the longest wait."""

    def __init__(self, server: Server, directory: Path) -> None:
        self.longest = 0.0
        self.answers = 0
        self._server = server
        context = client_context()
        context.load_cert_chain(write(issue(ROOT, "alice"), directory / "alice.pem"))
        self._context = context

    async def __aenter__(self) -> Working:
        self._reader, self._writer = await asyncio.open_connection(
            "127.0.0.1", self._server.port, ssl=self._context
        )
        await self._round_trip()
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _round_trip(self) -> None:
        self._writer.write(b"\0\0\0\x02hi")
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        assert await self._reader.readexactly(size) == b"User:CN=alice True hi"

    async def _run(self) -> None:
        while True:
            begin = time.monotonic()
            await self._round_trip()
            self.longest = max(self.longest, time.monotonic() - begin)
            self.answers += 1
            await asyncio.sleep(0.002)


TOO_LONG = "has more than 16384 bytes after the serverhello; its certificate chain is too long"


def names(nbytes: int) -> tuple[str, ...]:
    """Return alternative names that take a number of bytes in a certificate, 24 each."""
    return tuple(f"{n:05}.example.example." for n in range(nbytes // 24))


REFUSED: dict[str, tuple[Callable[[], Issuer], str]] = {
    "expired": (
        lambda: issue(ROOT, begin=-2 * DAY, end=-datetime.timedelta(hours=1)),
        "certificate has expired",
    ),
    "not valid yet": (
        lambda: issue(ROOT, begin=datetime.timedelta(hours=1)),
        "certificate is not yet valid",
    ),
    "of a server": (
        lambda: issue(ROOT, purposes=(ExtendedKeyUsageOID.SERVER_AUTH,)),
        "certificate purpose",  # OpenSSL 3.5 words it in another way than 3.0
    ),
    "signed by itself": (lambda: issue(None), "self-signed certificate"),
    "of an unknown authority": (
        lambda: issue(STRANGER),
        "unable to get local issuer certificate",
    ),
    "signed by a certificate that is no authority": (
        lambda: issue(issue(ROOT, "alice")),
        "invalid CA certificate",
    ),
    "chain of 40 of an unknown authority": (
        lambda: chain_of(40, STRANGER),
        "unable to get local issuer certificate",
    ),
    "chain of 110 of the trusted authority": (lambda: chain_of(110, ROOT), TOO_LONG),
    "16,000 bytes of names": (lambda: issue(ROOT, alternatives=names(16_000)), TOO_LONG),
    "100,000 bytes of names": (lambda: issue(ROOT, alternatives=names(100_000)), TOO_LONG),
    "15,000 bytes of names, of an unknown authority": (
        lambda: issue(STRANGER, alternatives=names(15_000)),
        "unable to get local issuer certificate",
    ),
    "RSA of 16,384 bits, of an unknown authority": (
        lambda: issue(STRANGER, key=large_rsa_key()),
        "unable to get local issuer certificate",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_hostile_certificate_is_refused_with_the_reason(tmp_path: Path, kind: str) -> None:
    make, words = REFUSED[kind]
    context = context_for(make(), tmp_path)
    reasons: list[tuple[str, str]] = []

    async def main() -> None:
        async with serving(listener(), failed=lambda *what: reasons.append(what[1:])) as server:
            async with Working(server, tmp_path) as working:
                async with asyncio.timeout(10):
                    with pytest.raises((OSError, asyncio.IncompleteReadError)):
                        await ask(server, context)
                    while server.connections > 1:  # noqa: ASYNC110 - nothing tells
                        await asyncio.sleep(0.01)
                    answers = working.answers
                    while working.answers < answers + 3:  # noqa: ASYNC110 - nothing tells
                        await asyncio.sleep(0.01)
            assert working.longest < LONGEST_PAUSE
            await gone(server)

    run(uvloop.new_event_loop, main)
    [(mechanism, reason)] = reasons
    assert mechanism == "SSL"
    assert reason.startswith("TLS handshake failed: ")
    assert words in reason.replace("unsuitable certificate purpose", "certificate purpose")


@both_loops
def test_a_client_without_a_certificate_is_in_the_audit_log(loop_factory: LoopFactory) -> None:
    reasons: list[str] = []

    async def main() -> None:
        async with serving(listener(), failed=lambda *what: reasons.append(what[2])) as server:
            with pytest.raises((OSError, asyncio.IncompleteReadError)):
                await ask(server, client_context())
            await gone(server)

    run(loop_factory, main)
    assert reasons == ["TLS handshake failed: peer did not return a certificate"]


LET_IN: dict[str, tuple[Callable[[], Issuer], str]] = {
    "a name with NUL": (lambda: issue(ROOT, "alice\0.example"), "CN=alice\\00.example"),
    "a name that looks like two": (lambda: issue(ROOT, "a,CN=root"), "CN=a\\,CN\\=root"),
    "15,000 bytes of names": (
        lambda: issue(ROOT, "bob", alternatives=names(15_000)),
        "CN=bob",
    ),
    "an alternative name with NUL": (
        lambda: issue(ROOT, "bob", alternatives=("localhost\0.example",)),
        "CN=bob",
    ),
    "RSA of 16,384 bits": (lambda: issue(ROOT, "carol", key=large_rsa_key()), "CN=carol"),
    "40 authorities": (lambda: chain_of(40, ROOT), "CN=mallory"),
}


@pytest.mark.parametrize("kind", LET_IN)
def test_an_unusual_certificate_of_the_trusted_authority_has_its_own_name(
    tmp_path: Path, kind: str
) -> None:
    """A name is never cut at a NUL, and its special characters are escaped."""
    make, name = LET_IN[kind]
    context = context_for(make(), tmp_path)

    async def main() -> None:
        async with serving(listener()) as server:
            async with Working(server, tmp_path) as working:
                async with asyncio.timeout(15):
                    assert await ask(server, context) == f"User:{name} True hello".encode()
            # The client of the same loop signs, too, with its large key.
            assert working.longest < 2 * LONGEST_PAUSE
            await gone(server)

    run(uvloop.new_event_loop, main)


def test_slow_certificates_of_many_addresses_delay_no_ordinary_ones(tmp_path: Path) -> None:
    """Each stops the loop for a tenth of a second, which is paid back before the next one."""
    hostile = context_for(slow_chain(STRANGER, 15_000), tmp_path)
    ordinary = client_context()
    ordinary.load_cert_chain(write(issue(ROOT, "bob"), tmp_path / "bob.pem"))
    ended: Counter[str] = Counter()

    async def attack(server: Server, host: str) -> None:
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", server.port, ssl=hostile, local_addr=(host, 0)
                )
                await reader.read(1)
                writer.close()
            ended[host] += 1

    async def main() -> None:
        async with serving(listener()) as server, Working(server, tmp_path) as working:
            hosts = [f"127.0.0.{number}" for number in range(2, 42)]
            tasks = [asyncio.create_task(attack(server, host)) for host in 2 * hosts]
            while not ended:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)
            answers = working.answers
            for _ in range(3):
                async with asyncio.timeout(6):
                    assert await ask(server, ordinary) == b"User:CN=bob True hello"
            assert working.answers > answers
            assert working.longest < LONGEST_PAUSE
            # They were not left alone; but most addresses have waited.
            assert 0 < len(ended) < len(hosts)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    run(uvloop.new_event_loop, main)
