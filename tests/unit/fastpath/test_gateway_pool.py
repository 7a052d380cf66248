"""Pool and Taken of the gateway: both builds, rule by rule."""

from __future__ import annotations

import gc
import itertools
import os
import struct
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from aiokq.fastpath import gateway
from aiokq.fastpath.gateway.pure_pool import OPEN_OVERHEAD
from aiokq.fastpath.gateway.values import NAME_BYTES
from tests.forking import in_child, needs_fork
from tests.gateway_messages import EXAMPLES, NOW, encode, vectors

OVERHEAD = gateway.Pool.MESSAGE_OVERHEAD
MIB = 1 << 20
START = 5_000_000  # monotonic milliseconds


class Bench:
    """A pool whose clock stands still until it is moved."""

    def __init__(self, core: SimpleNamespace, max_bytes: int = MIB, **options: Any) -> None:
        self.wake, self._end = os.pipe()
        os.set_blocking(self.wake, False)
        self.pool = core.Pool(max_bytes, wake_fd=self._end, **options)
        self.core = core
        self.mono, self.wall = START, NOW
        self.pool.set_clock(START, NOW)
        self.drained: list[Any] = []

    def move(self, ms: int, wall: int | None = None) -> None:
        self.mono += ms
        self.wall += ms if wall is None else wall
        self.pool.set_clock(self.mono, self.wall)

    def woken(self) -> bool:
        try:
            return len(os.read(self.wake, 64)) == 8
        except BlockingIOError:
            return False

    def feed(self, *messages: bytes, **options: Any) -> int:
        return self.pool.feed(b"".join(messages), **options)

    def take(self, slot: int, *, flush: bool = False) -> list[Any]:
        """The messages of all chunks that are due, released at once."""
        found = []
        while (taken := self.pool.take(slot, flush=flush)) is not None:
            assert taken.count == len(taken) > 0
            assert taken.slot == slot
            found += [taken.message(n) for n in range(taken.count)]
            assert taken.charge == taken.size + taken.count * OVERHEAD
            self.pool.release(taken.count, taken.charge)
        return found

    def values(self, slot: int, *, flush: bool = False) -> list[bytes]:
        return [message.value for message in self.take(slot, flush=flush)]

    def due(self) -> list[int]:
        return sorted(self.pool.due()[0])

    def discarded(self) -> dict[str, int]:
        counts = self.pool.counts()
        return {name: n for name, n in zip(gateway.REASONS, counts.discarded, strict=True) if n}

    def close(self) -> None:
        self.pool.close()
        os.close(self.wake)
        os.close(self._end)


@pytest.fixture
def benches(core: SimpleNamespace) -> Iterator[Any]:
    made = []

    def make(max_bytes: int = MIB, **options: Any) -> Bench:
        made.append(Bench(core, max_bytes, **options))
        return made[-1]

    yield make
    for bench in made:
        bench.close()


@pytest.fixture
def bench(benches: Any) -> Bench:
    return benches()  # type: ignore[no-any-return]


# ---------------------------------------------------------------- the format


@pytest.mark.parametrize(("text", "topic", "key", "value", "partition_key"), EXAMPLES)
def test_the_golden_examples(
    bench: Bench, text: str, topic: str, key: str, value: str, partition_key: int | None
) -> None:
    """Point 1: byte-exact vectors of Bruce's and Dory's C libraries."""
    data = bytes.fromhex(text.replace(" ", ""))
    assert data == encode(topic.encode(), value.encode(), key.encode(), partition_key=partition_key)
    assert bench.feed(data) == len(data)
    assert bench.pool.unresolved() == [(topic.encode(), 1)]
    (message,) = bench.take(bench.pool.register(topic.encode()))
    assert message == (key.encode(), value.encode(), NOW, NOW, partition_key, 0)


def test_the_golden_vectors_are_decoded_to_the_byte(benches: Any) -> None:
    """The limits of all fields; names that Kafka does not allow are counted, and not malformed."""
    bench = benches(64 * MIB)
    bad = 0
    for data, topic, key, value, timestamp_ms, partition_key in vectors():
        assert bench.feed(data, max_message_bytes=32 * MIB) == len(data)
        if len(topic) > 249 or topic == b"\xff":
            bad += 1
            continue
        (message,) = bench.take(bench.pool.register(topic))
        assert message[:5] == (key, value, timestamp_ms, NOW, partition_key)
    assert bench.discarded() == {"bad_topic": bad}


MALFORMED = {
    "flags": encode(flags=1),
    "negative flags": encode(flags=-1),
    "empty topic": encode(b""),
    "negative topic size": encode(topic_size=-1),
    "topic size 0": encode(topic_size=0),
    "topic beyond the end": encode(topic_size=32767),
    "topic up to the end": encode(topic_size=1 + 8 + 4 + 4),
    "negative key size": encode(key_size=-1),
    "smallest key size": encode(key_size=-(1 << 31)),
    "key beyond the end": encode(key_size=1),
    "largest key size": encode(key_size=(1 << 31) - 1),
    "negative value size": encode(value_size=-1),
    "value beyond the end": encode(value_size=1),
    "largest value size": encode(value_size=(1 << 31) - 1),
    "value before the end": encode(value=b"ab", value_size=1),
    "trailing byte": encode(tail=b"x"),
    "5 bytes": struct.pack(">ib", 5, 0),
    "7 bytes": struct.pack(">ihb", 7, 256, 0),
    "8 bytes": struct.pack(">ihh", 8, 256, 0),
    "no room for the key of a partition": struct.pack(">ihhh", 10, 257, 0, 0),
    "4 bytes": struct.pack(">i", 4),
    "a PartitionKey message as AnyPartition": encode(partition_key=7, api_key=256),
    "an AnyPartition message as PartitionKey": encode(api_key=257),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_messages_are_counted_and_the_next_one_is_read(bench: Bench, name: str) -> None:
    """Points 8 and 14."""
    data = MALFORMED[name]
    assert bench.feed(data, encode(value=b"next")) == len(data) + len(encode(value=b"next"))
    assert bench.discarded() == {"malformed": 1}
    assert bench.values(bench.pool.register(b"t")) == [b"next"]
    (sample,) = bench.pool.samples()
    assert sample == (gateway.MALFORMED, gateway.TRANSPORTS.index("fed"), NOW, data[:256])


def test_every_prefix_of_a_message_is_malformed(bench: Bench) -> None:
    whole = encode(b"orders", b"value", b"key", partition_key=5)
    for size in range(4, len(whole)):
        bench.feed(struct.pack(">i", size) + whole[4:size])
    assert bench.discarded() == {"malformed": len(whole) - 4}
    assert len(bench.pool.samples()) == 25


def test_unknown_api_keys_and_versions_have_their_own_counters(bench: Bench) -> None:
    """Point 9; the API key is looked at first, the fields last."""
    for api_key in (258, 255, 0, -1, 32767):
        bench.feed(encode(api_key=api_key))
    bench.feed(encode(version=1), encode(version=1, flags=3), encode(version=-5))
    bench.feed(encode(api_key=258, version=1, flags=1))
    assert bench.discarded() == {"unsupported_api_key": 6, "unsupported_version": 3}
    assert bench.pool.counts().versions == {1: 2, -5: 1}


def test_made_up_versions_are_bounded(bench: Bench) -> None:
    for version in range(1, 1000):
        bench.feed(encode(version=version))
    assert bench.discarded() == {"unsupported_version": 999}
    assert len(bench.pool.counts().versions) == 64


@pytest.mark.parametrize(
    "timestamp", [0, 1, -1, NOW, (1 << 63) - 1, -(1 << 63), -(1 << 31), 1 << 32]
)
@pytest.mark.parametrize("partition_key", [None, 0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
def test_the_limits_of_numbers(bench: Bench, timestamp: int, partition_key: int | None) -> None:
    slot = bench.pool.register(b"t")
    bench.feed(encode(timestamp=timestamp, partition_key=partition_key))
    (message,) = bench.take(slot)
    assert (message.timestamp_ms, message.partition_key) == (timestamp, partition_key)


@pytest.mark.parametrize(("key", "value"), [(0, 0), (1, 0), (0, 1), (65_000, 3), (3, 700_000)])
def test_the_limits_of_sizes(benches: Any, key: int, value: int) -> None:
    bench = benches(4 * MIB)
    slot = bench.pool.register(b"t" * 249)
    bench.feed(encode(b"t" * 249, b"v" * value, b"k" * key))
    (message,) = bench.take(slot)
    assert (message.key, message.value) == (b"k" * key, b"v" * value)


@pytest.mark.parametrize("size", [3, 2, 0, -1, -(1 << 31)])
def test_an_impossible_size_ends_the_data(bench: Bench, size: int) -> None:
    """What follows cannot be read: a stream is closed."""
    data = encode(value=b"first") + struct.pack(">i", size) + encode(value=b"never")
    assert bench.feed(data) == len(data)
    assert bench.discarded() == {"malformed": 1}
    assert bench.values(bench.pool.register(b"t")) == [b"first"]


def test_a_message_above_the_limit_ends_the_data(bench: Bench) -> None:
    """Point 13: the messages before it are delivered."""
    data = encode(value=b"first") + struct.pack(">i", 105)
    assert bench.feed(data, max_message_bytes=100) == len(data)
    assert bench.feed(struct.pack(">i", 104), max_message_bytes=100) == 0
    assert bench.discarded() == {"malformed": 1}
    assert bench.values(bench.pool.register(b"t")) == [b"first"]


def test_an_incomplete_message_is_left_to_the_caller(bench: Bench) -> None:
    one, two = encode(value=b"1"), encode(value=b"2")
    assert bench.feed(one, two[:-1]) == len(one)
    assert bench.feed(b"") == bench.feed(two[:3]) == 0
    assert bench.feed(two) == len(two)
    assert bench.pool.counts().received == 2
    assert bench.pool.counts().received_bytes == len(one) + len(two)


# ---------------------------------------------------------------- topics


@pytest.mark.parametrize(
    "topic",
    [
        b".",
        b"..",
        b"a b",
        b"t\0",
        b"\xff\xfe",
        "gr\u00fc\u00df".encode(),
        b"t" * 250,
        b"t" * 32767,
        b'"',
        b"a/b",
    ],
)
def test_names_that_kafka_does_not_allow(bench: Bench, topic: bytes) -> None:
    bench.feed(encode(topic, b"v"))
    assert bench.discarded() == {"bad_topic": 1}
    assert bench.pool.unresolved() == []
    (sample,) = bench.pool.samples()
    assert (sample.reason, sample.data) == (gateway.BAD_TOPIC, topic[:256])
    assert bench.pool.counts().used_bytes == 0


def test_messages_of_an_unregistered_topic_move_in_order(bench: Bench) -> None:
    bench.feed(*(encode(b"ab"[n % 2 : n % 2 + 1], b"%d" % n) for n in range(10)))
    assert bench.pool.unresolved() == [(b"a", 5), (b"b", 5)]
    assert bench.pool.counts().unresolved == 10
    slot = bench.pool.register(b"a")
    bench.feed(encode(b"a", b"10"))
    assert bench.values(slot) == [b"0", b"2", b"4", b"6", b"8", b"10"]
    assert bench.pool.counts().unresolved == 5
    assert bench.pool.counts(topics=True).topics[slot][:3] == (b"a", 6, 0)


def test_a_name_is_reported_once(bench: Bench) -> None:
    assert bench.pool.unresolved() == []
    bench.feed(encode(b"a"), encode(b"b"), encode(b"c"))
    assert bench.woken()
    assert bench.pool.unresolved(2) == [(b"a", 1), (b"b", 1)]
    bench.feed(encode(b"a"))
    assert bench.pool.unresolved(2) == [(b"c", 1)]
    bench.pool.due()
    bench.feed(encode(b"a"))
    assert not bench.woken()
    assert bench.pool.unresolved() == []
    bench.feed(encode(b"d"), encode(b"e"))
    assert bench.woken()
    bench.pool.register(b"d")
    bench.pool.discard_unresolved(b"e", gateway.BAD_TOPIC)
    assert bench.pool.unresolved() == []


def test_topics_that_do_not_exist(bench: Bench) -> None:
    bench.feed(encode(b"a"), encode(b"a"), encode(b"b"))
    assert bench.pool.counts().names == 2
    assert bench.pool.discard_unresolved(b"a", gateway.BAD_TOPIC) == 2
    assert bench.pool.discard_unresolved(b"a", gateway.BAD_TOPIC) == 0
    assert bench.discarded() == {"bad_topic": 2}
    taken = bench.pool.take_unresolved(b"b")
    assert (taken.count, taken.slot) == (1, -1)
    assert bench.pool.take_unresolved(b"b") is None
    counts = bench.pool.counts()
    assert (counts.names, counts.unresolved, counts.held, counts.taken) == (0, 0, 1, 1)
    bench.pool.release(1, taken.charge)
    assert bench.pool.counts().used_bytes == 0
    assert [sample.data for sample in bench.pool.samples()] == [b"a", b"b"]
    bench.feed(encode(b"a"))
    assert bench.pool.unresolved() == [(b"a", 1)]
    with pytest.raises(ValueError, match="reason 99"):
        bench.pool.discard_unresolved(b"a", 99)


def test_made_up_topics_are_bounded(benches: Any) -> None:
    """100,000 names: neither memory nor reports grow with them."""
    bench = benches(4 * MIB, max_topic_names=1000)
    for n in range(100_000):
        bench.feed(encode(b"made-up-%d" % n))
        if n % 5000 == 4999:
            assert bench.pool.counts().names <= 1000
            while names := bench.pool.unresolved():
                for name, _ in names:
                    bench.pool.discard_unresolved(name, gateway.BAD_TOPIC)
    assert bench.discarded() == {"bad_topic": 100_000}
    counts = bench.pool.counts(topics=True)
    assert (counts.used_bytes, counts.names, counts.topics) == (0, 0, {})
    assert len(bench.pool.samples()) == 25


def test_counts_of_topics_leave_made_up_names_out(benches: Any) -> None:
    """Regression: each snapshot had an object for each of them."""
    bench = benches(max_topic_names=500)
    slot = bench.pool.register(b"real")
    bench.feed(encode(b"real"), *(encode(b"made-up-%d" % n) for n in range(400)))
    assert bench.pool.counts().names == 400
    assert bench.pool.counts(topics=True).topics.keys() == {slot}
    bench.feed(*(encode(b"made-up-%d" % n, value=bytes(MIB)) for n in range(100, 300)))
    topics = bench.pool.counts(topics=True).topics
    assert topics.pop(slot)[:3] == (b"real", 1, 1)
    assert sorted(topic.topic for topic in topics.values()) == sorted(
        b"made-up-%d" % n for n in range(100, 300)
    )
    assert {topic[1:3] + topic[4:7] for topic in topics.values()} == {(2, 1, 0, 0, 1)}


def test_counts_of_topics_while_others_are_ended(core: SimpleNamespace) -> None:
    """Regression: the names of topics that ended meanwhile were read after they were freed."""
    pool = core.Pool(MIB // 16)  # 25 names
    names = [b"n-%d-%d-" % (n, n * 7919 % 10007) + b"x" * (n * 37 % 200) for n in range(100)]
    data = b"".join(
        encode(name) + (encode(name, value=bytes(MIB // 16)) if n % 3 else b"")
        for n, name in enumerate(names)
    )

    def feed() -> None:
        for _ in range(200):
            assert pool.feed(data) == len(data)

    feeding = threading.Thread(target=feed)
    feeding.start()
    seen = 0
    while feeding.is_alive() or not seen:
        for topic in pool.counts(topics=True).topics.values():
            seen += 1
            _, number, check, rest = topic.topic.split(b"-")
            assert int(check) == int(number) * 7919 % 10007
            assert rest == b"x" * (int(number) * 37 % 200)
    feeding.join()
    pool.close()


def test_unregistered_topics_are_charged(benches: Any) -> None:
    """Their names take at most half of the pool; the others have the rest."""
    bench = benches(64 * 1024)
    for n in range(1000):
        bench.feed(encode(b"made-up-%d" % n))
    counts = bench.pool.counts()
    assert counts.names == 64 * 1024 // (2 * NAME_BYTES)
    assert counts.names * bench.pool.TOPIC_OVERHEAD < counts.used_bytes <= 32 * 1024
    assert bench.discarded() == {"bad_topic": 1000 - counts.names}
    slot = bench.pool.register(b"made-up-999")
    assert bench.pool.counts().names == counts.names - 1
    assert len(bench.take(slot)) == 1


def test_a_new_name_ends_the_one_of_the_oldest_message(benches: Any) -> None:
    bench = benches(max_topic_names=3)
    bench.feed(encode(b"a"), encode(b"b"), encode(b"c"), encode(b"a"), encode(b"d"))
    assert [name for name in (b"a", b"b", b"c", b"d") if bench.pool.waits(name)] == [
        b"a",
        b"c",
        b"d",
    ]
    assert bench.discarded() == {"bad_topic": 1}
    assert [sample.data for sample in bench.pool.samples()] == [b"b"]
    assert sorted(name for name, _ in bench.pool.unresolved()) == [b"a", b"c", b"d"]
    bench.feed(encode(b"b"))
    assert not bench.pool.waits(b"c")
    assert bench.pool.unresolved() == [(b"b", 1)]  # again, because it had been ended
    counts = bench.pool.counts()
    assert (counts.names, counts.held, counts.unresolved, counts.received) == (3, 4, 4, 6)
    slot = bench.pool.register(b"a")
    assert len(bench.take(slot)) == 2
    assert not bench.pool.waits(b"a")


def test_names_with_many_messages_stay(benches: Any) -> None:
    """A topic that is written to is more likely to exist than one with a single message."""
    bench = benches(max_topic_names=3)
    many, large = encode(b"many", b"v"), encode(b"large", b"v" * 20_000)
    bench.feed(*[many] * 65, large, encode(b"made-up"))
    for n in range(20):
        bench.feed(encode(b"made-up-%d" % n))
    assert bench.pool.waits(b"many")
    assert bench.pool.waits(b"large")
    assert bench.pool.waits(b"made-up-19")
    assert bench.discarded() == {"bad_topic": 20}
    bench.pool.discard_unresolved(b"made-up-19", gateway.BAD_TOPIC)
    other = encode(b"other", b"v")
    bench.feed(*[other] * 65, encode(b"last"))  # now all have many
    assert bench.pool.waits(b"other")
    assert not bench.pool.waits(b"last")
    assert bench.discarded() == {"bad_topic": 22}


def test_what_is_fed_waits_for_a_name(benches: Any) -> None:
    """A spool keeps it meanwhile, so no name is ended for it."""
    bench = benches(max_topic_names=2)
    sent = [encode(name) for name in (b"a", b"b", b"a", b"c", b"a")]
    assert bench.feed(*sent, stop_when_full=True) == sum(map(len, sent[:3]))
    assert bench.pool.counts().received == 3
    bench.pool.register(b"b")
    assert bench.feed(*sent[3:], stop_when_full=True) == sum(map(len, sent[3:]))
    assert bench.discarded() == {}


def test_messages_of_a_name_that_is_ended_are_handed_over(benches: Any) -> None:
    reasons = {"refused_reasons": (gateway.BAD_TOPIC,), "refused_whole": (gateway.BAD_TOPIC,)}
    bench = benches(max_topic_names=1, refused_bytes=10_000, **reasons)
    bench.feed(encode(b"a", b"1", b"k", partition_key=7), encode(b"a", b"2"), encode(b"b"))
    refused = bench.pool.refused()
    assert [(one.topic, one.key, one.value, one.partition_key) for one in refused] == [
        (b"a", b"k", b"1", 7),
        (b"a", b"", b"2", None),
    ]
    counts = bench.pool.counts()
    assert (counts.held, counts.received, sum(counts.discarded)) == (3, 3, 0)
    bench.pool.release(2, sum(one.charge for one in refused))
    assert bench.pool.counts().held == 1
    assert bench.pool.used_bytes() == OVERHEAD + bench.pool.TOPIC_OVERHEAD + 1


def test_bad_topics_are_sampled_once_each_the_newest_last(bench: Bench) -> None:
    for n in (*range(30), 29, 10):
        bench.feed(encode(b"bad %d" % n))
    names = [sample.data for sample in bench.pool.samples(clear=True)]
    assert names == [b"bad %d" % n for n in (*range(5, 10), *range(11, 30), 10)]
    assert bench.pool.samples() == []


def test_a_forgotten_topic_is_given_back_and_unregistered_again(bench: Bench) -> None:
    slot = bench.pool.register(b"t", batch_messages=100)
    bench.feed(encode(value=b"1"), encode(value=b"2"))
    bench.pool.forget(slot)
    bench.feed(encode(value=b"3"))
    assert bench.pool.unresolved() == [(b"t", 1)]
    assert bench.due() == [slot]
    assert bench.values(slot) == [b"1", b"2"]
    with pytest.raises(ValueError, match="not in use"):
        bench.pool.take(slot)
    again = bench.pool.register(b"t")
    assert bench.values(again) == [b"3"]
    bench.pool.forget(again)
    assert bench.pool.counts_of(again)[2:4] == (0, 0)
    assert bench.pool.take(again) is None
    with pytest.raises(ValueError, match="not in use"):
        bench.pool.counts_of(again)


def test_the_number_of_a_forgotten_topic_is_used_again(bench: Bench) -> None:
    slots = {bench.pool.register(b"%d" % n) for n in range(100)}
    assert len(slots) == 100
    for slot in slots:
        bench.pool.forget(slot)
        assert bench.pool.take(slot) is None
    assert {bench.pool.register(b"x%d" % n) for n in range(100)} == slots


def test_many_topics_are_found_again(bench: Bench) -> None:
    slots = {n: bench.pool.register(b"topic-%d" % n) for n in range(3000)}
    for n in range(0, 3000, 2):
        bench.pool.forget(slots.pop(n))
    assert {n: bench.pool.register(b"topic-%d" % n) for n in slots} == slots


# ---------------------------------------------------------------- batches


def test_without_limits_every_message_is_due_at_once(bench: Bench) -> None:
    """Point 22."""
    slot = bench.pool.register(b"t")
    assert bench.pool.due() == ([], None)
    bench.feed(encode(value=b"1"))
    assert bench.woken()
    assert bench.pool.due() == ([slot], None)
    assert bench.values(slot) == [b"1"]
    assert bench.pool.take(slot) is None


def test_the_number_of_messages_makes_a_batch(bench: Bench) -> None:
    slot = bench.pool.register(b"t", batch_messages=3)
    bench.feed(encode(value=b"1"), encode(value=b"2"))
    assert bench.pool.due() == ([], None)
    assert bench.pool.take(slot) is None
    assert not bench.woken()
    bench.feed(encode(value=b"3"), encode(value=b"4"))
    assert bench.woken()
    assert bench.values(slot) == [b"1", b"2", b"3"]
    assert bench.pool.counts_of(slot)[2:4] == (1, 1 + OVERHEAD)
    bench.feed(encode(value=b"5"), encode(value=b"6"), encode(value=b"7"))
    assert bench.values(slot) == [b"4", b"5", b"6"]
    assert bench.values(slot, flush=True) == [b"7"]


def test_the_bytes_make_a_batch(bench: Bench) -> None:
    slot = bench.pool.register(b"t", batch_bytes=10)
    bench.feed(encode(value=b"12345", key=b"k"), encode(value=b"123"))
    assert bench.pool.take(slot) is None
    bench.feed(encode(value=b"4"))  # exactly 10
    assert bench.values(slot) == [b"12345", b"123", b"4"]


def test_a_message_that_does_not_fit_begins_a_new_batch(bench: Bench) -> None:
    slot = bench.pool.register(b"t", batch_bytes=10)
    bench.feed(encode(value=b"123456"), encode(value=b"abcde"))
    assert bench.values(slot) == [b"123456"]
    bench.feed(encode(value=b"fghij"))
    assert bench.values(slot) == [b"abcde", b"fghij"]


def test_a_message_as_large_as_a_batch_goes_at_once_after_what_is_held(bench: Bench) -> None:
    slot = bench.pool.register(b"t", batch_bytes=10, batch_messages=100)
    bench.feed(encode(value=b"1"), encode(value=b"x" * 10))
    assert bench.values(slot) == [b"1", b"x" * 10]
    bench.feed(encode(value=b"2"))
    assert bench.pool.take(slot) is None


def test_empty_messages_count_a_byte(bench: Bench) -> None:
    slot = bench.pool.register(b"t", batch_bytes=3)
    bench.feed(encode(), encode())
    assert bench.pool.take(slot) is None
    bench.feed(encode())
    assert bench.values(slot) == [b""] * 3


def test_the_age_makes_a_batch(bench: Bench) -> None:
    slot = bench.pool.register(b"t", batch_ms=500)
    bench.feed(encode(value=b"1"))
    assert bench.woken()
    assert bench.pool.due() == ([], 500)
    bench.move(200)
    bench.feed(encode(value=b"2"))
    assert not bench.woken()
    assert bench.pool.due() == ([], 300)
    bench.move(299)
    assert bench.pool.due() == ([], 1)
    assert bench.pool.take(slot) is None
    bench.move(1)
    assert bench.pool.due() == ([slot], None)
    assert bench.values(slot) == [b"1", b"2"]
    bench.feed(encode(value=b"3", timestamp=NOW + 500))
    assert bench.pool.due() == ([], 500)


def test_a_future_timestamp_pins_nothing_and_an_ancient_one_is_due_at_once(bench: Bench) -> None:
    """Point 23."""
    slot = bench.pool.register(b"t", batch_ms=500)
    bench.feed(encode(value=b"1", timestamp=(1 << 63) - 1))
    assert bench.pool.due() == ([], 500)
    bench.feed(encode(value=b"2", timestamp=NOW - 400))
    assert bench.pool.due() == ([], 100)
    for ancient in (12345, 0, -1, -(1 << 63), NOW - 500):
        bench.feed(encode(value=b"3", timestamp=ancient))
        assert bench.pool.due() == ([slot], None)
        bench.take(slot)


def test_the_wall_clock_may_jump(bench: Bench) -> None:
    slot = bench.pool.register(b"t", batch_ms=500)
    bench.feed(encode(value=b"1"))
    bench.move(100, wall=-3_600_000)
    assert bench.pool.due() == ([], 400)
    bench.move(400, wall=0)
    assert bench.pool.due() == ([slot], None)


def test_an_earlier_deadline_wakes_the_loop(bench: Bench) -> None:
    slow = bench.pool.register(b"slow", batch_ms=10_000)
    fast = bench.pool.register(b"fast", batch_ms=100)
    bench.feed(encode(b"slow"))
    assert bench.woken()
    assert bench.pool.due() == ([], 10_000)
    bench.feed(encode(b"slow", timestamp=NOW + 5))
    assert not bench.woken()
    bench.feed(encode(b"fast"), encode(b"fast"))
    assert bench.woken()
    assert not bench.woken()
    assert bench.pool.due() == ([], 100)
    bench.move(100)
    assert bench.pool.due() == ([fast], 9_900)
    bench.move(9_900)
    assert bench.pool.due() == ([slow], None)
    assert len(bench.values(fast)) == 2


def test_many_deadlines(bench: Bench) -> None:
    """They are found in their order, whatever the order in which they were made."""
    slots = {}
    named: list[int] = []
    for n in range(200):
        wait = 1 + (n * 7919) % 1000
        slots[bench.pool.register(b"t%d" % n, batch_ms=wait)] = wait
        bench.feed(encode(b"t%d" % n))
    for passed in range(1, 1001, 37):
        bench.move(START + passed - bench.mono)
        ready, wait_ms = bench.pool.due()
        named += ready
        assert sorted(named) == sorted(slot for slot, wait in slots.items() if wait <= passed)
        later = [wait for wait in slots.values() if wait > passed]
        assert wait_ms == (min(later) - passed if later else None)


def test_the_loop_is_woken_once_until_it_asked(bench: Bench) -> None:
    bench.pool.register(b"t")
    bench.feed(encode())
    bench.feed(encode())
    bench.feed(encode(b"u"))
    assert os.read(bench.wake, 64) == (1).to_bytes(8, "little")
    assert not bench.woken()
    bench.pool.due()
    bench.feed(encode(b"v"))
    assert bench.woken()


def test_a_slot_is_named_once_until_what_was_due_is_taken(bench: Bench) -> None:
    """A topic that the engine has no room for costs nothing at later wake-ups of the loop."""
    slots = [bench.pool.register(b"t%d" % n) for n in range(600)]
    bench.feed(*(encode(b"t%d" % n) for n in range(600)))
    assert bench.due() == slots
    bench.feed(*(encode(b"t%d" % n) for n in range(600)))
    assert bench.due() == []
    stuck, other, third = slots[:3]
    assert bench.pool.take(stuck, max_bytes=1).count == 1
    assert len(bench.take(other)) == 2
    bench.woken()
    bench.feed(encode(b"t0"), encode(b"t1"), encode(b"t3"))
    assert bench.woken()
    assert bench.due() == [other]
    assert len(bench.take(stuck)) == 2
    bench.feed(encode(b"t0"))
    assert bench.due() == [stuck]
    # What becomes due and is taken before the next call is not named.
    bench.feed(encode(b"new"))
    new = bench.pool.register(b"new")
    assert len(bench.take(new)) == 1
    bench.pool.forget(third)
    assert bench.due() == []
    assert len(bench.take(third)) == 2


def test_changed_limits_make_what_is_held_due(bench: Bench) -> None:
    slot = bench.pool.register(b"t", batch_messages=10)
    bench.feed(encode(), encode())
    bench.pool.configure(slot, batch_messages=10, max_message_bytes=50)
    assert bench.due() == []
    bench.pool.configure(slot, batch_messages=3)
    assert bench.due() == [slot]
    assert bench.woken()
    assert len(bench.take(slot)) == 2
    assert bench.pool.register(b"t", batch_messages=2) == slot
    bench.feed(encode(), encode())
    assert len(bench.take(slot)) == 2


def test_messages_held_before_registering_wait_for_their_batch(bench: Bench) -> None:
    bench.feed(encode(value=b"1"), encode(value=b"2"))
    bench.move(100)
    slot = bench.pool.register(b"t", batch_messages=5, batch_ms=500)
    assert bench.pool.due() == ([], 400)
    bench.feed(*(encode(value=b"%d" % n) for n in range(3, 6)))
    assert bench.values(slot) == [b"1", b"2", b"3", b"4", b"5"]


def test_flush_takes_everything(bench: Bench) -> None:
    slot = bench.pool.register(b"t", batch_ms=1_000_000)
    bench.feed(*(encode(value=b"%d" % n) for n in range(20)))
    assert bench.values(slot, flush=True) == [b"%d" % n for n in range(20)]
    assert bench.pool.due() == ([], None)


def test_taking_a_limited_number_of_bytes(bench: Bench) -> None:
    slot = bench.pool.register(b"t", batch_messages=20)
    bench.feed(*(encode(value=b"x" * 10) for _ in range(25)))
    sizes = []
    while (taken := bench.pool.take(slot, max_bytes=3 * (10 + OVERHEAD) + 1)) is not None:
        sizes.append(taken.count)
    assert (max(sizes), sum(sizes)) == (3, 20)  # the end of a segment ends a chunk, too
    bench.feed(encode(value=b"x" * 5000))
    assert bench.pool.take(slot, max_bytes=1) is None
    taken = bench.pool.take(slot, flush=True, max_bytes=1)
    assert taken.count == 1, "at least one message"
    assert bench.pool.counts_of(slot).held == 5


def test_held_messages_in_all_orders_of_taking(bench: Bench) -> None:
    """A batch may end in the middle of an arena; what follows stays."""
    slot = bench.pool.register(b"t", batch_messages=7)
    sent = itertools.count()
    found = []
    for n in range(1, 60):
        bench.feed(*(encode(value=b"%d" % next(sent), key=b"k" * (n % 3)) for _ in range(n % 11)))
        if n % 2:
            found += bench.values(slot)
            assert len(found) % 7 == 0
    found += bench.values(slot, flush=True)
    assert found == [b"%d" % n for n in range(next(sent))]
    assert bench.pool.counts().used_bytes == 0


# ---------------------------------------------------------------- limits


def test_too_long_messages(bench: Bench) -> None:
    """Point 28."""
    slot = bench.pool.register(b"t", max_message_bytes=10)
    bench.feed(encode(value=b"x" * 9, key=b"kk"), encode(value=b"x" * 8, key=b"kk"))
    assert bench.discarded() == {"too_long": 1}
    assert len(bench.take(slot)) == 1
    (sample,) = bench.pool.samples()
    assert (sample.reason, sample.data) == (gateway.TOO_LONG, b"t " + b"x" * 9)
    (topic,) = bench.pool.counts(topics=True).topics.values()
    assert (topic.received, topic.too_long) == (2, 1)
    assert (topic.earliest_ms, topic.latest_ms) == (NOW, NOW)


def test_windows_of_discards(bench: Bench) -> None:
    """Point 5: the smallest and the largest timestamp since the last window."""
    slot = bench.pool.register(b"t", max_message_bytes=0)
    bench.feed(*(encode(value=b"x", timestamp=at) for at in (50, -3, 7)))
    topic = bench.pool.counts(topics=True, new_window=True).topics[slot]
    assert (topic.earliest_ms, topic.latest_ms) == (-3, 50)
    topic = bench.pool.counts(topics=True).topics[slot]
    assert (topic.too_long, topic.earliest_ms, topic.latest_ms) == (
        3,
        gateway.NEVER,
        -gateway.NEVER,
    )


def test_the_rate_limit(bench: Bench) -> None:
    """Point 30: 8 messages against 5 in 10 s; windows advance in whole intervals."""
    slot = bench.pool.register(b"t", rate_interval_ms=10_000, rate_max_messages=5)
    bench.feed(*(encode(value=b"%d" % n) for n in range(8)))
    assert bench.values(slot) == [b"0", b"1", b"2", b"3", b"4"]
    assert bench.discarded() == {"rate_limit": 3}
    bench.move(9_999, wall=10_000_000)
    bench.feed(encode())
    assert bench.take(slot) == []
    bench.move(1, wall=-20_000_000)
    bench.feed(*(encode(value=b"%d" % n) for n in range(6)))
    assert len(bench.take(slot)) == 5
    bench.move(24_000)  # the windows began at 10,000, 20,000 and 30,000
    bench.feed(*(encode() for _ in range(5)))
    assert len(bench.take(slot)) == 5
    bench.move(5_999)
    bench.feed(encode())
    assert bench.take(slot) == []
    bench.move(1)
    bench.feed(encode())
    assert len(bench.take(slot)) == 1
    assert bench.pool.counts(topics=True).topics[slot].rate_limit == 6


def test_the_window_begins_with_the_first_message(bench: Bench) -> None:
    slot = bench.pool.register(b"t", rate_interval_ms=1000, rate_max_messages=1)
    bench.move(999)
    bench.feed(encode())
    bench.move(999)
    bench.feed(encode())
    assert len(bench.take(slot)) == 1
    bench.move(1)
    bench.feed(encode())
    assert len(bench.take(slot)) == 1


@pytest.mark.parametrize(("most", "passed"), [(0, 0), (-1, 4)])
def test_no_messages_and_no_limit(bench: Bench, most: int, passed: int) -> None:
    slot = bench.pool.register(b"t", rate_interval_ms=1000, rate_max_messages=most)
    bench.feed(*(encode() for _ in range(4)))
    assert len(bench.take(slot)) == passed


def test_limits_hold_for_messages_that_came_before_registering(bench: Bench) -> None:
    values = [b"1", b"x" * 50, b"2", b"3", b"4"]
    bench.feed(*(encode(value=value) for value in values))
    slot = bench.pool.register(
        b"t", max_message_bytes=20, rate_interval_ms=1000, rate_max_messages=3
    )
    assert bench.discarded() == {"too_long": 1, "rate_limit": 1}
    assert bench.values(slot) == [b"1", b"2", b"3"]
    counts = bench.pool.counts(topics=True)
    assert counts.topics[slot][1:7] == (5, 0, 0, 1, 1, 0)
    assert bench.pool.counts_of(slot) == counts.topics[slot]
    with pytest.raises(ValueError, match="slot 7 is not in use"):
        bench.pool.counts_of(7)
    assert counts.used_bytes == counts.held == 0


@pytest.mark.parametrize("gone", [2, 99, 100])
def test_limits_hold_for_a_backlog_of_many_segments(benches: Any, gone: int) -> None:
    """What stays keeps its order, its keys and its place; what goes frees its memory.

    Of a hundred messages, `gone` are too long.
    """
    bench = benches(8 * MIB)
    expected = []
    for n in range(20_000):
        fits = n % 100 >= gone
        value = b"%d " % n + b"v" * (10 if fits else 200)
        key = b"k%d" % n if n % 3 else b""
        bench.feed(encode(key=key, value=value, timestamp=NOW - n))
        if fits:
            expected.append((key, value, NOW - n))
    slot = bench.pool.register(b"t", max_message_bytes=100)
    counts = bench.pool.counts(topics=True)
    assert counts.topics[slot].held == len(expected)
    assert counts.unresolved == counts.names == 0
    assert counts.used_bytes == sum(len(key) + len(value) + OVERHEAD for key, value, _ in expected)
    bench.feed(encode(value=b"afterwards"))
    found = [(one.key, one.value, one.timestamp_ms) for one in bench.take(slot)]
    assert found == [*expected, (b"", b"afterwards", found[-1][2])]
    assert bench.discarded() == {"too_long": 20_000 - len(expected)}
    assert bench.pool.counts().used_bytes == 0


# ---------------------------------------------------------------- memory


def test_a_full_pool_discards_exactly_and_recovers(benches: Any) -> None:
    """Point 29."""
    bench = benches(64 * (50 + OVERHEAD))
    slot = bench.pool.register(b"t")
    bench.feed(*(encode(value=b"x" * 50) for _ in range(200)))
    assert bench.discarded() == {"no_memory": 200 - 64}
    taken = bench.pool.take(slot)
    bench.feed(encode(value=b"x" * 50))
    assert bench.discarded() == {"no_memory": 200 - 63}, "taken messages are charged until released"
    charge = 50 + OVERHEAD
    bench.pool.release(1, charge)
    bench.feed(encode(value=b"x" * 50), encode(value=b"x" * 50))
    assert bench.discarded() == {"no_memory": 200 - 62}
    rest = taken.charge - charge
    bench.pool.release(taken.count - 1, rest)
    topic = bench.pool.counts(topics=True).topics[slot]
    assert topic.no_memory == 200 - 62
    assert topic.received == 203


def test_a_topic_may_hold_a_share_of_what_is_free(benches: Any) -> None:
    """Regression: a topic of which nobody took messages left no memory to the others."""
    bench = benches(10_000, topic_share=3)
    message = encode(value=b"v" * (100 - OVERHEAD))
    slots = [bench.pool.register(name) for name in (b"t", b"u", b"v")]

    def held(slot: int) -> int:
        found = bench.pool.counts(topics=True).topics[slot]
        assert found.held_bytes == 100 * found.held
        return found.held

    bench.feed(*[message] * 200)
    assert held(slots[0]) == 75  # three times as much as is free
    bench.feed(*[encode(b"u", value=b"v" * (100 - OVERHEAD))] * 200)
    assert held(slots[1]) == 18
    assert bench.pool.used_bytes() == 9300
    assert bench.discarded() == {"no_memory": 125 + 182}
    bench.feed(encode(b"v", value=b"v" * (700 - OVERHEAD)))  # all that is free
    assert bench.pool.used_bytes() == 10_000
    assert len(bench.values(slots[2])) == 1
    assert len(bench.values(slots[1])) == 18
    assert bench.feed(message, stop_when_full=True) == 0
    taken = bench.pool.take(slots[0], max_bytes=500)
    assert taken.count == 5
    assert bench.feed(message, message, stop_when_full=True) == len(message)  # 71 of 76
    bench.pool.release(5, 500)
    assert bench.feed(message, stop_when_full=True) == len(message)


def test_a_topic_without_messages_may_use_all_that_is_free(benches: Any) -> None:
    bench = benches(10_000, topic_share=3)
    slot = bench.pool.register(b"t")
    bench.feed(encode(value=bytes(9_900)), encode(value=b"v"))
    assert bench.discarded() == {"no_memory": 1}
    assert bench.values(slot) == [bytes(9_900)]
    bench.feed(encode(b"unknown", value=bytes(8_000)), encode(b"unknown", value=b"v"))
    assert bench.discarded() == {"no_memory": 2}


def test_what_waits_for_the_share_of_its_topic_makes_its_batches_due(benches: Any) -> None:
    """Else it would wait for ever: the batches have no limit that they could reach."""
    bench = benches(10_000, topic_share=1)
    slot = bench.pool.register(b"t", batch_messages=1_000_000)
    while bench.feed(encode(value=bytes(1000)), stop_when_full=True):
        assert bench.due() == []
    assert bench.pool.used_bytes() < 5_000
    assert bench.woken()
    assert bench.due() == [slot]


def test_a_topic_at_its_share_makes_no_batches_of_others_due(benches: Any) -> None:
    bench = benches(10_000, topic_share=1)
    message = b"x" * (1000 - OVERHEAD)
    limits = {"batch_messages": 1_000_000}
    slots = [bench.pool.register(name, **limits) for name in (b"t", b"u")]
    bench.feed(encode(b"u", message))
    while bench.feed(encode(b"t", message), stop_when_full=True):
        assert bench.due() == []
    assert bench.due() == slots[:1]
    assert bench.feed(encode(b"t", message)) > 0
    assert bench.discarded() == {"no_memory": 1}
    assert bench.due() == [], "its messages are due already"


@pytest.mark.parametrize("stuck", [1, 2, 10])
def test_batches_keep_their_limits_beside_topics_that_take_nothing(
    benches: Any, stuck: int
) -> None:
    """Regression: the pool is nearly full then, and all other batches were due at once."""
    bench = benches(1_000_000, topic_share=7)
    message = b"x" * (100 - OVERHEAD)
    for n in range(stuck):
        bench.pool.register(b"stuck-%d" % n, batch_messages=50, batch_ms=10)
    bench.feed(*[encode(b"stuck-%d" % n, message) for n in range(stuck)] * 10_000)
    by_count = bench.pool.register(b"count", batch_messages=10)
    by_size = bench.pool.register(b"size", batch_bytes=10 * len(message))
    by_time = bench.pool.register(b"time", batch_ms=10)
    bench.move(10)
    bench.due()
    assert bench.pool.used_bytes() >= 1_000_000 * 7 // 8
    for turn in range(20):
        for size in range(1, 10):
            bench.feed(encode(b"count", message), encode(b"size", message))
            bench.feed(encode(b"time", message, timestamp=bench.wall))
            bench.feed(*[encode(b"stuck-0", message)] * 3)
            assert bench.due() == [], (turn, size)
        bench.feed(encode(b"count", message), encode(b"size", message))
        assert bench.due() == [by_count, by_size]
        bench.move(10)
        assert bench.due() == [by_time]
        assert [len(bench.take(slot)) for slot in (by_count, by_size, by_time)] == [10, 10, 9]
    topics = bench.pool.counts(topics=True).topics
    assert [topics[slot].no_memory for slot in (by_count, by_size, by_time)] == [0, 0, 0]


def test_memory_for_which_the_loop_waits_wakes_it(benches: Any) -> None:
    bench = benches(10_000, topic_share=7)
    slot = bench.pool.register(b"t")
    message = encode(value=bytes(900))
    while bench.feed(message, stop_when_full=True):
        pass
    bench.due()
    bench.woken()
    taken = bench.pool.take(slot, max_bytes=1)
    assert bench.woken(), "the topic has less than its share again"
    bench.due()
    bench.pool.release(taken.count, taken.charge)
    assert not bench.woken(), "nobody waits any more"
    assert bench.feed(message, stop_when_full=True) == len(message)
    used = bench.pool.used_bytes()
    assert bench.pool.press() == used
    bench.due()
    bench.woken()
    taken = bench.pool.take(slot, max_bytes=1)
    assert bench.woken()
    bench.due()
    assert bench.pool.press() == used
    bench.pool.release(taken.count, taken.charge)
    assert bench.woken()
    assert bench.pool.press() == used - taken.charge


def test_names_for_which_there_is_no_room_wake_the_loop_when_there_is(benches: Any) -> None:
    bench = benches(max_topic_names=1)
    bench.feed(encode(b"a"))
    other = encode(b"b")
    assert bench.feed(other, stop_when_full=True) == 0
    bench.due()
    bench.woken()
    bench.pool.discard_unresolved(b"a", gateway.BAD_TOPIC)
    assert bench.woken()
    assert bench.feed(other, stop_when_full=True) == len(other)


def test_batches_that_a_full_pool_cannot_complete_are_due(benches: Any) -> None:
    """Regression: without a limit of time, batches larger than the pool kept it full for ever."""
    bench = benches(100 * (52 + OVERHEAD))
    slots = [bench.pool.register(b"t%d" % n, batch_messages=1000) for n in range(5)]
    one = [encode(b"t%d" % n, b"x" * 52) for n in range(5)]
    bench.feed(*(one * 17))
    assert bench.pool.due() == ([], None)
    assert not bench.woken()
    bench.feed(*(one * 2))  # an eighth of the pool is left
    assert bench.woken()
    assert sorted(bench.due()) == slots
    assert [len(bench.take(slot)) for slot in slots] == [19] * 5
    # What arrives afterwards makes batches again.
    bench.feed(*one)
    assert bench.pool.due() == ([], None)


def test_a_pool_that_new_topics_fill_makes_the_others_due(benches: Any) -> None:
    """What is fed from a spool stops there, so that no other message makes them due."""
    bench = benches(100 * (52 + OVERHEAD))
    limits = {"batch_messages": 1000}
    slot = bench.pool.register(b"t", **limits)
    bench.feed(*[encode(b"t", b"x" * 52)] * 40)
    bench.woken()
    assert bench.due() == []
    bench.feed(*[encode(b"u", b"x" * 52)] * 48)
    assert bench.due() == [slot]
    bench.woken()
    new = bench.pool.register(b"u", **limits)
    assert bench.woken()
    assert bench.due() == [new]


def test_a_pressed_pool_has_everything_due(bench: Bench) -> None:
    bench.pool.press()
    assert not bench.woken()  # nothing waits
    slot = bench.pool.register(b"t", batch_messages=10)
    bench.feed(encode(b"t"))
    assert bench.due() == []
    bench.woken()
    bench.pool.press()
    assert bench.woken()
    assert bench.due() == [slot]
    bench.feed(encode(b"t"))
    assert len(bench.take(slot)) == 1


def test_a_message_without_room_makes_the_others_due(benches: Any) -> None:
    bench = benches(10_000)
    slot = bench.pool.register(b"t", batch_bytes=1_000_000)
    bench.feed(encode(value=b"x" * 4_000))
    bench.feed(encode(value=b"x" * 20_000))  # it would never have room
    assert bench.due() == []
    large = encode(value=b"x" * 8_000)
    assert bench.feed(large, stop_when_full=True) == 0
    assert bench.woken()
    assert bench.due() == [slot]
    assert len(bench.take(slot)) == 1
    assert bench.feed(large, stop_when_full=True) == len(large)


def test_the_oldest_possible_timestamp(bench: Bench) -> None:
    slot = bench.pool.register(b"t")
    oldest = -(1 << 63)
    bench.feed(encode(timestamp=oldest))
    taken = bench.pool.take(slot)
    assert taken.timestamps() == (oldest, oldest)
    assert taken.select([]).timestamps() == (gateway.NEVER, -gateway.NEVER)


def test_more_than_was_taken_cannot_be_released(bench: Bench) -> None:
    slot = bench.pool.register(b"t")
    bench.feed(encode(value=b"xx"))
    with pytest.raises(ValueError, match="were not taken"):
        bench.pool.release(1, 0)
    taken = bench.pool.take(slot)
    with pytest.raises(ValueError, match="were not taken"):
        bench.pool.release(2, taken.charge)
    with pytest.raises(ValueError, match="were not taken"):
        bench.pool.release(1, taken.charge + 1)
    bench.pool.release(1, taken.charge)


def test_feeding_stops_when_the_pool_is_full(benches: Any) -> None:
    bench = benches(2 * (10 + OVERHEAD))
    slot = bench.pool.register(b"t")
    one = encode(value=b"x" * 10)
    data = one * 5
    assert bench.pool.feed(data, stop_when_full=True) == 2 * len(one)
    assert bench.discarded() == {}
    assert len(bench.take(slot)) == 2
    assert bench.pool.feed(data[2 * len(one) :], stop_when_full=True) == 2 * len(one)
    huge = encode(value=b"x" * 1000)
    bench.take(slot)
    assert bench.pool.feed(huge, stop_when_full=True) == len(huge)
    assert bench.discarded() == {"no_memory": 1}, "it would never have room"


def test_sequences(bench: Bench) -> None:
    slot = bench.pool.register(b"t")
    bench.feed(encode(), encode(flags=1), encode())
    bench.feed(encode(), encode(), sequence=1000, replayed=True)
    bench.feed(encode())
    taken = []
    while (chunk := bench.pool.take(slot)) is not None:
        taken += list(chunk.sequences())
    assert taken == [0, 1, 1000, 1001, 2]
    counts = bench.pool.counts()
    assert (counts.received, counts.replayed) == (6, 2)


def test_refused_messages_are_handed_over(benches: Any) -> None:
    """Those that are not kept whole count as discarded at once: the queue is only a log of them."""
    bench = benches(
        4096,
        refused_bytes=1000,
        refused_reasons=[gateway.TOO_LONG, gateway.MALFORMED],
        refused_whole=[gateway.TOO_LONG],
    )
    slot = bench.pool.register(b"t", max_message_bytes=3)
    bench.pool.due()
    long = encode(value=b"long", key=b"k", partition_key=9, timestamp=77)
    bench.feed(long, encode(flags=1), encode(api_key=1))
    assert bench.woken()
    assert bench.discarded() == {"unsupported_api_key": 1, "malformed": 1}
    counts = bench.pool.counts()
    charge = 6 + OPEN_OVERHEAD
    assert (counts.held, counts.taken, counts.used_bytes) == (1, 0, charge)
    fed = gateway.TRANSPORTS.index("fed")
    assert bench.pool.refused() == [
        (gateway.TOO_LONG, fed, b"t", b"k", b"long", 77, NOW, 9, -1, charge),
        (gateway.MALFORMED, fed, b"", b"", encode(flags=1), 0, NOW, None, -1, 0),
    ]
    assert bench.pool.refused() == []
    counts = bench.pool.counts()
    assert (counts.held, counts.taken, counts.used_bytes) == (1, 1, charge)
    bench.pool.release(1, charge)
    assert bench.pool.counts().held == bench.pool.used_bytes() == 0
    bench.feed(encode(value=b"x" * 600), encode(value=b"x" * 600))
    counts = bench.pool.counts(topics=True)
    assert (counts.held, counts.refused_lost) == (1, 1)
    # The topic counts a message at once, whether it is queued or not.
    assert (counts.topics[slot].too_long, counts.topics[slot].queued) == (3, 2)
    assert (counts.topics[slot].earliest_ms, counts.topics[slot].latest_ms) == (77, NOW)
    assert len(bench.pool.refused()) == 1


def test_refused_messages_are_kept_whole_only_while_the_pool_has_room(benches: Any) -> None:
    """Regression: they were not charged, so the process used more than its limit."""
    bench = benches(
        4096,
        refused_bytes=100_000,
        refused_reasons=[gateway.TOO_LONG, gateway.NO_MEMORY],
        refused_whole=[gateway.TOO_LONG],
        refused_prefix=4,
    )
    slot = bench.pool.register(b"t", max_message_bytes=1000)
    for _ in range(5):
        bench.feed(encode(value=b"x" * 1001))
    charge = 1002 + OPEN_OVERHEAD
    assert [one.charge for one in bench.pool.refused()] == [charge, charge, 0, 0, 0]
    assert bench.pool.used_bytes() == 2 * charge
    bench.feed(encode(value=b"y" * 900), encode(value=b"y" * 900))
    assert bench.discarded() == {"too_long": 3, "no_memory": 1}
    assert [(one.charge, one.value) for one in bench.pool.refused()] == [(0, b"yyyy")]
    bench.pool.release(1, charge)
    bench.feed(encode(value=b"y" * 900))
    assert bench.values(slot) == [b"y" * 900] * 2
    counts = bench.pool.counts(topics=True)
    assert (counts.held, counts.used_bytes) == (1, charge)
    assert (counts.topics[slot].no_memory, counts.topics[slot].queued) == (1, 2)


def test_memory_that_is_charged_in_addition(bench: Bench) -> None:
    slot = bench.pool.register(b"t", batch_messages=2)
    bench.feed(encode(value=bytes(2000 - OVERHEAD)))
    bench.pool.due()
    bench.pool.charge(1000)
    assert bench.pool.used_bytes() == 3000
    bench.pool.charge(MIB - 5001)
    assert bench.due() == []  # the message uses less than is free
    bench.pool.charge(1)
    assert bench.due() == [slot]
    bench.pool.release(0, MIB - 4000)
    assert bench.pool.used_bytes() == 2000
    with pytest.raises(ValueError, match="negative"):
        bench.pool.charge(-1)


def test_the_queue_of_refused_messages_is_charged_with_its_entries(benches: Any) -> None:
    """Thousands of small messages use more memory than their bytes."""
    bench = benches(4096, refused_bytes=10_000, refused_reasons=[gateway.MALFORMED])
    for _ in range(1000):
        bench.feed(encode(flags=1, topic=b"t"))
    size = len(encode(flags=1, topic=b"t"))
    assert 10_000 // (size + 120) <= len(bench.pool.refused()) <= 10_000 // (size + 80)


def test_refused_messages_for_a_log_are_shortened_and_limited(benches: Any) -> None:
    """A sender of bad messages costs the loop a limited time; the others are counted."""
    bench = benches(
        4096,
        refused_bytes=100_000,
        refused_reasons=[gateway.TOO_LONG, gateway.MALFORMED],
        refused_whole=[gateway.TOO_LONG],
        refused_prefix=5,
        refused_per_s=3,
    )
    slot = bench.pool.register(b"t", max_message_bytes=3)
    for _ in range(5):
        bench.feed(encode(flags=1, value=b"x" * 50), encode(key=b"long key", value=b"long value"))
    refused = bench.pool.refused()
    assert [one.value for one in refused if one.reason == gateway.MALFORMED] == [
        encode(flags=1, value=b"x" * 50)[:5]
    ] * 3
    whole = [(one.key, one.value) for one in refused if one.reason == gateway.TOO_LONG]
    assert whole == [(b"long key", b"long value")] * 5
    counts = bench.pool.counts(topics=True)
    assert bench.discarded() == {"malformed": 5}
    assert (counts.refused_lost, counts.held, counts.topics[slot].too_long) == (2, 5, 5)
    bench.move(1000)
    bench.feed(encode(flags=1))
    assert len(bench.pool.refused()) == 1
    for wrong in ({"refused_whole": [99]}, {"refused_per_s": -1}):
        with pytest.raises(ValueError, match=r"99|negative"):
            bench.core.Pool(4096, **wrong)


@pytest.mark.parametrize("wrong", [-2, 1 << 62, "1"])
def test_limits_that_no_slot_can_have_are_refused(bench: Bench, wrong: Any) -> None:
    slot = bench.pool.register(b"t")
    for name in ("batch_messages", "batch_bytes", "batch_ms", "max_message_bytes"):
        with pytest.raises((ValueError, TypeError), match=r"limit|integer"):
            bench.pool.register(b"u", **{name: wrong})
        with pytest.raises((ValueError, TypeError), match=r"limit|integer"):
            bench.pool.configure(slot, **{name: wrong})
    assert list(bench.pool.counts(topics=True).topics) == [slot]


def test_refused_messages_that_are_kept_whole_have_a_rate_of_their_own(benches: Any) -> None:
    """As many as in a second at once, and then as many as the time that passes allows."""
    bench = benches(
        8192,
        refused_bytes=100_000,
        refused_reasons=[gateway.TOO_LONG, gateway.MALFORMED],
        refused_whole=[gateway.TOO_LONG],
    )
    slot = bench.pool.register(b"t", max_message_bytes=3)
    sent = [encode(value=b"long value")] * 8

    def taken() -> int:
        bench.feed(*sent)
        refused = bench.pool.refused()
        for one in refused:
            bench.pool.release(1, one.charge)
        return len(refused)

    assert taken() == 8
    bench.pool.limit_whole(4)
    assert (taken(), taken()) == (4, 0)
    bench.move(250)
    assert (taken(), taken()) == (1, 0)
    bench.move(500)
    assert taken() == 2
    bench.move(100_000)
    assert (taken(), taken()) == (4, 0)
    bench.feed(*[encode(flags=1)] * 3)
    assert len(bench.pool.refused()) == 3  # the rate is that of other reasons
    counts = bench.pool.counts(topics=True)
    assert counts.topics[slot].too_long == counts.received - 3
    assert bench.discarded() == {"too_long": counts.refused_lost, "malformed": 3}
    assert counts.received == counts.refused_lost + 8 + 4 + 1 + 2 + 4 + 3
    bench.pool.limit_whole(0)
    assert taken() == 8
    with pytest.raises(ValueError, match="negative"):
        bench.pool.limit_whole(-1)


@pytest.mark.parametrize("known", [True, False])
def test_large_messages_and_small_ones_keep_their_order(bench: Bench, known: bool) -> None:
    """A large message has a segment of its own."""
    bench = type(bench)(bench.core, 4 * MIB)
    slot = bench.pool.register(b"t") if known else -1
    sent = [bytes([65 + n % 26]) * (200_000 if n % 3 == 1 else n) for n in range(12)]
    for n, value in enumerate(sent):
        key = b"k" * 150_000 if n == 6 else b"k"
        bench.feed(encode(value=value, key=key))
    slot = bench.pool.register(b"t")
    used = sum(len(value) for value in sent) + 11 + 150_000 + 12 * OVERHEAD
    assert bench.pool.counts().used_bytes == used
    found = bench.take(slot)
    assert [message.value for message in found] == sent
    assert [len(message.key) for message in found] == [1] * 6 + [150_000] + [1] * 5
    assert [message.sequence for message in found] == list(range(12))
    assert bench.pool.counts().used_bytes == 0
    bench.feed(encode(value=b"x" * 4 * MIB), encode(value=b"x" * 3 * MIB))
    assert bench.pool.feed(encode(value=b"x" * 2 * MIB), stop_when_full=True) == 0
    assert bench.discarded() == {"no_memory": 1}
    bench.close()


def test_sequences_of_some_messages(bench: Bench) -> None:
    """By index, in any order."""
    slot = bench.pool.register(b"t")
    bench.feed(*(encode() for _ in range(4)), sequence=100)
    taken = bench.pool.take(slot)
    assert list(taken.sequences()) == [100, 101, 102, 103]
    assert list(taken.sequences([3, 0])) == [103, 100]
    assert list(taken.sequences(range(1, 3))) == [101, 102]
    assert list(taken.sequences([])) == []
    with pytest.raises(IndexError):
        taken.sequences([4])


# ---------------------------------------------------------------- what was taken


def columns(taken: Any, **options: Any) -> list[Any]:
    given = gateway_columns(taken, **options)
    return [given.record(n) for n in range(taken.count)]


def gateway_columns(taken: Any, **options: Any) -> Any:
    from aiokq.fastpath.produce import RecordColumns

    return RecordColumns(taken.count, **taken.columns(**options))


def taken_of(bench: Bench, *messages: bytes) -> Any:
    slot = bench.pool.register(b"t")
    bench.feed(*messages)
    taken = bench.pool.take(slot)
    assert taken.count == len(messages)
    return taken


def test_columns_are_those_of_the_producer(bench: Bench) -> None:
    taken = taken_of(
        bench,
        encode(value=b"one", key=b"k1"),
        encode(value=b"", key=b"", timestamp=1),
        encode(value=b"three", partition_key=0xFFFFFFFF),
    )
    assert columns(taken) == [
        (b"k1", b"one", None, NOW, None),
        (b"", b"", None, 1, None),
        (b"", b"three", None, NOW, None),
    ]
    assert columns(taken, null_keys=True, null_values=True, partitions=3) == [
        (b"k1", b"one", None, NOW, None),
        (None, None, None, 1, None),
        (None, b"three", None, NOW, 0),
    ]


def test_there_is_no_column_without_contents(bench: Bench) -> None:
    taken = taken_of(bench, encode(value=b"x"), encode(value=b"y"))
    assert taken.columns(null_keys=True, null_values=True, partitions=4).keys() == {
        "value",
        "timestamp",
    }
    bits, offsets, data = taken.columns(null_values=True)["value"]
    assert (bits, bytes(offsets), bytes(data)) == (None, struct.pack("=3i", 0, 1, 2), b"xy")
    assert memoryview(data).readonly


@pytest.mark.parametrize(
    ("partitions", "partition_key", "usable", "chosen"),
    [
        (3, 0xFFFFFFFF, None, 0),
        (4, 0x80000000, None, 0),
        (4, 0x7FFFFFFF, None, 3),
        (4, 0xFFFFFFFF, None, 3),
        (4, 5, b"\1\1\1\1", 1),
        (4, 5, b"\1\0\1\1", 2),
        (4, 7, b"\1\0\1\0", 0),
        (4, 3, b"\0\1\0\0", 1),
        (4, 6, b"\0\0\0\0", 2),
        (1, 6, b"\1", 0),
    ],
)
def test_the_partition_of_a_key(
    bench: Bench, partitions: int, partition_key: int, usable: bytes | None, chosen: int
) -> None:
    """Points 17 and 18: unsigned, modulo all partitions; only unusable ones are passed over."""
    taken = taken_of(bench, encode(), encode(partition_key=partition_key))
    found = columns(taken, partitions=partitions, usable=usable)
    assert [row[4] for row in found] == [None, chosen]


def test_the_usable_partitions_must_be_all(bench: Bench) -> None:
    taken = taken_of(bench, encode(partition_key=1))
    with pytest.raises(ValueError, match="usable: 2 bytes for 3 partitions"):
        taken.columns(partitions=3, usable=b"\1\1")


def test_timestamps_outside_the_limits_are_replaced_and_kept(bench: Bench) -> None:
    stamps = [NOW, -1, NOW - 101, NOW - 100, NOW + 51, (1 << 63) - 1, -(1 << 63)]
    taken = taken_of(bench, *(encode(timestamp=at) for at in stamps))
    found = columns(taken, earliest_ms=NOW - 100, latest_ms=NOW + 50, header=b"sent")
    assert [row[3] for row in found] == [NOW, NOW, NOW, NOW - 100, NOW, NOW, NOW]
    kept = [row[2] for row in found]
    assert kept == [[] if at in (NOW, NOW - 100) else [("sent", b"%d" % at)] for at in stamps]
    replaced = [row[2] for row in columns(taken)]
    assert [bool(header) for header in replaced] == [False, True, False, False, False, True, True]
    assert taken.timestamps() == (-(1 << 63), (1 << 63) - 1)


def test_a_part_of_what_was_taken(bench: Bench) -> None:
    taken = taken_of(bench, *(encode(value=b"%d" % n, key=b"k" * n) for n in range(10)))
    part = taken.select([1, 3, 9])
    assert [part.message(n) for n in range(3)] == [taken.message(n) for n in (1, 3, 9)]
    assert part.charge == 3 * (1 + OVERHEAD) + 13
    assert part.slot == taken.slot
    assert taken.select([]).count == 0
    assert columns(part)[2][0] == b"k" * 9
    for wrong in (10, -1):
        with pytest.raises(IndexError):
            taken.select([wrong])
        with pytest.raises(IndexError):
            taken.message(wrong)


def test_batches_of_what_was_taken(bench: Bench) -> None:
    sizes = [3, 4, 3, 1, 20, 0, 0, 9]
    taken = taken_of(bench, *(encode(value=b"x" * size) for size in sizes))
    assert taken.batches(3, 0) == [3, 6, 8]
    assert taken.batches(0, 10) == [3, 4, 5, 7, 8]
    assert taken.batches(0, 0) == [8]
    assert taken.batches(1, 0) == list(range(1, 9))
    assert taken.oldest_ms == NOW


def test_what_was_taken_outlives_the_pool(bench: Bench) -> None:
    taken = taken_of(bench, encode(value=b"value", key=b"key"))
    given = taken.columns()
    bench.pool.close()
    del taken
    assert bytes(given["value"][2]) == b"value"
    with pytest.raises(RuntimeError, match="closed"):
        bench.feed(encode())
    assert bench.pool.counts().held == 1


@needs_fork
def test_a_forked_child_reads_what_was_taken_and_touches_nothing_else(bench: Bench) -> None:
    taken = taken_of(bench, encode(value=b"value"))

    def child() -> object:
        said = [bytes(taken.columns()["value"][2])]
        try:
            bench.pool.counts()
        except RuntimeError as error:
            said.append(str(error))
        bench.pool.close()
        return said

    assert in_child(child) == "[b'value', 'the pool belongs to the process that created it']"
    assert bench.pool.counts().held == 1


@pytest.mark.parametrize(
    "options",
    [
        {"max_bytes": 0},
        {"topic_share": -1},
        {"sample_bytes": -1},
        {"max_topic_names": -1},
        {"refused_bytes": -1},
    ],
)
def test_wrong_numbers(core: SimpleNamespace, options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="max_bytes is at least 1"):
        core.Pool(**{"max_bytes": 1, **options})


def test_topics_that_no_message_has(bench: Bench) -> None:
    """Regression: the first one ended the process with SIGSEGV."""
    for topic in (2**31, 5, "t", None, [116]):
        with pytest.raises(TypeError):
            bench.pool.register(topic)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the topic has 32768 bytes"):
        bench.pool.register(b"t" * 32768)
    slot = bench.pool.register(memoryview(b"t" * 32767))
    assert bench.pool.counts_of(slot).topic == b"t" * 32767


def test_objects_that_were_not_initialized(core: SimpleNamespace) -> None:
    """Regression: the process ended with SIGSEGV."""
    if not core.COMPILED:
        pytest.skip("only C has NULL")
    pool = core.Pool.__new__(core.Pool)
    with pytest.raises(RuntimeError):
        _ = pool.max_bytes
    for call in (pool.counts, pool.samples, pool.unresolved, pool.due, pool.refused, pool.finished):
        with pytest.raises(RuntimeError):
            call()
    pool.close()
    taken = core.Taken.__new__(core.Taken)
    for name in ("size", "charge", "oldest_ms"):
        with pytest.raises(TypeError):
            getattr(taken, name)
    for arguments in ([], [()], [0, 0], [0]):
        for name in ("timestamps", "sequences", "select", "batches", "columns", "message"):
            with pytest.raises((TypeError, IndexError)):
                getattr(taken, name)(*arguments)


@pytest.mark.parametrize("method", ["unresolved", "samples"])
def test_the_garbage_collector_runs_without_the_mutex(core: SimpleNamespace, method: str) -> None:
    """Regression: an input waited for the pool until a collection ended."""
    if not core.COMPILED:
        pytest.skip("inputs in Python hold Python's lock anyway")
    pool = core.Pool(64 * MIB)
    for n in range(1000):
        pool.feed(encode(b"n%d" % n))
        pool.feed(encode(b"no name %d" % n))
        pool.feed(encode(flags=1))
        pool.feed(encode(api_key=9))
    started, stored = threading.Event(), threading.Event()
    waited: list[bool] = []

    def feed() -> None:
        started.wait()
        pool.feed(encode())
        stored.set()

    def collects(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and not waited:
            started.set()
            waited.append(not stored.wait(2))

    feeder = threading.Thread(target=feed)
    feeder.start()
    before = gc.get_threshold()
    gc.collect()
    gc.callbacks.append(collects)
    gc.set_threshold(10)
    try:
        getattr(pool, method)()
    finally:
        gc.callbacks.remove(collects)
        gc.set_threshold(*before)
        started.set()
        feeder.join()
    assert True not in waited


def test_unresolved_topics_in_parts(core: SimpleNamespace) -> None:
    pool = core.Pool(MIB)
    names = [b"n%d" % n for n in range(200)] + [b"x" * 249]
    pool.feed(b"".join(encode(name) * 2 for name in names))
    assert pool.unresolved(0) == []
    assert pool.unresolved(3) == [(name, 2) for name in names[:3]]
    assert pool.unresolved(64) == [(name, 2) for name in names[3:67]]
    assert pool.unresolved(1000) == [(name, 2) for name in names[67:]]
    assert pool.unresolved() == []
