"""FrameReader against the plain definition of a frame, for all splits and sizes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aiokq.connection.framing import FrameReader
from aiokq.connection.server_limits import FrameBudget
from aiokq.core.errors import ProtocolError

sizes = st.one_of(st.integers(0, 40), st.integers(65_000, 66_000), st.integers(130_000, 140_000))


@given(
    st.lists(sizes, max_size=12),
    st.lists(st.one_of(st.integers(1, 70_000), st.integers(1, 700_000)), min_size=1, max_size=30),
    st.booleans(),
    st.booleans(),
)
def test_frames_come_out_as_they_went_in(
    lengths: list[int], steps: list[int], client: bool, expecting: bool
) -> None:
    """However the network cuts the stream, frames are what the peer sent, in order."""
    payloads = [bytes([n % 251]) * length for n, length in enumerate(lengths)]
    data = b"".join(len(p).to_bytes(4, "big") + p for p in payloads)
    spare = FrameBudget(1) if expecting else None
    reader = FrameReader(200_000, spare=spare, first_step=66_000, raises_first_step=client)
    frames: list[memoryview] = []
    position, turn = 0, 0
    while position < len(data):
        step = steps[turn % len(steps)]
        if turn >= 500:
            # A megabyte byte by byte is the same state over and over.
            step = max(step, len(data) // 500)
        frames += reader.feed(data[position : position + step])
        position += step
        turn += 1
    assert [bytes(f) for f in frames] == payloads
    assert not reader.mid_frame


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_hostile_bytes_give_frames_or_protocol_error(pieces: list[bytes]) -> None:
    """Whatever comes, memory stays within the limit and no other error is raised."""
    reader = FrameReader(1000)
    try:
        for piece in pieces:
            for frame in reader.feed(piece):
                assert len(frame) <= 1000
            assert reader.allocated <= 1000
    except ProtocolError:
        pass
