"""`TlsConnection`: TLS between a plain transport of the loop and an application's protocol.

asyncio's TLS allocates 256 KiB when a connection begins, and copies received bytes once more.
`TlsConnection` has no buffer of its own (see `SharedMemory`), and decrypts directly into the memory
that the application's protocol provides (a `FrameReader`).

The design and its measurements: docs/adr/0021-tls.md. Tests:
tests/unit/connection/tls/test_tls_connection.py, tests/fault/test_tls_faults.py.
"""

from __future__ import annotations

import asyncio
import functools
import ssl
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from aiokq.connection.tls.client_hello import ClientHello, NotTls, is_retry_request
from aiokq.connection.tls.failure import ClosedInHandshake, failure
from aiokq.connection.tls.shared_memory import SharedMemory, shared_memory
from aiokq.core.errors import ConnectionLost, ProtocolError

if TYPE_CHECKING:
    from aiokq.connection.tls.handshakes import Handshakes
    from aiokq.core.types import Buffer

__all__ = ["SecuredProtocol", "TlsConnection"]

_RECORD_BYTES: Final = 16 * 1024
"""Largest plaintext of a TLS record."""

_FEED_BYTES: Final = 64 * 1024
"""Bytes that are passed to OpenSSL at once, so that they are still in the processor's caches when
they are decrypted.
"""

_SEND_BYTES: Final = 64 * 1024
"""Encrypted bytes that are collected before they are written."""

_HANDSHAKE_READ_BYTES: Final = 4 * 1024
"""Bytes that a server receives at once during the handshake.

A client waits for the server between its messages, so larger reads would gain little. If a client
does not wait, the bytes that do not fit into this buffer stay in the system.
"""

_MAX_FLIGHT_BYTES: Final = 16 * 1024
"""Maximum bytes that a client sends after the server's answer, until the handshake is complete.

They are its certificate chain and the end of the handshake. Chains have 1 to 6 KB. OpenSSL would
accept 100 KiB. It parses each certificate, valid or not, into some 2 KB of memory. The smallest
ones with keys that are slow to read take up to 120 ms of CPU for 16 KiB (see `Strangers.do_long`).

A server that has asked for a certificate receives up to this number at once, so that OpenSSL seldom
waits for the rest (see `Handshakes`).
"""

_CLOSED_BY_PEER: Final = (ConnectionResetError, ConnectionAbortedError, BrokenPipeError)

_UNREAD_ANSWERS: Final = 64 * 1024
"""Bytes of unread answers to a peer's TLS messages; with more, the connection is aborted.

Without this limit, a peer that asks for new keys again and again, and does not read the answers,
could fill the memory.
"""


class SecuredProtocol(Protocol):
    """An application's protocol over TLS: `asyncio.BufferedProtocol` with `handshake_begun`."""

    def handshake_begun(self, transport: asyncio.Transport) -> None:
        """Store the transport. Before `connection_made`, the only allowed call on it is `abort`."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...
    def get_buffer(self, sizehint: int) -> memoryview: ...
    def buffer_updated(self, nbytes: int) -> None: ...
    def eof_received(self) -> bool | None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...
    def connection_lost(self, exc: Exception | None) -> None: ...


class TlsConnection(asyncio.Transport, asyncio.BufferedProtocol):
    """A protocol for the plain transport, and a transport for the application's protocol.

    On a server, no TLS object exists before the client's first message is complete; a client that
    sends something else is disconnected without an answer. A second ClientHello, which answers a
    HelloRetryRequest, is passed to OpenSSL when it is complete.

    Args:
        protocol: the application's protocol. `connection_made` is called after the handshake. On a
            server `connection_lost` is always called; on a client only after `connection_made`.
        context: returns the context of the connection.
        server_hostname: name for SNI and for the check of the certificate; only for clients.
        handshakes: the handshakes of the listener; None for a client.
        peer_host: the address of the client.

    Attributes:
        peer_host: see the argument; "" for a client's connection.
        opened: for a client, a future that is done after the handshake, or has the error of a
            failed one; None on a server.
    """

    __slots__ = (
        "_buffer",
        "_closing",
        "_context",
        "_eof",
        "_error",
        "_flight",
        "_handshakes",
        "_hello",
        "_is_stranger",
        "_left",
        "_lost",
        "_made",
        "_memory",
        "_new_context",
        "_plain",
        "_protocol",
        "_reading_paused",
        "_received",
        "_server_hostname",
        "_ssl",
        "_unread_answers",
        "opened",
        "peer_host",
    )

    def __init__(
        self,
        protocol: SecuredProtocol,
        context: Callable[[], ssl.SSLContext],
        *,
        server_hostname: str | None = None,
        handshakes: Handshakes | None = None,
        peer_host: str = "",
    ) -> None:
        super().__init__()
        self.peer_host = peer_host
        self._protocol = protocol
        self._new_context = context
        self._context: ssl.SSLContext | None = None
        self._server_hostname = server_hostname
        self._handshakes = handshakes
        self._memory: SharedMemory = shared_memory()
        self._buffer = self._memory.receive_buffer()
        self._received = (
            self._buffer if handshakes is None else self._buffer[:_HANDSHAKE_READ_BYTES]
        )
        self._plain: asyncio.Transport | None = None
        self._ssl: ssl.SSLObject | None = None
        self._hello = None if handshakes is None else ClientHello()
        # Received bytes that are to be decrypted when reading is resumed; None if nothing is to be
        # decrypted then. Empty bytes differ from None: OpenSSL may hold bytes that it has received.
        self._left: bytes | None = None
        self._eof = False  # the peer has ended the connection after the bytes of `_left`
        self._error: Exception | None = None
        self._made = False
        self._closing = False
        self._lost = False
        self._reading_paused = False
        self._is_stranger = handshakes is not None  # whether the client's login is not complete
        self._unread_answers = 0
        self._flight = 0  # bytes of the client that follow the server's answer
        self.opened: asyncio.Future[None] | None = (
            asyncio.get_running_loop().create_future() if handshakes is None else None
        )

    # The plain transport calls the following public methods.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake; on a server, wait for the client's first message."""
        self._plain = cast("asyncio.Transport", transport)
        if self._closing:  # aborted before there was a plain transport
            self._plain.abort()
            return
        self._protocol.handshake_begun(self)
        if self._handshakes is not None:
            self._handshakes.begin(self)
        else:
            self._begin(b"")

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return memory to receive encrypted bytes into."""
        return self._received

    def buffer_updated(self, nbytes: int) -> None:
        """Continue the handshake, or decrypt for the application."""
        data = self._received[:nbytes]
        if self._closing:
            return
        if self._made:
            if self._left is not None:
                self._left += data
                self._decrypt_left()
            elif self._reading_paused:
                self._left = bytes(data)
            else:
                self._decrypt(data)
        elif self._hello is not None:
            self._collect_hello(self._hello, data)
        elif self._handshakes is None:
            self._handshake(data)
        else:
            self._collect_flight(self._handshakes, bytes(data))

    def eof_received(self) -> bool:
        """Close. If reading is paused, close after the received bytes have been passed on."""
        if self._made and self._left is not None and not self._closing:
            self._eof = True
            return True
        if self._made and not self._closing:
            self._protocol.eof_received()
        return False

    def pause_writing(self) -> None:
        if self._made:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        if self._made:
            self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end of the connection, with the error of TLS if there is one."""
        if self._lost:
            return
        self._lost = self._closing = True
        if self._handshakes is not None:
            self._handshakes.end(self)
        self._left = None
        self._hello = self._ssl = None
        error = self._error or exc
        if self._made:
            self._protocol.connection_lost(error)
            return
        closed = ClosedInHandshake("the peer closed the connection in the TLS handshake")
        if self.opened is None:
            self._protocol.connection_lost(error or closed)
        elif error is None or (error is exc and isinstance(exc, _CLOSED_BY_PEER)):
            closed.__cause__ = exc
            self._fail_opened(closed)
        else:
            self._fail_opened(error)

    # The application calls the following public methods.

    # Hot path, once per request or response; measured by benchmarks/micro/tls.py.
    def write(self, data: Buffer) -> None:
        """Encrypt and send; the plain transport buffers bytes that the system does not take."""
        if self._closing:
            return
        assert self._ssl is not None
        assert self._plain is not None
        encrypt, outgoing, write = self._ssl.write, self._memory.outgoing, self._plain.write
        size = len(data)
        try:
            if size <= _RECORD_BYTES:
                if size:
                    encrypt(data)
            else:
                view = memoryview(data)
                done = encrypt(view)
                while done < size:
                    if outgoing.pending >= _SEND_BYTES:
                        write(outgoing.read())
                    done += encrypt(view[done:])
        except ssl.SSLError as error:
            self._fail(error)
        if outgoing.pending:
            write(outgoing.read())

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        """Encrypt and send several buffers; small ones share a TLS record."""
        small: list[Buffer] = []
        size = 0
        for data in list_of_data:
            nbytes = len(data)
            if size + nbytes <= _RECORD_BYTES:
                small.append(data)
                size += nbytes
                continue
            if small:
                self.write(small[0] if len(small) == 1 else b"".join(small))
                small, size = [], 0
            if nbytes <= _RECORD_BYTES:
                small.append(data)
                size = nbytes
            else:
                self.write(data)
        if small:
            self.write(small[0] if len(small) == 1 else b"".join(small))

    def write_eof(self) -> None:
        raise NotImplementedError("TLS has no half-closed connections")

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        """Send written bytes and close_notify, then close without waiting for the peer.

        A connection without a complete handshake is aborted.
        """
        if self._closing:
            return
        if not self._made:
            self.abort()
            return
        self._closing = True
        assert self._plain is not None
        self._say_goodbye()
        self._plain.close()

    def fail(self, error: Exception) -> None:
        """Abort; report `error`, unless an earlier error is already set."""
        if self._error is None:
            self._error = error
        self.abort()

    def abort(self) -> None:
        """Close immediately and drop unsent bytes."""
        self._closing = True
        if self._plain is not None:
            self._plain.abort()

    def is_closing(self) -> bool:
        return self._closing or self._plain is None or self._plain.is_closing()

    def pause_reading(self) -> None:
        """Pass no received bytes to the protocol until `resume_reading`."""
        self._reading_paused = True
        if self._plain is not None and not self._closing:
            self._plain.pause_reading()

    def resume_reading(self) -> None:
        self._reading_paused = False
        if self._plain is None or self._closing:
            return
        self._plain.resume_reading()
        if self._left is not None:
            asyncio.get_running_loop().call_soon(self._decrypt_left)

    def read_at_most(self, nbytes: int | None) -> None:
        """Set the maximum number of bytes that a read receives before the client's login.

        None means that the login is complete; a read then fills at most the shared buffer.
        """
        self._received = self._buffer[:nbytes]
        self._is_stranger = nbytes is not None

    def is_reading(self) -> bool:
        return not self._reading_paused and not self._closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert self._plain is not None
        self._plain.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return 0 if self._plain is None else self._plain.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        assert self._plain is not None
        return self._plain.get_write_buffer_limits()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return information about TLS by asyncio's names, or that of the plain transport.

        For the name "undecrypted", which asyncio does not have, return whether received bytes wait
        until reading is resumed.
        """
        if name == "ssl_object":
            return self._ssl
        if name == "sslcontext":
            return self._context
        if name == "cipher":
            return None if self._ssl is None else self._ssl.cipher()
        if name == "undecrypted":
            return self._left is not None
        if name == "peercert":
            return None if self._ssl is None else self._ssl.getpeercert()
        return default if self._plain is None else self._plain.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        raise NotImplementedError("a TlsConnection has one protocol")

    def get_protocol(self) -> asyncio.BaseProtocol:
        return cast("asyncio.BaseProtocol", self._protocol)

    @property
    def asks_for_certificate(self) -> bool:
        """Whether this end is a server that asks for a certificate; False before its answer."""
        return self._context is not None and self._context.verify_mode is not ssl.CERT_NONE

    # The handshake.

    def _collect_hello(self, hello: ClientHello, data: bytes | memoryview) -> None:
        assert self._plain is not None
        assert self._handshakes is not None
        try:
            complete = hello.feed(data)
        except NotTls as error:
            # As in Kafka, no alert is sent: the peer does not speak TLS.
            self._error = (
                ProtocolError(
                    f"{error}, and this listener requires it: set security_protocol=SSL (or "
                    "SASL_SSL) on the client, or use a listener without TLS"
                )
                if self._ssl is None
                else failure(str(error))
            )
            self._closing = True
            self._plain.close()
            return
        if not self._handshakes.hold(self, len(hello.received)):
            self.fail(ConnectionLost("the first TLS messages of many clients wait"))
            return
        if not complete:
            self._count_read(self._handshakes)
            return
        self._hello = None
        received = bytes(hello.received)
        step = functools.partial(self._answer, received[: hello.end], received[hello.end :])
        if not self._handshakes.answer(self, step):
            self._plain.pause_reading()

    def _collect_flight(self, handshakes: Handshakes, data: bytes) -> None:
        """Handle bytes that follow the server's answer, now or in a later iteration of the loop."""
        assert self._plain is not None
        self._flight += len(data)
        if self._flight > _MAX_FLIGHT_BYTES:
            self._fail(
                failure(
                    f"the client's handshake has more than {_MAX_FLIGHT_BYTES} bytes after the "
                    "ServerHello; its certificate chain is too long"
                )
            )
            return
        # A client may send requests right behind its flight; those that do not fit stay in the
        # system. The last byte tells that the flight is too long.
        self._received = self._received[: max(_MAX_FLIGHT_BYTES - self._flight, 1)]
        if not handshakes.go_on(self, functools.partial(self._go_on, data), self._flight):
            self._plain.pause_reading()

    def _count_read(self, handshakes: Handshakes) -> None:
        """Before the login, count a read that completed no message; stop reading if needed."""
        assert self._plain is not None
        if not handshakes.read(self, self._read_on):
            self._plain.pause_reading()

    def _read_on(self) -> None:
        if self._plain is not None and not self._reading_paused and not self._closing:
            self._plain.resume_reading()

    def _answer(self, hello: bytes, rest: bytes) -> bool:
        """Answer a ClientHello; return whether this end has answered.

        Args:
            rest: what the client has sent after it, without waiting for the answer.
        """
        assert self._handshakes is not None
        answered = self._begin(hello) if self._ssl is None else self._go_on(hello)
        if rest and not self._closing:
            if self._hello is not None:
                self._collect_hello(self._hello, rest)
            else:
                self._collect_flight(self._handshakes, rest)
        return answered

    def _begin(self, received: bytes) -> bool:
        """Make the TLS object, and send the first message of this end.

        Args:
            received: on a server, the client's first message.

        Returns:
            whether there was one.
        """
        assert self._plain is not None
        if self._closing:
            return False
        memory = self._memory
        server = self._handshakes is not None
        try:
            self._context = self._new_context()
            self._ssl = self._context.wrap_bio(
                memory.incoming,
                memory.outgoing,
                server_side=server,
                server_hostname=self._server_hostname,
            )
        except ValueError as error:  # not a host name
            self._fail(failure(f"{self._server_hostname!r}: {error}"))
            return False
        if server:
            self._plain.resume_reading()
            if self.asks_for_certificate:
                self._received = self._buffer[:_MAX_FLIGHT_BYTES]
        return self._handshake(received)

    def _go_on(self, received: bytes) -> bool:
        """Handle a message of a client after its first one; return whether this end answered."""
        if self._closing or self._plain is None:
            return False
        self._plain.resume_reading()
        return self._handshake(received)

    def _handshake(self, received: bytes | memoryview) -> bool:
        """Pass received bytes to OpenSSL, and send its answer; return whether there was one."""
        assert self._ssl is not None
        incoming = self._memory.incoming
        complete = False
        try:
            incoming.write(received)
            self._ssl.do_handshake()
            complete = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._fail(error)
        finally:
            rest = incoming.read()
            sent = self._flush()
        if not complete:
            if self._handshakes is not None and is_retry_request(sent):
                self._hello = ClientHello(is_second=True)
            return bool(sent)
        if self._handshakes is not None:
            if self.asks_for_certificate:
                try:
                    self._handshakes.chains.check(self._ssl)
                except ssl.SSLError as refusal:
                    self._fail(refusal)
                    return False
            self._handshakes.end(self)
            self.read_at_most(None)
        self._made = True
        self._protocol.connection_made(self)
        if self.opened is not None and not self.opened.done():
            self.opened.set_result(None)
        if self._closing:
            return True
        if self._reading_paused:
            self._left = rest
        else:  # OpenSSL may have received more than the handshake
            self._decrypt(rest)
        return True

    # The connection after the handshake.

    # Hot path, once per read; measured by benchmarks/micro/tls.py.
    def _decrypt(self, data: bytes | memoryview) -> None:
        """Decrypt into the memory of the application's protocol."""
        assert self._ssl is not None
        incoming = self._memory.incoming
        # With a buffer, `read` returns an int, but its annotation says `bytes`.
        decrypt = cast("Callable[[int, memoryview], int]", self._ssl.read)
        protocol = self._protocol
        size = len(data)
        fed = filled = 0
        stopped = ended = False
        error: ssl.SSLError | None = None
        try:
            buffer = protocol.get_buffer(-1)
            room = len(buffer)
            while True:
                try:
                    n = decrypt(room - filled, buffer[filled:] if filled else buffer)
                except ssl.SSLWantReadError:  # the BIO is empty; OpenSSL keeps a part of a record
                    if fed == size:
                        break
                    fed += incoming.write(data[fed : fed + _FEED_BYTES])
                    continue
                except ssl.SSLError as failure:
                    error = failure
                    break
                if not n:
                    ended = True
                    break
                filled += n
                if filled == room:
                    filled = 0
                    protocol.buffer_updated(room)
                    if self._reading_paused or self._closing:
                        stopped = True
                        break
                    buffer = protocol.get_buffer(-1)
                    room = len(buffer)
            if filled:
                protocol.buffer_updated(filled)
        finally:
            rest = incoming.read()
            if self._memory.outgoing.pending:
                self._flush_answers()
        if self._closing:
            return
        if error is not None:
            self._fail(error)
        elif ended:
            protocol.eof_received()
            self.close()
        elif stopped:
            self._left = rest + bytes(data[fed:])
        elif self._is_stranger and not filled:  # a part of a TLS record, or an empty one
            assert self._handshakes is not None
            self._count_read(self._handshakes)

    def _decrypt_left(self) -> None:
        """Decrypt the bytes that were received while reading was paused."""
        if self._left is None or self._reading_paused or self._closing:
            return
        left, self._left = self._left, None
        self._decrypt(left)
        if self._eof and self._left is None and not self._closing:
            self._protocol.eof_received()
            self.close()

    def _say_goodbye(self) -> None:
        """Send close_notify."""
        assert self._ssl is not None
        incoming = self._memory.incoming
        held = incoming.read()  # bytes of another connection whose `_decrypt` is running
        try:
            self._ssl.unwrap()  # also reads the BIO, which must be empty
        except (ssl.SSLError, OSError):
            pass  # the peer's close_notify is missing; neither end waits for it
        finally:
            incoming.read()
            if held:
                incoming.write(held)
            self._flush()

    def _flush(self) -> bytes:
        """Send what OpenSSL has written, and return it."""
        outgoing = self._memory.outgoing
        if not outgoing.pending:
            return b""
        data = outgoing.read()
        if self._plain is not None and not self._lost:
            self._plain.write(data)
        return data

    def _flush_answers(self) -> None:
        """Send OpenSSL's answers to the peer; abort if the peer does not read them."""
        assert self._plain is not None
        self._unread_answers += self._memory.outgoing.pending
        self._flush()
        if not self._plain.get_write_buffer_size():
            self._unread_answers = 0
        elif self._unread_answers > _UNREAD_ANSWERS:
            self.fail(failure("the peer does not read the answers to its TLS messages"))

    def _fail(self, error: Exception) -> None:
        """Close because of an error, after the alert is sent."""
        self._closing = True
        if self._error is None:
            self._error = error
        self._flush()
        if self._plain is not None:
            self._plain.close()
        if self.opened is not None:
            self._fail_opened(error)

    def _fail_opened(self, error: Exception) -> None:
        """Fail the future `opened` of a client."""
        assert self.opened is not None
        if not self.opened.done():
            self.opened.set_exception(error)
            # Nobody awaits the future if the attempt was cancelled while it connected.
            self.opened.exception()
