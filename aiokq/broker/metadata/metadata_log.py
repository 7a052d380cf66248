"""The metadata log: which topics, settings and producer ids there are, in a file per log directory.

Owns the copies and which of them is right; a file's shape is ``metadata_file``'s, what the records
mean ``image``'s. An append is synced in every copy before it returns: what it says
survives a power cut, and each disk but the last. Each copy counts the appends that it has: at a
start the one that has most of them counts, and the others are made anew from it. Directories that
fail in turn leave copies that each miss something of the other: what only the shorter one knows is
kept in a file beside it, and no producer id or epoch of either is given out again.

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

__all__ = ["METADATA_LOG", "MetadataLog"]

logger = logging.getLogger("aiokq.broker")

METADATA_LOG: Final = "aiokq-metadata.log"
"""Name of the file in a log directory. Not Kafka's format: see the design."""

BEHIND: Final = ".behind"
"""Added to the name of what a copy was that knew topics of which the one that counts knows nothing:
they were deleted while its directory was away, or made while the other one's was."""

CORRUPT: Final = ".corrupt"
"""Added to the name of a copy that cannot be read, where another can."""

Refused = Callable[[str, OSError], None]
"""Told of the path of a copy that the disk refused, and how."""


class MetadataLog:
    """The metadata of one node.

    ``append`` blocks on the disk and is for an executor; appends from several threads queue.

    Attributes:
        image: what the records add up to.
        paths: of the copies that are written.
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
        """Read the copies; those that are missing or have missed something are made anew.

        Args:
            node_id: of the node that has them.

        Raises:
            KafkaStorage: none of them can be used; says what to do.
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
            # A copy without any append was made just now: topics would seem never to have been.
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
                    logging.WARNING if own.appends else logging.INFO,  # a new directory's
                    "metadata log is behind, made anew file=%s appends=%d of=%d",
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
        """Make a corrupt copy anew; what it was is kept."""
        logger.error("metadata log corrupt, made anew file=%s kept=%s", path, path + CORRUPT)
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
        """Write records, all or none; they are durable, and in ``image``, when this returns.

        A copy that cannot be written is left out from then on, as long as another can.

        Raises:
            KafkaStorage: every disk refused; none of the records counts.
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
        """What the records add up to, not to change any more."""
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
                f"metadata log {copy.path} cannot be written: {error.strerror or error}"
            )
            failure.__cause__ = error
            return failure
        return None

    def close(self) -> None:
        """Close the files; twice is harmless."""
        with self._lock:
            self._closed = True
            for copy in self._copies:
                copy.close()


def _is_beginning(files: Files, path: str, newest: str) -> bool:
    """Whether a copy only lacks the last appends of the newest: the broker was killed before it
    wrote them to this copy as well. Topics that the newest does not have were deleted by them."""
    try:
        return files.read_bytes(newest).startswith(files.read_bytes(path))
    except OSError:
        return False


def _keep_unknown_topics(files: Files, path: str, own: MetadataImage, image: MetadataImage) -> None:
    """Keep a copy that is made anew if it has topics, by their ids, that ``image`` has not."""
    known = {topic.topic_id for topic in image.topics.values()}
    unknown = sorted(name for name, topic in own.topics.items() if topic.topic_id not in known)
    if not unknown:
        return
    try:
        files.write_atomic(path + BEHIND, files.read_bytes(path))
    except OSError as error:
        logger.warning("metadata log not kept file=%s error=%s", path + BEHIND, error)
    logger.error(
        "topics that a metadata log alone knew are gone, unless they were deleted file=%s kept=%s"
        " topics=%s",
        path,
        path + BEHIND,
        ",".join(unknown),
    )
