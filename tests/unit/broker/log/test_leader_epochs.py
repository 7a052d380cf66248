"""The history of leader epochs: where each began and ended."""

from __future__ import annotations

import errno

import pytest

from aiokq.broker.log.leader_epochs import SECTOR, LeaderEpochs
from aiokq.core.errors import CorruptRecord
from tests.sim.harness.files import MemoryFiles

PATH = "/leader-epoch-checkpoint"


def history(*entries: tuple[int, int]) -> LeaderEpochs:
    epochs = LeaderEpochs(MemoryFiles(), PATH)
    for epoch, start in entries:
        epochs.assign(epoch, start)
    return epochs


def test_the_file_is_kafkas() -> None:
    """The file has a version, a count, and lines of epoch and start offset."""
    files = MemoryFiles()
    epochs = LeaderEpochs(files, PATH)
    assert epochs.assign(0, 0)
    assert epochs.assign(3, 40)
    assert not epochs.assign(3, 60)  # known already
    assert not epochs.assign(-1, 60)
    assert files.read_bytes(PATH) == b"0\n2\n0 0\n3 40\n"
    again = LeaderEpochs(files, PATH)
    again.load()
    assert again.entries == epochs.entries == ((0, 0), (3, 40))


def test_an_epoch_that_could_not_be_written_is_not_known() -> None:
    """Otherwise it would not be written again, and be missing after a clean shutdown."""
    files = MemoryFiles()
    epochs = LeaderEpochs(files, PATH)
    epochs.assign(0, 0)
    for operation in ("pwritev", "rename"):  # first in place, then as a whole file
        files.fail(operation, errno.ENOSPC, written=9)
        with pytest.raises(OSError, match="No space"):
            epochs.assign(1, 20)
        assert epochs.latest_epoch == 0
    assert epochs.assign(1, 20)
    again = LeaderEpochs(files, PATH)
    again.load()
    assert again.entries == ((0, 0), (1, 20))


def test_a_short_history_is_written_in_place_and_a_long_one_is_replaced() -> None:
    """Replacing the file takes 5 ms on ext4, for each of a thousand logs after a kill.

    A power cut must leave the old or the new history, which a write in place guarantees only
    within a single sector.
    """
    files = MemoryFiles()
    epochs = LeaderEpochs(files, PATH)
    renamed: list[str] = []
    rename = files.rename

    def noted(src: str, dst: str) -> None:
        renamed.append(dst)
        rename(src, dst)

    files.rename = noted  # type: ignore[method-assign]
    for epoch in range(100):
        epochs.assign(epoch, epoch * 1000)
        again = LeaderEpochs(files, PATH)
        again.load()
        assert again.entries == epochs.entries
        if files.stat_size(PATH) <= SECTOR:
            assert len(renamed) == 1  # the first write created the file
    assert len(renamed) > 30
    epochs.truncate_from_start(90_500)  # the shorter content must not leave old bytes after it
    again.load()
    assert again.entries == epochs.entries
    assert files.read_bytes(PATH).endswith(b"\n99 99000\n")
    assert again.assign(100, 100_000)
    assert renamed[-1] == PATH


def test_end_offsets() -> None:
    """Clients and followers compare their own logs with them (KIP-320)."""
    epochs = history((2, 10), (5, 40), (6, 70))
    for asked, answer in {
        6: (6, 100),
        5: (5, 70),
        4: (2, 40),
        2: (2, 40),
        1: (1, 10),  # older than all known epochs: ends where the known ones begin
        7: (-1, -1),
        -1: (-1, -1),
    }.items():
        assert epochs.end_offset_for(asked, 100) == answer
    assert history().end_offset_for(0, 0) == (-1, -1)


def test_the_epoch_of_an_offset() -> None:
    """Consumers get it with each record, for later comparison."""
    epochs = history((2, 10), (5, 40))
    assert [epochs.epoch_for_offset(o) for o in (0, 10, 39, 40, 99)] == [-1, 2, 2, 5, 5]
    assert epochs.latest_epoch == 5
    assert history().latest_epoch == -1


def test_entries_that_contradict_a_new_one_go() -> None:
    """They belong to a log that was truncated and written again."""
    epochs = history((2, 10), (5, 40), (6, 70))
    epochs.assign(7, 40)
    assert epochs.entries == ((2, 10), (7, 40))
    epochs.note(3, 45)
    assert epochs.entries == ((2, 10), (3, 45))


def test_truncation_from_both_ends() -> None:
    """Epochs without records are not returned."""
    epochs = history((2, 10), (5, 40), (6, 70))
    epochs.truncate_from_end(70)
    assert epochs.entries == ((2, 10), (5, 40))
    epochs.truncate_from_start(20)
    assert epochs.entries == ((2, 20), (5, 40))
    epochs.truncate_from_start(50)
    assert epochs.entries == ((5, 50),)
    epochs.truncate_from_start(3)
    assert epochs.entries == ((5, 50),)
    epochs.clear()
    assert epochs.entries == ()


def test_a_truncation_that_could_not_be_written_is_written_by_the_next() -> None:
    """The entries in memory are cut already, but those in the file are not."""
    files = MemoryFiles()
    epochs = LeaderEpochs(files, PATH)
    epochs.assign(2, 10)
    epochs.assign(5, 40)
    files.fail("open", errno.EMFILE)
    with pytest.raises(OSError, match="Too many open files"):
        epochs.truncate_from_end(10)
    epochs.truncate_from_end(10)
    assert files.read_bytes(PATH) == b"0\n0\n"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"1\n0\n",
        b"0\nx\n",
        b"0\n2\n1 1\n",
        b"0\n1\n1\n",
        b"0\n1\n1 12",
        b"0\n1\n2147483648 1\n",
        b"0\n1\n1 9223372036854775808\n",
        b"0\n1\n1 -5\n",
    ],
)
def test_a_file_that_is_none_is_refused(content: bytes) -> None:
    """Recovery rebuilds it; a guess would give wrong end offsets."""
    files = MemoryFiles()
    files.write_atomic(PATH, content)
    with pytest.raises(CorruptRecord):
        LeaderEpochs(files, PATH).load()
