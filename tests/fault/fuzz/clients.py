"""Clients of aiokq with a hostile broker: a proxy before a real one changes its responses.

`python -m tests.fault.fuzz.clients --seconds 30 --seed 1` writes a JSON object to standard output.
Whatever the broker answers, a call ends within its limits with a result or a typed error, a client
closes, and nothing of it is left.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import logging
import struct
import sys
import time
import traceback
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import aiokq
from aiokq import wire
from aiokq.core.errors import ProtocolError
from tests.fault.fuzz.mutations import damaged, framed, lying
from tests.fault.fuzz.values import Values
from tests.peers.authorization_server import unsecured
from tests.peers.memory import peak_bytes
from tests.peers.pki import Pki

USER, PASSWORD = "alice", "alice-pw-3cc9"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

LIMIT_MS = 1500
WITHIN = 15.0
"""Seconds for an activity, which has several calls of `LIMIT_MS`, and closes its client."""
MOST_REQUESTS = 4000
"""Requests of an activity, on average, above which clients are thought to ask without a pause."""
MEMORY_BYTES = 256_000_000
"""The process, with broker and proxies, needs 90 MB while no response is changed. A response whose
size is a lie takes `FIRST_STEP_BYTES` (2 MiB) of its connection: 151 MB if twelve clients have six
such connections each.
"""
HANDSHAKE, AUTHENTICATE = 17, 36


class HostileProxy:
    """Passes requests on to a broker, and changes what it answers.

    Attributes:
        chance: the probability that a response is changed.
        raw: whether bytes are passed on as they come, and damaged, because TLS hides the responses.
        requests: number of requests; with `raw`, number of pieces that came from clients.
    """

    def __init__(self, seed: str) -> None:
        self.random = Random(seed)
        self.chance = 0.0
        self.raw = False
        self.requests = 0
        self.changed: Counter[str] = Counter()
        self.target = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def __aenter__(self) -> HostileProxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        waiting: deque[tuple[int, int]] = deque()
        try:
            other, to_broker = await asyncio.open_connection("127.0.0.1", self.target)
            try:
                pumps = [self._forward(reader, to_broker, waiting)]
                pumps.append(self._answer(other, writer, waiting))
                running = [asyncio.create_task(pump) for pump in pumps]
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for each in running:
                    each.cancel()
                await asyncio.gather(*running, return_exceptions=True)
            finally:
                to_broker.close()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _forward(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        waiting: deque[tuple[int, int]],
    ) -> None:
        while True:
            if self.raw:
                data = await reader.read(65_536)
                if not data:
                    return
                self.requests += 1
            else:
                size = await reader.readexactly(4)
                payload = await reader.readexactly(int.from_bytes(size, "big"))
                self.requests += 1
                waiting.append(struct.unpack_from(">hh", payload))
                data = size + payload
            writer.write(data)
            await writer.drain()

    async def _answer(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        waiting: deque[tuple[int, int]],
    ) -> None:
        random = self.random
        while True:
            if self.raw:
                data = await reader.read(65_536)
                if not data:
                    return
                if random.random() < self.chance:
                    data = damaged(random, data)
            else:
                size = await reader.readexactly(4)
                payload = await reader.readexactly(int.from_bytes(size, "big"))
                key, version = waiting.popleft()
                data = size + payload
                if random.random() < self.chance:
                    changed = await self._hostile(key, version, payload)
                    if changed is None:
                        return
                    data = changed
            writer.write(data)
            await writer.drain()

    async def _hostile(self, key: int, version: int, payload: bytes) -> bytes | None:
        """Return what is sent in place of a response; None to close the connection."""
        random = self.random
        self.changed[wire.catalog.API_NAMES[key]] += 1
        if key in (HANDSHAKE, AUTHENTICATE) and random.random() < 0.6:
            with contextlib.suppress(ProtocolError):
                return self._hostile_login(key, version, payload)
        chance = random.random()
        if chance < 0.4:
            return framed(damaged(random, payload))
        if chance < 0.75:
            response = Values(random).response(key, version)
            assert isinstance(response, wire.Response)
            correlation_id = int.from_bytes(payload[:4], "big", signed=True)
            with contextlib.suppress(ProtocolError):
                parts = wire.encode_response(
                    response, version=version, correlation_id=correlation_id
                )
                data = b"".join(map(bytes, parts))
                return data if random.random() < 0.6 else framed(damaged(random, data[4:]))
        if chance < 0.82:
            return lying(random, payload)
        if chance < 0.87:  # another correlation id
            return framed(random.randbytes(4) + payload[4:])
        if chance < 0.92:
            return framed(payload) * 2
        if chance < 0.96:
            await asyncio.sleep(random.choice([0.1, 3.0]))
            return framed(payload)
        return None

    def _hostile_login(self, key: int, version: int, payload: bytes) -> bytes:
        random = self.random
        cls = wire.api(key).RESPONSE
        correlation_id, response = wire.decode_response(cls, memoryview(payload), version)
        if isinstance(response, wire.SaslHandshakeResponse):
            response.error_code = random.choice([0, 33, 34, 35, -1, 999])
            response.mechanisms = random.choice(
                [[], ["x" * 20_000], list(MECHANISMS), ["\n\0"] * 300, ["GSSAPI"]]
            )
        else:
            assert isinstance(response, wire.SaslAuthenticateResponse)
            if random.random() < 0.7:
                response.auth_bytes = self._message(bytes(response.auth_bytes))
            if random.random() < 0.4:
                response.error_code = random.choice([58, 34, 0, -1, 7, 999])
                response.error_message = random.choice([None, "", "\n\x1b[2J", "x" * 30_000])
            if version and random.random() < 0.4:
                response.session_lifetime_ms = random.choice([-1, 1, 2, 100, 2**63 - 1, -(2**63)])
        parts = wire.encode_response(response, version=version, correlation_id=correlation_id)
        return b"".join(map(bytes, parts))

    def _message(self, message: bytes) -> bytes:
        """Return a message of a server: of SCRAM, or an error of OAUTHBEARER."""
        random = self.random
        nonce = message[2:].partition(b",")[0]
        salt = base64.b64encode(random.randbytes(16))
        choices = [
            b"",
            damaged(random, message),
            b"r=" + nonce + b",s=" + salt + b",i=1",
            b"r=" + nonce + b",s=" + salt + b",i=2147483647",
            b"r=" + nonce + b",s=" + salt + b",i=" + b"9" * 5000,
            b"r=" + nonce + b",s=,i=4096",
            b"r=" + nonce + b",s=" + b"A" * 400_000 + b",i=4096",
            b"r=other,s=" + salt + b",i=4096",
            b"m=x,r=" + nonce + b",s=" + salt + b",i=4096",
            b"v=" + base64.b64encode(random.randbytes(32)),
            b"v=",
            b"e=other-error",
            b"e=" + b"x" * 100_000,
            b'{"status":"invalid_token"}',
            b'{"status":' + b"[" * 10_000,
            b'{"status":' + b"9" * 10_000 + b"}",
            b"[1e999]",
            b"\xff\xfe",
        ]
        return random.choice(choices)


# -- what clients do


async def produce(settings: dict[str, Any], random: Random) -> None:
    acks = random.choice([1, "all"])
    async with aiokq.Producer(
        **settings,
        acks=acks,
        delivery_timeout_ms=LIMIT_MS,
        max_block_ms=LIMIT_MS,
        compression_type=random.choice(["none", "gzip"]),
    ) as producer:
        for _ in range(3):
            await producer.send("t", b"v" * random.choice([1, 1000]))


async def consume(settings: dict[str, Any], random: Random) -> None:
    async with aiokq.Consumer(**settings, auto_offset_reset="earliest") as consumer:
        consumer.assign([aiokq.TopicPartition("t", 0)])
        for _ in range(3):
            async with asyncio.timeout(LIMIT_MS / 1000):
                await consumer.getone()


async def group(settings: dict[str, Any], random: Random) -> None:
    protocol = random.choice(["classic", "consumer"])
    async with aiokq.Consumer(
        "t",
        **settings,
        auto_offset_reset="earliest",
        group_id=f"g{random.randrange(3)}",
        group_protocol=protocol,
    ) as consumer:
        async with asyncio.timeout(LIMIT_MS / 1000):
            await consumer.getone()
            await consumer.commit()


async def administer(settings: dict[str, Any], random: Random) -> None:
    calls: list[Callable[[aiokq.Admin], Awaitable[object]]] = [
        lambda admin: admin.create_topics(f"made-{random.randrange(20)}"),
        lambda admin: admin.delete_topics(f"made-{random.randrange(20)}"),
        lambda admin: admin.describe_topics(["t", "made-1"]),
        lambda admin: admin.list_topics(),
        lambda admin: admin.list_groups(),
        lambda admin: admin.describe_groups(["g0", "g1"]),
        lambda admin: admin.list_group_offsets(["g0"]),
        lambda admin: admin.describe_cluster(),
        lambda admin: admin.describe_configs(["t"]),
        lambda admin: admin.describe_acls(),
        lambda admin: admin.describe_user_scram_credentials(),
        lambda admin: admin.describe_client_quotas(),
    ]
    async with aiokq.Admin(**settings) as admin:
        for call in random.sample(calls, 4):
            with contextlib.suppress(aiokq.errors.KafkaError):
                await call(admin)


async def transact(settings: dict[str, Any], random: Random) -> None:
    producer = aiokq.Producer(
        **settings,
        transactional_id=f"x{random.randrange(3)}",
        delivery_timeout_ms=LIMIT_MS,
        max_block_ms=LIMIT_MS,
    )
    async with producer, producer.transaction():
        await producer.send("t", b"v")


ACTIVITIES = (produce, consume, group, administer, transact)


class Noise(logging.Handler):
    """Collects tracebacks that clients log."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            trace = "".join(traceback.format_exception(record.exc_info[1]))[-2500:]
            self.lines.append(f"{record.name}: {message} {trace}")
        elif "never retrieved" in message or PASSWORD in message:
            self.lines.append(f"{record.name}: {message}")


class ClientFuzz:
    """Runs activities of clients until the time is over, and at least `least` of them."""

    def __init__(self, seed: int, least: int) -> None:
        self.seed = seed
        self.least = least
        self.counts: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.violations: list[str] = []
        self.longest = 0.0

    @contextlib.asynccontextmanager
    async def _brokers(self) -> AsyncIterator[tuple[HostileProxy, HostileProxy, Path]]:
        """Start a broker with two listeners, and a proxy before each."""
        identity = (pki := Pki("hostile")).issue()
        with TemporaryDirectory(prefix="aiokq-fuzz-") as name:
            authority = Path(name) / "ca.pem"
            authority.write_text(pki.trusted)
            async with (
                HostileProxy(f"{self.seed}/plain") as plain,
                HostileProxy(f"{self.seed}/tls") as tls,
            ):
                tls.raw = True
                listeners = "SASL_PLAINTEXT://127.0.0.1:{},SASL_SSL://127.0.0.1:{}"
                kafka = aiokq.EmbeddedCluster(
                    users={USER: PASSWORD},
                    authenticate=lambda *given: USER if given[0] == "OAUTHBEARER" else None,
                    settings={
                        "listeners": listeners.format(0, 0),
                        "advertised.listeners": listeners.format(plain.port, tls.port),
                        "inter.broker.listener.name": "SASL_PLAINTEXT",
                        "ssl.keystore.type": "PEM",
                        "ssl.keystore.key": identity.key,
                        "ssl.keystore.certificate.chain": identity.chain,
                        "connection.failed.authentication.delay.ms": "1",
                    },
                )
                async with kafka:
                    opened = {one.name: one.port for one in kafka.node.servers.opened()}
                    plain.target, tls.target = opened["SASL_PLAINTEXT"], opened["SASL_SSL"]
                    await kafka.create_topic("t", 1)
                    yield plain, tls, authority

    async def run(self, seconds: float) -> None:
        random = Random(f"{self.seed}/clients")
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, what: self.violations.append(_told(what)))
        end = time.monotonic() + seconds
        async with self._brokers() as (plain, tls, authority):
            while time.monotonic() < end or self.counts.total() < self.least:
                await self._some(random, plain, tls, authority)

    async def _some(
        self, random: Random, plain: HostileProxy, tls: HostileProxy, authority: Path
    ) -> None:
        """Run a few activities at a time; then nothing of them may be left."""
        before = {plain: plain.requests, tls: tls.requests}
        plain.chance = random.choice([0.01, 0.03, 0.1, 0.4])
        tls.chance = random.choice([0.005, 0.02, 0.1])
        tasks = asyncio.all_tasks()
        running = [
            self._activity(random.choice(ACTIVITIES), Random(random.randrange(2**32)), *chosen)
            for chosen in (*[(plain, None)] * 9, *[(tls, authority)] * 3)
        ]
        await asyncio.gather(*running)
        for proxy, count in before.items():
            if proxy.requests - count > MOST_REQUESTS * len(running):
                self.violations.append(f"{proxy.requests - count} requests of a few calls")
        for _ in range(100):
            left = [task for task in asyncio.all_tasks() - tasks if _is_client(task)]
            if not left:
                return
            await asyncio.sleep(0.02)
        self.violations += [f"a task is left: {task!r}" for task in left]

    async def _activity(
        self,
        activity: Callable[[dict[str, Any], Random], Awaitable[None]],
        random: Random,
        proxy: HostileProxy,
        authority: Path | None,
    ) -> None:
        mechanism = random.choice(MECHANISMS)
        settings: dict[str, Any] = {
            "bootstrap_servers": f"127.0.0.1:{proxy.port}",
            "security_protocol": "SASL_PLAINTEXT" if authority is None else "SASL_SSL",
            "sasl_mechanism": mechanism,
            "bootstrap_timeout_ms": LIMIT_MS,
            "request_timeout_ms": LIMIT_MS // 2,
            "default_api_timeout_ms": LIMIT_MS,
        }
        if authority is not None:
            settings["ssl_cafile"] = str(authority)
        if mechanism == "OAUTHBEARER":
            settings["sasl_oauth_token_provider"] = lambda: unsecured(USER, 3600)
        else:
            settings |= {"sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
        self.counts[activity.__name__] += 1
        began = time.monotonic()
        what = f"{activity.__name__} with {mechanism}"
        try:
            async with asyncio.timeout(WITHIN) as limit:
                try:
                    await activity(settings, random)
                except TimeoutError as error:
                    if limit.expired():
                        raise
                    self.errors[type(error).__name__] += 1
        except aiokq.errors.KafkaError as error:
            self.errors[type(error).__name__] += 1
            if PASSWORD in f"{error} {error!r}":
                self.violations.append(f"{what}: the password is in {error!r}")
        except TimeoutError:
            self.violations.append(f"{what}: no end within {WITHIN} s")
        except Exception as error:
            trace = "".join(traceback.format_exception(error))[-2500:]
            self.violations.append(f"{what}: {error!r}, no typed error\n{trace}")
        self.longest = max(self.longest, time.monotonic() - began)


def _is_client(task: asyncio.Task[object]) -> bool:
    """Return whether a task belongs neither to the proxies nor to the broker."""
    code = getattr(task.get_coro(), "cr_code", None)
    file = "" if code is None else code.co_filename
    if file.endswith(("streams.py", "fuzz/clients.py")):
        return False
    return "/broker/" not in file and not task.get_name().startswith(("connection ", "server"))


def _told(what: dict[str, Any]) -> str:
    error = what.get("exception")
    trace = "" if error is None else "".join(traceback.format_exception(error))[-2500:]
    return f"{what.get('message')} {trace}"


async def fuzz_clients(seconds: float, seed: int, least: int) -> tuple[dict[str, Any], list[str]]:
    """Return the numbers of a round, and what is wrong."""
    noise = Noise()
    for name in ("aiokq", "asyncio"):
        logging.getLogger(name).addHandler(noise)
    fuzz = ClientFuzz(seed, least)
    await fuzz.run(seconds)
    peak = peak_bytes()
    if peak > MEMORY_BYTES:
        fuzz.violations.append(f"{peak:,} B of memory, at most {MEMORY_BYTES:,}")
    numbers = {
        "activities": dict(fuzz.counts),
        "errors": dict(fuzz.errors),
        "longest": round(fuzz.longest, 1),
        "peak_mb": round(peak / 1e6),
    }
    return numbers, sorted({*fuzz.violations, *noise.lines})


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fault.fuzz.clients")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--least", type=int, default=0, help="number of activities")
    options = parser.parse_args()
    logging.getLogger("aiokq").propagate = False
    numbers, violations = asyncio.run(fuzz_clients(options.seconds, options.seed, options.least))
    print(json.dumps({"numbers": numbers, "violations": violations}))
    return int(bool(violations))


if __name__ == "__main__":
    sys.exit(main())
