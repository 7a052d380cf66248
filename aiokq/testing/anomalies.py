"""The kinds of anomalies that `check` finds, with definitions, verdicts and reasons."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from aiokq.testing.history import Operation

__all__ = ["Anomaly", "AnomalyKind"]


class _Definition(NamedTuple):
    name: str
    condemned: bool
    definition: str
    why: str


class AnomalyKind(Enum):
    """The kinds of anomalies, each with a definition, a verdict and its reason."""

    LOST_WRITE = _Definition(
        "lost-write",
        True,
        "A record was acknowledged (and its transaction committed), a consumer read past its "
        "offset, and no consumer read it. A consumer reads past the offsets from its first record "
        "(or the position that it sought) to its last record. If the history says that the "
        "partition was read to the end, a consumer reads past all offsets below its last record.",
        "An acknowledged record is in the log until retention removes it.",
    )
    UNSEEN = _Definition(
        "unseen",
        True,
        "A record was acknowledged (and its transaction committed), no consumer read it or past "
        "it, and the history says that the partition was read to the end. Without the record's "
        "offset, the partition must have been read from offset 0; without its partition, each "
        "partition of the topic in the history.",
        "An acknowledged record is in the log until retention removes it.",
    )
    DUPLICATE = _Definition(
        "duplicate",
        True,
        "A value was read at more offsets than it was sent, leaving out attempts that failed or "
        "were aborted.",
        "An idempotent producer's record is appended once, however often it is sent again.",
    )
    INCONSISTENT_OFFSETS = _Definition(
        "inconsistent-offsets",
        True,
        "Two values were read or acknowledged at the same offset of a partition, or a value was "
        "acknowledged at one offset and read only at others.",
        "A committed offset identifies one record for ever.",
    )
    ABORTED_READ = _Definition(
        "aborted-read",
        True,
        "G1a: a read_committed consumer read a record of an aborted transaction, or any consumer "
        "read a record whose send certainly failed.",
        "read_committed leaves out the records of aborted transactions.",
    )
    CIRCULAR_FLOW = _Definition(
        "circular-flow",
        True,
        "G1c over read dependencies: transactions form a circle in which each transaction read, at "
        "read_committed, a record that the previous transaction wrote.",
        "A record is read after its transaction was committed, and a transaction is committed "
        "after its reads.",
    )
    TORN_TRANSACTION = _Definition(
        "torn-transaction",
        True,
        "A read_committed consumer read one record of a transaction, and another acknowledged "
        "record of it was read by nobody although a consumer read past it, or to the end.",
        "The records of a transaction become visible together, or not at all.",
    )
    PRECOMMITTED_READ = _Definition(
        "precommitted-read",
        True,
        "A read_committed poll returned a record before the commit of its transaction was called.",
        "read_committed returns records of committed transactions only.",
    )
    NONMONOTONIC_POLL = _Definition(
        "nonmonotonic-poll",
        True,
        "Within one assignment and without a seek, a consumer got an offset that is not above all "
        "offsets that it got before.",
        "A consumer's position in a partition only moves forward.",
    )
    SKIPPING_POLL = _Definition(
        "skipping-poll",
        True,
        "Within one assignment and without a seek, a consumer passed over a record that another "
        "consumer of the same isolation level read.",
        "A consumer gets every record from its position on.",
    )
    NONMONOTONIC_SEND = _Definition(
        "nonmonotonic-send",
        True,
        "Of two records that one producer sent to a partition one after the other, the later one "
        "was acknowledged with a lower offset.",
        "An idempotent producer keeps the order of its records in a partition.",
    )
    OFFSETS_APART = _Definition(
        "offsets-apart",
        True,
        "Only aborted transactions or failed commits set a group's committed offset, or a later "
        "commit had replaced the offset, or no commit set the offset although the history says "
        "that it has all commits of the group.",
        "The offsets of a transaction are committed with its records, or not at all.",
    )
    COPY = _Definition(
        "copy",
        True,
        "A committed record of a copier's input has several copies in the output, or no copy at "
        "the end. Or a record of the output is a copy of an aborted or failed record, or of no "
        "record of an input that was read from offset 0 to its end.",
        "The copier reads committed records, and the copy and the offset of its input are one "
        "transaction.",
    )
    PAST_LAST_STABLE = _Definition(
        "past-last-stable",
        True,
        "A read_committed poll returned a record whose offset is not below a last stable offset "
        "that was requested after the poll.",
        "read_committed ends at the last stable offset, which never goes back.",
    )
    HANGING_TRANSACTION = _Definition(
        "hanging-transaction",
        True,
        "At the end the last stable offset of a partition is below its end.",
        "Every transaction ends: its producer ends it, or its timeout does.",
    )
    WRITE_CYCLE = _Definition(
        "write-cycle",
        False,
        "G0: the records of transactions precede each other in a circle in the logs.",
        "Kafka does not isolate writes: records of open transactions are appended as they come.",
    )
    SEND_SKIP = _Definition(
        "send-skip",
        False,
        "Between two records of a transaction in a partition there are records of others.",
        "Kafka does not isolate writes: producers append between each other's records.",
    )
    CIRCULAR_WRITE_FLOW = _Definition(
        "circular-write-flow",
        False,
        "G1c: read dependencies and the order of writes in the logs form a circle of transactions.",
        "Kafka does not isolate writes, so a record may precede those of an earlier transaction.",
    )
    REBALANCE_SKIP = _Definition(
        "rebalance-skip",
        False,
        "Between two assignments a consumer passed over records that other consumers read, and no "
        "other member of its group read them.",
        "After a rebalance a consumer continues at committed offsets, which another member may "
        "have committed without reading in this history.",
    )
    UNSET_OFFSETS = _Definition(
        "unset-offsets",
        False,
        "A group's committed offset is one that no recorded commit set, although the history has "
        "commits of the group for that partition.",
        "A killed recorder does not record its commits in flight, and other clients may commit for "
        "the group; `all_commits` in the history excludes both.",
    )
    UNSENT = _Definition(
        "unsent",
        False,
        "A value was read that nobody sent to this topic, although the history has sends to it.",
        "A killed recorder does not record its sends in flight, and other clients may write to the "
        "topic.",
    )

    def __str__(self) -> str:
        return self.value.name

    @property
    def condemned(self) -> bool:
        """Whether Kafka guarantees that the anomaly does not happen."""
        return self.value.condemned

    @property
    def definition(self) -> str:
        """The definition of the anomaly."""
        return self.value.definition

    @property
    def why(self) -> str:
        """The guarantee of Kafka that the anomaly breaks, or why Kafka has no such guarantee."""
        return self.value.why


class Anomaly(NamedTuple):
    """An anomaly, with the operations that show it."""

    kind: AnomalyKind
    message: str
    operations: tuple[Operation, ...]
