"""The clean shutdown marker: what counts as one, and what a flipped bit makes of it."""

from __future__ import annotations

import pytest

from aiokq.broker.log.clean_shutdown import CleanShutdown, clean_shutdown_marker
from tests.sim.harness.files import MemoryFiles

MARKER = "/data/.kafka_cleanshutdown"


def opened(content: bytes | None) -> CleanShutdown:
    files = MemoryFiles()
    files.mkdirs("/data")
    if content is not None:
        files.write_atomic(MARKER, content)
    found = CleanShutdown(files, "/data")
    assert files.exists(MARKER) == (content is not None)
    found.remove()
    assert not files.exists(MARKER)
    return found


@pytest.mark.parametrize(
    ("content", "found", "broker_epoch"),
    [
        (None, False, -1),
        (clean_shutdown_marker(12), True, 12),
        (b'{"version":0,"brokerEpoch":13}', True, 13),  # Kafka's
        (clean_shutdown_marker(), True, -1),
        (b"", True, -1),  # of Kafka 3.7 and older
        (b'{"version":0}', True, -1),  # of earlier versions of aiokq
        (b'{"version":0,"brokerEpocH":13}', False, -1),
        (b'{"version":1,"brokerEpoch":13}', False, -1),
        (b'{"version":0,"brokerEpoch":true}', False, -1),
        (b"[]", False, -1),
        (b"\xff", False, -1),
    ],
)
def test_only_a_whole_marker_counts(content: bytes | None, found: bool, broker_epoch: int) -> None:
    """The logs are recovered after a damaged one, which costs time and loses nothing."""
    marker = opened(content)
    assert (marker.found, marker.broker_epoch) == (found, broker_epoch)


def test_a_flipped_bit_is_another_epoch_or_no_marker() -> None:
    """Another epoch is noticed at the start, which compares it with that of the registration."""
    right = clean_shutdown_marker(12)
    for position in range(len(right)):
        for bit in range(8):
            data = bytearray(right)
            data[position] ^= 1 << bit
            marker = opened(bytes(data))
            assert not marker.found or marker.broker_epoch != 12, bytes(data)
