"""The check of a log directory, or of one of its partitions.

Nothing is changed. A broker may be using the directory. The clean shutdown marker is then missing;
without the marker, a partly written end of a log is reported as a warning, not as an error.

Tests: ``tests/unit/broker/inspection/test_inspection.py``.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

from aiokq.broker.inspection.findings import Finding, Severity
from aiokq.broker.inspection.metadata_checks import check_metadata_files
from aiokq.broker.inspection.places import CHECKPOINTS, PartitionPlace, partitions_at
from aiokq.broker.inspection.producers import ProducerCheck, Snapshot
from aiokq.broker.inspection.segments import CheckedSegment, SegmentCheck
from aiokq.broker.log import file_names
from aiokq.broker.log.checkpoint_file import read_offsets
from aiokq.broker.log.leader_epochs import LeaderEpochs
from aiokq.broker.log.meta_properties import decode_meta_properties
from aiokq.broker.log.partition_metadata import read_partition_metadata
from aiokq.broker.log.producer_snapshot import decode_snapshot
from aiokq.broker.metadata.earlier.private_file import PRIVATE_FILE, read_private_file
from aiokq.broker.metadata.log.metadata_reader import MetadataReader
from aiokq.core.errors import ConfigError, CorruptRecord, KafkaStorage
from aiokq.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokq.broker.metadata.image.image import MetadataImage
    from aiokq.core.files import Files
    from aiokq.core.types import TopicPartition
    from aiokq.records.header import Checksum

__all__ = ["CheckedPartition", "Report", "verify"]


class CheckedPartition(NamedTuple):
    """The result of the check of one partition directory.

    Attributes:
        partition: the partition; None if the directory's name does not name a partition.
        start: base offset of the first segment.
        end: the offset after the last sound record.
    """

    path: str
    partition: TopicPartition | None
    segments: tuple[CheckedSegment, ...]
    findings: tuple[Finding, ...]
    start: int
    end: int

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def batches(self) -> int:
        return sum(segment.batches for segment in self.segments)


class Report(NamedTuple):
    """The result of the check of a log directory, or of one partition's directory.

    Attributes:
        clean: whether the clean shutdown marker was found. If so, no broker is using the directory,
            and the last broker wrote all files completely.
        findings: all findings, including those in ``partitions``.
    """

    path: str
    clean: bool
    partitions: tuple[CheckedPartition, ...]
    findings: tuple[Finding, ...]

    @property
    def sound(self) -> bool:
        """Whether the check found no error; there may be warnings."""
        return not any(finding.severity is Severity.ERROR for finding in self.findings)


def verify(
    files: Files,
    path: str,
    *,
    crc32c: Checksum,
    beside: Iterable[str] = (),
    deep: bool = False,
    checked: Callable[[CheckedPartition], None] | None = None,
) -> Report:
    """Check a log directory or a partition directory.

    Args:
        beside: other log directories of the node; a partition in one of them is not reported as
            missing.
        deep: whether to read each record, too, which takes much longer.
        checked: called with each partition after its check.

    Raises:
        OSError: `path` or a file in it cannot be read.
    """
    places = partitions_at(files, path)
    is_partition = [place.path for place in places] == [path]
    root = posixpath.dirname(path) if is_partition else path
    clean = files.exists(f"{root}/{file_names.CLEAN_SHUTDOWN}")
    findings: list[Finding] = []
    image = _metadata(files, root, findings if not is_partition else [], crc32c)
    cleaned = _cleaned(files, root)
    done = []
    for place in places:
        if not _has_log(files, place, image):
            continue
        one = _Partition(
            files,
            place,
            clean=clean,
            image=image,
            may_have_gaps=place.partition in cleaned,
            crc32c=crc32c,
            deep=deep,
        ).run()
        done.append(one)
        findings += one.findings
        if checked is not None:
            checked(one)
    if not is_partition:
        node_id = _properties(files, path, findings)
        _checkpoints(files, path, done, clean, findings)
        findings += check_metadata_files(files, path, crc32c)
        others = {place.partition: at for at in beside for place in partitions_at(files, at)}
        _doubled(done, others, findings)
        if image is not None and node_id is not None:
            there = {one.partition for one in done} | others.keys()
            _missing(path, image, node_id, there, findings)
    return Report(path, clean, tuple(done), tuple(findings))


def _has_log(files: Files, place: PartitionPlace, image: MetadataImage | None) -> bool:
    """Whether the directory has a log, or should have one.

    A broker ignores a directory that has the name of a partition but no log.
    """
    if any(name.endswith(file_names.LOG) for name in files.listdir(place.path)):
        return True
    partition = place.partition
    topic = None if image is None or partition is None else image.topics.get(partition.topic)
    return (
        topic is not None and partition is not None and partition.partition < len(topic.partitions)
    )


def _metadata(
    files: Files, root: str, findings: list[Finding], crc32c: Checksum
) -> MetadataImage | None:
    """Check the metadata log in a log directory; return its image, or None if there is none.

    The result is also None if the log cannot be read; a finding has the reason.
    """
    _private_file(files, root, findings)
    reader = MetadataReader(files, f"{root}/{file_names.CLUSTER_METADATA}", crc32c)
    if not reader.exists():
        return None
    try:
        state = reader.read()
    except KafkaStorage as error:
        findings.append(Finding(Severity.ERROR, reader.directory, None, error.message))
        return None
    if state.torn is not None:
        what = f"{state.torn.size} bytes after the last whole batch ({state.torn.reason})"
        findings.append(Finding(Severity.WARNING, state.torn.path, state.torn.position, what))
    return state.image


def _private_file(files: Files, root: str, findings: list[Finding]) -> None:
    """Check the metadata file of an earlier version of aiokq, if there is one."""
    path = f"{root}/{PRIVATE_FILE}"
    if not files.exists(path):
        return
    data = files.read_bytes(path)
    try:
        _, sound = read_private_file(data, path)
    except KafkaStorage as error:
        findings.append(Finding(Severity.ERROR, path, None, error.message))
        return
    if sound < len(data):
        what = f"{len(data) - sound} bytes after the last complete line"
        findings.append(Finding(Severity.WARNING, path, sound, what))


def _properties(files: Files, root: str, findings: list[Finding]) -> int | None:
    """Check ``meta.properties``; return the node id, or None if it is unknown."""
    path = f"{root}/{file_names.META_PROPERTIES}"
    try:
        return decode_meta_properties(files.read_bytes(path), path).node_id
    except FileNotFoundError:
        findings.append(
            Finding(
                Severity.WARNING, path, None, "missing: the ids of the log directory are unknown"
            )
        )
    except ConfigError as error:
        findings.append(Finding(Severity.ERROR, path, None, error.message))
    return None


def _checkpoints(
    files: Files,
    root: str,
    partitions: list[CheckedPartition],
    clean: bool,
    findings: list[Finding],
) -> None:
    ends = {one.partition: one.end for one in partitions if one.partition is not None}
    for name in CHECKPOINTS:
        path = f"{root}/{name}"
        try:
            offsets = read_offsets(files, path)
        except CorruptRecord as error:
            severity = Severity.ERROR if name == file_names.LOG_STARTS else Severity.WARNING
            findings.append(Finding(severity, path, None, error.message))
            continue
        for partition, offset in offsets.items():
            end = ends.get(partition)
            if end is None:
                if clean:
                    what = f"{partition} has an offset, but no directory"
                    findings.append(Finding(Severity.WARNING, path, None, what))
            elif offset > end:
                # Records before a recovery point were durable. After a clean shutdown, records
                # before a high watermark were durable, too. If the log ends earlier, records are
                # missing.
                lost = name == file_names.RECOVERY_POINTS or (
                    name == file_names.HIGH_WATERMARKS and clean
                )
                severity = Severity.ERROR if lost else Severity.WARNING
                what = f"{partition} has offset {offset}, but its log ends at {end}"
                findings.append(Finding(severity, path, None, what))


def _cleaned(files: Files, root: str) -> Collection[TopicPartition]:
    """Return the partitions that were compacted."""
    try:
        return read_offsets(files, f"{root}/{file_names.CLEANED_OFFSETS}").keys()
    except CorruptRecord:
        return ()  # `_checkpoints` reports the damaged file


def _doubled(
    partitions: list[CheckedPartition],
    others: Mapping[TopicPartition | None, str],
    findings: list[Finding],
) -> None:
    """Report the partitions that are also in another log directory."""
    for one in partitions:
        if one.partition is not None and one.partition in others:
            what = (
                f"{one.partition} is also in {others[one.partition]}: a broker does not start "
                "with both directories"
            )
            findings.append(Finding(Severity.ERROR, one.path, None, what))


def _missing(
    root: str,
    image: MetadataImage,
    node_id: int,
    there: Collection[TopicPartition | None],
    findings: list[Finding],
) -> None:
    """Report the partitions that a node has according to `image` and that are not in `there`."""
    for record in image.topics.values():
        missing = [
            index
            for index, state in enumerate(record.partitions)
            if node_id in state.replicas and (record.name, index) not in there
        ]
        if missing:
            what = (
                f"topic {record.name} has no directory here for partition "
                f"{', '.join(map(str, missing[:20]))}{' ...' if len(missing) > 20 else ''}: the "
                "directory is in another log directory, or lost"
            )
            findings.append(Finding(Severity.WARNING, root, None, what))


class _Partition:
    """The check of one partition's directory."""

    def __init__(
        self,
        files: Files,
        place: PartitionPlace,
        *,
        clean: bool,
        image: MetadataImage | None,
        may_have_gaps: bool,
        crc32c: Checksum,
        deep: bool,
    ) -> None:
        self._files = files
        self._place = place
        self._clean = clean
        self._image = image
        self._may_have_gaps = may_have_gaps
        self._crc32c = crc32c
        self._deep = deep
        self._findings: list[Finding] = []

    def run(self) -> CheckedPartition:
        path = self._place.path
        listed = self._files.listdir(path)
        parsed = [one for one in map(file_names.parse_segment_file, listed) if one is not None]
        bases = sorted(base for base, suffix in parsed if suffix == file_names.LOG)
        epochs = self._epochs()
        # Epochs and snapshots are read before the log, because the log of a running broker grows.
        snapshots = [
            self._snapshot(base) for base, suffix in parsed if suffix == file_names.SNAPSHOT
        ]
        producers = ProducerCheck(one for one in snapshots if one is not None)
        segments: list[CheckedSegment] = []
        for base, after in zip(bases, [*bases[1:], None], strict=False):
            check = SegmentCheck(
                self._files,
                path,
                base,
                sealed_at=after,
                unclean=not self._clean,
                epochs=epochs,
                producers=producers,
                crc32c=self._crc32c,
                deep=self._deep,
            )
            try:
                segments.append(check.run(segments[-1].end if segments else base))
            except FileNotFoundError:
                if self._clean:
                    raise
                continue  # the broker deleted the segment during the check
            self._findings += check.findings
        end = segments[-1].end if segments else 0
        producers.reached(end)
        self._findings += producers.findings
        self._holes(segments)
        self._topic()
        if epochs is not None and epochs.entries and epochs.entries[-1].start_offset > end:
            entry = epochs.entries[-1]
            self._warn(
                file_names.LEADER_EPOCHS,
                f"epoch {entry.epoch} begins at offset {entry.start_offset}, but the log ends at "
                f"{end}",
            )
        for base, suffix in parsed:
            if suffix == file_names.SNAPSHOT:
                if base > end and self._clean:
                    name = f"{base:020d}{file_names.SNAPSHOT}"
                    self._warn(name, f"is of an offset after the end of the log, {end}")
            elif suffix in file_names.SEGMENT_SUFFIXES and base not in bases:
                self._warn(f"{base:020d}{suffix}", "index without a log file")
        self._leftovers(listed)
        start = segments[0].base_offset if segments else 0
        return CheckedPartition(
            path, self._place.partition, tuple(segments), tuple(self._findings), start, end
        )

    def _epochs(self) -> LeaderEpochs | None:
        path = f"{self._place.path}/{file_names.LEADER_EPOCHS}"
        epochs = LeaderEpochs(self._files, path)
        try:
            epochs.load()
        except FileNotFoundError:
            return None
        except CorruptRecord as error:
            self._warn(file_names.LEADER_EPOCHS, error.message)
            return None
        return epochs

    def _topic(self) -> None:
        try:
            topic_id = read_partition_metadata(self._files, self._place.path)
        except CorruptRecord as error:
            self._warn(file_names.PARTITION_METADATA, error.message)
            return
        partition, image = self._place.partition, self._image
        if image is None or partition is None:
            return
        topic = image.topics.get(partition.topic)
        if topic is None or partition.partition >= len(topic.partitions):
            self._warn("", "no topic has this partition: the next start sets the directory aside")
        elif topic_id is not None and topic_id != topic.topic_id:
            self._warn(
                file_names.PARTITION_METADATA,
                "has the id of another topic of the same name: the next start sets the "
                "directory aside",
            )

    def _snapshot(self, offset: int) -> Snapshot | None:
        name = f"{offset:020d}{file_names.SNAPSHOT}"
        path = f"{self._place.path}/{name}"
        try:
            return Snapshot(
                offset, path, decode_snapshot(self._files.read_bytes(path), self._crc32c, 0)
            )
        except FileNotFoundError:
            return None  # replaced during the check
        except CorruptRecord as error:
            self._warn(name, error.message)
            return None

    def _holes(self, segments: list[CheckedSegment]) -> None:
        """Report offsets missing between segments, unless compaction may have removed them."""
        if self._may_have_gaps or any(segment.has_gaps for segment in segments):
            return
        for before, after in pairwise(segments):
            if before.whole and before.end < after.base_offset:
                self._error(
                    f"{after.base_offset:020d}{file_names.LOG}",
                    f"the previous segment ends with offset {before.end - 1}: offsets "
                    f"{before.end}-{after.base_offset - 1} are missing",
                )

    def _leftovers(self, listed: list[str]) -> None:
        for name in listed:
            if file_names.CORRUPT in name:
                self._warn(name, "records that a recovery moved out of the log")
            elif name.endswith((file_names.CLEANED, file_names.SWAP)):
                self._warn(name, "file of a compaction that is running or was interrupted")
            elif name.endswith((file_names.DELETED, file_names.TEMPORARY)) and self._clean:
                self._warn(name, "leftover file; the next start removes it")

    def _error(self, name: str, message: str) -> None:
        self._findings.append(Finding(Severity.ERROR, f"{self._place.path}/{name}", None, message))

    def _warn(self, name: str, message: str) -> None:
        path = f"{self._place.path}/{name}" if name else self._place.path
        self._findings.append(Finding(Severity.WARNING, path, None, message))
