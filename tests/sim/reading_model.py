"""A model of reading a damaged log: what is delivered, and what may be committed.

It knows only offsets, no bytes, fetches or cursors. docs/reference/unreadable-records.md has the
same rules as a table.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

END = 8
BATCHES = (0, 2, 6)
"""The base offsets of the log's batches."""

Outcome = tuple[Any, ...]
NOTHING: Outcome = ("nothing",)
OVER: Outcome = ("over",)


class Damage(NamedTuple):
    """A batch of the log that is unreadable from one of its offsets on."""

    kind: str
    offset: int
    beyond: int


DAMAGES = {
    "crc": Damage("crc", 2, 6),
    "decompress": Damage("decompress", 2, 6),
    "truncated": Damage("truncated", 4, 6),
}


@dataclass
class Log:
    """A log with the offsets 0 to 7.

    Attributes:
        poison: offsets of the records whose deserializer raises.
    """

    poison: frozenset[int] = frozenset()
    damage: Damage | None = None

    def at(self, offset: int) -> Outcome:
        """Return the result of reading the record at `offset`."""
        if self.damaged(offset, offset + 1) is not None:
            return ("corrupt", offset)
        return ("poison" if offset in self.poison else "record", offset)

    def damaged(self, start: int, stop: int) -> int | None:
        """Return the first unreadable offset from `start` to before `stop`, or None."""
        if self.damage is None:
            return None
        at = max(start, self.damage.offset)
        return at if at < min(stop, self.damage.beyond) else None

    @property
    def headers_are_right(self) -> bool:
        """Whether the checksums are valid, so that only decoding finds the damage."""
        return self.damage is None or self.damage.kind != "crc"

    def good(self) -> list[int]:
        """Return the offsets of all readable records."""
        damaged = range(self.damage.offset, self.damage.beyond) if self.damage else range(0)
        return [n for n in range(END) if n not in self.poison and n not in damaged]


@dataclass
class Iteration:
    at: int
    stop: int
    decoded: bool = False
    over: bool = False


@dataclass
class Batch:
    """A batch that was delivered to the reader."""

    log: Log
    base: int
    end: int
    iterations: list[Iteration] = field(default_factory=list)
    resume: int = 0
    stopped: int | None = None
    corrupt: int | None = None
    raised: set[int] = field(default_factory=set)
    given: bool = False
    cut: int | None = None
    left_out: set[int] = field(default_factory=set)
    """Offsets for which `records` has raised, while the end of the batch stayed the same."""
    left_out_to: int | None = None
    decoded: list[int] | None = None
    """The final result of `records`."""

    @property
    def reached(self) -> int:
        return max((one.at for one in self.iterations), default=self.base)

    @property
    def position(self) -> int:
        if self.cut is not None:
            return self.cut
        if self.given:
            return self.end
        if self.corrupt is not None:
            return min(self.reached, self.corrupt)
        return self.end if self.stopped is None or self.reached > self.stopped else self.stopped

    @property
    def stop(self) -> int:
        stops = (self.cut, self.corrupt, self.end)
        return next(stop for stop in stops if stop is not None)

    def iterate(self) -> Iteration:
        if self.decoded is not None:
            return Iteration(0, len(self.decoded), decoded=True)
        start, self.resume = self.resume, 0
        one = Iteration(max(self.base, start), self.stop)
        if any(other.at >= self.end for other in self.iterations) and self.stop == self.end:
            self.given = True
        self.iterations.append(one)
        return one

    def step(self, one: Iteration) -> Outcome:
        """Return the next record of an iteration."""
        if one.at >= one.stop or one.over:
            return OVER
        if one.decoded:
            assert self.decoded is not None
            one.at += 1
            return ("record", self.decoded[one.at - 1])
        outcome = self.log.at(one.at)
        if outcome[0] == "corrupt":
            self.corrupt = one.at
            one.over = True
            if one is self.iterations[-1]:
                self.resume = max(self.resume, one.at)
            return outcome
        one.at += 1
        if outcome[0] == "poison":
            self.raised.add(one.at - 1)
            self.resume = max(self.resume, one.at)
            if one.at >= self.reached:
                self.stopped = one.at
        return outcome

    def all_records(self) -> Outcome:
        """The result of `records`."""
        if self.decoded is not None:
            return ("records", self.decoded)
        stop = self.stop
        if self.left_out_to != stop:
            self.left_out, self.left_out_to = set(), stop
        found = []
        for offset in range(self.base, stop):
            outcome = self.log.at(offset)
            if outcome[0] == "corrupt":
                self.corrupt = offset
                return outcome
            if outcome[0] == "record":
                found.append(offset)
            elif offset not in self.left_out:
                self.left_out.add(offset)
                self.raised.add(offset)
                self.stopped = self.reached
                return outcome
        self.decoded = found
        self.whole(stop)
        return ("records", found)

    def arrow(self) -> Outcome:
        """The result of `to_arrow`, which does not deserialize."""
        stop = self.stop
        damaged = self.log.damaged(self.base, stop)
        if damaged is not None:
            self.corrupt = damaged
            return ("corrupt", damaged)
        self.whole(stop)
        return ("records", list(range(self.base, stop)))

    def whole(self, stop: int) -> None:
        if stop == self.end:
            self.given = True
        else:
            self.iterations.append(Iteration(stop, stop))


@dataclass
class Piece:
    """A range of offsets that is read next.

    Attributes:
        fresh: whether the data was not examined since the fetch: headers are known, damage is not.
        back: whether the reader gave the data back: only its first batch is examined then.
    """

    start: int
    stop: int
    fresh: bool
    back: bool = False


class Model:
    """One partition and one reader.

    Attributes:
        position: the offset of the next record to deliver.
        work: the first unfinished offset; None if there is none.
        batch: the batch in work.
    """

    def __init__(self, log: Log, start: int = 0, *, explicit: bool = False) -> None:
        self.log = log
        self.explicit = explicit
        self.at = 0
        self.pieces: list[Piece] = []
        self.rests = False
        self.paused = False
        self.work: int | None = None
        self.batch: Batch | None = None
        self.holes: set[int] = set()
        self.open: dict[int, int | None] = {}
        self._go(start)

    def _go(self, offset: int) -> None:
        self.at = offset
        self.pieces = [Piece(offset, END, offset in BATCHES)] if offset < END else []
        self.rests = False
        self.holes = set()
        self.batch = None
        self.open = {}

    # -- committed offsets

    @property
    def position(self) -> int:
        at = self.at if self.batch is None else min(self.at, self.batch.position)
        return self.same(at)

    @property
    def finished(self) -> int:
        """Return the offset that an automatic commit may use."""
        if self.explicit:
            for unit, left in self.open.items():
                return self.same(unit if left is None else left)
            return self.position
        return self.position if self.work is None else self.same(self.work)

    @property
    def handed(self) -> int:
        """Return the offset that commit() uses."""
        return self.finished if self.explicit else self.position

    def same(self, offset: int) -> int:
        """Return `offset`, or the offset after it if records there were raised as errors."""
        while offset in self.holes:
            offset += 1
        return offset

    # -- calls of the reader

    def ask(self) -> None:
        """Finish the delivered records, because more are requested."""
        self.work = None
        batch, self.batch = self.batch, None
        if batch is None or batch.position >= batch.end:
            return
        position = batch.cut = batch.position
        if position == batch.base or self.open.get(batch.base) == position:
            self.open.pop(batch.base, None)
        end = batch.end if batch.corrupt is None else batch.corrupt
        back, at = [], position
        for hole in sorted(batch.raised):
            if hole >= at:
                back.append(Piece(at, hole, fresh=False, back=True))
                at = hole + 1
                self.holes.add(hole)
        back.append(Piece(at, end, fresh=False, back=True))
        if batch.corrupt is not None:
            self.pieces, self.rests = [], True
        self.pieces = [piece for piece in back if piece.start < piece.stop] + self.pieces
        self.at = self.pieces[0].start if self.pieces else position
        if self.rests and not self.pieces:
            self.at = end

    def seek(self, offset: int) -> None:
        self._go(offset)

    def one(self) -> Outcome:
        """The result of a request for one record."""
        self.ask()
        return self._one()

    def many(self, limit: int) -> Outcome:
        """The result of `getmany`."""
        self.ask()
        before = self.at
        found: list[int] = []
        while len(found) < limit and self._piece() is not None:
            if found and self.log.at(self.at)[0] != "record":
                break
            outcome = self._one()
            if outcome[0] != "record":
                return outcome
            found.append(outcome[1])
            self.work = before
        return ("records", found) if found else NOTHING

    def next_batch(self) -> Outcome:
        """The result of `batches`: the first offset of the batch, and its end."""
        self.ask()
        piece = self._piece()
        if piece is None:
            return NOTHING
        base, stop = self.at, piece.stop
        damaged = self.log.damaged(base, stop)
        by_headers = piece.fresh and base == piece.start and self.log.headers_are_right
        if damaged is not None and not by_headers:
            if base == damaged:
                return self._one()
            if not piece.back:
                stop = damaged
        self.at, self.work = stop, base
        self._drop_if_read(piece)
        self.batch = Batch(self.log, base, stop)
        self._open(base, base)
        return ("batch", base, stop)

    def ack(self, what: int | Batch) -> None:
        """Acknowledge a record, by its offset, or a batch."""
        if isinstance(what, int):
            if what in self.open and self.open[what] is None:
                del self.open[what]
            return
        batch = what
        if self.open.get(batch.base) is None or (batch.cut == batch.base):
            return
        if batch.position < (batch.end if batch.cut is None else batch.cut):
            self.open[batch.base] = batch.position
        else:
            del self.open[batch.base]

    def close(self, *, normal: bool) -> None:
        """End reading."""
        if normal:
            self.ask()

    # -- inside

    def _piece(self) -> Piece | None:
        if self.paused or not self.pieces:
            return None
        self.at = max(self.at, self.pieces[0].start)
        return self.pieces[0]

    def _drop_if_read(self, piece: Piece) -> None:
        if self.at >= piece.stop:
            self.pieces.remove(piece)

    def _open(self, offset: int, left: int | None) -> None:
        if self.open and offset <= max(self.open):
            self.open = {}
        self.open[offset] = left

    def _one(self) -> Outcome:
        piece = self._piece()
        if piece is None:
            return NOTHING
        outcome = self.log.at(self.at)
        if outcome[0] == "corrupt":
            self.pieces, self.rests = [], True
            return outcome
        self.work = self.at
        self._open(self.at, None)
        self.at += 1
        self._drop_if_read(piece)
        return outcome
