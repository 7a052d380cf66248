"""Metadata refreshes: by age, after errors, coalesced, and independent per topic."""

from __future__ import annotations

import asyncio

import pytest

from aiokq import wire
from aiokq.core.errors import (
    AuthenticationFailed,
    Closed,
    InvalidTopic,
    RequestTimeout,
    TopicAuthorization,
    UnknownTopicOrPartition,
)
from aiokq.core.types import TopicPartition
from tests.unit.cluster.scripted import Mood, ScriptedCluster, make_engine, simulate


def asked(request: wire.MetadataRequest) -> list[str] | None:
    return None if request.topics is None else [str(topic.name) for topic in request.topics]


def test_unknown_topic_does_not_stall_another():
    """While a producer waits for a missing topic, another topic is found at once."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.add_topic("there", [1, 2])
        engine = make_engine(cluster)
        await engine.start()
        missing = asyncio.create_task(engine.topic("missing", timeout=5))
        await asyncio.sleep(0.5)
        before = engine.now()
        info = await engine.topic("there", timeout=5)
        assert len(info.partitions) == 2
        assert engine.now() - before < 0.02
        with pytest.raises(UnknownTopicOrPartition, match="missing"):
            await missing
        assert engine.now() == pytest.approx(5, abs=0.1)
        await engine.close()

    simulate(main)


def test_a_name_that_no_request_can_carry_stalls_nobody():
    """The name was in every request until its timeout, and no such request could be encoded."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.add_topic("there", [1])
        engine = make_engine(cluster)
        await engine.start()
        for name in ("x" * 250, "x" * 40_000):
            with pytest.raises(InvalidTopic, match="a topic's name has at most 249"):
                await engine.topic(name, timeout=5)
            with pytest.raises(InvalidTopic):
                await engine.refresh([name])
        before = engine.now()
        await engine.topic("there", timeout=5)
        assert engine.now() - before < 0.02
        await engine.close()

    simulate(main)


def test_a_known_topic_costs_no_request():
    """Each send looks the topic up; the metadata snapshot has it."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.add_topic("t", [1])
        engine = make_engine(cluster)
        await engine.start()
        await engine.topic("t")
        count = len(cluster.served)
        for _ in range(100):
            await engine.topic("t")
        assert len(cluster.served) == count
        await engine.close()

    simulate(main)


def test_topics_asked_for_together_share_a_request():
    """A hundred topics at start must not be a hundred requests."""

    async def main(cluster: ScriptedCluster) -> None:
        names = [f"t{n}" for n in range(100)]
        for name in names:
            cluster.add_topic(name, [1])
        engine = make_engine(cluster)
        await engine.start()
        before = len(cluster.requests(wire.MetadataRequest))
        await asyncio.gather(*(engine.topic(name) for name in names))
        requests = cluster.requests(wire.MetadataRequest)[before:]
        assert 1 <= len(requests) <= 2
        await engine.close()

    simulate(main)


def test_topics_asked_for_meanwhile_go_into_the_next_request():
    """Only one Metadata request is in flight at a time."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.add_topic("a", [1])
        cluster.add_topic("b", [1])
        cluster.add_topic("c", [1])
        engine = make_engine(cluster)
        await engine.start()
        cluster.served.clear()
        first = asyncio.create_task(engine.topic("a"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        rest = [asyncio.create_task(engine.topic(name)) for name in ("b", "c")]
        await asyncio.gather(first, *rest)
        assert [asked(r) for r in cluster.requests(wire.MetadataRequest)] == [["a"], ["b", "c"]]
        await engine.close()

    simulate(main)


def test_watched_topics_are_refreshed_on_age():
    """Partitions may be added while no request fails, so a periodic refresh has to find them."""

    async def main(cluster: ScriptedCluster) -> None:
        topic = cluster.add_topic("t", [1])
        engine = make_engine(cluster, metadata_max_age_ms=60_000)
        await engine.start()
        engine.watch(["t"])
        await engine.topic("t")
        topic.partitions.append(type(topic.partitions[0])(2))
        events = engine.events()
        await asyncio.sleep(61)
        assert len(engine.metadata.topics["t"].partitions) == 2
        kinds = [type(await anext(events)).__name__ for _ in range(len(events))]
        assert kinds[-1] == "PartitionsAdded"
        await engine.close()

    simulate(main)


def test_only_watched_topics_are_asked_for():
    """A cluster may have ten thousand topics; a client that uses two must not fetch them all."""

    async def main(cluster: ScriptedCluster) -> None:
        for name in ("mine", "used once", "foreign"):
            cluster.add_topic(name, [1])
        engine = make_engine(cluster, metadata_max_age_ms=60_000)
        await engine.start()
        engine.watch(["mine"])
        engine.watch(["mine"])
        await engine.topic("used once")
        await asyncio.sleep(200)
        assert asked(cluster.requests(wire.MetadataRequest)[-1]) == ["mine"]
        assert set(engine.metadata.topics) == {"mine"}, "one that nobody uses is dropped"
        engine.unwatch(["mine"])
        await asyncio.sleep(60)
        assert asked(cluster.requests(wire.MetadataRequest)[-1]) == ["mine"], "watched twice"
        engine.unwatch(["mine"])
        await asyncio.sleep(120)
        assert asked(cluster.requests(wire.MetadataRequest)[-1]) == []
        await engine.close()

    simulate(main)


def test_watch_all_asks_for_all_topics():
    """A subscription by pattern needs all topics."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.add_topic("a", [1])
        engine = make_engine(cluster, metadata_max_age_ms=60_000)
        await engine.start()
        engine.watch_all()
        await engine.refresh()
        assert set(engine.metadata.topics) == {"a"}
        cluster.add_topic("b", [1])
        await asyncio.sleep(61)
        assert set(engine.metadata.topics) == {"a", "b"}
        del cluster.topics["a"]
        await engine.refresh()
        await engine.refresh()
        assert set(engine.metadata.topics) == {"b"}
        engine.unwatch_all()
        await asyncio.sleep(61)
        assert asked(cluster.requests(wire.MetadataRequest)[-1]) == []
        await engine.close()

    simulate(main)


def test_a_topic_being_created_is_asked_for_again():
    """A topic being auto-created first gives LEADER_NOT_AVAILABLE and exists a moment later."""

    async def main(cluster: ScriptedCluster) -> None:
        topic = cluster.add_topic("t", [1])
        topic.error_code = 5
        engine = make_engine(cluster)
        await engine.start()

        def created() -> None:
            topic.error_code = 0

        asyncio.get_running_loop().call_later(0.5, created)
        await engine.topic("t", timeout=5)
        assert 0.5 <= engine.now() < 1.5
        await engine.close()

    simulate(main)


def test_a_partition_without_leader_is_asked_for_again():
    """An election takes a moment; no request should have to fail to learn its result."""

    async def main(cluster: ScriptedCluster) -> None:
        topic = cluster.add_topic("t", [-1])
        engine = make_engine(cluster)
        await engine.start()
        engine.watch(["t"])
        await engine.topic("t")
        asyncio.get_running_loop().call_later(2, lambda: cluster.move("t", 0, 2))
        await asyncio.sleep(3.5)
        assert engine.metadata.leader(TopicPartition("t", 0)) == 2
        assert topic.partitions[0].leader_epoch == 1
        await engine.close()

    simulate(main)


def test_a_forbidden_topic_fails_at_once():
    """Authorization errors are not retried."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.add_topic("secret", [1]).error_code = 29
        engine = make_engine(cluster)
        await engine.start()
        with pytest.raises(TopicAuthorization) as caught:
            await engine.topic("secret")
        assert caught.value.topic_partition == "secret"
        assert engine.now() < 1
        await engine.close()

    simulate(main)


def test_topics_to_create_are_requested_separately():
    """allow_auto_topic_creation applies to all topics of a request."""

    async def main(cluster: ScriptedCluster) -> None:
        engine = make_engine(cluster)
        await engine.start()
        cluster.served.clear()
        waits = [
            asyncio.create_task(engine.topic("make", timeout=0.05, create=True)),
            asyncio.create_task(engine.topic("look", timeout=0.05, create=False)),
        ]
        await asyncio.gather(*waits, return_exceptions=True)
        requests = cluster.requests(wire.MetadataRequest)
        assert {(r.allow_auto_topic_creation, *(asked(r) or ())) for r in requests} == {
            (True, "make"),
            (False, "look"),
        }
        await engine.close()

    simulate(main)


def test_old_metadata_versions_are_supported():
    """Version 4 added allow_auto_topic_creation, version 7 the leader epochs."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.limits[wire.MetadataRequest] = 3
        cluster.add_topic("t", [1])
        engine = make_engine(cluster)
        await engine.start()
        info = await engine.topic("t", create=False)
        assert info.partitions[0].leader_epoch == -1
        assert info.topic_id.int == 0
        assert {
            s.version for s in cluster.served if isinstance(s.request, wire.MetadataRequest)
        } == {3}
        await engine.close()

    simulate(main)


def test_failures_are_retried_with_growing_pauses():
    """A cluster that is down must not be polled in a busy loop, nor given up."""

    async def main(cluster: ScriptedCluster) -> None:
        engine = make_engine(cluster)
        await engine.start()
        for broker in cluster.brokers.values():
            broker.die(Mood.REFUSING)
        waiting = asyncio.create_task(engine.refresh())
        await asyncio.sleep(60)
        assert not waiting.done()
        attempts = engine.counters.connections_failed
        assert attempts < 60 * 2 * 6, "per second about one try of each address, known and seed"
        for broker in cluster.brokers.values():
            broker.revive()
        await waiting
        assert engine.now() < 63
        await engine.close()

    simulate(main)


def test_a_silent_broker_does_not_hold_up_metadata():
    """The broker accepts the request and never responds; another broker is asked a second later."""

    async def main(cluster: ScriptedCluster) -> None:
        engine = make_engine(cluster)
        await engine.start()
        for node in (1, 2):
            cluster.brokers[node].mood = Mood.SILENT
        before = engine.now()
        await engine.refresh()
        assert engine.now() - before < 2.5
        await engine.close()

    simulate(main)


def test_the_refresh_loop_survives_an_unexpected_exception():
    """A bug in the handling of one response must not stop all further refreshes."""

    async def main(cluster: ScriptedCluster) -> None:
        engine = make_engine(cluster)
        await engine.start()
        apply, calls = engine.refresher._apply, []

        def failing(received: object) -> None:
            calls.append(received)
            if len(calls) == 1:
                raise LookupError("a bug")
            apply(received)  # type: ignore[arg-type]

        engine.refresher._apply = failing  # type: ignore[assignment]
        await engine.refresh()
        assert len(calls) == 2
        await engine.close()

    simulate(main)


def test_without_any_response_a_topic_lookup_times_out():
    """No broker said that the topic is unknown. The cause names the failed brokers."""

    async def main(cluster: ScriptedCluster) -> None:
        engine = make_engine(cluster)
        await engine.start()
        for broker in cluster.brokers.values():
            broker.die(Mood.REFUSING)
        with pytest.raises(RequestTimeout, match="refused") as caught:
            await engine.topic("t", timeout=2)
        assert caught.value.__cause__ is not None
        await engine.close()

    simulate(main)


def test_closing_ends_all_waits():
    """Calls that wait for metadata fail when the engine closes."""

    async def main(cluster: ScriptedCluster) -> None:
        engine = make_engine(cluster)
        await engine.start()
        waits = [
            asyncio.create_task(engine.topic("missing")),
            asyncio.create_task(engine.changes.wait_for(lambda key, event: False)),
        ]
        await asyncio.sleep(0.1)
        await engine.close()
        for wait in waits:
            with pytest.raises(Closed):
                await wait

    simulate(main)


def test_a_cancelled_wait_leaves_the_others():
    """Two tasks wait for a topic; one of them is cancelled."""

    async def main(cluster: ScriptedCluster) -> None:
        engine = make_engine(cluster)
        await engine.start()
        first = asyncio.create_task(engine.topic("t", timeout=10))
        second = asyncio.create_task(engine.topic("t", timeout=10))
        await asyncio.sleep(0.3)
        first.cancel()
        cluster.add_topic("t", [1])
        info = await second
        assert info.name == "t"
        assert engine.now() < 2
        with pytest.raises(asyncio.CancelledError):
            await first
        await engine.close()

    simulate(main)


def test_credentials_refused_later_reach_all_waiters():
    """The password was changed while the client was running."""

    async def main(cluster: ScriptedCluster) -> None:
        accepted = True
        cluster.handlers[wire.SaslHandshakeRequest] = lambda *_: wire.SaslHandshakeResponse(
            mechanisms=["PLAIN"]
        )
        cluster.handlers[wire.SaslAuthenticateRequest] = lambda *_: wire.SaslAuthenticateResponse(
            error_code=0 if accepted else 58
        )
        engine = make_engine(
            cluster,
            security_protocol="SASL_PLAINTEXT",
            sasl_plain_username="me",
            sasl_plain_password="s3cret",
        )
        await engine.start()
        accepted = False
        for broker in cluster.brokers.values():
            broker.die()
            broker.revive()
        with pytest.raises(AuthenticationFailed):
            await engine.topic("t")
        await engine.close()

    simulate(main)


def test_a_response_about_other_topics_keeps_a_topic_known_as_missing():
    """A response about another topic made the client forget it; the error said "no metadata"."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.add_topic("there", [1])
        engine = make_engine(cluster)
        await engine.start()

        async def others() -> None:
            while True:
                await engine.refresh(["there"])
                await asyncio.sleep(0.05)

        asking = asyncio.create_task(others())
        assert engine.topics.missing_for("missing") is None
        waiting = asyncio.create_task(engine.topic("missing", timeout=5))
        await asyncio.sleep(0.02)
        assert engine.topics.missing_for("missing") == 0
        await asyncio.sleep(4)
        assert engine.topics.missing_for("missing") == pytest.approx(4, abs=1.2)
        with pytest.raises(UnknownTopicOrPartition, match="there is no topic 'missing'"):
            await waiting
        assert engine.topics.missing_for("missing") is None  # no call waits for the topic any more
        asking.cancel()
        await engine.close()

    simulate(main)


def test_an_earlier_answer_does_not_tell_that_a_topic_is_missing_now():
    """Regression: while no broker answered, the error of an earlier call was raised again."""

    async def main(cluster: ScriptedCluster) -> None:
        engine = make_engine(cluster)
        await engine.start()
        with pytest.raises(UnknownTopicOrPartition):
            await engine.topic("missing", timeout=5)
        assert "missing" in engine.metadata.topic_errors
        for broker in cluster.brokers.values():
            broker.die()
        with pytest.raises(RequestTimeout, match="no metadata of topic 'missing' within 5 s"):
            await engine.topic("missing", timeout=5)
        cluster.add_topic("missing", [1])
        for broker in cluster.brokers.values():
            broker.revive()
        await engine.topic("missing", timeout=5)
        await engine.close()

    simulate(main)


def test_a_topic_is_missing_since_the_first_of_consecutive_responses():
    """A response in which the topic exists resets the time."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.add_topic("there", [1])
        engine = make_engine(cluster)
        await engine.start()
        engine.watch(["gone"])
        await engine.refresh(["gone"])
        assert engine.topics.missing_for("gone") == 0
        await asyncio.sleep(3)
        await engine.refresh(["gone"])
        assert engine.topics.missing_for("gone") == pytest.approx(3, abs=0.1)
        cluster.add_topic("gone", [1])
        await engine.refresh(["gone"])
        assert engine.topics.missing_for("gone") is None
        del cluster.topics["gone"]
        await engine.refresh(["gone"])
        assert engine.topics.missing_for("gone") == 0
        await engine.close()

    simulate(main)


def test_the_list_for_the_nearest_name_is_fetched_once_a_minute_within_a_second():
    """A thousand misspelled topics share one topic list; a silent broker costs one second."""

    async def main(cluster: ScriptedCluster) -> None:
        cluster.add_topic("orders", [1])
        cluster.add_topic("payments", [1])
        engine = make_engine(cluster)
        await engine.start()

        def lists() -> int:
            return sum(r.topics is None for r in cluster.requests(wire.MetadataRequest))

        before = lists()
        found = await asyncio.gather(*(engine.topics.nearest_name("ordres") for _ in range(10)))
        assert found == ["orders"] * 10
        assert await engine.topics.nearest_name("customers") is None
        assert await engine.topics.nearest_name("orders") is None  # it exists
        assert lists() == before + 1
        assert set(engine.metadata.topics) == set()  # no client uses these topics
        await asyncio.sleep(61)
        for node in cluster.brokers.values():
            node.mood = Mood.SILENT
        started = engine.now()
        assert await engine.topics.nearest_name("ordres") == "orders"  # the previous list is used
        assert engine.now() - started == pytest.approx(1, abs=0.1)
        await engine.close()

    simulate(main)
