"""TlsConnection between a plain transport in memory and a protocol that records its calls."""

from __future__ import annotations

import asyncio
import errno
import gc
import ssl
import weakref
from collections.abc import AsyncIterator, Callable, Sequence
from random import Random

import pytest

from aiokq.connection.security import tls_error
from aiokq.connection.tls import handshakes as handshakes_module
from aiokq.connection.tls.contexts import client_context, server_context
from aiokq.connection.tls.failure import ClosedInHandshake
from aiokq.connection.tls.handshakes import Handshakes
from aiokq.connection.tls.shared_memory import RECEIVE_BYTES, shared_memory
from aiokq.connection.tls.tls_connection import TlsConnection
from aiokq.connection.tls.tls_settings import TlsSettings
from aiokq.core.errors import ConnectionLost, ProtocolError
from tests.peers.pki import Pki
from tests.peers.tls_messages import (
    CHANGE_CIPHER_SPEC,
    first_message,
    message_start,
    record,
    retry_wanted,
)

PKI = Pki()
NODE = PKI.issue()
SERVER = server_context(
    TlsSettings(
        keystore_type="PEM",
        keystore_key=NODE.key,
        keystore_certificate_chain=NODE.chain,
    )
).context
CLIENT = client_context(
    TlsSettings(truststore_type="PEM", truststore_certificates=PKI.trusted)
).context


class Plain(asyncio.Transport):
    """A transport in memory; `deliver` hands what was written to the peer's protocol."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.protocol: TlsConnection | None = None
        self.peer: Plain | None = None
        self.paused = False
        self.unread = b""  # what the system holds, because reading is paused
        self.closed = False
        self.aborted = False
        self.unsent = 0

    def write(self, data: bytes) -> None:  # type: ignore[override]
        assert not self.closed
        self.written.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def is_closing(self) -> bool:
        return self.closed

    def deliver(self, step: int = RECEIVE_BYTES) -> int:
        """Hand over what was written, in pieces; return its size."""
        assert self.peer is not None
        data, self.written = self.peer.unread + b"".join(self.written), []
        self.peer.unread = b""
        for at in range(0, len(data), step):
            self.peer.receive(data[at : at + step])
        return len(data)

    def receive(self, data: bytes) -> None:
        """Receive; what is behind the bytes of a read that pauses reading stays in the system."""
        assert self.protocol is not None
        paused = self.paused or bool(self.unread)
        while data and not paused:
            buffer = self.protocol.get_buffer(-1)
            nbytes = min(len(buffer), len(data))
            buffer[:nbytes] = data[:nbytes]
            data = data[nbytes:]
            self.protocol.buffer_updated(nbytes)
            paused = self.paused
        self.unread += data


class Recorder:
    """A protocol that records what it gets."""

    def __init__(self, size: int = 65536) -> None:
        self.buffer = memoryview(bytearray(size))
        self.transport: asyncio.Transport | None = None
        self.begun: asyncio.Transport | None = None
        self.received = bytearray()
        self.updates = 0
        self.eof = False
        self.lost: list[Exception | None] = []
        self.on_made: Callable[[], None] = lambda: None
        self.on_update: Callable[[], None] = lambda: None

    def handshake_begun(self, transport: asyncio.Transport) -> None:
        self.begun = transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, TlsConnection)
        self.transport = transport
        self.on_made()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        assert 0 < nbytes <= len(self.buffer)
        self.updates += 1
        self.received += self.buffer[:nbytes]
        self.on_update()

    def eof_received(self) -> bool:
        self.eof = True
        return False

    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)


class AtOnce:
    """Steps that never wait."""

    def do(self, step: Callable[[], None], host: str | None) -> bool:
        step()
        return True

    def read(self, resume: Callable[[], None], host: str) -> bool:
        return True

    def admit(
        self,
        begin: Callable[[], None],
        refuse: Callable[[], None],
        host: str,
        *,
        has_waited: bool,
    ) -> bool:
        begin()
        return True

    accepts_many = False

    def is_full(self, host: str) -> bool:
        return False

    def refuse_one(self) -> bool:
        return False

    def do_long(self, step: Callable[[], None], host: str, nbytes: int) -> bool:
        return self.do(step, host)

    def begun(self) -> None: ...
    def end_turn(self) -> None: ...


class Pair:
    """A client and a server, not connected yet."""

    def __init__(
        self,
        *,
        buffer: int = 65536,
        handshakes: Handshakes | None = None,
        peer_host: str = "",
        context: ssl.SSLContext = SERVER,
        client: ssl.SSLContext = CLIENT,
    ) -> None:
        self.near, self.far = Recorder(buffer), Recorder(buffer)
        self.handshakes = Handshakes(AtOnce()) if handshakes is None else handshakes
        self.client = TlsConnection(self.near, lambda: client, server_hostname="localhost")
        self.server = TlsConnection(
            self.far, lambda: context, handshakes=self.handshakes, peer_host=peer_host
        )
        self.there, self.back = Plain(), Plain()
        self.there.peer, self.back.peer = self.back, self.there
        self.there.protocol, self.back.protocol = self.client, self.server
        self.server.connection_made(self.back)
        self.client.connection_made(self.there)

    def exchange(self, step: int = RECEIVE_BYTES) -> None:
        while self.there.deliver(step) + self.back.deliver(step):
            pass

    async def settle(self) -> None:
        """Exchange messages in several iterations of the loop."""
        for _ in range(5):
            self.exchange()
            await asyncio.sleep(0)

    @classmethod
    def connected(cls, *, buffer: int = 65536) -> Pair:
        pair = cls(buffer=buffer)
        pair.exchange()
        assert pair.near.transport is pair.client
        assert pair.far.transport is pair.server
        return pair


@pytest.fixture(autouse=True)
async def shared_buffers_are_left_empty() -> AsyncIterator[None]:
    """What one connection leaves behind another would send or read."""
    yield
    memory = shared_memory()
    assert memory.incoming.pending == 0
    assert memory.outgoing.pending == 0


@pytest.mark.parametrize("step", [1, 7, 100, RECEIVE_BYTES])
async def test_a_handshake_in_pieces_connects(step: int) -> None:
    """The network cuts where it likes."""
    pair = Pair()
    assert pair.near.begun is pair.client
    assert pair.far.begun is pair.server
    pair.exchange(step)
    assert pair.client.opened is not None
    await pair.client.opened
    assert pair.client.get_extra_info("ssl_object").version() == "TLSv1.3"
    assert pair.server.get_extra_info("sslcontext") is SERVER
    assert len(pair.handshakes) == 0


def server(**settings: str) -> ssl.SSLContext:
    """Return a context of a server with other settings than `SERVER`."""
    return server_context(
        TlsSettings(
            keystore_type="PEM",
            keystore_key=NODE.key,
            keystore_certificate_chain=NODE.chain,
            **settings,
        )
    ).context


@pytest.mark.parametrize("step", [1, 7, 100, RECEIVE_BYTES])
async def test_a_handshake_with_a_hello_retry_request_connects(step: int) -> None:
    """The client's key share is of a group that the server does not have."""
    context = server()
    context.set_ecdh_curve("secp384r1")
    pair = Pair(context=context)
    pair.there.deliver(step)
    assert len(b"".join(pair.back.written)) < 200  # a HelloRetryRequest has no certificate
    pair.exchange(step)
    assert pair.client.opened is not None
    await pair.client.opened
    assert pair.far.transport is pair.server
    assert len(pair.handshakes) == 0
    assert pair.handshakes.held == 0


@pytest.mark.parametrize("at_once", [True, False])
async def test_openssl_does_not_see_a_second_hello_that_is_not_complete(at_once: bool) -> None:
    """Regression: OpenSSL allocated the announced size, up to 128 KiB."""
    first = retry_wanted()
    start = CHANGE_CIPHER_SPEC + record(message_start(1, 20_000))
    pair = Pair()
    for data in [first + start] if at_once else [first, start]:
        pair.back.receive(data)
    assert pair.back.written
    assert not pair.back.closed
    assert pair.handshakes.held == len(start)
    refused = Pair()
    start = CHANGE_CIPHER_SPEC + record(message_start(1, 130_000))
    for data in [first + start] if at_once else [first, start]:
        refused.back.receive(data)
    assert refused.back.closed
    refused.server.connection_lost(None)
    (error,) = refused.far.lost
    assert isinstance(error, ssl.SSLError)
    assert "second ClientHello announces" in str(error)


async def test_an_alert_in_place_of_a_second_hello_is_the_error_of_the_handshake() -> None:
    """A client that refuses the group which the server has asked for."""
    pair = Pair()
    pair.back.receive(retry_wanted())
    alert = b"\x15\x03\x03\x00\x02\x02\x28"
    pair.back.receive(alert[:3])
    assert not pair.back.closed
    pair.back.receive(alert[3:])
    assert pair.back.closed
    pair.server.connection_lost(None)
    assert "handshake failure" in str(pair.far.lost[0])


@pytest.mark.parametrize("buffer", [1, 100, 16384, 20000, 1_000_000])
@pytest.mark.parametrize("step", [1000, RECEIVE_BYTES])
async def test_bytes_arrive_in_order_whatever_the_buffers(buffer: int, step: int) -> None:
    """The reader's buffer may be smaller than a TLS record, or take many."""
    pair = Pair.connected(buffer=buffer)
    sizes = [1, 100, 16384, 16385, 50_000, 3, 200_000] if buffer > 1 else [1, 100, 16385]
    data = [bytes([n + 1]) * size for n, size in enumerate(sizes)]
    pair.client.write(data[0])
    pair.client.writelines(data[1:4])
    for each in data[4:]:
        pair.client.write(memoryview(each))
    pair.exchange(step)
    assert pair.far.received == b"".join(data)


async def test_a_large_buffer_is_filled_by_one_update() -> None:
    """So that a FrameReader sees a whole read, not each TLS record."""
    pair = Pair.connected(buffer=1_000_000)
    pair.client.write(bytes(200_000))
    pair.exchange()
    assert pair.far.updates == 1


async def test_small_fragments_share_a_record() -> None:
    """A record of its own for the 20 bytes of a header would cost more than the header."""
    pair = Pair.connected()
    pair.client.writelines([b"a" * 20, b"b" * 1000, b"c" * 100])
    assert len(b"".join(pair.there.written)) < 1120 + 40
    pair.exchange()
    assert pair.far.received == b"a" * 20 + b"b" * 1000 + b"c" * 100


async def test_two_connections_use_the_shared_buffers_in_turn() -> None:
    """A connection may write, or close another, while it decrypts."""
    one, other = Pair.connected(), Pair.connected()
    assert one.server._memory is other.server._memory

    def answer() -> None:
        one.server.write(b"answer" * 5000)
        other.server.write(b"to another" * 5000)
        other.client.close()

    one.far.buffer = one.far.buffer[:16384]
    one.far.on_update = answer
    one.client.write(bytes(100_000))
    one.there.deliver()
    assert len(one.far.received) == 100_000
    one.back.deliver()
    other.back.deliver()
    other.there.deliver()
    assert one.near.received.startswith(b"answer" * 5000)
    assert other.far.eof


async def test_paused_reading_holds_back_what_was_received() -> None:
    """A server that has enough requests must not get more."""
    pair = Pair.connected(buffer=10_000)
    pair.far.on_update = pair.server.pause_reading
    pair.client.write(b"x" * 50_000)
    pair.there.deliver()
    assert len(pair.far.received) == 10_000
    assert pair.back.paused
    assert pair.server.get_extra_info("undecrypted")
    for n in range(2, 6):
        pair.server.resume_reading()
        assert not pair.back.paused
        await asyncio.sleep(0)
        assert len(pair.far.received) == n * 10_000
    pair.server.resume_reading()
    await asyncio.sleep(0)
    assert not pair.server.get_extra_info("undecrypted")
    assert pair.far.received == b"x" * 50_000


async def test_an_end_after_bytes_that_wait_is_told_after_them() -> None:
    """With acks=0 a producer closes behind its last request."""
    pair = Pair.connected(buffer=1000)
    pair.far.on_update = pair.server.pause_reading
    pair.client.write(b"x" * 1500)
    pair.there.deliver()
    assert pair.server.eof_received() is True
    assert not pair.far.eof
    pair.far.on_update = lambda: None
    pair.server.resume_reading()
    await asyncio.sleep(0)
    assert len(pair.far.received) == 1500
    assert pair.far.eof
    assert pair.back.closed


async def test_bytes_that_come_while_older_ones_wait_stay_behind_them() -> None:
    """The loop may read before the held bytes are decrypted."""
    pair = Pair.connected(buffer=1000)
    pair.far.on_update = pair.server.pause_reading
    pair.client.write(b"a" * 1500)
    pair.there.deliver()
    pair.far.on_update = lambda: None
    pair.server.resume_reading()
    pair.client.write(b"b" * 500)
    pair.there.deliver()
    await asyncio.sleep(0)
    assert pair.far.received == b"a" * 1500 + b"b" * 500


async def test_closing_says_goodbye_and_the_peer_hangs_up() -> None:
    """Java logs a missing close_notify as an error."""
    pair = Pair.connected()
    pair.client.write(b"last words")
    pair.client.close()
    assert pair.there.closed
    assert not pair.there.aborted
    pair.there.deliver()
    assert pair.far.received == b"last words"
    assert pair.far.eof
    assert pair.back.closed
    pair.server.connection_lost(None)
    assert pair.far.lost == [None]
    pair.client.write(b"ignored")


async def test_an_abort_is_one() -> None:
    """Unsent bytes are dropped."""
    pair = Pair.connected()
    pair.server.abort()
    assert pair.back.aborted
    pair.server.connection_lost(None)
    pair.server.connection_lost(None)
    assert pair.far.lost == [None]


async def test_damaged_records_end_the_connection_with_the_error() -> None:
    """After the bytes before the damage."""
    pair = Pair.connected()
    pair.client.write(b"good")
    pair.client.write(b"bad" * 100)
    good, bad = pair.there.written
    pair.there.written = [good, bad[:-1] + bytes([bad[-1] ^ 1])]
    pair.there.deliver()
    assert pair.far.received == b"good"
    assert pair.back.closed
    pair.server.connection_lost(None)
    (error,) = pair.far.lost
    assert isinstance(error, ssl.SSLError)
    assert pair.back.written  # the alert


@pytest.mark.parametrize("start", [b"\0\0\0\x10", b"GET /", b"\x16\x03\x01\x00\x04\x02"])
async def test_a_client_without_tls_gets_no_byte(start: bytes) -> None:
    """As on Kafka's listeners; the error names the setting."""
    pair = Pair()
    pair.back.receive(start)
    assert pair.back.closed
    assert pair.back.written == []
    pair.server.connection_lost(None)
    (error,) = pair.far.lost
    assert isinstance(error, ProtocolError)
    assert "security_protocol=SSL" in error.message
    assert pair.far.transport is None
    assert len(pair.handshakes) == 0


async def test_before_the_first_message_is_complete_there_is_no_tls_object() -> None:
    """Thousands of such connections cost what they have sent."""
    pair = Pair()
    hello = b"".join(pair.there.written)
    pair.back.receive(hello[:-1])
    assert pair.server.get_extra_info("ssl_object") is None
    pair.back.receive(hello[-1:])
    assert pair.server.get_extra_info("ssl_object") is not None
    assert pair.back.written


async def test_a_server_that_is_no_tls_fails_the_client_at_once() -> None:
    """The error is OpenSSL's; `tls_error` turns it into advice."""
    pair = Pair()
    pair.there.receive(b"\0\0\0\x10hello, this is Kafka")
    assert pair.client.opened is not None
    with pytest.raises(ssl.SSLError):
        await pair.client.opened
    assert pair.there.closed
    pair.client.connection_lost(None)
    assert pair.near.lost == []  # never made: the error of the attempt is enough


async def test_an_attempt_that_nobody_awaits_fails_in_silence() -> None:
    """It was cancelled before its handshake; asyncio would log an exception that is never taken."""
    told: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: told.append(what))
    lost, refused = Pair(), Pair()
    lost.client.connection_lost(None)
    lost.server.connection_lost(None)
    refused.there.receive(b"\0\0\0\x10hello, this is Kafka")
    del lost, refused
    gc.collect()
    assert told == []


async def test_a_lost_connection_fails_the_attempt() -> None:
    """With the system's error, unless that says only that the peer has closed."""
    unreachable = OSError(errno.EHOSTUNREACH, "No route to host")
    for given, expected in (
        (unreachable, OSError),
        (ConnectionResetError("reset"), ClosedInHandshake),
        (None, ClosedInHandshake),
    ):
        pair = Pair()
        pair.client.connection_lost(given)
        pair.server.connection_lost(given)
        assert pair.client.opened is not None
        with pytest.raises(expected) as caught:
            await pair.client.opened
        assert caught.type is expected
        assert given in (caught.value, caught.value.__cause__)
        lost = pair.far.lost[0]
        assert lost is given if given is not None else isinstance(lost, ClosedInHandshake)


async def test_an_untrusted_server_gets_an_alert() -> None:
    """Not only a lost connection."""
    stranger = Pki("stranger")
    settings = TlsSettings(truststore_type="PEM", truststore_certificates=stranger.trusted)
    context = client_context(settings).context
    pair = Pair()
    pair.client = TlsConnection(pair.near, lambda: context, server_hostname="localhost")
    pair.there.protocol = pair.client
    pair.there.written = []
    pair.client.connection_made(pair.there)
    pair.exchange()
    assert pair.client.opened is not None
    with pytest.raises(ssl.SSLCertVerificationError):
        await pair.client.opened
    pair.server.connection_lost(None)
    assert "ALERT" in str(pair.far.lost[0]).upper()


async def test_a_name_that_is_no_host_name_fails_the_attempt() -> None:
    """Instead of an error in a callback of the loop."""
    connection = TlsConnection(Recorder(), lambda: CLIENT, server_hostname=".")
    connection.connection_made(Plain())
    assert connection.opened is not None
    with pytest.raises(ssl.SSLError):
        await connection.opened


async def test_one_answer_to_a_first_message_is_computed_per_iteration() -> None:
    """A storm of new connections must not hold up the requests of others."""
    handshakes = Handshakes()
    pairs = [Pair(handshakes=handshakes) for _ in range(5)]
    for pair in pairs:
        pair.there.deliver()

    def answered() -> int:
        return sum(bool(pair.back.written) for pair in pairs)

    assert answered() == 1
    assert [pair.back.paused for pair in pairs] == [False, True, True, True, True]
    pairs[2].server.abort()
    pairs[2].server.connection_lost(None)
    counts = []
    for _ in range(4):
        await asyncio.sleep(0)
        counts.append(answered())
    assert counts == [2, 3, 4, 4]
    for pair in pairs:
        if pair is not pairs[2]:
            await pair.settle()
            assert pair.far.transport is not None


async def test_the_end_of_a_handshake_waits_for_its_turn() -> None:
    """And what the client sends behind it waits in the system."""
    handshakes = Handshakes()
    first, second = Pair(handshakes=handshakes), Pair(handshakes=handshakes)
    await first.settle()
    second.there.deliver()
    await asyncio.sleep(0)
    second.back.deliver()
    handshakes._steps.do(handshakes._steps.end_turn, "")
    second.there.deliver()
    assert second.back.paused
    assert second.far.transport is None
    await asyncio.sleep(0)
    assert not second.back.paused
    assert second.far.transport is second.server


async def test_a_connection_that_is_lost_while_its_handshake_waits_is_left_alone() -> None:
    """Its turn comes later."""
    handshakes = Handshakes()
    pair = Pair(handshakes=handshakes)
    pair.there.deliver()
    pair.back.deliver()
    handshakes._steps.do(handshakes._steps.end_turn, "")
    pair.there.deliver()
    pair.server.connection_lost(None)
    await asyncio.sleep(0)
    assert pair.far.transport is None
    assert len(pair.far.lost) == 1


async def test_what_follows_a_first_message_waits_in_the_system() -> None:
    """Regression: up to 256 KiB of each connection were held while it waited for its answer."""
    handshakes = Handshakes()
    first, second = Pair(handshakes=handshakes), Pair(handshakes=handshakes)
    first.there.deliver()
    second.there.written.append(bytes(500_000))
    second.there.deliver()
    assert second.back.paused
    assert len(second.back.unread) > 490_000
    assert handshakes.held <= 4096


async def test_a_server_reads_little_before_its_client_is_known() -> None:
    """A client's messages in the handshake are small; the application decides about the login."""
    pair = Pair()
    assert len(pair.server.get_buffer(-1)) == 4096
    assert len(pair.client.get_buffer(-1)) == RECEIVE_BYTES
    pair.exchange(step=100)
    assert len(pair.server.get_buffer(-1)) == RECEIVE_BYTES
    pair.server.read_at_most(16_384)
    assert len(pair.server.get_buffer(-1)) == 16_384
    pair.server.read_at_most(None)
    assert len(pair.server.get_buffer(-1)) == RECEIVE_BYTES


class Reads(AtOnce):
    """Steps that never wait, and reads that always do."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.count = 0

    def read(self, resume: Callable[[], None], host: str) -> bool:
        assert host == "192.0.2.1"
        self.waiting.append(resume)
        self.count += 1
        return False


async def test_parts_of_messages_are_read_within_the_share_of_strangers() -> None:
    """Of the first message, and of TLS records before the login."""
    reads = Reads()
    pair = Pair(handshakes=Handshakes(reads), peer_host="192.0.2.1")
    hello = b"".join(pair.there.written)
    pair.there.written.clear()
    for byte in hello[:-1]:
        pair.back.receive(bytes([byte]))
        assert pair.back.paused
        reads.waiting.pop()()
        assert not pair.back.paused
    pair.back.receive(hello[-1:])
    pair.exchange()
    assert pair.far.transport is pair.server
    assert reads.count == len(hello) - 1

    pair.server.read_at_most(16_384)
    pair.client.write(b"token")
    record = b"".join(pair.there.written)
    pair.there.written.clear()
    for byte in record[:-1]:
        pair.back.receive(bytes([byte]))
        assert pair.back.paused
        pair.server.pause_reading()  # as the application may do
        reads.waiting.pop()()
        assert pair.back.paused
        pair.server.resume_reading()
        assert not pair.back.paused
    pair.back.receive(record[-1:])
    assert pair.far.received == b"token"
    assert not pair.back.paused

    pair.server.read_at_most(None)  # the client has logged in
    pair.client.write(b"request")
    for byte in b"".join(pair.there.written):
        pair.back.receive(bytes([byte]))
        assert not pair.back.paused
    assert pair.far.received == b"tokenrequest"
    assert reads.count == len(hello) - 1 + len(record) - 1


async def test_long_first_messages_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that send most of the largest message and stop. Common messages are always taken."""
    monkeypatch.setattr(handshakes_module, "MAX_HELLO_TOTAL_BYTES", 100_000)
    handshakes = Handshakes(AtOnce())
    pairs = [Pair(handshakes=handshakes) for _ in range(6)]
    record = b"\x16\x03\x01" + (16_000).to_bytes(2, "big")
    long = record + b"\1" + (31_000).to_bytes(3, "big") + bytes(15_996) + record + bytes(14_000)
    for pair in pairs[:5]:
        pair.back.receive(long)
    assert [pair.back.aborted for pair in pairs] == [False, False, False, True, True, False]
    for pair in pairs[3:5]:
        pair.server.connection_lost(None)
        assert isinstance(pair.far.lost[0], ConnectionLost)
    assert handshakes.held == 3 * len(long)
    await pairs[5].settle()
    assert pairs[5].far.transport is pairs[5].server
    for pair in pairs[:3]:
        pair.server.connection_lost(None)
    assert handshakes.held == 0


async def test_above_the_limit_the_oldest_handshake_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its client has not answered for a long time; new clients get in."""
    monkeypatch.setattr(handshakes_module, "MAX_STALLED", 3)
    handshakes = Handshakes()
    pairs = [Pair(handshakes=handshakes) for _ in range(5)]
    for pair in pairs:
        pair.there.deliver()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert [pair.back.aborted for pair in pairs] == [True, True, False, False, False]
    pairs[0].server.connection_lost(None)
    assert isinstance(pairs[0].far.lost[0], ConnectionLost)


def asking() -> ssl.SSLContext:
    """Return a server's context that asks for a certificate."""
    trust = {"truststore_type": "PEM", "truststore_certificates": PKI.trusted}
    return server(client_auth="required", **trust)


def with_certificate() -> ssl.SSLContext:
    """Return a client's context that has one."""
    settings = TlsSettings(
        keystore_type="PEM",
        keystore_key=NODE.key,
        keystore_certificate_chain=NODE.chain,
        truststore_type="PEM",
        truststore_certificates=PKI.trusted,
    )
    return client_context(settings).context


async def test_the_limit_is_lower_on_a_listener_that_asks_for_certificates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """OpenSSL allocates the size of a Certificate message that a client announces."""
    monkeypatch.setattr(handshakes_module, "MAX_STALLED_WITH_CERTIFICATES", 2)
    handshakes = Handshakes(AtOnce())
    pairs = [Pair(handshakes=handshakes, context=asking()) for _ in range(4)]
    for pair in pairs:
        pair.there.deliver()
    assert [pair.back.aborted for pair in pairs] == [True, True, False, False]


class InTurn(AtOnce):
    """Steps that wait until the test lets them go on, in order."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def do(self, step: Callable[[], None], host: str | None) -> bool:
        self.waiting.append(step)
        return False

    def go_on(self, pairs: Sequence[Pair]) -> None:
        """Let all waiting steps go on; after each, the clients answer at once."""
        steps, self.waiting = self.waiting, []
        for step in steps:
            step()
            for pair in pairs:
                pair.back.deliver()
                pair.there.deliver()


async def test_a_client_that_has_answered_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its message waits for its turn behind the first messages of many others."""
    monkeypatch.setattr(handshakes_module, "MAX_STALLED", 2)
    steps = InTurn()
    handshakes = Handshakes(steps)
    pairs = [Pair(handshakes=handshakes, peer_host=f"10.0.0.{n % 3}") for n in range(9)]
    for pair in pairs:
        pair.there.deliver()
    steps.go_on(pairs)  # all first messages are answered
    assert [pair.far.transport for pair in pairs] == [None] * 9
    steps.go_on(pairs)
    assert [pair.far.transport for pair in pairs] == [pair.server for pair in pairs]
    assert not any(pair.back.aborted for pair in pairs)
    silent = [Pair(handshakes=handshakes) for _ in range(3)]
    for pair in silent:
        pair.there.deliver()
    steps.go_on([])
    assert [pair.back.aborted for pair in silent] == [True, False, False]  # nothing else is counted


async def test_also_those_that_have_answered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshakes_module, "MAX_UNDER_WAY", 3)
    steps = InTurn()
    handshakes = Handshakes(steps)
    pairs = [Pair(handshakes=handshakes, peer_host=host) for host in ("a", "b", "b", "b", "c")]
    for pair in pairs:
        pair.there.deliver()
    steps.go_on(pairs)
    assert [pair.back.aborted for pair in pairs] == [False, True, True, False, False]


async def test_the_address_with_the_most_handshakes_gives_one_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One address with many first messages does not shut out a client that takes long to answer."""
    monkeypatch.setattr(handshakes_module, "MAX_STALLED", 3)
    handshakes = Handshakes(AtOnce())
    slow = Pair(handshakes=handshakes, peer_host="2001:db8:1::1")
    slow.there.deliver()
    many = [Pair(handshakes=handshakes, peer_host=f"2001:db8:2::{n + 1}") for n in range(9)]
    for pair in many:
        pair.there.deliver()
    assert [pair.back.aborted for pair in many] == [True] * 7 + [False] * 2
    slow.exchange()
    assert slow.far.transport is slow.server


async def test_a_client_that_has_answered_in_part_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Regression: with a byte that always waited for its turn, none of them was.

    Each may have announced a Certificate message, for which OpenSSL has allocated memory.
    """
    monkeypatch.setattr(handshakes_module, "MAX_STALLED", 2)
    steps = InTurn()
    handshakes = Handshakes(steps)
    pairs = [Pair(handshakes=handshakes, peer_host=f"10.0.0.{n}") for n in range(6)]
    for pair in pairs:
        pair.there.deliver()
    flights = []
    for pair in pairs:
        steps.waiting.pop(0)()
        pair.back.deliver()
        flights.append(b"".join(pair.there.written))
        pair.there.written.clear()
        pair.back.receive(flights[-1][:1])
    assert not any(pair.back.aborted for pair in pairs)  # the first byte of each waits
    for at in (1, 2):
        for pair, flight in zip(pairs, flights, strict=True):
            steps.waiting.pop(0)()
            if not pair.back.aborted:
                pair.back.receive(flight[at : at + 1])
        assert [pair.back.aborted for pair in pairs] == [True] * 4 + [False] * 2
    assert len(handshakes) == 2
    for pair, flight in zip(pairs[4:], flights[4:], strict=True):
        steps.waiting.pop(0)()
        pair.back.receive(flight[3:])
        steps.waiting.pop()()
        assert pair.far.transport is pair.server


async def test_a_handshake_that_is_stalled_for_long_is_given_up_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Many silent clients with an address each do not shut out two clients of one address."""
    monkeypatch.setattr(handshakes_module, "MAX_STALLED", 4)
    clock = [0.0]
    handshakes = Handshakes(AtOnce(), lambda: clock[0])
    silent = [Pair(handshakes=handshakes, peer_host=f"10.0.0.{n}") for n in range(4)]
    for pair in silent:
        pair.there.deliver()
        clock[0] += 0.1
    clock[0] = 2.15  # two of them are older than two seconds
    honest = [Pair(handshakes=handshakes, peer_host="10.0.1.1") for _ in range(3)]
    for pair in honest:
        pair.there.deliver()
    assert [pair.back.aborted for pair in silent] == [True, True, False, False]
    assert [pair.back.aborted for pair in honest] == [True, False, False]
    for pair in honest[1:]:
        pair.exchange()
        assert pair.far.transport is pair.server


async def test_of_addresses_with_as_many_handshakes_the_oldest_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handshakes_module, "MAX_STALLED", 3)
    clock = [0.0]
    handshakes = Handshakes(AtOnce(), lambda: clock[0])
    hosts = ("a", "b", "b", "a")
    pairs = [Pair(handshakes=handshakes, peer_host=host) for host in hosts]
    pairs[0].there.deliver()
    pairs[1].there.deliver()
    pairs[0].server.abort()
    pairs[0].server.connection_lost(None)
    again = Pair(handshakes=handshakes, peer_host="a")
    for pair in (again, *pairs[2:]):
        clock[0] += 0.1
        pair.there.deliver()
    assert [pair.back.aborted for pair in (again, *pairs[1:])] == [False, True, False, False]


async def test_a_handshake_that_is_given_up_while_it_waits_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handshakes_module, "MAX_UNDER_WAY", 1)
    steps = InTurn()
    handshakes = Handshakes(steps)
    pairs = [Pair(handshakes=handshakes) for _ in range(3)]
    for pair in pairs[:2]:
        pair.there.deliver()
    steps.waiting.pop(0)()
    pairs[0].exchange()
    steps.waiting.pop(0)()
    assert [pair.back.aborted for pair in pairs] == [True, False, False]
    assert len(handshakes) == 2
    steps.go_on([])  # the message of the first one
    assert len(handshakes) == 2
    pairs[1].back.deliver()
    pairs[1].there.deliver()
    steps.go_on([])
    assert pairs[1].far.transport is pairs[1].server


async def test_handshakes_are_bounded_also_if_a_step_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshakes_module, "MAX_STALLED", 1)
    handshakes = Handshakes(AtOnce())
    pairs = [Pair(handshakes=handshakes) for _ in range(2)]
    pairs[0].there.deliver()

    def fail() -> bool:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        handshakes.answer(pairs[1].server, fail)
    assert [pair.back.aborted for pair in pairs] == [True, False]


async def test_a_certificate_chain_is_read_at_once() -> None:
    """A part of it would count as a client that does not go on."""
    pair = Pair(context=asking())
    assert len(pair.server.get_buffer(-1)) == 4096
    pair.there.deliver()
    assert len(pair.server.get_buffer(-1)) == 16_384


@pytest.mark.parametrize("early", [False, True])
async def test_openssl_does_not_see_a_chain_of_many_certificates(early: bool) -> None:
    """Regression: OpenSSL parsed 100 KiB of certificates, which stopped the loop for 60 ms.

    And each certificate of the chain stayed in the memory.
    """
    pair = Pair(context=asking())
    hello = first_message(ssl.TLSVersion.TLSv1_2)
    chain = record(message_start(11, 100_000)) + record(bytes(16_000)) + record(bytes(500))
    if early:
        pair.back.receive(hello + chain[:2000])
        chain = chain[2000:]
    else:
        pair.back.receive(hello)
    pair.back.receive(chain)
    assert pair.back.closed
    pair.server.connection_lost(None)
    assert "its certificate chain is too long" in str(pair.far.lost[0])
    assert len(pair.handshakes) == 0


class Queued(AtOnce):
    """Steps that wait, and of which the lengths are noted."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.kinds: list[str] = []

    def do(self, step: Callable[[], None], host: str | None) -> bool:
        self.kinds.append("short")
        self.waiting.append(step)
        return False

    def do_long(self, step: Callable[[], None], host: str, nbytes: int) -> bool:
        self.kinds.append("long")
        self.waiting.append(step)
        return False

    def run(self) -> None:
        while self.waiting:
            self.waiting.pop(0)()


async def test_the_messages_with_certificates_are_long_steps() -> None:
    """Their number decides the time; that of the answer to a first message is constant."""
    steps = Queued()
    pair = Pair(handshakes=Handshakes(steps), context=asking())
    pair.there.deliver()
    assert steps.kinds == ["short"]
    steps.run()
    pair.exchange()
    assert steps.kinds == ["short", "long"]


@pytest.mark.parametrize("retry", [False, True])
async def test_certificates_right_behind_a_first_message_are_a_long_step(retry: bool) -> None:
    """Regression: they were parsed in the step of the answer, which nothing measured."""
    context = asking()
    steps = Queued()
    if retry:
        context.set_ecdh_curve("secp384r1")
    pair = Pair(handshakes=Handshakes(steps), context=context)
    if retry:
        pair.there.deliver()
        steps.run()
        pair.back.deliver()
        steps.kinds.clear()
    pair.there.written.append(record(message_start(11, 2000)))
    pair.there.deliver()
    assert steps.kinds == ["short"]
    assert pair.back.paused
    steps.waiting.pop(0)()
    assert steps.kinds == ["short", "long"]
    assert pair.back.paused
    steps.run()
    assert not pair.back.paused


async def test_requests_right_behind_a_long_flight_are_not_counted_as_certificates() -> None:
    """Regression: with a flight in two parts, they closed the connection."""
    pair = Pair(context=asking(), client=with_certificate())
    pair.there.deliver()
    pair.back.deliver()
    flight = b"".join(pair.there.written)
    pair.client.write(bytes(100_000))
    sent = b"".join(pair.there.written)
    pair.there.written.clear()
    pair.back.receive(sent[: len(flight) // 2])
    pair.back.receive(sent[len(flight) // 2 :])
    assert pair.far.transport is pair.server
    assert len(pair.far.received) == 100_000


@pytest.mark.parametrize("retry", [False, True])
@pytest.mark.parametrize("most", [3, 50, 700, 5000, RECEIVE_BYTES])
async def test_a_client_with_a_certificate_connects_however_its_bytes_are_split(
    most: int, retry: bool
) -> None:
    """Its requests follow the handshake at once; the steps of the server wait for their turns."""
    random = Random(most)
    context = asking()
    if retry:
        context.set_ecdh_curve("secp384r1")
    handshakes = Handshakes()
    pair = Pair(context=context, client=with_certificate(), handshakes=handshakes)
    pair.near.on_made = lambda: pair.client.write(bytes(20_000))
    for _ in range(2000):
        if not pair.back.paused:
            pair.there.deliver(random.randint(1, most))
        pair.back.deliver(random.randint(1, most))
        if len(pair.far.received) == 20_000:
            break
        await asyncio.sleep(0)
    assert pair.far.received == bytes(20_000)
    assert len(handshakes) == 0


async def test_closing_the_listener_aborts_handshakes() -> None:
    """But not connections that are open."""
    handshakes = Handshakes(AtOnce())
    waiting, made = Pair(handshakes=handshakes), Pair(handshakes=handshakes)
    made.exchange()
    handshakes.close()
    assert waiting.back.aborted
    assert not made.back.closed


async def test_a_peer_that_asks_for_keys_and_reads_nothing_is_cut() -> None:
    """Each KeyUpdate is answered, and the answers must not fill the memory."""
    pair = Pair.connected()
    pair.back.unsent = 1
    memory = shared_memory()
    for _ in range(70):
        if pair.back.closed:
            break
        pair.near.on_update()
        memory.outgoing.write(bytes(1024))  # as if OpenSSL had answered a KeyUpdate
        pair.server._flush_answers()
    assert pair.back.aborted


async def test_a_closed_connection_leaves_no_cycle() -> None:
    """Otherwise thousands of short connections would wait for the garbage collector."""
    pair = Pair.connected()
    pair.client.close()
    pair.client.connection_lost(None)
    tls_object = weakref.ref(pair.server.get_extra_info("ssl_object"))
    gc.disable()
    try:
        pair.server.connection_lost(None)
        assert tls_object() is None
    finally:
        gc.enable()


async def test_a_name_that_is_no_host_name_is_an_error_of_the_connection() -> None:
    """An SSLError of Python code has no `reason`, which every reader of such errors uses."""
    near = Recorder()
    client = TlsConnection(near, lambda: CLIENT, server_hostname=".example")
    client.connection_made(Plain())
    assert client.opened is not None
    with pytest.raises(ssl.SSLError, match="example") as caught:
        await client.opened
    assert "example" in str(tls_error(caught.value, "broker"))
