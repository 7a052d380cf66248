"""CallerQuotas: answers of a user's function, kept, and renewed while no request waits."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine

import pytest

from aiokq import SharedQuota
from aiokq.broker.security.quotas import caller_quotas
from aiokq.broker.security.quotas.caller_quotas import CallerQuotas, QuotaCallable
from aiokq.broker.security.quotas.precedence import Applied
from aiokq.connection.principal import Principal
from aiokq.connection.request_context import RequestContext

KEY = "producer_byte_rate"
PRODUCE, FETCH, METADATA, HEARTBEAT, CREATE_TOPICS, SASL_HANDSHAKE = 0, 1, 3, 12, 19, 17


class World:
    def __init__(self, quota: QuotaCallable) -> None:
        self.now = 0.0
        self.tasks: list[asyncio.Task[None]] = []
        self.quotas = CallerQuotas(quota, lambda: self.now, self.spawn)
        self.connection = connection()

    def spawn(self, work: Coroutine[object, None, None], name: str) -> None:
        self.tasks.append(asyncio.create_task(work, name=name))

    def limit(self, client_id: str = "c", *, by: RequestContext | None = None) -> float | None:
        applied = self.quotas.applied(by or self.connection, client_id, KEY)
        return None if applied is None else applied.limit

    async def settled(self) -> None:
        while self.tasks:
            await self.tasks.pop()


def connection(user: str = "ANONYMOUS") -> RequestContext:
    made = RequestContext(1, "", "", "")
    made.session.principal = Principal.user(user)
    return made


async def test_a_function_is_asked_once_a_second_at_most() -> None:
    """At first in the request, later beside it."""
    asked = []

    def quota(principal: str, client_id: str, key: str) -> float:
        asked.append((principal, client_id, key))
        return float(len(asked))

    world = World(quota)
    assert [world.limit() for _ in range(100)] == [1.0] * 100
    world.now = 1.0
    assert world.limit() == 1.0
    assert len(asked) == 1
    await world.settled()
    assert world.limit() == 2.0
    assert set(asked) == {("User:ANONYMOUS", "c", KEY)}


async def test_a_rate_is_shared_by_all_clients_of_the_principal() -> None:
    """A new client id is no new budget, whatever rate the function gives for it."""
    world = World(lambda principal, client_id, key: 5.0 if client_id == "a" else 7)
    found = [world.quotas.applied(world.connection, name, KEY) for name in ("a", "b")]
    assert found == [Applied(5.0, ("User:ANONYMOUS",)), Applied(7.0, ("User:ANONYMOUS",))]
    alice = world.quotas.applied(connection("alice"), "a", KEY)
    assert alice == Applied(5.0, ("User:alice",))


async def test_a_shared_quota_names_who_shares_it() -> None:
    """A team, or one client id of a user."""
    world = World(
        lambda principal, client_id, key: (
            SharedQuota(9, "team")
            if client_id == "t"
            else SharedQuota(1, f"{principal}/{client_id}")
        )
    )
    bob = connection("bob")
    assert world.quotas.applied(bob, "t", KEY) == Applied(9.0, ("team",))
    assert world.quotas.applied(world.connection, "t", KEY) == Applied(9.0, ("team",))
    assert world.quotas.applied(bob, "b", KEY) == Applied(1.0, ("User:bob/b",))


async def test_the_first_request_waits_for_the_answer_of_a_coroutine_function() -> None:
    """Later ones do not, while the answer is renewed."""
    answers = [asyncio.get_running_loop().create_future() for _ in range(2)]
    asked = 0

    async def quota(principal: str, client_id: str, key: str) -> float | None:
        nonlocal asked
        asked += 1
        return None if key != KEY else await answers[asked > 2]  # type: ignore[no-any-return]

    world = World(quota)
    waiting = world.quotas.ask(world.connection, PRODUCE, "c")
    assert waiting is not None
    held = asyncio.ensure_future(waiting)
    other = world.quotas.ask(connection(), PRODUCE, "c")  # another connection of the client
    assert other is not None
    held_too = asyncio.ensure_future(other)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not held.done()
    answers[0].set_result(7)
    await held
    await held_too
    assert asked == 2  # two keys
    assert world.limit() == 7.0
    assert world.quotas.ask(world.connection, PRODUCE, "c") is None
    world.now = 1.0
    assert world.quotas.ask(world.connection, PRODUCE, "c") is None
    assert world.limit() == 7.0
    answers[1].set_result(8)
    await world.settled()
    assert world.limit() == 8.0


@pytest.mark.parametrize(
    ("api_key", "keys"),
    [
        (PRODUCE, {"producer_byte_rate", "request_percentage"}),
        (FETCH, {"consumer_byte_rate", "request_percentage"}),
        (METADATA, {"controller_mutation_rate", "request_percentage"}),
        (CREATE_TOPICS, {"controller_mutation_rate", "request_percentage"}),
        (HEARTBEAT, {"request_percentage"}),
        (SASL_HANDSHAKE, {"request_percentage"}),
    ],
)
async def test_a_request_waits_for_the_quotas_that_it_depends_on(
    api_key: int, keys: set[str]
) -> None:
    """And for no other ones."""
    asked = set()

    async def quota(principal: str, client_id: str, key: str) -> float:
        asked.add(key)
        return 1.0

    world = World(quota)
    waiting = world.quotas.ask(world.connection, api_key, "c")
    assert (waiting is not None) == bool(keys)
    if waiting is not None:
        await waiting
    await world.settled()
    assert asked == keys


async def test_an_object_with_a_coroutine_method_and_a_function_that_returns_one_are_awaited() -> (
    None
):
    """Both are ways to write an asynchronous function."""

    class Quota:
        async def __call__(self, principal: str, client_id: str, key: str) -> float:
            return 3.0

    made = Quota()
    for quota in (made, lambda *question: made(*question)):
        world = World(quota)
        waiting = world.quotas.ask(world.connection, PRODUCE, "c")
        assert waiting is not None
        await waiting
        assert world.limit() == 3.0
        world.now = 1.0
        assert world.limit() == 3.0
        await world.settled()


class Awkward:
    """An object that cannot be shown."""

    def __repr__(self) -> str:
        raise LookupError("no text")


@pytest.mark.parametrize(
    "wrong",
    [
        *(-1, 0, float("nan"), float("inf"), True, "5", RuntimeError()),
        *(10**400, 10**5000, SharedQuota(10**400, "x"), Awkward()),
        *(SharedQuota(0, "x"), SharedQuota(1, None), SharedQuota(True, "x")),  # type: ignore[arg-type]
    ],
    ids=lambda wrong: type(wrong).__name__,
)
async def test_a_wrong_answer_leaves_the_last_one_in_effect(
    wrong: object, caplog: pytest.LogCaptureFixture
) -> None:
    """A failing function must neither stop clients nor let them loose; the log says why."""
    answers: list[object] = [5, wrong, None]

    def quota(principal: str, client_id: str, key: str) -> float:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[return-value]

    world = World(quota)
    assert world.limit() == 5.0
    world.now = 1.0
    world.limit()
    await world.settled()
    assert world.limit() == 5.0
    assert "quota function failed: principal=User:ANONYMOUS client_id=c" in caplog.text
    world.now = 2.0
    world.limit()
    await world.settled()
    assert world.limit() is None


@pytest.mark.parametrize("wrong", [10**400, Awkward()], ids=["int", "Awkward"])
async def test_a_wrong_first_answer_gives_no_quota(wrong: object) -> None:
    """No request fails because of it, whether the function is a coroutine function or not."""

    async def quota(principal: str, client_id: str, key: str) -> float:
        return wrong  # type: ignore[return-value]

    for function in (quota, lambda *question: wrong):
        world = World(function)  # type: ignore[arg-type]
        waiting = world.quotas.ask(world.connection, PRODUCE, "c")
        if waiting is not None:
            await waiting
        assert world.limit() is None
        await world.settled()


async def test_the_log_has_no_line_that_a_client_wrote(caplog: pytest.LogCaptureFixture) -> None:
    """A client chooses its id."""
    world = World(lambda *question: -1)
    world.limit("c\nroot logged in" + "x" * 10_000)
    assert "\nroot" not in caplog.text
    assert len(caplog.text) < 1000


async def test_a_function_that_hangs_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Several answers are awaited at once, each for a limited time."""
    monkeypatch.setattr(caller_quotas, "ANSWER_SECONDS", 0.05)

    async def quota(principal: str, client_id: str, key: str) -> float:
        if client_id == "hangs":
            await asyncio.Event().wait()
        return 1.0

    world = World(quota)
    world.limit("hangs")
    world.limit("works")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert world.limit("works") == 1.0
    await world.settled()
    assert world.limit("hangs") == 1.0  # the last answer for the principal
    assert "TimeoutError" in caplog.text


async def test_a_request_waits_for_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the principal's last answer applies, so that a new client id is not unlimited."""
    monkeypatch.setattr(caller_quotas, "HELD_SECONDS", 0.02)
    hangs = asyncio.Event()

    async def quota(principal: str, client_id: str, key: str) -> float:
        if client_id != "known":
            await hangs.wait()
        return 4.0

    world = World(quota)
    loop = asyncio.get_running_loop()
    for client_id in ("known", "new"):
        waiting = world.quotas.ask(world.connection, PRODUCE, client_id)
        assert waiting is not None
        began = loop.time()
        await waiting
    assert loop.time() - began >= 0.02
    assert world.limit("new") == 4.0
    assert world.limit("never asked") == 4.0
    assert world.limit("new", by=connection("other user")) is None
    hangs.set()
    await world.settled()


async def test_what_waits_to_be_asked_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A question belongs to a request that waits; nothing is left of it when the wait is over."""
    monkeypatch.setattr(caller_quotas, "HELD_SECONDS", 0.02)
    monkeypatch.setattr(caller_quotas, "MOST_RENEWALS", 5)
    hangs = asyncio.Event()

    async def answer() -> float:
        await hangs.wait()
        return 1.0

    world = World(lambda principal, client_id, key: answer())
    requests = []
    for n in range(100):
        waiting = world.quotas.ask(connection(), HEARTBEAT, f"{n}" * 10_000)
        assert waiting is not None
        requests.append(asyncio.ensure_future(waiting))
    await asyncio.gather(*requests)
    assert len(world.tasks) == caller_quotas.AT_ONCE
    assert not world.quotas._first
    world.now = 2.0
    for n in range(100):
        world.quotas.applied(connection(), f"{n}" * 10_000, "request_percentage")
    assert len(world.quotas._renewals) == 5
    hangs.set()
    await world.settled()
    assert not world.quotas._renewals
    gc.collect()  # a coroutine that nobody awaits would be a warning, and so an error


async def test_long_names_are_asked_for_and_not_kept() -> None:
    """A client id may have 32 KB, and a principal more."""
    asked = []

    def quota(principal: str, client_id: str, key: str) -> float:
        asked.append(len(client_id))
        return 1.0

    world = World(quota)
    for n in range(20):
        assert world.limit(f"{n}" + "x" * 30_000) == 1.0
    assert len(asked) == 20
    kept = repr([*world.quotas._answers, *world.quotas._last, world.connection.quota_answers])
    assert len(kept) < 20 * 500


async def test_many_clients_are_asked_for_by_few_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the number of answers that are kept is bounded."""
    monkeypatch.setattr(caller_quotas, "MOST", 50)

    async def quota(principal: str, client_id: str, key: str) -> float:
        await asyncio.sleep(0)
        return float(client_id)

    world = World(quota)
    for n in range(1, 200):
        world.limit(str(n))
    assert len(world.tasks) == caller_quotas.AT_ONCE
    assert len(world.quotas._answers) == 50
    await world.settled()
    assert world.limit("199") == 199.0


async def test_the_ids_of_others_do_not_make_an_answer_be_forgotten_during_a_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A Fetch may wait for minutes between its question and its answer."""
    monkeypatch.setattr(caller_quotas, "MOST", 5)
    world = World(lambda principal, client_id, key: 3.0 if principal == "User:a" else None)
    reader = connection("a")
    assert world.limit("r", by=reader) == 3.0
    for n in range(20):
        assert world.limit(str(n)) is None
    assert len(world.quotas._answers) == 5
    monkeypatch.setattr(world.quotas, "_quota", lambda *question: None)
    assert world.limit("r", by=reader) == 3.0


async def test_a_node_that_closes_leaves_no_coroutine_behind() -> None:
    """What was returned and not awaited yet is closed."""

    async def answer() -> float:
        await asyncio.Event().wait()
        return 1.0

    world = World(lambda *question: answer())
    for n in range(100):
        world.limit(str(n))
    await asyncio.sleep(0)
    for task in world.tasks:
        task.cancel()
    await asyncio.gather(*world.tasks, return_exceptions=True)
    del world
    gc.collect()


async def test_a_client_that_leaves_does_not_end_the_wait_of_its_other_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client could otherwise evade its quota with two connections for each of its ids."""
    monkeypatch.setattr(caller_quotas, "AT_ONCE", 1)
    release = asyncio.Event()

    async def quota(principal: str, client_id: str, key: str) -> float:
        await release.wait()
        return 5.0

    world = World(quota)
    others = world.quotas.ask(connection("other"), HEARTBEAT, "slow")
    assert others is not None
    held = [asyncio.ensure_future(others)]
    for _ in range(2):
        waiting = world.quotas.ask(connection(), HEARTBEAT, "c")
        assert waiting is not None
        held.append(asyncio.ensure_future(waiting))
    await asyncio.sleep(0)
    held[1].cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert held[1].cancelled()
    assert not held[2].done()
    release.set()
    await held[2]
    applied = world.quotas.applied(connection(), "c", "request_percentage")
    assert applied is not None
    assert applied.limit == 5.0
    await world.settled()
    await held[0]


async def test_new_client_ids_of_a_user_delay_no_other_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither the first answer for another user, nor the renewal of an answer."""
    monkeypatch.setattr(caller_quotas, "AT_ONCE", 1)
    asked: list[str] = []

    async def quota(principal: str, client_id: str, key: str) -> float:
        asked.append(f"{principal} {client_id}")
        await asyncio.sleep(0)
        return 5.0

    world = World(quota)

    async def request(client: RequestContext, client_id: str) -> None:
        waiting = world.quotas.ask(client, HEARTBEAT, client_id)
        if waiting is not None:
            await waiting

    async def flood(number: int) -> None:
        client = connection("eve")
        for request_number in range(50):
            await request(client, f"{number}-{request_number}")

    bob = connection("bob")
    await request(bob, "steady")
    floods = [asyncio.create_task(flood(number)) for number in range(40)]
    for _ in range(100):
        await asyncio.sleep(0)
    world.now = 1.0
    asked.clear()
    await request(bob, "new")
    assert asked.index("User:bob new") <= 3
    asked.clear()
    await request(bob, "steady")
    for _ in range(100):
        await asyncio.sleep(0)
    assert asked.index("User:bob steady") <= 3
    assert not any(task.done() for task in floods)
    await asyncio.gather(*floods)
    await world.settled()


async def test_old_answers_of_a_user_leave_room_for_those_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The renewal that makes room is done at a later request."""
    monkeypatch.setattr(caller_quotas, "AT_ONCE", 1)
    monkeypatch.setattr(caller_quotas, "MOST_RENEWALS", 5)
    asked: list[str] = []

    def quota(principal: str, client_id: str, key: str) -> float:
        asked.append(f"{principal} {client_id}")
        return 5.0

    world = World(quota)
    bob, eve = connection("bob"), connection("eve")
    clients = [(eve, f"e{n}") for n in range(5)] + [(bob, "b")]
    for client, client_id in clients:
        world.limit(client_id, by=client)
    world.now = 1.0
    asked.clear()
    for client, client_id in clients:
        world.limit(client_id, by=client)
    await world.settled()
    assert asked == ["User:eve e0", "User:bob b", *(f"User:eve e{n}" for n in (1, 2, 3))]
    world.limit("e4", by=eve)
    await world.settled()
    assert asked[5:] == ["User:eve e4"]
