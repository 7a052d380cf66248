"""A process that carries out plans against one broker, many connections at a time.

`python -m tests.fault.fuzz.attack DIRECTORY SEED SECONDS CONNECTIONS LEAST KIND...` writes a JSON
object to standard output in the end: the number of connections of each kind, and violations. It
goes on after SECONDS until there were LEAST connections of each kind. With KIND/NUMBER in place of
each KIND, it carries out these single plans, one after the other.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import socket
import ssl
import struct
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random

from aiokq import wire
from aiokq.core.errors import ProtocolError
from tests.fault.fuzz.fixture import Fixture, needles
from tests.fault.fuzz.mutations import damaged, framed
from tests.fault.fuzz.plans import IDENTITIES, PASSWORDS, Plan, Step, make_plan
from tests.fault.fuzz.talks import Talk
from tests.fault.fuzz.values import SECRET, SECRET_ID, SHARED, SHARED_ID

READ_BYTES = 65_536
CONNECTION_WITHIN = 10.0
"""Seconds after which a connection is given up, wherever it is in its plan."""


class Attack:
    """Carries out plans, and scans the answers.

    Attributes:
        counts: connections and other numbers.
        violations: what must not be.
    """

    def __init__(self, fixture: Fixture, seed: int) -> None:
        self.fixture = fixture
        self.seed = seed
        self.ids: dict[str, str] = json.loads((fixture.directory / "ids.json").read_text())
        self.needles = needles(self.ids)
        self.contexts = {name: fixture.client_context(name) for name in IDENTITIES}
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []

    async def run(self, kinds: list[str], seconds: float, connections: int, least: int) -> None:
        end = time.monotonic() + seconds
        await asyncio.gather(
            *(
                self._loop(kind, first, connections, end, least)
                for kind in kinds
                for first in range(connections)
            )
        )

    async def _loop(self, kind: str, number: int, step: int, end: float, least: int) -> None:
        while True:
            within = CONNECTION_WITHIN
            if self.counts[kind] >= least:
                within = min(within, end - time.monotonic())
                if within <= 0:
                    return
            await self.carry_out(make_plan(self.seed, kind, number), within)
            number += step

    async def carry_out(self, plan: Plan, within: float = CONNECTION_WITHIN) -> None:
        """Do what a plan says, for some seconds at most."""
        self.counts[plan.kind] += 1
        connection = Connection(self, plan)
        try:
            async with asyncio.timeout(within):
                await connection.run()
        except (OSError, EOFError, ssl.SSLError, ProtocolError):
            self.counts["ended by the broker"] += 1
        except TimeoutError:
            self.counts["given up"] += 1
        finally:
            connection.close()
        self.counts["bytes read"] += connection.received


class Connection:
    """One connection of a fuzzer."""

    def __init__(self, attack: Attack, plan: Plan) -> None:
        self.attack = attack
        self.plan = plan
        self.received = 0
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._tls: ssl.SSLObject | None = None
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._sent = bytearray()
        self._tail = b""
        self._buffer = bytearray()

    async def run(self) -> None:
        port = self.attack.fixture.ports[self.plan.kind]
        await self._loop.sock_connect(self._socket, ("127.0.0.1", port))
        for step in self.plan.steps:
            await self._step(step)

    def close(self) -> None:
        self._socket.close()

    async def _step(self, step: Step) -> None:
        match step.do:
            case "send":
                await self._send(self._with_ids(step.data))
            case "raw":
                self._sent += step.data
                await self._loop.sock_sendall(self._socket, step.data)
            case "slow":
                for at in range(len(step.data)):
                    await self._loop.sock_sendall(self._socket, step.data[at : at + 1])
                    await asyncio.sleep(0.005)
            case "tls":
                await self._handshake(step)
            case "scram":
                # What is read may be the answer to another request, whose fields are no SCRAM.
                with contextlib.suppress(ValueError):
                    await self._scram(step)
            case "talk":
                await self._talk(step)
            case "read":
                await self._read_for(step.number / 1000)
            case "pause":
                await asyncio.sleep(step.number / 1000)
            case "eof":
                self._socket.shutdown(socket.SHUT_WR)
            case "reset":
                linger = struct.pack("ii", 1, 0)
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    def _with_ids(self, data: bytes) -> bytes:
        ids = self.attack.ids
        data = data.replace(SHARED_ID.bytes, bytes.fromhex(ids[SHARED]))
        return data.replace(SECRET_ID.bytes, bytes.fromhex(ids[SECRET]))

    async def _send(self, data: bytes) -> None:
        self._sent += data
        if self._tls is None:
            # A broker that does not read is no reason to wait for ever.
            async with asyncio.timeout(5):
                await self._loop.sock_sendall(self._socket, data)
            return
        self._tls.write(data)
        async with asyncio.timeout(5):
            await self._loop.sock_sendall(self._socket, self._outgoing.read())

    async def _receive(self) -> bytes:
        """Return what arrives next, decrypted; raise EOFError at the end."""
        while True:
            data = await self._loop.sock_recv(self._socket, READ_BYTES)
            if not data:
                raise EOFError
            self.received += len(data)
            if self._tls is None:
                self._scan(data)
                return data
            self._incoming.write(data)
            found = b""
            with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLZeroReturnError):
                while piece := self._tls.read(READ_BYTES):
                    found += piece
            if self._outgoing.pending:
                await self._loop.sock_sendall(self._socket, self._outgoing.read())
            if found:
                self._scan(found)
                return found

    async def _read_for(self, seconds: float) -> None:
        """Read what arrives within these seconds."""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    self._buffer += await self._receive()
        except TimeoutError:
            pass

    def _scan(self, data: bytes) -> None:
        """Look for what the client may not see, also across the ends of two pieces."""
        if self.plan.principal == "root":
            return
        data = self._tail + data
        self._tail = data[-64:]
        for what, needle in self.attack.needles.items():
            if needle in data and needle not in self._sent:
                self.attack.violations.append(
                    f"{what} in an answer to {self.plan.principal}: "
                    f"--seed {self.attack.seed} --plan {self.plan.kind}/{self.plan.number}"
                )

    async def _handshake(self, step: Step) -> None:
        context = self.attack.contexts[step.text]
        tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        left = step.number or 1 << 30
        while True:
            try:
                tls.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                done = False
            data = self._outgoing.read()[:left]
            left -= len(data)
            await self._loop.sock_sendall(self._socket, data)
            if not left:
                return
            if done:
                self._tls = tls
                return
            received = await self._loop.sock_recv(self._socket, READ_BYTES)
            if not received:
                raise EOFError
            self._incoming.write(received)

    async def _talk(self, step: Step) -> None:
        """Hold a conversation that depends on the answers."""
        talk = Talk(step.text, step.number, is_super=self.plan.principal == "root")
        for number in range(talk.random.randint(4, 20)):
            message, version = talk.next()
            parts = wire.encode_request(
                message, version=version, correlation_id=1000 + number, client_id="fuzz"
            )
            data = b"".join(map(bytes, parts))
            if talk.random.random() < 0.1:
                data = framed(damaged(talk.random, data[4:], 2))
            await self._send(self._with_ids(data))
            try:
                async with asyncio.timeout(talk.random.choice([0.1, 2.0])):
                    answer = await self._answer()
                    while int.from_bytes(answer[:4], "big") != 1000 + number:
                        answer = await self._answer()
            except TimeoutError:
                continue
            with contextlib.suppress(ProtocolError):
                cls = type(message).RESPONSE
                talk.learn(wire.decode_response(cls, memoryview(answer), version)[1])

    # -- SCRAM

    async def _scram(self, step: Step) -> None:
        """Log in, after SaslHandshake 0 or 1 was sent; with a damaged message if asked."""
        mechanism, user = step.text.split()
        digest = "sha256" if mechanism.endswith("256") else "sha512"
        handshake = bytes(self._sent[-200:])
        is_wrapped = b"\0\x11\0\x01" in handshake  # the key and version of SaslHandshake
        await self._answer()
        bare = f"n={user},r=nonce{self.plan.number}"
        first = await self._exchange(b"n,," + bare.encode(), is_wrapped)
        found = first[first.find(b"r=") :].split(b",")
        if len(found) < 3:
            return
        nonce = found[0][2:].decode("latin-1")
        salt = base64.b64decode(found[1][2:])
        iterations = int("".join(c for c in found[2][2:10].decode("latin-1") if c.isdigit()))
        password = PASSWORDS.get(user, "wrong").encode()
        salted = hashlib.pbkdf2_hmac(digest, password, salt, min(iterations, 10_000))
        key = hmac.digest(salted, b"Client Key", digest)
        final = f"c=biws,r={nonce}"
        server_first = f"r={nonce},s={found[1][2:].decode()},i={iterations}"
        signed = f"{bare},{server_first},{final}".encode()
        signature = hmac.digest(hashlib.new(digest, key).digest(), signed, digest)
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        message = f"{final},p={base64.b64encode(proof).decode()}".encode()
        if step.number:
            message = damaged(Random(step.number), message, 2)
        await self._exchange(message, is_wrapped)

    async def _exchange(self, message: bytes, is_wrapped: bool) -> bytes:
        if is_wrapped:
            body = struct.pack(">hhihi", 36, 0, 1, -1, len(message)) + message
            await self._send(struct.pack(">i", len(body)) + body)
        else:
            await self._send(struct.pack(">i", len(message)) + message)
        return await self._answer()

    async def _answer(self) -> bytes:
        """Return the next response."""
        while len(self._buffer) < 4 or len(self._buffer) < 4 + self._size():
            self._buffer += await self._receive()
        size = self._size()
        answer = bytes(self._buffer[4 : 4 + size])
        del self._buffer[: 4 + size]
        return answer

    def _size(self) -> int:
        return int.from_bytes(self._buffer[:4], "big")


def main() -> int:
    directory, seed, seconds, connections, least, *kinds = sys.argv[1:]
    attack = Attack(Fixture.load(Path(directory)), int(seed))

    async def run() -> None:
        if "/" in kinds[0]:  # single plans
            for one in kinds:
                kind, _, number = one.partition("/")
                await attack.carry_out(make_plan(attack.seed, kind, int(number)))
        else:
            await attack.run(kinds, float(seconds), int(connections), int(least))

    asyncio.run(run())
    print(json.dumps({"counts": attack.counts, "violations": sorted(set(attack.violations))}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
