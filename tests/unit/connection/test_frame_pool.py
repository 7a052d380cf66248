"""Frame buffers are reused when no view of them is left, and not before."""

from __future__ import annotations

from aiokq.connection.frame_pool import FramePool
from aiokq.connection.framing import FrameReader

MIB = 1024 * 1024


def frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def test_a_buffer_is_reused_when_its_views_are_gone() -> None:
    """A consumer that reads one-megabyte responses in sequence needs only two buffers."""
    reader = FrameReader(pool=(pool := FramePool()))
    seen = set()
    for n in range(20):
        (received,) = reader.feed(frame(bytes([n]) * MIB))
        assert received == bytes([n]) * MIB
        seen.add(id(received.obj))
        previous = received  # like the fetcher: one frame is decoded while the next one arrives
    assert len(seen) == 2
    assert previous[0] == 19
    assert pool.held <= 2.3 * MIB


def test_a_buffer_with_a_view_is_never_reused() -> None:
    """The application keeps a view of a few bytes, whose content must not change."""
    reader = FrameReader()
    (received,) = reader.feed(frame(b"keep" + bytes(MIB)))
    kept = received[2:4]
    del received
    for _ in range(40):
        reader.feed(frame(b"\xff" * MIB))
    assert bytes(kept) == b"ep"


def test_the_buffer_of_a_half_received_frame_is_not_reused() -> None:
    """Two connections share the pool."""
    pool = FramePool()
    one, two = FrameReader(pool=pool), FrameReader(pool=pool)
    data = frame(b"a" * MIB)
    one.feed(data[:700_000])
    two.feed(frame(b"b" * MIB))
    (received,) = one.feed(data[700_000:])
    assert received == b"a" * MIB


def test_the_pool_holds_no_more_than_its_limit() -> None:
    """Buffers of a hundred sizes, and one above the limit: buffers in use stay valid."""
    pool = FramePool(4 * MIB)
    views = []
    for n in range(100):
        view = memoryview(pool.take(100_000 + n * 10_000))
        view[:] = bytes([n]) * len(view)
        views.append(view)
        assert pool.held <= 4 * MIB
    assert all(view[0] == view[-1] == n for n, view in enumerate(views))
    before = pool.held
    assert len(pool.take(50 * MIB)) >= 50 * MIB
    assert pool.held == before


def test_a_large_buffer_is_not_wasted_on_a_small_frame() -> None:
    """A frame of 100 KB that is kept for hours must not hold a buffer of 8 MB."""
    pool = FramePool()
    pool.take(8 * MIB)
    assert len(pool.take(100_000)) <= 113_000
