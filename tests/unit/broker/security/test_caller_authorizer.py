"""`authorize=`: a function or a coroutine of the user decides."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

import pytest

from aiokq import wire
from aiokq.broker.dispatch import AskingDispatcher, Dispatcher
from aiokq.broker.handlers import APIS
from aiokq.broker.permissions import PERMISSIONS, Operation, ResourceType
from aiokq.broker.security.authorization import caller_authorizer
from aiokq.broker.security.authorization.caller_authorizer import (
    AuthorizationCallable,
    Resource,
)
from aiokq.connection.principal import ANONYMOUS
from aiokq.connection.request_context import CloseConnection, RequestContext
from tests.unit.broker.every_request import every_request
from tests.unit.broker.harness import batch, until
from tests.unit.broker.test_gate import EVERY_VERSION, answers, codes, id_of, populate, world
from tests.unit.broker.test_long_requests import OF_GROUPS, OF_TOPICS, of_groups

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP


def asking(broker, authorize):
    """Let a function decide about the requests of an open node from now on."""
    node = broker.node
    node.gate.authorizer = AuthorizationCallable(authorize)
    node._dispatcher = AskingDispatcher(node._areas(), node.gate, node.counters)


async def test_the_function_gets_who_asks_for_what():
    asked = []

    def authorize(principal, host, operation, resource):
        asked.append((principal, host, operation, resource))
        return True

    async with world(legacy=False) as broker:
        await broker.create("t")
        asking(broker, authorize)
        assert (await broker.produce("t", batch())).error_code == 0
        assert asked == [(ANONYMOUS, "127.0.0.1", Operation.WRITE, Resource(TOPIC, "t"))]
        assert asked[0][2].name == "WRITE"
        assert asked[0][3] == (TOPIC, "t")


def deny(*names):
    async def authorize(principal, host, operation, resource):
        await asyncio.sleep(0)
        return resource.name not in names

    return authorize


@pytest.mark.parametrize("key_version", EVERY_VERSION, ids=id_of)
async def test_a_coroutine_gets_the_same_answers_as_no_authorizer(key_version):
    """No request is handled twice: every handler asks before it changes anything."""
    key, version = key_version
    async with world() as broker, world() as free:
        names = ["open", "other"]
        ids, free_ids = await populate(broker, *names), await populate(free, *names)
        questions = Counter()

        async def authorize(principal, host, operation, resource):
            questions[operation, resource] += 1
            await asyncio.sleep(0)
            return True

        asking(broker, authorize)
        got = await answers(broker, key, version, names, ids)
        expected = await answers(free, key, version, names, free_ids)
        assert len(got) == len(expected) > 0
        for (_, response, _), (_, other, _) in zip(got, expected, strict=True):
            assert codes(response) == codes(other)
        requests = len(every_request(key, version, names, ids, "g"))
        assert all(times <= requests for times in questions.values())
        if PERMISSIONS[key] and key != 22:
            assert questions
        assert [t.name for t in broker.node.topics.sorted()] == [
            t.name for t in free.node.topics.sorted()
        ]
        assert broker.node.storage.metadata.end_offset == free.node.storage.metadata.end_offset
        assert broker.node.counters.batches_appended == free.node.counters.batches_appended
        assert broker.node.gate.authorizer._answers == {}


@pytest.mark.parametrize("key_version", EVERY_VERSION, ids=id_of)
async def test_a_coroutine_that_denies_gets_the_same_answers_as_a_function(key_version):
    key, version = key_version
    async with world() as broker, world() as other:
        names = ["open", "secret"]
        ids, other_ids = await populate(broker, *names), await populate(other, *names)
        asking(broker, deny("secret", "secret.new", "kafka-cluster"))
        asking(
            other,
            lambda principal, host, operation, resource: (
                resource.name not in ("secret", "secret.new", "kafka-cluster")
            ),
        )
        got = await answers(broker, key, version, names, ids)
        expected = await answers(other, key, version, names, other_ids)
        assert len(got) == len(expected)
        for (_, response, _), (_, there, _) in zip(got, expected, strict=True):
            assert codes(response) == codes(there)


async def test_the_fast_way_of_produce_awaits_the_answer():
    async with world(legacy=False) as broker:
        await broker.create("t")
        await broker.create("secret")
        asking(broker, deny("secret"))
        assert (await broker.produce("t", batch())).error_code == 0
        assert broker.node.dispatcher._ordinary.appended == 1
        assert (await broker.produce("secret", batch())).error_code == 29
        assert broker.node.counters.batches_appended == 1
        with pytest.raises(CloseConnection):
            await broker.produce("secret", batch(), acks=0)


async def test_questions_of_a_request_are_asked_at_the_same_time():
    running, most = 0, 0

    async def authorize(principal, host, operation, resource):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        return True

    async with world(legacy=False) as broker:
        for number in range(8):
            await broker.create(f"t{number}")
        asking(broker, authorize)
        response = await broker.fetch(*((f"t{number}", 0, 0) for number in range(8)))
        assert {p.error_code for t in response.responses for p in t.partitions} == {0}
        assert most == 8


async def test_a_fetch_session_goes_on_after_a_wait_for_answers():
    """A second run of the handler would find that the epoch of the session has advanced."""
    async with world(legacy=False) as broker:
        await broker.create("t")
        asking(broker, deny())
        first = await broker.fetch(("t", 0, 0), session_epoch=0)
        assert first.session_id
        for epoch in (1, 2):
            again = await broker.fetch(session_id=first.session_id, session_epoch=epoch)
            assert again.error_code == 0


async def test_a_slow_answer_keeps_nobody_else_waiting():
    gate = asyncio.Event()

    async def authorize(principal, host, operation, resource):
        if resource.name == "slow":
            await gate.wait()
        return True

    async with world(legacy=False) as broker:
        await broker.create("slow")
        await broker.create("fast")
        asking(broker, authorize)
        waiting = asyncio.ensure_future(broker.produce("slow", batch()))
        await asyncio.sleep(0.01)
        # Another connection, because each handles one request at a time.
        response = await broker.fetch(("fast", 0, 0), client=type(broker.client)(2, "", "::1", ""))
        assert response.responses[0].partitions[0].error_code == 0
        assert not waiting.done()
        gate.set()
        assert (await waiting).error_code == 0


async def boom(*_):
    raise LookupError("no such user in the directory")


async def cancelled(*_):
    raise asyncio.CancelledError


def stop(*_):
    raise StopIteration


@pytest.mark.parametrize(
    "authorize",
    [boom, cancelled, stop, lambda *_: None, lambda *_: 1, lambda *_: "yes", lambda: True],
)
async def test_a_function_that_fails_denies(authorize, caplog):
    caplog.set_level(logging.ERROR, "aiokq.broker")
    async with world(legacy=False) as broker:
        await broker.create("t")
        asking(broker, authorize)
        for _ in range(20):
            assert (await broker.produce("t", batch())).error_code == 29
        assert 1 <= len(caplog.records) <= 5
        assert "authorize= failed, so the request was denied" in caplog.text


async def test_the_log_has_no_line_that_a_client_wrote(caplog):
    """The text of an exception may have the name of a resource, which a client chooses."""

    def authorize(principal, host, operation, resource):
        raise LookupError(f"no rule for {resource.name}")

    authorizer = AuthorizationCallable(authorize)
    client = RequestContext(1, "", "127.0.0.1", "")
    authorizer.begin(client)
    assert not authorizer.authorize(client, Operation.READ, TOPIC, ["t\nroot logged in"])
    assert "no rule for t" in caplog.text
    assert "\nroot" not in caplog.text
    authorizer.end(client)


class Awkward:
    """An object that cannot be shown."""

    def __repr__(self):
        raise LookupError("no text")


async def awkward(*_):
    return Awkward()


@pytest.mark.parametrize("authorize", [lambda *_: Awkward(), awkward, lambda *_: 10**5000])
async def test_an_answer_that_cannot_be_shown_denies(authorize):
    """The error about a wrong answer has the answer in it."""
    async with world(legacy=False) as broker:
        await broker.create("t")
        asking(broker, authorize)
        assert (await broker.produce("t", batch())).error_code == 29


async def test_a_coroutine_that_hangs_denies_after_a_time(caplog, monkeypatch, recwarn):
    """Its request would keep its memory for ever, also after its client has gone."""
    caplog.set_level(logging.ERROR, "aiokq.broker")
    monkeypatch.setattr(caller_authorizer, "ANSWER_SECONDS", 0.05)

    async def authorize(principal, host, operation, resource):
        if resource.name != "fast":
            await asyncio.Event().wait()
        return True

    async with world(legacy=False) as broker:
        await broker.create("t")
        await broker.create("fast")
        asking(broker, authorize)
        assert (await broker.produce("t", batch())).error_code == 29
        assert "no answer within 0.05 s" in caplog.text
        # The time is that of the request, however many questions it has.
        began = asyncio.get_running_loop().time()
        names = [f"t{number}" for number in range(1000)]
        response = await broker.fetch(*((name, 0, 0) for name in names))
        assert asyncio.get_running_loop().time() - began < 1
        assert {p.error_code for t in response.responses for p in t.partitions} == {29}
        assert (await broker.produce("fast", batch())).error_code == 0
        authorizer = broker.node.gate.authorizer
        assert (authorizer._answers, authorizer._late) == ({}, set())
    assert not [each for each in recwarn if "never awaited" in str(each.message)]


async def test_a_request_that_ends_early_leaves_no_coroutine(recwarn):
    gate = asyncio.Event()

    async def authorize(principal, host, operation, resource):
        await gate.wait()
        return True

    async with world(legacy=False) as broker:
        names = [f"t{number}" for number in range(100)]
        asking(broker, authorize)
        task = asyncio.ensure_future(broker.fetch(*((name, 0, 0) for name in names)))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert broker.node.gate.authorizer._answers == {}
    assert not [each for each in recwarn if "never awaited" in str(each.message)]


async def test_a_subscription_by_expression_asks_about_the_topics():
    pytest.importorskip("re2")
    async with world(legacy=False) as broker:
        ids = {name: await broker.create(name) for name in ("open", "secret")}
        assert (await broker.ask(wire.FindCoordinatorRequest(key="g"), 0)).error_code == 0
        await until(lambda: broker.node.group_coordinator.active_shards())
        asking(broker, deny("secret"))
        response = await broker.ask(
            wire.ConsumerGroupHeartbeatRequest(
                group_id="g",
                member_id="m",
                member_epoch=0,
                rebalance_timeout_ms=1000,
                subscribed_topic_regex="open|secret",
                topic_partitions=[],
            ),
            1,
        )
        assert response.error_code == 0
        assert {t.topic_id for t in response.assignment.topic_partitions} == {ids["open"]}


async def test_every_client_gets_producer_ids():
    """The function cannot be asked about all topics, and a producer id allows nothing."""
    async with world(legacy=False) as broker:
        asking(broker, lambda *_: False)
        request = wire.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        assert (await broker.ask(request, 4)).error_code == 0
        request.transactional_id = "t"
        assert (await broker.ask(request, 4)).error_code == 53


class Denials:
    """An audit log that records the denials."""

    def __init__(self):
        self.denials = []

    def denied(self, connection, api_key, operation, resource_type, name):
        self.denials.append((operation, resource_type, name))

    def changed(self, connection, what, items):
        list(items)

    def changed_also(self, connection, what, items):
        pass


@pytest.mark.parametrize("answer", [True, False])
@pytest.mark.parametrize(
    ("key", "by_group"),
    [(key, False) for key in (*OF_TOPICS, 0, 24)] + [(key, True) for key in OF_GROUPS],
)
async def test_a_request_of_many_names_is_not_handled_once_for_each(
    key, by_group, answer, monkeypatch
):
    """20,000 made-up names took minutes: after each answer the handler began again."""
    names = [f"made-up-{number}" for number in range(300)]
    monkeypatch.setattr("tests.unit.broker.test_long_requests.NAMES", names)
    version = {24: 3, 1: 12, 0: 9}.get(key, APIS[key].max_version)
    runs = Counter()
    handle = Dispatcher.handle

    async def counted(self, context, frame):
        runs[bytes(frame[:2])] += 1
        return await handle(self, context, frame)

    questions = Counter()

    async def authorize(principal, host, operation, resource):
        questions[operation, resource] += 1
        await asyncio.sleep(0)
        return answer or resource.name == "kafka-cluster" or resource.name in ("g", "t")

    async with world(legacy=False) as broker:
        await populate(broker)
        requests = (
            [of_groups(key, version)] if by_group else every_request(key, version, names, {}, "g")
        )
        asking(broker, authorize)
        audit = broker.node.gate.audit = Denials()
        monkeypatch.setattr(Dispatcher, "handle", counted)
        for request in requests[:2]:
            runs.clear(), questions.clear(), audit.denials.clear()
            await broker.ask(request, version)
            assert sum(runs.values()) <= 2
            assert set(questions.values()) <= {1}
            assert len(audit.denials) == len(set(audit.denials))
            if not answer and len(questions) > 300 and key not in (1, 19, 20):
                assert {name for _, _, name in audit.denials} <= {*names, "kafka-cluster"}


async def test_a_denial_before_a_wait_is_recorded_once():
    """The handler runs again after a wait, and finds the denial again."""
    async with world(legacy=False) as broker:
        names = [f"t{number}" for number in range(3)]
        for name in names:
            await broker.create(name)
        asking(broker, deny("t0", "t2"))
        audit = broker.node.gate.audit = Denials()
        request = every_request(0, 9, names, {}, "g")[0]
        response = await broker.ask(request, 9)
        assert codes(response) == [29, 0, 29]
        assert Counter(audit.denials) == Counter(
            (Operation.WRITE, TOPIC, name) for name in ("t0", "t2")
        )
        assert broker.node.gate._denials == {}


def test_all_apis_are_covered():
    assert {key for key, _ in EVERY_VERSION} == set(APIS)
