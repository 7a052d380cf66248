"""The engine `bruce` against a scripted cluster: the points of acceptance that are its own.

The tests of the machines are in tests/unit/gateway/bruce.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from aiokq import Cluster, wire
from aiokq.gateway.bruce.batching import BatchLimits
from aiokq.gateway.bruce.error_tables import ERROR_TABLES
from aiokq.gateway.engine import InEngine
from aiokq.gateway.settings_tables import CompressionSettings
from tests.peers.bruce_engine import BruceWorld
from tests.sim.harness.simulation import Simulation
from tests.sim.producer_world import CLIENT, Close, Kafka, Silence, simulate, times


def with_engine(
    body: Callable[[BruceWorld, Kafka], Coroutine[Any, Any, Any]],
    topics: dict[str, list[int]],
    *,
    nodes: int = 1,
    seed: int = 1,
    **engine: Any,
) -> None:
    """Run `body` with an engine; `topics` has the leaders of each topic's partitions."""

    async def main(simulation: Simulation, kafka: Kafka) -> None:
        for name, leaders in topics.items():
            kafka.topic(name, leaders)
        async with Cluster(
            kafka.bootstrap_servers,
            _environment=simulation.environment(CLIENT),
            reconnect_backoff_ms=50,
        ) as cluster:
            await cluster.refresh(*topics)
            world = BruceWorld(cluster, simulation.environment(CLIENT).clock.timestamp_ms, **engine)
            async with world.supervisor:
                await world.engine.start()
                await body(world, kafka)
                world.balance()
                await world.engine.close()
                assert world.supervisor.failed is None
            world.balance()

    simulate(main, nodes=nodes, seed=seed)


def requests_of(kafka: Kafka) -> list[Counter[tuple[str, int]]]:
    """Return the places of the message sets of each Produce request, in order."""
    found = []
    for node in kafka.nodes.values():
        for request in node.seen_of(wire.ProduceRequest):
            by_id = {topic.topic_id: name for name, topic in kafka.topics.items()}
            found.append(
                Counter(
                    (data.name or by_id[data.topic_id], part.index)
                    for data in request.topic_data
                    for part in data.partition_data
                )
            )
    return found


def test_point_19_batches_go_to_brokers_by_the_partitions_they_lead() -> None:
    """10 partitions, of which broker 1 leads 3: 100 batches."""

    async def body(w: BruceWorld, kafka: Kafka) -> None:
        w.topic("t", messages=2)
        for n in range(100):
            w.send("t", b"%d" % n, b"x")
            await asyncio.sleep(0.05)
        await w.drained()
        assert Counter(attempt.node_id for attempt in kafka.attempts) == {1: 30, 2: 70}
        assert w.totals() == (200, {}, 0)
        by_partition = Counter(attempt.partition for attempt in kafka.attempts)
        assert set(by_partition.values()) == {10}

    with_engine(body, {"t": [1, 1, 1, 2, 2, 2, 2, 2, 2, 2]}, nodes=2)


def test_point_20_a_request_has_one_partition_per_topic() -> None:
    """Many batches wait while the broker is slow, and share a request and a partition."""

    async def body(w: BruceWorld, kafka: Kafka) -> None:
        kafka.delays[1] = 0.5
        for n in range(200):
            w.send("t", b"%d" % n)
            w.send("u", b"%d" % n)
            await asyncio.sleep(0.01)
        await w.drained()
        requests = requests_of(kafka)
        assert all(
            Counter(t for t, _ in each) == dict.fromkeys((t for t, _ in each), 1)
            for each in requests
        )
        assert {place for each in requests for place in each if place[0] == "t"} == {
            ("t", 0), ("t", 1), ("t", 2), ("t", 3)
        }  # fmt: skip
        assert len(requests) < 40
        assert w.totals() == (400, {}, 0)

    with_engine(body, {"t": [1] * 4, "u": [1] * 3})


def test_point_21_messages_of_one_partition_keep_their_order() -> None:
    """10,000 messages to one partition, in batches and requests that are limited."""

    async def body(w: BruceWorld, kafka: Kafka) -> None:
        w.topic("t", messages=37)
        values = [b"%06d" % n for n in range(9990)]
        for start in range(0, len(values), 333):
            w.send("t", *values[start : start + 333])
            await asyncio.sleep(0.003)
        await w.drained()
        assert kafka.values("t") == values
        assert max(attempt.header.count for attempt in kafka.attempts) <= 500

    with_engine(body, {"t": [1]}, data=3000)


def test_an_engine_takes_over_what_has_just_arrived() -> None:
    """Later messages have higher numbers, by which they are sorted when they are routed again."""

    async def body(w: BruceWorld, kafka: Kafka) -> None:
        w.topic("t", mode="off")
        old, new = w.engine, w.new_engine()
        await new.start()
        for n in range(3):
            w.send("t", b"%d" % n)
            await asyncio.sleep(0.01)
            old.suspend()
        w.send("t", b"3")  # not routed yet
        new.adopt(old)
        w.engine = new
        assert new._loads == old._loads == 4
        await old.close()
        w.send("t", b"4")
        await w.drained()
        assert kafka.values("t") == [b"%d" % n for n in range(5)]
        assert w.totals() == (5, {}, 0)

    with_engine(body, {"t": [1]})


def test_point_24_a_combined_batch_mixes_topics_and_one_of_a_topic_does_not() -> None:
    """Messages of combined topics leave together after their time, in one request."""

    async def body(w: BruceWorld, kafka: Kafka) -> None:
        for topic in ("a", "b"):
            w.topic(topic, mode="combined")
        w.topic("own", time_ms=10_000, messages=3)
        w.send("a", b"1", b"2")
        w.send("b", b"3")
        w.send("own", b"4", b"5")
        await asyncio.sleep(0.4)
        assert not kafka.attempts
        await asyncio.sleep(0.2)
        assert requests_of(kafka) == [Counter({("a", 0): 1, ("b", 0): 1})]
        w.send("own", b"6")
        await asyncio.sleep(0.1)
        assert requests_of(kafka)[1:] == [Counter({("own", 0): 1})]
        assert kafka.values("own") == [b"4", b"5", b"6"]
        await w.drained()
        assert w.totals() == (6, {}, 0)

    with_engine(
        body, {"a": [1], "b": [1], "own": [1]}, combined=BatchLimits(time_ms=500), table="seed"
    )


def test_point_24_partition_key_messages_are_batched_per_broker() -> None:
    """Each broker waits for its own number of messages, whatever the pool has completed."""

    async def body(w: BruceWorld, kafka: Kafka) -> None:
        w.topic("t", messages=4)
        for key in (0, 1, 0, 1):
            w.send("t", b"%d" % key, key=key)
        await asyncio.sleep(0.1)
        assert not kafka.attempts  # the pool's batch is complete, those of the brokers are not
        for key in (0, 0, 1, 0):
            w.send("t", b"%d" % key, key=key)
        await asyncio.sleep(0.1)
        assert [(each.node_id, each.header.count) for each in kafka.attempts] == [(1, 4)]
        await w.drained()  # flushes
        assert [(each.node_id, each.header.count) for each in kafka.attempts[1:]] == [
            (1, 1),
            (2, 3),
        ]
        assert kafka.log("t", 0).values == [b"0"] * 5
        assert kafka.log("t", 1).values == [b"1"] * 3

    with_engine(body, {"t": [1, 2]}, nodes=2)


def test_point_25_the_data_of_a_request_is_limited() -> None:
    """A single larger message is sent nevertheless."""

    async def body(w: BruceWorld, kafka: Kafka) -> None:
        kafka.delays[1] = 0.1
        for n in range(50):
            w.send("t", b"%02d" % n * 50)
        w.send("t", b"L" * 5000)
        w.send("t", b"end")
        await w.drained()
        sizes = [
            sum(len(value or b"") for value in [record.value for record in batch.records])
            for batch in kafka.log("t").batches
        ]
        assert max(size for size in sizes if size != 5000) <= 1000
        assert 5000 in sizes
        assert len(sizes) >= 7
        assert kafka.values("t")[-2:] == [b"L" * 5000, b"end"]

    with_engine(body, {"t": [1]}, data=1000)


@pytest.mark.parametrize("table", ERROR_TABLES)
@pytest.mark.parametrize("code", [5, 6, 7])
def test_point_32_codes_5_6_and_7_deliver_again_after_one_pause(code: int, table: str) -> None:
    """Nothing is lost; the pause lasts the floor."""

    async def body(w: BruceWorld, kafka: Kafka) -> None:
        kafka.faults.append(times(1, code))
        w.send("t", b"a", b"b")
        await asyncio.sleep(1.9)
        assert kafka.values("t") == []
        await w.drained()
        assert kafka.values("t") == [b"a", b"b"]
        assert [round(attempt.at - kafka.attempts[0].at) for attempt in kafka.attempts] == [0, 2]
        assert w.totals() == (2, {}, 2 if code == 7 else 0)
        counters = w.engine.counters
        assert (counters.pauses_started, counters.pauses_finished, counters.restarts) == (1, 1, 0)
        assert (counters.requests, counters.acked, counters.refused) == (2, 1, {code: 1})
        assert counters.rerouted == 2

    with_engine(body, {"t": [1]}, table=table, min_pause=2.0)


def test_point_33_messages_of_a_topic_that_was_deleted_are_discarded_as_bad_topic() -> None:
    """Code 3 pauses, and the new metadata lacks the topic; another topic is delivered."""

    async def body(w: BruceWorld, kafka: Kafka) -> None:
        w.send("t", b"a")
        await w.drained()
        del kafka.topics["t"]
        w.send("t", b"b", b"c")
        w.send("u", b"d")
        await w.drained()
        assert w.totals() == (2, {"bad_topic": 2}, 0)
        assert set(w.gone) == {"t"}

    for table in ("seed", "modern"):
        with_engine(body, {"t": [1], "u": [1]}, table=table, min_pause=1.0)


@pytest.mark.parametrize(("table", "pauses"), [("seed", True), ("bruce-2016", False)])
@pytest.mark.parametrize("code", [8, 9])
def test_point_34_codes_8_and_9_follow_the_table(code: int, table: str, pauses: bool) -> None:
    """The seed pauses and delivers, its successor discards."""

    async def body(w: BruceWorld, kafka: Kafka) -> None:
        kafka.faults.append(times(1, code))
        w.send("t", b"a")
        await w.drained()
        assert w.totals() == ((1, {}, 0) if pauses else (0, {"error_ack": 1}, 0))

    with_engine(body, {"t": [1]}, table=table)


@pytest.mark.parametrize("code", [10, -1, 99])
def test_point_35_a_discard_does_not_affect_the_next_message(code: int) -> None:
    """The next message is delivered at once."""

    async def body(w: BruceWorld, kafka: Kafka) -> None:
        kafka.faults.append(times(1, code))
        start = w.loop.time()
        w.send("t", b"bad")
        await asyncio.sleep(0)  # each in a request of its own
        w.send("t", b"good")
        await w.drained()
        assert kafka.values("t") == [b"good"]
        assert w.loop.time() - start < 0.1
        assert w.totals() == (1, {"error_ack": 1}, 0)

    with_engine(body, {"t": [1]})


def test_point_36_the_sixth_failure_discards() -> None:
    """Code 2 again and again, at limit 5; without a pause."""

    async def body(w: BruceWorld, kafka: Kafka) -> None:
        kafka.faults.append(times(6, 2))
        w.send("t", b"bad")
        await w.drained()
        assert len(kafka.attempts) == 6
        assert w.totals() == (0, {"attempt_limit": 1}, 0)
        w.send("t", b"good")
        await w.drained()
        assert w.totals() == (1, {"attempt_limit": 1}, 0)
        assert w.loop.time() < 60

    with_engine(body, {"t": [1]}, table="seed")


def test_point_36_pauses_count_as_failures_too() -> None:
    """Code 3 again and again for a topic that exists."""

    async def body(w: BruceWorld, kafka: Kafka) -> None:
        kafka.faults.append(times(6, 3))
        w.send("t", b"bad")
        await w.drained()
        assert len(kafka.attempts) == 6
        assert w.totals() == (0, {"attempt_limit": 1}, 0)

    with_engine(body, {"t": [1]}, table="dory", pause_initial=0.3, min_pause=0.0)


def test_point_37_a_connection_lost_before_the_answer() -> None:
    """Delivered again, one possible duplicate; with 3 in flight, three."""

    async def body(w: BruceWorld, kafka: Kafka) -> None:
        kafka.after_append.append(times(1, Close()))
        w.send("t", b"a")
        await w.drained()
        assert kafka.values("t") == [b"a", b"a"]
        assert w.totals() == (1, {}, 1)

    with_engine(body, {"t": [1]}, min_pause=0.5)


def test_point_37_a_broker_that_does_not_answer() -> None:
    """The requests time out, and what they carried is sent again."""

    async def body(w: BruceWorld, kafka: Kafka) -> None:
        kafka.faults.append(times(1, Silence()))
        w.send("t", b"a")
        await asyncio.sleep(1)
        w.send("t", b"b")
        await asyncio.sleep(0)
        assert w.engine.held() == {"t": InEngine(0, 2)}
        await w.drained()
        assert kafka.values("t") == [b"b", b"a", b"b"]
        assert w.totals() == (2, {}, 2)

    with_engine(body, {"t": [1]}, min_pause=0.5, timeout_ms=3000)


def test_point_39_delays_of_repeated_failures_grow() -> None:
    """0 at first, then from half to one and a half of 1, 2, 4, 4 s; never below the floor."""

    async def body(w: BruceWorld, kafka: Kafka) -> None:
        kafka.faults.append(times(6, 5))
        w.send("t", b"a")
        await w.drained()
        waits = [
            second.at - first.at
            for first, second in zip(kafka.attempts, kafka.attempts[1:], strict=False)
        ]
        assert waits[0] == pytest.approx(0.6, abs=0.1)
        for wait, base in zip(waits[1:], (1.0, 2.0, 4.0, 4.0), strict=False):
            assert max(0.6, 0.5 * base) - 0.1 <= wait <= 1.5 * base + 0.1
        assert len({round(wait, 3) for wait in waits}) > 3

    with_engine(
        body,
        {"t": [1]},
        attempts=9,
        pause_initial=1.0,
        pause_max_doublings=2,
        min_pause=0.6,
    )


def test_point_40_the_same_metadata_restarts_nothing() -> None:
    """A refresh while requests are in flight: no connection and no message is given up."""

    async def body(w: BruceWorld, kafka: Kafka) -> None:
        kafka.delays[1] = 1.0
        w.send("t", b"a")
        await asyncio.sleep(0.1)
        connections = w.cluster.counters.connections_opened
        for _ in range(3):
            await w.cluster.refresh("t")
        assert w.engine.held() == {"t": InEngine(0, 1)}
        await w.drained()
        assert len(kafka.attempts) == 1
        assert w.cluster.counters.connections_opened == connections

    with_engine(body, {"t": [1]})


def test_point_41_traffic_follows_a_leader_that_moves() -> None:
    """At a refresh, without an error and without a pause; messages that wait are routed again."""

    async def body(w: BruceWorld, kafka: Kafka) -> None:
        kafka.delays[1] = 0.2
        for n in range(100):
            w.send("t", b"%02d" % n, key=0)
            if n == 50:
                kafka.topics["t"].move(0, 2)
                await w.cluster.refresh("t")
            await asyncio.sleep(0.01)
        await w.drained()
        assert sorted(v for v in kafka.values("t") if v) == [b"%02d" % n for n in range(100)]
        assert {attempt.node_id for attempt in kafka.attempts} == {1, 2}
        assert w.totals()[:2] == (100, {})

    with_engine(body, {"t": [1]}, nodes=2, min_pause=0.5)


def test_point_18_a_key_skips_its_partition_while_it_has_no_leader() -> None:
    """Other keys keep theirs, and it returns."""

    async def body(w: BruceWorld, kafka: Kafka) -> None:
        places = []

        async def where() -> list[int]:
            kafka.attempts.clear()
            for key in range(4):
                w.send("t", b"%d" % key, key=key)
                await w.drained()
            return [attempt.partition for attempt in kafka.attempts]

        places.append(await where())
        kafka.topics["t"].move(1, -1)
        await w.cluster.refresh("t")
        await asyncio.sleep(0.1)
        places.append(await where())
        kafka.topics["t"].move(1, 2)
        await w.cluster.refresh("t")
        await asyncio.sleep(0.1)
        places.append(await where())
        assert places == [[0, 1, 2, 3], [0, 2, 2, 3], [0, 1, 2, 3]]

    with_engine(body, {"t": [1, 2, 1, 2]}, nodes=2)


def test_a_topic_without_usable_partitions_is_discarded_at_once() -> None:
    """As in the seed; other topics are delivered."""

    async def body(w: BruceWorld, kafka: Kafka) -> None:
        w.send("t", b"a")
        w.send("u", b"b")
        await w.drained()
        assert w.totals() == (1, {"no_partition": 1}, 0)

    with_engine(body, {"t": [-1, -1], "u": [1]})


@pytest.mark.parametrize("code", [32, 87])
def test_one_poisoned_message_in_10000_costs_no_other_message(code: int) -> None:
    """The broker names it; with each table the others are sent again."""

    async def body(w: BruceWorld, kafka: Kafka) -> None:
        w.topic("t", messages=10_000)
        said = wire.PartitionProduceResponse(
            error_code=code,
            base_offset=-1,
            record_errors=[wire.BatchIndexAndErrorMessage(batch_index=4321)],
        )
        kafka.faults.append(times(1, said))
        values = [b"%05d" % n for n in range(10_000)]
        w.send("t", *values)
        await w.drained()
        others = values[:4321] + values[4322:]
        if code == 87:
            assert kafka.values("t") == others
            assert w.totals() == (9999, {"error_ack": 1}, 0)
        else:  # sent again with the time of arrival
            assert set(kafka.values("t")) == set(values)
            assert [v for v in kafka.values("t") if v != b"04321"] == others
            assert w.totals() == (10_000, {}, 0)

    with_engine(body, {"t": [1]}, table="seed")


def test_a_restart_gives_up_requests_that_are_not_answered_in_time() -> None:
    """One broker refuses, the other hangs: its messages are possible duplicates."""

    async def body(w: BruceWorld, kafka: Kafka) -> None:
        kafka.faults.append(times(1, Silence(), when=lambda a: a.node_id == 2))
        kafka.faults.append(times(1, 5, when=lambda a: a.node_id == 1))
        w.send("t", b"hangs", key=1)
        w.send("t", b"refused", key=0)
        await asyncio.sleep(5)
        assert sorted(v for v in kafka.values("t") if v) == [b"refused"]
        await w.drained()
        assert w.totals() == (2, {}, 1)

    with_engine(body, {"t": [1, 2]}, nodes=2, min_pause=0.5, restart_delay=2.0, timeout_ms=20_000)


def test_messages_that_arrive_during_a_pause_are_delivered_after_it() -> None:
    """In the order of arrival, behind those that were in flight."""

    async def body(w: BruceWorld, kafka: Kafka) -> None:
        kafka.faults.append(times(1, 5))
        for n in range(40):
            w.send("t", b"%02d" % n)
            await asyncio.sleep(0.1)
        await w.drained()
        assert kafka.values("t") == [b"%02d" % n for n in range(40)]

    with_engine(body, {"t": [1]}, min_pause=1.0)


def test_a_closed_engine_discards_what_it_holds() -> None:
    """Messages in flight are possible duplicates, and discards with the reason shutdown."""

    async def body(w: BruceWorld, kafka: Kafka) -> None:
        kafka.delays[1] = 1000
        w.send("t", b"a", b"b")
        await asyncio.sleep(0.5)
        w.topic("slow", time_ms=10_000)
        w.send("slow", b"c", key=1)
        w.pool.take(w.topics["slow"].slot, flush=True)
        w.topics.pop("slow")
        await w.engine.close()
        acked, discarded, doubled = w.totals()
        assert (acked, doubled) == (0, 2)
        assert discarded == {"shutdown": 2}

    async def main(simulation: Simulation, kafka: Kafka) -> None:
        kafka.topic("t", [1])
        kafka.topic("slow", [1])
        async with Cluster(
            kafka.bootstrap_servers, _environment=simulation.environment(CLIENT)
        ) as cluster:
            await cluster.refresh("t", "slow")
            w = BruceWorld(cluster, simulation.environment(CLIENT).clock.timestamp_ms)
            async with w.supervisor:
                await w.engine.start()
                await body(w, kafka)

    simulate(main)


def test_sets_are_compressed_as_the_topic_says() -> None:
    """Below the minimum size raw; the old overhead of 26 bytes per message counts."""

    async def body(w: BruceWorld, kafka: Kafka) -> None:
        topic = w.topic("t", messages=10)
        topic.rules = topic.rules.model_copy(
            update={"compression": CompressionSettings(type="snappy", min_bytes=10 * (26 + 20))}
        )
        w.send("t", *[b"x" * 20] * 9, b"x" * 19)
        w.send("t", *[b"x" * 20] * 10)
        await w.drained()
        assert [batch.codec for batch in kafka.log("t").batches] == [0, 2]

    with_engine(body, {"t": [1]}, data=200)


def test_messages_do_not_overtake_those_that_wait_for_metadata() -> None:
    """Regression: the snapshot had the topic before the task that had asked for it went on."""

    async def body(w: BruceWorld, kafka: Kafka) -> None:
        kafka.topic("late", [1])
        values = [b"%04d" % n for n in range(500)]
        for value in values:
            w.send("late", value)
            await asyncio.sleep(0.0001)
        await w.drained()
        assert kafka.values("late") == values

    for seed in range(1, 4):
        with_engine(body, {"t": [1]}, seed=seed)


def test_a_topic_that_never_exists_is_bad_after_a_while() -> None:
    """The metadata that the engine requests lacks it, too; PartitionKey messages as well."""

    async def body(w: BruceWorld, kafka: Kafka) -> None:
        w.send("none", b"a")
        w.send("none", b"b", key=3)
        w.send("t", b"c")
        await w.drained()
        assert w.totals() == (1, {"bad_topic": 2}, 0)
        assert set(w.gone) == {"none"}

    with_engine(body, {"t": [1]})


def test_partition_keys_hold_when_the_topic_is_learned_late() -> None:
    """The partitions are computed when their number is known."""

    async def body(w: BruceWorld, kafka: Kafka) -> None:
        kafka.topic("late", [1, 1, 1])
        for key in (0, 1, 2, 0xFFFFFFFF, 4):
            w.send("late", b"%d" % key, key=key)
        await w.drained()
        found = {partition: kafka.log("late", partition).values for partition in range(3)}
        assert found == {0: [b"0", b"4294967295"], 1: [b"1", b"4"], 2: [b"2"]}

    with_engine(body, {"t": [1]})


def test_many_topics_share_the_room_of_the_engine() -> None:
    """More messages than the engine takes at once: all are delivered, and nothing recurses."""

    async def body(w: BruceWorld, kafka: Kafka) -> None:
        kafka.delays[1] = 0.01
        for n in range(2000):
            w.send(f"t{n % 200}", b"%d" % n * 300)
        await w.drained()
        for topic in w.topics.values():
            w.pump(topic)
        await w.drained()
        assert w.totals() == (2000, {}, 0)

    with_engine(body, {f"t{n}": [1] for n in range(200)}, held_bytes=100_000)


@pytest.mark.parametrize("key", [None, 0])
def test_batches_that_fill_the_engine_are_sent(key: int | None) -> None:
    """Regression: batches without a limit of time that were larger than the room of the engine
    filled it for ever, and no topic had room any more.
    """

    async def body(w: BruceWorld, kafka: Kafka) -> None:
        mode = "combined" if key is None else "per_topic"
        for n in range(20):
            topic = w.topic(f"t{n}", mode=mode, messages=100_000)
            w.pool.configure(topic.slot)  # the pool passes messages on at once
        for n in range(2000):
            w.send(f"t{n % 20}", b"x" * 300, key=key)
            if n % 100 == 99:
                await asyncio.sleep(0.01)
        for topic in w.topics.values():
            w.pump(topic)
        await asyncio.sleep(1)
        assert w.totals()[0] > 1000
        await w.drained()
        assert w.totals() == (2000, {}, 0)

    topics = {f"t{n}": [1] for n in range(20)}
    with_engine(body, topics, held_bytes=200_000, combined=BatchLimits(messages=100_000))


def test_options_can_change_while_the_engine_runs() -> None:
    """Another error table, and another floor of pauses."""

    async def body(w: BruceWorld, kafka: Kafka) -> None:
        kafka.faults.append(times(2, 8))
        w.send("t", b"a")
        await w.drained()
        assert w.totals() == (0, {"error_ack": 1}, 0)
        options = w.engine._options
        dispatcher = options.dispatcher._replace(table=ERROR_TABLES["seed"])
        w.engine.configure(options._replace(dispatcher=dispatcher, min_pause=0.5))
        start = w.loop.time()
        w.send("t", b"b")
        await w.drained()
        assert w.totals() == (1, {"error_ack": 1}, 0)
        assert w.loop.time() - start == pytest.approx(0.5, abs=0.1)

    with_engine(body, {"t": [1]}, table="dory")


def test_a_request_that_is_given_up_before_it_begins_is_forgotten() -> None:
    """Regression: a cancelled task that had not begun counted as a request in flight for ever."""

    async def body(w: BruceWorld, kafka: Kafka) -> None:
        w.send("t", b"a")
        await asyncio.sleep(0)  # the task of the request exists, and has not begun
        assert w.engine.held() == {"t": InEngine(0, 1)}
        w.engine._collect()
        assert not w.engine._tasks
        await asyncio.sleep(1)
        assert kafka.values("t") == []

    async def main(simulation: Simulation, kafka: Kafka) -> None:
        kafka.topic("t", [1])
        async with Cluster(
            kafka.bootstrap_servers, _environment=simulation.environment(CLIENT)
        ) as cluster:
            await cluster.refresh("t")
            w = BruceWorld(cluster, simulation.environment(CLIENT).clock.timestamp_ms)
            async with w.supervisor:
                await w.engine.start()
                await body(w, kafka)

    simulate(main)


def test_an_engine_that_is_closed_at_once_discards_what_has_just_arrived() -> None:
    """Also of a topic that it would have to look up."""

    async def body(w: BruceWorld, kafka: Kafka) -> None:
        w.send("t", b"a")
        w.send("unknown", b"b")
        await w.engine.close()
        assert w.totals() == (0, {"shutdown": 2}, 0)
        await asyncio.sleep(1)
        assert kafka.values("t") == []

    with_engine(body, {"t": [1]})


@pytest.mark.parametrize("acks", [0, 1])
def test_other_acks_count_as_acknowledged(acks: int) -> None:
    """With 0 a message counts when it is written to the connection."""

    async def body(w: BruceWorld, kafka: Kafka) -> None:
        for n in range(20):
            w.send("t", b"%d" % n)
            await asyncio.sleep(0)
        await w.drained()
        await asyncio.sleep(1)
        assert w.totals() == (20, {}, 0)
        assert kafka.values("t") == [b"%d" % n for n in range(20)]

    with_engine(body, {"t": [1]}, acks=acks)
