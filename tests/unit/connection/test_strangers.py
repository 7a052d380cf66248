"""`Strangers`: what connections before their login may use of the event loop."""

from __future__ import annotations

import asyncio
import functools
from collections import Counter

import pytest

from aiokq.connection.strangers import (
    IDLE_SHARE,
    LONGEST_STEP,
    MOST_BEGINNINGS,
    MOST_SECONDS_PER_TURN,
    MOST_SUSPECTS,
    QUIET_SECONDS,
    READ_SECONDS,
    SECONDS_PER_TURN,
    SHARE,
    SUSPECT_STEP,
    UNSEEN_SECONDS,
    Strangers,
)
from aiokq.connection.turn import Turn

HOST = "127.0.0.1"


STEP_SECONDS = 0.51 * SECONDS_PER_TURN
"""An iteration without clients has time for two of them; the sum of two halves is not exact."""


class World:
    """A loop whose thread works as long as the test says."""

    def __init__(self) -> None:
        self.now = 100.0
        self.turn = Turn()
        self.strangers = Strangers(self.turn, lambda: self.now, lambda: self.now)
        self.done = 0

    def work(self, seconds: float) -> None:
        self.now += seconds

    def step(self, seconds: float = STEP_SECONDS) -> None:
        self.done += 1
        self.work(seconds)

    def request(self, seconds: float = 0.001) -> None:
        self.turn.spend(1)
        self.work(seconds)


async def test_without_clients_steps_use_a_time_in_each_iteration() -> None:
    """Between them the loop looks for what has arrived."""
    world = World()
    assert [world.strangers.do(world.step, HOST) for _ in range(9)] == [True] * 2 + [False] * 7
    done = [world.done]
    for _ in range(4):
        await asyncio.sleep(0)
        done.append(world.done)
    assert done == [2, 4, 6, 8, 9]


async def test_beside_clients_all_steps_have_a_share_of_the_time() -> None:
    """However many there are."""
    world = World()
    for _ in range(10_000):
        world.strangers.do(world.step, HOST)
    began, before = world.now, world.done
    for _ in range(2000):
        world.request()
        await asyncio.sleep(0)
    used = (world.done - before) * STEP_SECONDS
    assert used == pytest.approx((world.now - began) * SHARE, rel=0.05)


async def test_a_step_that_took_long_is_made_up_for() -> None:
    """The steps after it wait until clients have had their part."""
    world = World()
    world.strangers.do(lambda: world.step(0.0015), HOST)
    world.strangers.do(world.step, HOST)
    for _ in range(15):
        world.request()
        await asyncio.sleep(0)
    assert world.done == 1
    for _ in range(15):
        world.request()
        await asyncio.sleep(0)
    assert world.done == 2


async def test_a_step_that_another_process_interrupts_counts_for_a_limited_time() -> None:
    """The clock goes on meanwhile."""
    world = World()
    world.strangers.do(lambda: world.step(10.0), HOST)
    world.strangers.do(world.step, HOST)
    for _ in range(int(2 * LONGEST_STEP / SHARE / 0.001)):
        world.request()
        await asyncio.sleep(0)
    assert world.done == 2


async def test_when_clients_are_quiet_no_debt_is_left() -> None:
    """An idle loop makes nobody wait."""
    world = World()
    world.request()
    world.strangers.do(lambda: world.step(1.0), HOST)
    world.strangers.do(world.step, HOST)
    world.request()
    await asyncio.sleep(0)
    assert world.done == 1
    world.work(QUIET_SECONDS)
    await asyncio.sleep(0)
    assert world.done == 2


@pytest.mark.parametrize("requests", [0, 1])
async def test_cpu_time_of_a_long_step_is_paid_back_before_another_one(requests: int) -> None:
    """Also if no client sends requests for a while: the next one may come at any time."""
    world = World()
    world.request()
    assert world.strangers.do_long(lambda: world.step(0.011), HOST, 1000)
    began = world.now
    assert not world.strangers.do_long(world.step, HOST, 1000)
    share = SHARE if requests else IDLE_SHARE
    while world.done < 2:
        world.turn.spend(requests)
        world.work(0.0005)
        await asyncio.sleep(0)
    assert world.now - began >= 0.9 * (0.011 - LONGEST_STEP) * (1 - share) / share
    assert world.strangers.do_long(world.step, HOST, 1000) is (
        world.strangers._left > -STEP_SECONDS
    )


async def test_other_steps_go_on_while_time_of_long_ones_is_owed() -> None:
    """Those of logins and of first messages, of any address."""
    world = World()
    order: list[str] = []
    world.strangers.do_long(lambda: world.step(1.0), HOST, 1000)
    world.strangers.do_long(functools.partial(order.append, "long"), HOST, 1000)
    for host in (HOST, "192.0.2.1"):
        world.strangers.do(functools.partial(order.append, host), host)
    for _ in range(100):
        world.request()
        await asyncio.sleep(0)
    assert sorted(order) == [HOST, "192.0.2.1"]


async def test_of_postponed_steps_the_least_suspicious_is_the_next() -> None:
    """An ordinary certificate waits for one message at most, however many addresses are hostile."""
    world = World()
    order: list[str] = []

    def hostile(host: str) -> None:
        order.append(host)
        world.step(2 * SUSPECT_STEP)

    def honest(name: str, host: str, nbytes: int) -> None:
        world.strangers.do_long(functools.partial(order.append, name), host, nbytes)

    async def until(count: int) -> None:
        while len(order) < count:
            world.request()
            await asyncio.sleep(0)

    hosts = [f"192.0.2.{n}" for n in range(10)]
    for host in 3 * hosts:
        world.strangers.do_long(functools.partial(hostile, host), host, 16_000)
    await until(5)
    honest("long", HOST, 8000)
    honest("short", "2001:db8::1", 1000)
    await until(7)
    assert order[:7] == [*hosts[:5], "short", "long"]
    await until(22)
    assert order[7:22] == [*hosts[5:], *hosts]  # those that have been quiet longest
    honest("beside a hostile one", hosts[0], 1000)
    honest("other", HOST, 16_000)
    await until(23)
    assert order[22:23] == ["other"]
    await until(26)
    assert order[23:26] == ["beside a hostile one", *hosts[:2]]


async def test_a_pause_gives_no_credit_for_long_steps() -> None:
    """Regression: time that was paid back twice made the next long steps free."""
    world = World()
    world.strangers.do_long(lambda: world.step(0.020), HOST, 1000)
    world.work(3600.0)
    await asyncio.sleep(0)
    world.strangers.do(world.step, HOST)
    await asyncio.sleep(0)
    world.strangers.do_long(lambda: world.step(0.020), HOST, 1000)
    await asyncio.sleep(0)
    done = world.done
    assert done == 3
    assert not world.strangers.do_long(world.step, HOST, 1000)
    for _ in range(100):
        world.request()
        await asyncio.sleep(0)
    assert world.done == done


async def test_addresses_that_took_long_are_remembered_in_bounded_memory() -> None:
    world = World()
    for n in range(MOST_SUSPECTS + 10):
        world.work(1.0)  # pays back
        await asyncio.sleep(0)
        world.strangers.do(world.step, HOST)
        host = f"10.0.{n >> 8}.{n & 255}"
        assert world.strangers.do_long(lambda: world.step(2 * SUSPECT_STEP), host, 1000)
    assert len(world.strangers._suspects) == MOST_SUSPECTS


async def test_a_long_step_that_fails_is_counted_and_the_others_go_on() -> None:
    """The loop reports it."""
    world = World()
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: reported.append(what))
    world.strangers.do_long(lambda: world.step(2 * SUSPECT_STEP), HOST, 1000)

    def fail() -> None:
        world.step(2 * SUSPECT_STEP)
        raise ZeroDivisionError

    world.strangers.do_long(fail, HOST, 1000)
    world.strangers.do_long(world.step, "192.0.2.1", 2000)
    while world.done < 3:
        world.request()
        await asyncio.sleep(0)
    assert len(reported) == 1


async def test_between_requests_steps_have_a_larger_share_of_the_time() -> None:
    """A client that waits for each answer is delayed by few of them."""
    world = World()
    for _ in range(10_000):
        world.strangers.do(world.step, HOST)
    began, before = world.now, world.done
    for _ in range(500):
        world.request(0.0)
        await asyncio.sleep(0)
        for _ in range(5):
            world.work(0.0001)
            await asyncio.sleep(0)
    used = (world.done - before) * STEP_SECONDS
    assert used == pytest.approx((world.now - began) * IDLE_SHARE, rel=0.1)


async def test_time_that_was_not_used_is_not_saved_up() -> None:
    """After an hour of work for clients, strangers do not get six minutes at once."""
    world = World()
    world.strangers.do(world.step, HOST)
    await asyncio.sleep(0)
    world.request(3600.0)
    while world.strangers.do(world.step, HOST):
        pass
    assert (world.done - 1) * STEP_SECONDS == pytest.approx(MOST_SECONDS_PER_TURN, rel=0.2)


async def test_a_new_connection_counts_what_the_system_does_for_it_too() -> None:
    """Its reads, and its end; as long as clients send requests."""
    world = World()
    for requests in (0, 1):
        world.turn.spend(requests)
        world.work(1.0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        count = 0
        while count < 100 and world.strangers.do(world.strangers.begun, HOST):
            count += 1
        expected = MOST_SECONDS_PER_TURN / UNSEEN_SECONDS if requests else 100
        assert count == pytest.approx(expected, abs=1)


async def test_a_long_step_may_end_the_turn() -> None:
    """Of TLS handshakes, one is computed in an iteration."""
    world = World()
    world.strangers.do(world.strangers.end_turn, HOST)
    assert not world.strangers.do(world.step, HOST)
    await asyncio.sleep(0)
    assert world.done == 1
    assert world.strangers.do(world.step, HOST)


async def test_steps_that_wait_come_before_new_connections_of_their_address() -> None:
    """Those that have begun complete their logins before others begin."""
    world = World()
    order: list[str] = []
    world.strangers.do(lambda: world.step(0.001), HOST)
    assert not world.strangers.admit(
        lambda: order.append("new"), lambda: None, HOST, has_waited=False
    )
    assert not world.strangers.do(lambda: order.append("first"), HOST)
    world.strangers.do_later(lambda: order.append("second"), HOST)
    world.strangers.admit(lambda: order.append("other"), lambda: None, "192.0.2.1", has_waited=True)
    await asyncio.sleep(0)
    assert order == ["first", "other", "second", "new"]


async def test_connections_that_always_have_a_step_do_not_keep_others_out() -> None:
    """New ones of their address begin after some steps, those of other addresses at once.

    Regression: as long as a step waited, no connection was accepted. Those of one address could
    keep up to 128 requests each waiting, and begin again.
    """
    world = World()
    order: list[str] = []

    def again() -> None:
        world.step()
        order.append("hostile")
        world.strangers.do_later(again, "192.0.2.1")

    def accept() -> None:
        for host, name in (("192.0.2.1", "near"), ("192.0.2.2", "other")):
            step = functools.partial(order.append, name)
            begin = functools.partial(world.strangers.do_later, step, host)
            assert not world.strangers.admit(begin, lambda: None, host, has_waited=True)

    for _ in range(1000):
        world.strangers.do_later(again, "192.0.2.1")
    world.strangers.do(accept, None)
    while "near" not in order:
        world.request()
        await asyncio.sleep(0)
        if "other" not in order:
            assert len(order) < 8
    assert order.index("near") < 1100


class Queue:
    """Connections that arrive while clients send requests; most of them wait to begin."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.refused: Counter[str] = Counter()
        world.request()
        world.strangers.do(lambda: world.step(0.001), HOST)

    def arrive(self, host: str) -> bool:
        """Return whether the connection waits to begin, and not at the cost of its own address."""
        if self.world.strangers.is_full(host):
            self.refused[host] += 1
            return False
        refuse = functools.partial(self.refused.update, [host])
        self.world.strangers.admit(self.world.step, refuse, host, has_waited=True)
        return True


async def test_the_connections_that_wait_to_begin_are_divided_among_the_addresses() -> None:
    """The rest of an address is refused; all of them have descriptors."""
    world = World()
    queue = Queue(world)
    first, other = "192.0.2.1", "192.0.2.2"
    assert sum(queue.arrive(first) for _ in range(2 * MOST_BEGINNINGS)) == MOST_BEGINNINGS
    assert sum(queue.arrive(other) for _ in range(2 * MOST_BEGINNINGS)) == MOST_BEGINNINGS // 2
    # Those that wait of the first address make room for the other one.
    assert queue.refused[first] == MOST_BEGINNINGS * 3 // 2
    assert queue.refused[other] == MOST_BEGINNINGS * 3 // 2
    assert world.strangers.is_full(first)
    assert not world.strangers.is_full("192.0.2.3")
    assert world.strangers.accepts_many
    # Regression: if clients were quiet, others waited in the system, with those of other addresses.
    world.work(1.0)
    world.strangers._renew()
    assert world.strangers.is_full(first)
    assert not world.strangers.is_full("192.0.2.3")
    assert world.strangers.accepts_many
    for _ in range(MOST_BEGINNINGS):
        await asyncio.sleep(0)
    assert world.done == MOST_BEGINNINGS + 1
    assert not world.strangers.accepts_many


async def test_connections_of_very_many_addresses_wait_in_a_limited_number() -> None:
    """Regression: each new address could have one, of any number of addresses."""
    world = World()
    queue = Queue(world)
    hosts = [f"2001:db8:{number:x}::1" for number in range(3 * MOST_BEGINNINGS)]
    arrived = sum(map(queue.arrive, hosts))
    assert arrived - queue.refused.total() == MOST_BEGINNINGS
    for _ in range(100):  # one address, and later others: those that wait are never more
        queue.arrive("192.0.2.1")
        assert world.strangers._beginnings == MOST_BEGINNINGS
    world.work(1.0)
    for _ in range(MOST_BEGINNINGS):
        await asyncio.sleep(0)
    assert world.done == MOST_BEGINNINGS + 1
    assert world.strangers._by_beginnings == [{}]


async def test_an_address_is_full_only_if_very_many_connections_wait() -> None:
    """Regression: among 2,049 addresses with a step, those had no part in what may wait."""
    world = World()
    queue = Queue(world)
    for number in range(MOST_BEGINNINGS + 1):
        world.strangers.do_later(world.step, f"2001:db8:{number:x}::1")
    assert all(queue.arrive("2001:db8:7::1") for _ in range(100))


async def test_connections_that_wait_make_room_for_others() -> None:
    """Those of the address with the most first, when the process has no descriptor left.

    Regression: the idle connections of clients were closed, and those that waited were not.
    """
    world = World()
    queue = Queue(world)
    for host in ("192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.2"):
        assert queue.arrive(host)
    assert [world.strangers.refuse_one() for _ in range(6)] == [True] * 4 + [False] * 2
    assert queue.refused == {"192.0.2.1": 3, "192.0.2.2": 1}
    world.work(1.0)
    await asyncio.sleep(0)
    assert world.done == 1


async def test_the_addresses_of_a_network_of_ipv6_have_their_turn_together() -> None:
    """Whoever has one has 2**64 of them."""
    world = World()
    order: list[str] = []
    world.strangers.do(lambda: world.step(0.001), HOST)
    for host in ("2001:db8::1", "2001:db8::2", "[2001:db8::3]", "[2001:db8:0:1::1]", "192.0.2.1"):
        world.strangers.do(lambda host=host: order.append(host), host)  # type: ignore[misc]
    await asyncio.sleep(0)
    assert order == [
        *("2001:db8::1", "[2001:db8:0:1::1]", "192.0.2.1"),
        *("2001:db8::2", "[2001:db8::3]"),
    ]


async def test_reads_that_complete_nothing_have_the_share_too() -> None:
    """A client that sends its login byte by byte makes the loop work for each of them."""
    world = World()
    count, may_read = 0, True

    def resume() -> None:
        nonlocal may_read
        may_read = True

    began = world.now
    for _ in range(2000):
        world.request()
        while may_read:
            world.work(READ_SECONDS)
            count += 1
            may_read = world.strangers.read(resume, HOST)
        await asyncio.sleep(0)
    assert count * READ_SECONDS == pytest.approx((world.now - began) * SHARE, rel=0.1)


async def test_a_task_waits_for_its_turn() -> None:
    """Its request is no request of a client, although the dispatcher counts it."""
    world = World()
    world.strangers.do(lambda: world.step(0.001), HOST)
    handled = []

    async def handle() -> None:
        await world.strangers.next(HOST)
        world.strangers.begin()
        world.turn.spend(1)
        world.step()
        world.strangers.end()
        handled.append(world.now)

    tasks = [asyncio.create_task(handle()) for _ in range(3)]
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert len(handled) == 2
    world.work(1.0)
    world.strangers.do(world.step, HOST)
    assert world.strangers._quiet


async def test_a_step_that_fails_delays_no_other() -> None:
    """Its error is reported by the loop."""
    world = World()
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: reported.append(context["exception"])
    )
    failure = RuntimeError("a bug")

    def fail() -> None:
        raise failure

    with pytest.raises(RuntimeError, match="a bug"):
        world.strangers.do(fail, HOST)
    world.strangers.do_later(fail, HOST)
    world.strangers.do_later(world.step, HOST)
    for _ in range(3):
        await asyncio.sleep(0)
    assert (world.done, reported) == (1, [failure])


async def test_a_step_begins_in_any_case_if_the_clock_stands_still() -> None:
    """As in a simulation."""
    world = World()
    for _ in range(1000):
        world.turn.spend(1)
        assert world.strangers.do(lambda: world.step(0.0), HOST)
        await asyncio.sleep(0)
