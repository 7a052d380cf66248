"""One file of the metadata log: its lines, appends, compaction, and repair after a crash.

A line has the CRC-32 of a text in hex, a space, and the text: the records of one append as JSON. A
torn last line, which results from a crash during an append, is removed. A damaged last line is
removed, too, but saved in a separate file, because its append may have been acknowledged. Any other
damage is an error, because a start would lose topics. ``metadata_log`` manages several files of
this kind.

Tests: ``tests/unit/broker/metadata/test_metadata_log.py``.
"""

from __future__ import annotations

import logging
import zlib
from typing import Final

from aiokq.broker.log.corruption import keep_aside
from aiokq.broker.log.disk_trouble import remedy
from aiokq.broker.metadata.file_adapter import file_records_of_image, replay_line
from aiokq.broker.metadata.file_records import decode_records, encode_records
from aiokq.broker.metadata.image import MetadataImage
from aiokq.core.errors import KafkaStorage
from aiokq.core.files import File, Files
from aiokq.core.utf8 import response_text

__all__ = ["MetadataFile", "line_of", "read_image"]

logger = logging.getLogger("aiokq.broker")

COMPACT_AT_BYTES: Final = 256 * 1024
"""Minimum size, in bytes, at which a file is compacted.

The size must also have doubled since the last compaction, or since the file was opened.
"""

_HEADER: Final = "aiokq metadata log, version 1"


class MetadataFile:
    """An open file of the metadata log. Used from one thread at a time.

    Attributes:
        path: path of the file.
        failure: message that says why the file accepts no more appends; None while it accepts them.
    """

    def __init__(self, files: Files, path: str, file: File, size: int) -> None:
        self.path = path
        self.failure: str | None = None
        self._files = files
        self._file = file
        self._size = size
        self._compact_at = max(COMPACT_AT_BYTES, 2 * size)

    @classmethod
    def open(
        cls, files: Files, path: str, *, node_id: int = 0
    ) -> tuple[MetadataFile, MetadataImage]:
        """Open the file and read its image; create the file if it is missing.

        Args:
            node_id: id of the node that has the file.

        Raises:
            KafkaStorage: the file cannot be read or written (with the OSError as its cause), or is
                corrupt; the message says what to do.
        """
        try:
            if not files.exists(path):
                files.write_atomic(path, line_of(_HEADER))
            data = files.read_bytes(path)
            image, size = read_image(data, path, node_id=node_id)
            file = files.open(path)
            if size < len(data):
                _cut(files, file, path, size, data)
        except OSError as error:
            raise KafkaStorage(
                f"metadata log {path} cannot be used: {error.strerror or error}; {remedy(error)}"
            ) from error
        return cls(files, path, file, size), image

    def append(self, data: bytes) -> None:
        """Write a line; it is durable on return.

        Raises:
            OSError: an I/O error. The bytes that were written are truncated; if that fails, too,
                `failure` is set.
        """
        try:
            self._file.pwritev([data], self._size)
            self._file.sync()
        except OSError as error:
            self._undo(error)
            raise
        self._size += len(data)

    def _undo(self, error: OSError) -> None:
        """Cut off the bytes of a failed append, which a later start could read as a valid line."""
        try:
            self._file.truncate(self._size)
            self._file.sync()
        except OSError as second:
            self._fail(f"{error.strerror or error}, and then {second.strerror or second}")

    def _fail(self, reason: str) -> None:
        self.failure = (
            f"metadata log {response_text(self.path)} accepts no changes until the broker "
            f"restarts: {reason}"
        )
        logger.error("metadata log failed file=%s error=%s", self.path, reason)

    @property
    def is_long(self) -> bool:
        """Whether the file should be compacted."""
        return self._size >= self._compact_at

    def compact(self, image: MetadataImage) -> None:
        """Rewrite the file with the fewest records. After a crash, the old or the new file exists.

        If the new file cannot be written, that is logged. If the directory cannot be synced or the
        file cannot be opened, `failure` is set.
        """
        lines = [
            line_of(_HEADER),
            *(line_of(encode_records([one])) for one in file_records_of_image(image)),
        ]
        data = b"".join(lines)
        try:
            self._files.write_atomic(self.path, data)
        except OSError as error:
            logger.warning("metadata log not compacted file=%s error=%s", self.path, error)
        try:
            # Sync the directory after a failure, too: the new file may be in place already. Old and
            # new file are equivalent only until the next append, so a power cut must not bring the
            # old file back.
            self._files.sync_dir(self.path.rpartition("/")[0] or "/")
            file = self._files.open(self.path)
            size = file.size()
        except OSError as error:
            self._fail(str(error.strerror or error))
            return
        logger.info("metadata log compacted file=%s from=%d to=%d", self.path, self._size, size)
        self._file.close()
        self._file = file
        self._size = size
        self._compact_at = max(COMPACT_AT_BYTES, 2 * size)

    def close(self) -> None:
        """Close the file. Idempotent."""
        self.failure = self.failure or f"metadata log {response_text(self.path)} is closed"
        self._file.close()


def _cut(files: Files, file: File, path: str, position: int, data: bytes) -> None:
    """Truncate the file to its valid bytes; save the removed bytes if they have a complete line."""
    if b"\n" in data[position:]:
        # A kill leaves an incomplete line. A complete line that is invalid is damaged, or was left
        # by a power cut.
        kept = keep_aside(files, file, path, position, len(data))
        logger.error(
            "damaged end of metadata log cut off file=%s position=%d bytes=%d kept=%s: an "
            "acknowledged change of topics or settings may be lost",
            path,
            position,
            len(data) - position,
            kept,
        )
    else:
        logger.warning(
            "removing torn tail of metadata log file=%s position=%d bytes=%d",
            path,
            position,
            len(data) - position,
        )
    file.truncate(position)
    file.sync()


def line_of(text: str) -> bytes:
    """Return the line for a text: the CRC-32 of the text, a space and the text."""
    data = text.encode("ascii")
    return b"%08x %s\n" % (zlib.crc32(data), data)


def _text(line: bytes) -> str | None:
    """Return the text of a complete line with a correct CRC; None for any other line."""
    if len(line) < 10 or line[8:9] != b" " or b"%08x" % zlib.crc32(line[9:]) != line[:8]:
        return None
    return line[9:].decode("ascii")


def read_image(data: bytes, path: str, *, node_id: int = 0) -> tuple[MetadataImage, int]:
    """Return the image of a file's content, and the number of valid bytes.

    Args:
        node_id: id of the node that has the file.

    Raises:
        KafkaStorage: the header is damaged, a valid line follows a damaged one, or a line cannot be
            replayed.
    """
    image = MetadataImage()
    lines = data.split(b"\n")
    if _text(lines[0]) != _HEADER:
        raise _corrupt(
            path, 0, "the first line is not the header of a metadata log of this version"
        )
    size = len(lines[0]) + 1
    for number, line in enumerate(lines[1:-1], 2):
        text = _text(line)
        if text is None:
            # Each append is synced before the next one, so only the last line can be torn.
            if any(_text(later) is not None for later in lines[number:]):
                raise _corrupt(path, size, f"line {number} is damaged, and a valid line follows")
            break
        try:
            _replay(text, image, node_id)
        except ValueError as error:
            raise _corrupt(path, size, f"line {number}: {error}") from error
        size += len(line) + 1
    return image, size


def _replay(text: str, image: MetadataImage, node_id: int) -> None:
    image.appends += 1
    for line in decode_records(text):
        replay_line(line, image, node_id)


def _corrupt(path: str, position: int, detail: str) -> KafkaStorage:
    return KafkaStorage(
        f"metadata log {path} is corrupt at byte {position}: {detail}; restore it from a copy, "
        "or move the data directory away to start with an empty one"
    )
