"""The metadata log: topics, settings and producer ids, in one file per log directory.

``metadata_file`` reads and writes a file, ``image`` replays the records. An append is synced in
each copy before it returns, so it survives a power cut and the loss of all disks but one. Each copy
contains the number of its appends: a start uses the copy with the most appends and rewrites the
others from it. If two directories fail in turn, each copy lacks appends of the other. If the copy
with fewer appends has topics that the other lacks, its content is saved in a separate file before
the copy is rewritten. No producer id or epoch of either copy is issued again.

Tests: ``tests/unit/broker/metadata/test_metadata_log.py``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from aiokq.broker.metadata.file_adapter import file_records
from aiokq.broker.metadata.file_records import encode_records
from aiokq.broker.metadata.image import MetadataImage
from aiokq.broker.metadata.metadata_file import MetadataFile, line_of
from aiokq.broker.metadata.records import MetadataRecord
from aiokq.core.errors import KafkaStorage
from aiokq.core.files import Files
from aiokq.core.utf8 import response_text

__all__ = ["METADATA_LOG", "MetadataLog"]

logger = logging.getLogger("aiokq.broker")

METADATA_LOG: Final = "aiokq-metadata.log"
"""Name of the file in a log directory; its format is not Kafka's."""

BEHIND: Final = ".behind"
"""Suffix of a kept copy with topics that the newest copy does not have. These topics were deleted
while the directory of the kept copy was missing, or created while the directory of the newest copy
was missing.
"""

CORRUPT: Final = ".corrupt"
"""Suffix of a corrupt copy that was replaced from another copy."""

Refused = Callable[[str, OSError], None]
"""A function that is called with the path of a copy and the OSError of its disk."""


class MetadataLog:
    """The metadata of one node.

    ``append`` waits for the disk: call it in an executor. Threads may call it concurrently; the
    appends are made one after the other.

    Attributes:
        image: the state after all records.
        paths: paths of the copies that are written.
    """

    def __init__(
        self, copies: list[MetadataFile], image: MetadataImage, refused: Refused | None
    ) -> None:
        self.image = image
        self._copies = copies
        self._refused = refused
        self._closed = False
        self._lock = threading.Lock()

    @classmethod
    def open(
        cls, files: Files, *paths: str, node_id: int = 0, refused: Refused | None = None
    ) -> MetadataLog:
        """Open the copies; create missing copies and rewrite outdated ones.

        Args:
            node_id: id of the node that has the copies.
            refused: called with each I/O error of a copy.

        Raises:
            KafkaStorage: a copy cannot be used, and there is no other copy that has appends; the
                message says what to do.
        """
        opened: list[tuple[MetadataFile, MetadataImage]] = []
        corrupt: list[str] = []
        failures: list[KafkaStorage] = []
        for path in paths:
            try:
                opened.append(MetadataFile.open(files, path, node_id=node_id))
            except KafkaStorage as error:
                failures.append(error)
                if isinstance(error.__cause__, OSError):
                    if refused is not None:
                        refused(path, error.__cause__)
                else:
                    corrupt.append(path)
        if not any(image.appends for _, image in opened) and failures:
            # The copies that could be opened are empty: if the node started with them alone, it
            # would lose its topics.
            for copy, _ in opened:
                copy.close()
            raise failures[0]
        newest, image = max(opened, key=lambda one: one[1].appends)
        for _, own in opened:
            image.next_producer_id = max(image.next_producer_id, own.next_producer_id)
            image.unclean_starts = max(image.unclean_starts, own.unclean_starts)
        copies = []
        for copy, own in opened:
            if own.appends < image.appends:
                logger.log(
                    logging.WARNING if own.appends else logging.INFO,  # INFO for a new directory
                    "metadata log is outdated, rewritten file=%s appends=%d of=%d",
                    copy.path,
                    own.appends,
                    image.appends,
                )
                if not _is_beginning(files, copy.path, newest.path):
                    _keep_unknown_topics(files, copy.path, own, image)
                copy.compact(image)
            copies.append(copy)
        log = cls(copies, image, refused)
        for path in corrupt:
            log._replace(files, path)
        return log

    def _replace(self, files: Files, path: str) -> None:
        """Write a copy from the image in place of a corrupt copy, whose file is renamed."""
        logger.error("metadata log is corrupt, rewritten file=%s kept=%s", path, path + CORRUPT)
        try:
            files.rename(path, path + CORRUPT)
            copy, _ = MetadataFile.open(files, path)
        except (OSError, KafkaStorage) as error:
            cause = error if isinstance(error, OSError) else error.__cause__
            if self._refused is not None and isinstance(cause, OSError):
                self._refused(path, cause)
            return
        copy.compact(self.image)
        self._copies.append(copy)

    @property
    def paths(self) -> list[str]:
        return [copy.path for copy in self._copies]

    def append(self, *records: MetadataRecord) -> None:
        """Write records, all or none; on return they are durable and replayed in ``image``.

        A copy that cannot be written gets no further appends, as long as another copy can be
        written.

        Raises:
            KafkaStorage: no copy could be written, or the log is closed; no record is applied.
            ValueError: the file cannot represent one of the records.
        """
        with self._lock:
            if self._closed:
                raise KafkaStorage(f"metadata log {self.paths[0]} is closed")
            data = line_of(encode_records(file_records(records, self.image)))
            written: list[MetadataFile] = []
            failures: list[KafkaStorage] = []
            for copy in self._copies:
                failure = self._append_to(copy, data)
                if failure is None:
                    written.append(copy)
                else:
                    failures.append(failure)
            if not written:
                raise failures[0]
            for copy in self._copies:
                if copy not in written:
                    copy.close()
            self._copies = written
            self.image.replay_append(records)
            for copy in written:
                if copy.is_long:
                    copy.compact(self.image)

    def copy_image(self) -> MetadataImage:
        """Return an independent copy of the image."""
        with self._lock:
            return self.image.copy()

    def _append_to(self, copy: MetadataFile, data: bytes) -> KafkaStorage | None:
        if copy.failure is not None:
            return KafkaStorage(copy.failure)
        try:
            copy.append(data)
        except OSError as error:
            if self._refused is not None:
                self._refused(copy.path, error)
            failure = KafkaStorage(
                f"metadata log {response_text(copy.path)} cannot be written: "
                f"{error.strerror or error}"
            )
            failure.__cause__ = error
            return failure
        return None

    def close(self) -> None:
        """Close the files. Idempotent."""
        with self._lock:
            self._closed = True
            for copy in self._copies:
                copy.close()


def _is_beginning(files: Files, path: str, newest: str) -> bool:
    """Return whether a copy is a prefix of the newest copy, as after a kill between two writes.

    Topics that only the prefix has were deleted by later appends, so they are not lost.
    """
    try:
        return files.read_bytes(newest).startswith(files.read_bytes(path))
    except OSError:
        return False


def _keep_unknown_topics(files: Files, path: str, own: MetadataImage, image: MetadataImage) -> None:
    """Save a copy before it is rewritten, if it has topics (by id) that ``image`` lacks."""
    known = {topic.topic_id for topic in image.topics.values()}
    unknown = sorted(name for name, topic in own.topics.items() if topic.topic_id not in known)
    if not unknown:
        return
    try:
        files.write_atomic(path + BEHIND, files.read_bytes(path))
    except OSError as error:
        logger.warning(
            "outdated metadata log could not be saved file=%s error=%s", path + BEHIND, error
        )
    logger.error(
        "only an outdated metadata log has these topics; they are lost, unless they were "
        "deleted file=%s kept=%s topics=%s",
        path,
        path + BEHIND,
        ",".join(unknown),
    )
