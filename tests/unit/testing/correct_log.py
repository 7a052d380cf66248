"""Histories of a correct Kafka: a log in memory, with transactions, copiers and readers."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field

from aiokq.testing import (
    Assign,
    Copy,
    EndTransaction,
    Final,
    Isolation,
    LastStable,
    ObservedOffsets,
    Offset,
    Offsets,
    Operation,
    Outcome,
    Poll,
    Polled,
    Send,
)

TOPICS = ("a", "b")


@dataclass
class Entry:
    """A record or a marker (no value) of a log."""

    value: str | None
    txn: str | None


@dataclass
class CorrectKafka:
    """A cluster with two topics of two partitions and an output topic, all correct.

    Each step is one operation of one process; transactions of several producers overlap.
    """

    random: random.Random
    history: list[Operation] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.now = 0
        self.values = 0
        self.logs: dict[tuple[str, int], list[Entry]] = defaultdict(list)
        for topic in (*TOPICS, "out"):
            for partition in range(2):
                self.logs[topic, partition] = []
        self.open: dict[str, str] = {}
        self.ended: dict[str, bool] = {}
        self.positions: dict[tuple[str, tuple[str, int]], int] = defaultdict(int)
        self.group: dict[tuple[str, int], int] = {}
        self.copied: dict[tuple[str, int], int] = defaultdict(int)
        self.transactions = 0

    def tick(self) -> int:
        self.now += 1
        return self.now

    def last_stable(self, partition: tuple[str, int]) -> int:
        for offset, entry in enumerate(self.logs[partition]):
            if entry.txn is not None and entry.value is not None and entry.txn not in self.ended:
                return offset
        return len(self.logs[partition])

    def begin(self, process: str) -> str:
        self.transactions += 1
        self.open[process] = f"{process}.{self.transactions}"
        return self.open[process]

    def send(
        self,
        process: str,
        partition: tuple[str, int],
        *,
        value: str | None = None,
        lost_reply: bool | None = None,
    ) -> Send:
        if value is None:
            self.values += 1
            value = f"v{self.values}"
        start = self.tick()
        txn = self.open.get(process)
        log = self.logs[partition]
        if lost_reply is None:
            lost_reply = self.random.random() < 0.1
        offset = len(log)
        if not lost_reply or self.random.random() < 0.5:
            log.append(Entry(value, txn))
        if lost_reply:
            send = Send(
                process, partition[0], value, Outcome.UNKNOWN, txn=txn, start=start, end=self.tick()
            )
        else:
            send = Send(
                process, partition[0], value, Outcome.OK, partition[1], offset, txn, start,
                self.tick(),
            )  # fmt: skip
        self.history.append(send)
        return send

    def end(self, process: str, commit: bool, *, lost_reply: bool = False) -> None:
        txn = self.open.pop(process)
        start = self.tick()
        # With a lost reply a commit may still be carried out; here its records stay or go.
        self.ended[txn] = commit and not (lost_reply and self.random.random() < 0.5)
        for log in self.logs.values():
            if any(entry.txn == txn and entry.value is not None for entry in log):
                log.append(Entry(None, txn))
        outcome = Outcome.UNKNOWN if lost_reply else Outcome.OK
        self.history.append(EndTransaction(process, txn, commit, outcome, start, self.tick()))

    def poll(
        self,
        process: str,
        partition: tuple[str, int],
        most: int = 3,
        isolation: Isolation = Isolation.READ_COMMITTED,
        txn: str | None = None,
    ) -> Poll | None:
        committed = isolation is Isolation.READ_COMMITTED
        log = self.logs[partition]
        end = self.last_stable(partition) if committed else len(log)
        start = self.tick()
        records = []
        offset = self.positions[process, partition]
        while offset < end and len(records) < most:
            entry = log[offset]
            if entry.value is not None and (
                not committed or entry.txn is None or self.ended[entry.txn]
            ):
                records.append(Polled(*partition, offset, entry.value))
            offset += 1
        self.positions[process, partition] = offset
        if not records:
            return None
        poll = Poll(process, tuple(records), isolation, None, txn, start, self.tick())
        self.history.append(poll)
        return poll

    def copy(self, number: int, commit: bool) -> None:
        """A copier of its own input partition: reads, sends the same values, commits offsets."""
        process = f"copier{number}"
        source = ("a", number)
        txn = self.begin(process)
        self.positions[process, source] = self.copied[source]
        self.history.append(Assign(process, (source,), self.tick(), self.tick()))
        poll = self.poll(process, source, txn=txn)
        for record in poll.records if poll else ():
            self.send(
                process, ("out", self.random.randrange(2)), value=record.value, lost_reply=False
            )
        position = self.positions[process, source]
        offsets = (Offset(*source, position),)
        if poll:
            self.history.append(
                Offsets(process, "copiers", offsets, Outcome.OK, txn, self.tick(), self.tick())
            )
        self.end(process, commit)
        if commit and poll:
            self.copied[source] = position

    def observe(self) -> None:
        start = self.tick()
        offsets = tuple(Offset(*each, offset) for each, offset in self.copied.items() if offset)
        self.history.append(ObservedOffsets("copiers", offsets, start, self.tick()))
        topic, partition = self.random.choice(list(self.logs))
        offset = self.last_stable((topic, partition))
        self.history.append(LastStable(topic, partition, offset, self.tick(), self.tick()))

    def step(self) -> None:
        chosen = self.random.random()
        anywhere = (self.random.choice(TOPICS), self.random.randrange(2))
        if chosen < 0.4:
            process = f"p{self.random.randrange(3)}"
            if process != "p0" and process not in self.open:
                self.begin(process)
            self.send(process, anywhere)
        elif chosen < 0.55 and self.open:
            self.end(
                self.random.choice(list(self.open)),
                self.random.random() < 0.7,
                lost_reply=self.random.random() < 0.1,
            )
        elif chosen < 0.75:
            self.poll(f"c{self.random.randrange(2)}", anywhere)
        elif chosen < 0.85:
            self.poll("u", anywhere, isolation=Isolation.READ_UNCOMMITTED)
        elif chosen < 0.95:
            self.copy(self.random.randrange(2), self.random.random() < 0.7)
        else:
            self.observe()

    def finish(self) -> None:
        for process in list(self.open):
            self.end(process, commit=True)
        for number in range(2):
            while self.copied["a", number] < self.last_stable(("a", number)):
                before = len(self.history)
                self.copy(number, commit=True)
                if not any(isinstance(each, Poll) for each in self.history[before:]):
                    break
        self.history.append(Copy("a", "out"))
        self.observe()
        for partition, log in self.logs.items():
            for reader in ("c0", "c1", "u"):
                level = Isolation.READ_UNCOMMITTED if reader == "u" else Isolation.READ_COMMITTED
                while self.poll(reader, partition, isolation=level) is not None:
                    pass
            end = len(log)
            self.history.append(Final(*partition, 0, end, end, self.tick(), self.tick()))


def correct_history(seed: int, steps: int = 60) -> list[Operation]:
    """Return the history of a correct cluster.

    Transactions p1.1 and p1.2 are committed and p1.3 is aborted; each has a record in b-0 and b-1.
    """
    kafka = CorrectKafka(random.Random(seed))
    for commit in (True, True, False):  # transactions p1.1, p1.2 and p1.3
        kafka.begin("p1")
        for partition in range(2):
            kafka.send("p1", ("b", partition), lost_reply=False)
        kafka.end("p1", commit)
    for partition in (("a", 0), ("a", 1), ("b", 0)):
        kafka.send("p0", partition, lost_reply=False)
        kafka.send("p0", partition, lost_reply=False)
        kafka.send("p0", partition, lost_reply=False)
    for _ in range(steps):
        kafka.step()
    kafka.finish()
    return kafka.history
