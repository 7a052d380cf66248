"""SegmentFiles: the file names of a segment, and its open log file."""

from __future__ import annotations

from aiokq.broker.log import file_names
from aiokq.broker.log.open_files import OpenFiles
from aiokq.broker.log.segment_files import SegmentFiles
from tests.sim.harness.files import MemoryFiles


def made(files: MemoryFiles, *kinds: str, base_offset: int = 7) -> SegmentFiles:
    """Create a segment with files of these kinds."""
    files.mkdirs("/t-0")
    for kind in kinds:
        file = files.open(file_names.segment_file("/t-0", base_offset, kind), create=True)
        file.pwritev([kind.encode()], 0)
        file.close()
    return SegmentFiles(files, "/t-0", base_offset)


def test_the_log_is_opened_when_it_is_needed_and_again_after_it_was_let_go() -> None:
    """A descriptor per segment would be too many, and a response may still use one."""
    files = MemoryFiles()
    segment = made(files, file_names.LOG)
    assert not segment.is_open
    sent_from = segment.file
    assert segment.is_open
    segment.release()
    assert not segment.is_open
    assert sent_from.pread(4, 0) == segment.file.pread(4, 0) == b".log"
    segment.close()
    assert segment.file.pread(4, 0) == b".log"


def test_only_what_was_opened_again_counts_against_the_cap() -> None:
    """The newest segment always has a descriptor; old ones share a limited number."""
    files = MemoryFiles()
    segment = made(files, file_names.LOG)
    open_files = OpenFiles()
    assert segment.file is not None
    segment.open_files = open_files
    assert segment.file is not None
    assert len(open_files) == 0
    segment.release()
    assert segment.file is not None
    assert len(open_files) == 1
    segment.close()
    assert len(open_files) == 0


def test_renaming_away_takes_what_is_there_and_the_open_file_goes_on() -> None:
    """Most segments have no .txnindex; a fetch may still be reading the deleted segment."""
    files = MemoryFiles()
    segment = made(files, file_names.LOG, file_names.INDEX, file_names.SNAPSHOT)
    file = segment.file
    segment.add_suffix(file_names.DELETED, with_snapshot=False)
    base = f"{7:020d}"
    assert files.listdir("/t-0") == [
        f"{base}.index.deleted",
        f"{base}.log.deleted",
        f"{base}.snapshot",
    ]
    assert file.pread(4, 0) == b".log"
    segment.add_suffix(file_names.DELETED)
    segment.remove_renamed(file_names.DELETED)
    segment.remove_renamed(file_names.DELETED)
    assert files.listdir("/t-0") == []
