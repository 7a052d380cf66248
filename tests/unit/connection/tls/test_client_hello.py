"""The first message of a TLS client: where it ends, and what is refused before OpenSSL sees it."""

from __future__ import annotations

import ssl

import pytest

from aiokq.connection.tls.client_hello import (
    MAX_HELLO_BYTES,
    ClientHello,
    NotTls,
)
from tests.peers.tls_messages import CHANGE_CIPHER_SPEC, message_start


def real_hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(
        ssl.MemoryBIO(), outgoing, server_hostname="localhost"
    )
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def record(payload: bytes) -> bytes:
    return b"\x16\x03\x01" + len(payload).to_bytes(2, "big") + payload


def message(size: int) -> bytes:
    return b"\x01" + size.to_bytes(3, "big") + bytes(size)


def test_the_message_of_openssl_is_complete_with_its_last_byte() -> None:
    """Network packets may be cut anywhere."""
    hello = real_hello()
    reader = ClientHello()
    assert [reader.feed(hello[n : n + 1]) for n in range(len(hello))] == [
        *[False] * (len(hello) - 1),
        True,
    ]
    assert reader.received == hello


@pytest.mark.parametrize("step", [1, 2, 3, 5, 1000])
def test_a_message_in_many_records_is_put_together(step: int) -> None:
    """Some clients and middleboxes split it; a record may be shorter than the message's header."""
    whole = message(2500)
    records = b"".join(record(whole[at : at + step]) for at in range(0, len(whole), step))
    reader = ClientHello()
    assert not reader.feed(records[:-1])
    assert reader.feed(records[-1:])


def test_bytes_after_the_message_are_kept() -> None:
    """A client may send early what OpenSSL then judges."""
    hello = real_hello()
    reader = ClientHello()
    assert reader.feed(hello + b"more")
    assert reader.received == hello + b"more"
    assert reader.end == len(hello)


def test_a_second_message_may_have_change_cipher_spec_before_it() -> None:
    """For middleboxes (RFC 8446, D.4). The first message may not."""
    hello = CHANGE_CIPHER_SPEC + record(message(300))
    reader = ClientHello(is_second=True)
    assert [reader.feed(hello[n : n + 1]) for n in range(len(hello))] == [
        *[False] * (len(hello) - 1),
        True,
    ]
    assert (reader.received, reader.end) == (hello, len(hello))
    with pytest.raises(NotTls):
        ClientHello().feed(hello)


@pytest.mark.parametrize(
    "start",
    [
        CHANGE_CIPHER_SPEC + record(message_start(1, 128 * 1024)),
        record(message_start(11, 100)),  # a Certificate
        b"\x15\x03\x03\x00\x03",  # longer than an alert
        CHANGE_CIPHER_SPEC * (MAX_HELLO_BYTES // len(CHANGE_CIPHER_SPEC) + 1),
    ],
)
def test_another_second_message_is_refused(start: bytes) -> None:
    """Nothing is allocated by a length that the client announces."""
    with pytest.raises(NotTls):
        ClientHello(is_second=True).feed(start)


@pytest.mark.parametrize("is_second", [False, True])
def test_a_message_in_the_same_record_is_refused(is_second: bool) -> None:
    """Of TLS 1.2, OpenSSL would handle a Certificate with the ClientHello before it."""
    with pytest.raises(NotTls, match="a record has more than"):
        ClientHello(is_second=is_second).feed(record(message(300) + message_start(11, 100)))


@pytest.mark.parametrize(
    "start",
    [
        b"\x00\x00\x00\x10",  # a Kafka request
        b"GET / HTTP/1.1\r\n",
        b"SSH-2.0",
        b"\x80\x2e\x01\x03\x01",  # SSL 2
        b"\x15\x03\x01\x00\x02",  # an alert
        b"\x16\x02",
        record(b"\x02\x00\x00\x00"),  # a ServerHello
        record(b"\x01\x02\x00\x00"),  # announces 128 KiB
        b"\x16\x03\x01\x00\x00",  # an empty record
        b"\x16\x03\x01\x50\x00",  # a record above the limit of TLS
    ],
)
def test_what_is_not_the_first_message_of_tls_is_refused_at_once(start: bytes) -> None:
    """Nothing is allocated by a length that the client announces."""
    with pytest.raises(NotTls):
        ClientHello().feed(start)


def test_a_message_that_never_ends_is_refused_at_the_limit() -> None:
    """Records of one byte have five bytes of header each, which count too."""
    reader = ClientHello()
    records = [record(bytes([byte])) for byte in message(MAX_HELLO_BYTES - 100)]
    with pytest.raises(NotTls, match="too large"):
        any(map(reader.feed, records))
    assert len(reader.received) <= MAX_HELLO_BYTES + 6
