"""Splitting the byte stream into frames, whatever its pieces and however hostile its sizes."""

from __future__ import annotations

import pytest

from aiokq.connection.frame_pool import FramePool
from aiokq.connection.framing import (
    _HTTP_STARTS,
    _TLS_RECORD_TYPES,
    LEAST_FOREIGN,
    RECEIVE_BUFFER_BYTES,
    FrameReader,
)
from aiokq.connection.server_limits import FrameBudget
from aiokq.core.errors import ProtocolError

MIB = 1024 * 1024


def frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def test_several_small_frames_of_one_read_come_out_in_order() -> None:
    """Ten pipelined responses in one segment give ten frames with one system call."""
    reader = FrameReader()
    payloads = [bytes([n]) * n for n in range(10)]
    frames = reader.feed(b"".join(map(frame, payloads)))
    assert [bytes(f) for f in frames] == payloads
    assert not reader.mid_frame


def test_frames_split_at_every_byte_are_the_same() -> None:
    """With byte-by-byte delivery even the size field is split."""
    data = frame(b"abc") + frame(b"") + frame(b"defgh")
    for cut in range(len(data) + 1):
        reader = FrameReader()
        frames = reader.feed(data[:cut]) + reader.feed(data[cut:])
        assert [bytes(f) for f in frames] == [b"abc", b"", b"defgh"]
    reader = FrameReader()
    frames = [f for n in range(len(data)) for f in reader.feed(data[n : n + 1])]
    assert [bytes(f) for f in frames] == [b"abc", b"", b"defgh"]


def test_a_large_frame_is_received_straight_into_its_own_buffer() -> None:
    """A Fetch response of several megabytes is not copied: its receive buffer is the frame."""
    reader = FrameReader()
    payload = bytes(range(256)) * 4096
    data = frame(payload)
    first = reader.get_buffer()
    assert len(first) == RECEIVE_BUFFER_BYTES
    first[:] = data[: len(first)]
    assert reader.buffer_updated(len(first)) == []
    rest = reader.get_buffer()
    assert len(rest) == len(data) - RECEIVE_BUFFER_BYTES  # no bytes of the next frame fit
    rest[:] = data[RECEIVE_BUFFER_BYTES:]
    (received,) = reader.buffer_updated(len(rest))
    assert received == payload
    assert received.obj is rest.obj


def test_little_of_a_large_frame_after_another_is_copied() -> None:
    """After a large frame the receive buffer is small, or half of each following batch of a
    producer would be copied.
    """
    reader = FrameReader()
    large, small = bytes(2 * RECEIVE_BUFFER_BYTES), b"small"
    assert [len(f) for f in reader.feed(frame(large))] == [len(large)]
    assert len(reader.get_buffer()) == 4096
    assert [len(f) for f in reader.feed(frame(large))] == [len(large)]
    assert reader.feed(frame(small)) == [small]
    assert len(reader.get_buffer()) == RECEIVE_BUFFER_BYTES


def test_the_first_bytes_of_other_protocols_are_large_sizes() -> None:
    """Smaller ones are not compared with them."""
    starts = [bytes((kind, 3, 0, 0)) for kind in _TLS_RECORD_TYPES]
    starts += [*_HTTP_STARTS, b"SSH-"]
    assert min(int.from_bytes(start) for start in starts) >= LEAST_FOREIGN
    for start in starts:
        with pytest.raises(ProtocolError, match="the peer speaks"):
            FrameReader(2**31 - 1).feed(start)


def expecting() -> FrameReader:
    """Return a reader that received a large frame and may receive the next one directly."""
    reader = FrameReader(spare=FrameBudget(1))
    reader.feed(frame(bytes(2 * RECEIVE_BUFFER_BYTES)))
    return reader


def test_an_expected_large_frame_is_received_with_one_read() -> None:
    """A producer's batches have the same size, so each needs one read and no copy."""
    reader = expecting()
    payload = bytes(range(256)) * (2 * RECEIVE_BUFFER_BYTES // 256)
    data = frame(payload)
    for _ in range(3):
        buffer = reader.get_buffer()
        buffer[: len(data)] = data
        (received,) = reader.buffer_updated(len(data))
        assert received == payload
        assert received.obj is buffer.obj


def test_large_frames_that_come_together_are_received_together() -> None:
    """Several batches in flight need one system call instead of one each."""
    reader = expecting()
    data = frame(bytes(2 * RECEIVE_BUFFER_BYTES - 4))
    counts = []
    for _ in range(4):
        buffer = reader.get_buffer()
        count = len(buffer) // len(data)
        assert len(buffer) in (count * len(data), count * (len(data) + 4))
        buffer[: count * len(data)] = count * data
        frames = reader.buffer_updated(len(buffer) // len(data) * len(data))
        counts.append(len(frames))
        assert {id(each.obj) for each in frames} == {id(buffer.obj)}
        assert reader.slack == len(buffer) - sum(map(len, frames))
    assert counts == [1, 1, 2, 4]
    # When fewer frames arrive together, fewer are expected.
    reader.get_buffer()[: len(data)] = data
    assert len(reader.buffer_updated(len(data))) == 1
    assert len(reader.get_buffer()) == len(data)


@pytest.mark.parametrize("size", [70_000, 2 * RECEIVE_BUFFER_BYTES, MIB])
def test_the_number_of_large_frames_received_together_is_bounded(size: int) -> None:
    """If the number doubled with each read, all memory would be used after thirty reads."""
    reader = expecting()
    data = frame(bytes(size))
    for _ in range(10):
        buffer = reader.get_buffer()
        whole = memoryview(data * (len(buffer) // len(data) + 1))[: len(buffer)]
        reader.feed(whole)
        reader.feed(data[len(buffer) % len(data) or len(data) :])
    assert len(reader.get_buffer()) == (9 * 128 * 1024) // len(data) * len(data)


def test_a_large_frame_with_a_split_size_field_is_not_received_ahead() -> None:
    """The rest of the size field, with the bytes after it, looks like the size of another large
    frame.
    """
    reader = FrameReader(spare=FrameBudget(1))
    data = frame(bytes(2 * RECEIVE_BUFFER_BYTES + 2))
    for _ in range(2):
        assert reader.feed(data) == [data[4:]]
    reader.get_buffer()[: len(data) + 2] = data + data[:2]
    assert reader.buffer_updated(len(data) + 2) == [data[4:]]
    assert reader.feed(data[2:]) == [data[4:]]


def test_after_a_small_frame_no_large_one_is_expected() -> None:
    """Small frames would have to be copied out of a buffer for large ones."""
    reader = expecting()
    buffer = reader.get_buffer()
    assert len(buffer) > RECEIVE_BUFFER_BYTES
    buffer[:9] = frame(b"small")
    assert reader.buffer_updated(9) == [b"small"]
    assert (reader.together, reader.slack) == (False, 0)
    assert len(reader.get_buffer()) == RECEIVE_BUFFER_BYTES


def test_an_incomplete_frame_is_completed_in_the_same_buffer() -> None:
    """Otherwise the beginning of a batch after several complete ones would be copied each time."""
    reader = expecting()
    data = frame(bytes(2 * RECEIVE_BUFFER_BYTES))
    for _ in range(2):
        buffer = reader.get_buffer()
        buffer[:] = data * (len(buffer) // len(data))
        reader.buffer_updated(len(buffer))
    buffer = reader.get_buffer()
    assert len(buffer) == 4 * len(data)
    buffer[: len(data) + 100] = data + data[:100]
    assert len(reader.buffer_updated(len(data) + 100)) == 1
    assert reader.slack == 0
    assert reader.needs == (len(buffer), 0)
    rest = reader.get_buffer()
    assert rest.obj is buffer.obj
    assert len(rest) == len(data) - 100
    rest[:] = data[100:]
    (received,) = reader.buffer_updated(len(rest))
    assert received == data[4:]
    assert reader.slack == len(buffer) - len(received)


@pytest.mark.parametrize(
    "sizes",
    [
        (2 * RECEIVE_BUFFER_BYTES - 100, 2 * RECEIVE_BUFFER_BYTES),
        (2 * RECEIVE_BUFFER_BYTES + 100, 5 * MIB, 2 * RECEIVE_BUFFER_BYTES),
        (RECEIVE_BUFFER_BYTES + 1, 0, 7, RECEIVE_BUFFER_BYTES, RECEIVE_BUFFER_BYTES + 1),
        (5, 3 * RECEIVE_BUFFER_BYTES, 5, 5, 2 * RECEIVE_BUFFER_BYTES),
    ],
)
@pytest.mark.parametrize("piece", [MIB, 70_001, 4096, 1021])
def test_frames_of_unexpected_sizes_are_split_correctly(sizes: tuple[int, ...], piece: int) -> None:
    """Batches of other sizes with a heartbeat in between, in pieces of any size."""
    reader = expecting()
    payloads = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    data = b"".join(map(frame, payloads))
    frames = [
        received
        for start in range(0, len(data), piece)
        for received in reader.feed(data[start : start + piece])
    ]
    assert [bytes(each) for each in frames] == payloads
    assert not reader.mid_frame


def test_after_a_small_frame_in_two_pieces_the_full_buffer_is_used() -> None:
    """All that followed was read in pieces of the small frame's size."""
    reader = expecting()
    data = frame(bytes(5000))
    assert reader.feed(data[:100]) == []
    (received,) = reader.feed(data[100:])
    assert len(received) == 5000
    assert len(reader.get_buffer()) == RECEIVE_BUFFER_BYTES


def test_garbage_after_an_expected_frame_is_reported_after_the_frame() -> None:
    """The request before the garbage is answered; then the connection is closed."""
    reader = expecting()
    payload = bytes(RECEIVE_BUFFER_BYTES + 1)
    data = frame(payload) + b"\xff" * 4
    buffer = reader.get_buffer()
    buffer[: len(data)] = data
    assert reader.buffer_updated(len(data)) == [payload]
    assert reader.error is not None


def test_garbage_after_frames_does_not_keep_their_memory() -> None:
    """Each such attempt of a client used to leave a megabyte allocated."""
    reader = expecting()
    data = frame(bytes(RECEIVE_BUFFER_BYTES + 1)) + b"\xff" * 4
    buffer = reader.get_buffer()
    buffer[: len(data)] = data
    frames = reader.buffer_updated(len(data))
    memory = frames[0].obj
    assert isinstance(memory, bytearray)
    assert reader.error is not None
    del buffer
    frames.clear()
    memory.append(0)  # raises BufferError if a view of the buffer is left


def test_a_size_over_the_limit_is_refused_after_a_large_frame_too() -> None:
    """After one large request, a client could have announced two gigabytes."""
    reader = FrameReader(3 * RECEIVE_BUFFER_BYTES, spare=FrameBudget(1))
    good = frame(bytes(2 * RECEIVE_BUFFER_BYTES))
    reader.feed(good)
    data = (3 * RECEIVE_BUFFER_BYTES + 1).to_bytes(4, "big") + b"xx"
    buffer = reader.get_buffer()
    buffer[: len(data)] = data
    with pytest.raises(ProtocolError):
        reader.buffer_updated(len(data))


@pytest.mark.parametrize("expected", [False, True])
def test_a_very_large_frame_is_not_expected_again(*, expected: bool) -> None:
    """After one request of 50 MB, five bytes of the next one allocated 50 MB. A few such clients
    that sent nothing more used the memory of all others.
    """
    reader = expecting() if expected else FrameReader(spare=FrameBudget(1))
    reader.feed(frame(bytes(50_000_000)))
    buffer = reader.get_buffer()
    assert len(buffer) <= RECEIVE_BUFFER_BYTES
    buffer[:5] = (70_000).to_bytes(4, "big") + b"x"
    assert reader.buffer_updated(5) == []
    assert reader.allocated <= RECEIVE_BUFFER_BYTES


def test_readers_that_expect_large_frames_share_a_buffer_until_one_receives() -> None:
    """A thousand idle producers need one buffer, not one each."""
    pool, scratch = FramePool(), bytearray(RECEIVE_BUFFER_BYTES)
    readers = [FrameReader(scratch=scratch, pool=pool, spare=FrameBudget(1)) for _ in range(10)]
    data = frame(bytes(2 * RECEIVE_BUFFER_BYTES))
    for reader in readers:
        reader.feed(data)
    assert len({id(reader.get_buffer().obj) for reader in readers}) == 1
    one, two = readers[:2]
    assert one.feed(data[:100_000]) == []
    (received,) = two.feed(frame(b"2" * 2 * RECEIVE_BUFFER_BYTES))
    (other,) = one.feed(data[100_000:])
    assert set(other) == {0}
    assert set(received) == {ord("2")}


def test_frames_own_their_memory_and_can_be_patched() -> None:
    """A broker patches base offsets in a frame, and the next read must not change the frame."""
    reader = FrameReader()
    (one,) = reader.feed(frame(b"first"))
    (two,) = reader.feed(frame(b"other"))
    one[0:1] = b"F"
    assert (bytes(one), bytes(two)) == (b"First", b"other")


def test_readers_of_one_loop_share_a_receive_buffer() -> None:
    """Ten thousand idle connections have no receive buffers; an incomplete frame is stored
    separately.
    """
    scratch = bytearray(RECEIVE_BUFFER_BYTES)
    one, two = FrameReader(scratch=scratch), FrameReader(scratch=scratch)
    assert one.feed(frame(b"aaaa")[:6]) == []
    assert one.mid_frame
    assert two.feed(frame(b"bbbb")[:2]) == []
    assert [bytes(f) for f in one.feed(b"aa")] == [b"aaaa"]
    assert [bytes(f) for f in two.feed(frame(b"bbbb")[2:])] == [b"bbbb"]


@pytest.mark.parametrize("client", [False, True])
def test_a_hostile_size_allocates_only_what_arrives(*, client: bool) -> None:
    """A peer announces 2 GB and sends little: the allocation grows with the received bytes."""
    reader = FrameReader(2**31 - 1, raises_first_step=client)
    reader.feed((2**31 - 1).to_bytes(4, "big") + b"x")
    assert (reader.allocated, reader.wanted) == (1, 2 * MIB - 1)
    reader.feed(bytes(2 * MIB - 1))
    assert (reader.allocated, reader.wanted) == (2 * MIB, 2 * MIB)
    reader.feed(b"x")
    assert (reader.allocated, reader.wanted) == (4 * MIB, 0)


def test_a_frame_received_in_growing_buffers_is_complete() -> None:
    """A frame of 5 MB passes through three buffers."""
    payload = bytes(range(256)) * (20 * 1024) + b"end"
    reader = FrameReader()
    (received,) = reader.feed(frame(payload))
    assert received == payload
    assert reader.allocated == 0


def test_a_response_as_large_as_an_earlier_one_is_received_into_one_buffer() -> None:
    """Of a consumer's responses of 5 MB, only the first is copied while its buffer grows."""
    reader = FrameReader(raises_first_step=True)
    data = frame(bytes(5 * MIB))
    reader.feed(data)
    for announced in (5 * MIB, 3 * MIB, 50 * MIB):
        assert reader.feed(announced.to_bytes(4, "big")) == []
        into = reader.get_buffer()
        assert len(into) == min(announced, 5 * MIB)
        into[:] = data[: len(into)]
        frames = reader.buffer_updated(len(into))
        assert [each.obj for each in frames] == ([into.obj] if announced <= 5 * MIB else [])


def test_a_large_request_does_not_raise_the_first_step_of_a_server() -> None:
    """Otherwise a client could take 50 MB of all clients' memory with each later size."""
    reader = FrameReader()
    reader.feed(frame(bytes(5 * MIB)))
    reader.feed((50 * MIB).to_bytes(4, "big"))
    assert reader.wanted == 2 * MIB


def test_the_size_is_checked_before_memory_is_taken() -> None:
    """A size above the limit is refused; the limit itself is not."""
    assert FrameReader(1000).feed((1000).to_bytes(4, "big")) == []
    with pytest.raises(ProtocolError, match="1001 bytes is above the limit of 1000"):
        FrameReader(1000).feed((1001).to_bytes(4, "big"))
    with pytest.raises(ProtocolError, match="above the limit"):
        FrameReader(1000).feed(frame(b"ok") + (1001).to_bytes(4, "big"))


def test_a_negative_size_is_a_protocol_error() -> None:
    """Sizes are signed in Kafka's protocol; a negative size must not be read as a huge one."""
    with pytest.raises(ProtocolError, match="negative size -2"):
        FrameReader().feed((-2).to_bytes(4, "big", signed=True))
    with pytest.raises(ProtocolError, match="negative size -1"):
        FrameReader().feed(frame(b"ok") + b"\xff" * 4)


@pytest.mark.parametrize(
    ("start", "told"),
    [
        (b"\x15\x03\x03\x00\x02\x02\x28", "set security_protocol=SSL"),  # alert from a TLS server
        (b"\x16\x03\x01\x02\x00\x01\x00", "TLS"),  # ClientHello to a plaintext listener
        (b"HTTP/1.1 400 Bad Request\r\n", "HTTP"),
        (b"GET / HTTP/1.1\r\n", "HTTP"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "SSH"),
        (b"220 mail.example.org", "text '220 '"),
    ],
)
def test_other_protocols_are_named_in_the_error(start: bytes, told: str) -> None:
    """With a wrong port the error names the protocol instead of "bad size 352518912"."""
    with pytest.raises(ProtocolError, match=told):
        FrameReader().feed(start)
    reader = FrameReader()
    with pytest.raises(ProtocolError, match=told):
        [reader.feed(start[n : n + 1]) for n in range(4)]


def test_bytes_like_tls_after_the_first_frame_are_a_size() -> None:
    """Only the first bytes show which protocol the peer speaks."""
    reader = FrameReader(2**31 - 1)
    reader.feed(frame(b"first"))
    assert reader.feed(b"\x16\x03\x01\x00") == []
    assert reader.mid_frame


@pytest.mark.parametrize("size", [10_000, 500_000])
def test_before_a_login_memory_grows_with_the_bytes_received(size: int) -> None:
    """The size that a stranger announces allocates nothing (CVE-2022-34917)."""
    reader = FrameReader(MIB, first_step=4096)
    data = frame(bytes(size))
    reader.feed(data[:4])
    assert reader.needs == (0, 4096)
    received = 4
    while received < len(data):
        into = reader.get_buffer()
        count = min(len(into), len(data) - received)
        assert reader.allocated <= max(4096, 2 * received)
        into[:count] = data[received : received + count]
        found = reader.buffer_updated(count)
        received += count
    assert found == [bytes(size)]
