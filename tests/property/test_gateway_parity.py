"""Both cores of the gateway agree on any bytes and any order of calls."""

from __future__ import annotations

import random
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokq.fastpath import gateway
from tests import cores
from tests.gateway_messages import NOW, encode

pytestmark = [
    pytest.mark.build_independent,
    pytest.mark.skipif(not cores.BUILT, reason="the compiled core is not built"),
]

TOPICS = [b"a", b"b", b"orders", b"no name", b"..", b"t" * 249]
numbers = st.sampled_from([0, 1, 2, 255, 256, 257, 32767, (1 << 31) - 1, -1, -(1 << 31)])
timestamps = st.one_of(
    st.integers(NOW - 50, NOW + 50), st.sampled_from([0, -1, (1 << 63) - 1, -(1 << 63)])
)


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """A message, mostly a correct one."""
    options: dict[str, Any] = {}
    if draw(st.integers(0, 5)) == 0:
        wrong = draw(
            st.sampled_from(
                ["size", "api_key", "version", "flags", "topic_size", "key_size", "value_size"]
            )
        )
        bits = 31 if wrong in ("size", "key_size", "value_size") else 15
        options[wrong] = max(-(1 << bits), min(draw(numbers), (1 << bits) - 1))
        if wrong == "size" and draw(st.booleans()):
            del options["size"]
            options["tail"] = draw(st.binary(max_size=3))
    return encode(
        draw(st.sampled_from(TOPICS)),
        draw(st.one_of(st.binary(max_size=12), st.integers(0, 900).map(lambda size: b"v" * size))),
        draw(st.binary(max_size=6)),
        timestamp=draw(timestamps),
        partition_key=draw(st.one_of(st.none(), st.integers(0, (1 << 32) - 1))),
        **options,
    )


limits = st.fixed_dictionaries(
    {},
    optional={
        "batch_messages": st.integers(0, 5),
        "batch_bytes": st.integers(0, 60),
        "batch_ms": st.integers(-1, 30),
        "max_message_bytes": st.integers(-1, 40),
        "rate_interval_ms": st.sampled_from([0, 10, 25]),
        "rate_max_messages": st.integers(-1, 4),
    },
)
topics = st.sampled_from(TOPICS[:3])
steps = st.one_of(
    st.tuples(st.just("feed"), st.lists(messages(), max_size=8), st.integers(0, 40)),
    st.tuples(st.just("move"), st.integers(0, 40)),
    st.tuples(st.just("register"), topics, limits),
    st.tuples(st.just("take"), topics, st.booleans()),
    st.tuples(st.just("due")),
    st.tuples(st.just("discard"), topics, st.booleans()),
    st.tuples(st.just("forget"), topics),
    st.tuples(st.just("names"), st.integers(1, 3)),
)


def rows(taken: Any) -> list[Any]:
    """Everything that a Taken tells."""
    found: list[Any] = [[taken.message(n) for n in range(taken.count)]]
    found += [list(taken.sequences()), taken.timestamps(), taken.oldest_ms]
    found += [taken.count, taken.charge, taken.size, taken.batches(2, 0), taken.batches(0, 20)]
    part = taken.select(range(0, taken.count, 2))
    found += [[part.message(n) for n in range(part.count)], part.charge]
    for options in (
        {},
        {"partitions": 7, "usable": b"\1\0\1\1\0\0\1", "null_keys": True, "null_values": True},
        {"partitions": 1, "earliest_ms": NOW - 10, "latest_ms": NOW + 10},
    ):
        columns = taken.columns(**options)
        found.append(
            {
                name: [None if part is None else bytes(part) for part in column]
                for name, column in columns.items()
            }
        )
    return found


class Side:
    """One of the two cores."""

    def __init__(self, core: Any, options: dict[str, Any]) -> None:
        options = dict(options)
        per_s = options.pop("limit_whole", 0)
        self.pool = core.Pool(20_000, sample_bytes=40, max_topic_names=2, **options)
        self.pool.limit_whole(per_s)
        self.mono, self.wall = 1_000_000, NOW
        self.pool.set_clock(self.mono, self.wall)
        self.slots: dict[bytes, int] = {}
        self.rest = b""

    def step(self, name: str, *given: Any) -> Any:
        return getattr(self, name)(*given)

    def feed(self, sent: list[bytes], cut: int) -> Any:
        data = self.rest + b"".join(sent)
        whole, self.rest = data[: len(data) - cut], data[len(data) - cut :] if cut else b""
        read = self.pool.feed(whole, max_message_bytes=850)
        self.rest = whole[read:] + self.rest
        return read

    def move(self, ms: int) -> None:
        self.mono += ms
        self.wall += ms
        self.pool.set_clock(self.mono, self.wall)

    def register(self, topic: bytes, limits: dict[str, int]) -> int:
        slot = self.slots[topic] = self.pool.register(topic, **limits)
        return slot

    def take(self, topic: bytes, flush: bool) -> Any:
        if topic not in self.slots:
            return None
        found = []
        while (taken := self.pool.take(self.slots[topic], flush=flush)) is not None:
            found.append(rows(taken))
            self.pool.release(taken.count, taken.charge)
        # The sizes of chunks differ: only what they contain is compared.
        return [message for chunk in found for message in chunk[0]], (
            found[0] if len(found) == 1 else None
        )

    def due(self) -> Any:
        slots, wait = self.pool.due()
        return sorted(slots), wait

    def discard(self, topic: bytes, take: bool) -> Any:
        if not take:
            return self.pool.discard_unresolved(topic, gateway.AUTOCREATE_FAILED)
        found = []
        while (taken := self.pool.take_unresolved(topic)) is not None:
            found += [taken.message(n) for n in range(taken.count)]
            self.pool.release(taken.count, taken.charge)
        return found

    def forget(self, topic: bytes) -> Any:
        if topic not in self.slots:
            return None
        slot = self.slots.pop(topic)
        self.pool.forget(slot)
        found = []
        while (taken := self.pool.take(slot)) is not None:
            found += [taken.message(n) for n in range(taken.count)]
            self.pool.release(taken.count, taken.charge)
        return found

    def names(self, limit: int) -> Any:
        return self.pool.unresolved(limit)


@settings(deadline=None, max_examples=300)
@given(
    st.lists(steps, max_size=40),
    st.sampled_from(
        [
            {},
            {"refused_bytes": 2000, "refused_reasons": [gateway.TOO_LONG, gateway.MALFORMED]},
            {
                "refused_bytes": 2000,
                "refused_reasons": [gateway.TOO_LONG, gateway.MALFORMED, gateway.BAD_TOPIC],
                "refused_whole": [gateway.TOO_LONG],
                "refused_prefix": 9,
                "refused_per_s": 4,
                "limit_whole": 3,
            },
            {"topic_share": 1},
        ]
    ),
)
def test_both_cores_do_the_same(
    given_steps: list[tuple[Any, ...]], options: dict[str, Any]
) -> None:
    """Counts, samples, refused messages and all that is taken, after each call."""
    compiled, pure = (Side(core, options) for core in cores.cores())
    for step in given_steps:
        one, other = compiled.step(*step), pure.step(*step)
        if isinstance(one, tuple) and len(one) == 2 and step[0] == "take":
            assert one[0] == other[0], step
            if one[1] is not None and other[1] is not None:
                assert one[1] == other[1], step
        else:
            assert one == other, step
        assert compiled.pool.counts(topics=True) == pure.pool.counts(topics=True), step
        assert compiled.pool.samples() == pure.pool.samples(), step
    assert compiled.pool.refused() == pure.pool.refused()
    assert compiled.pool.counts() == pure.pool.counts()


def stream(seed: int) -> list[list[bytes]]:
    """What some connections send, in pieces."""
    rng = random.Random(seed)
    connections = []
    for _ in range(4):
        data = bytearray()
        for _ in range(30):
            message = bytearray(
                encode(
                    rng.choice(TOPICS),
                    rng.randbytes(rng.choice([0, 5, 300, 5000])),
                    rng.randbytes(rng.randrange(5)),
                )
            )
            if rng.random() < 0.15:
                message[rng.randrange(4, 12)] ^= 1 << rng.randrange(8)
            data += message
        if rng.random() < 0.5:
            data += rng.choice([b"\0\0\0\1", b"\x7f\0\0\0", encode()[:-1], b"\0"])
        pieces = []
        while data:
            size = rng.choice([1, 3, 50, 4000, 100_000])
            pieces.append(bytes(data[:size]))
            del data[:size]
        connections.append(pieces)
    return connections


@pytest.mark.parametrize("seed", range(12))
def test_both_cores_read_streams_alike(seed: int) -> None:
    """Each connection sends valid and damaged messages, cut anywhere."""
    results = []
    for core in cores.cores():
        pool = core.Pool(1 << 24, sample_bytes=4)
        slots = [pool.register(topic) for topic in TOPICS[:3]]
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listening:
            path = str(Path(folder) / "s")
            listening.bind(path)
            listening.listen()
            intake = core.Intake(pool, listening.fileno(), "unix_stream", max_message_bytes=100_000)
            intake.start()
            for pieces in stream(seed):
                with socket.socket(socket.AF_UNIX) as client:
                    client.connect(path)
                    try:
                        for piece in pieces:
                            client.sendall(piece)
                        client.shutdown(socket.SHUT_WR)
                        client.recv(1)
                    except OSError:
                        pass  # the input closed the connection for a fault of the framing
                end = time.monotonic() + 20
                while intake.counts().connections and time.monotonic() < end:
                    time.sleep(0.001)
            intake.stop(drain_ms=2000)
            found = []
            for slot in slots:
                while (taken := pool.take(slot)) is not None:
                    found += [taken.message(n)[:3] for n in range(taken.count)]
            samples = [(sample.reason, sample.transport, sample.data) for sample in pool.samples()]
            results.append((intake.counts(), pool.counts().discarded, found, samples))
    assert results[0] == results[1]
