"""One token per client: fetched once, refreshed ahead, and kept while the provider fails."""

from __future__ import annotations

import asyncio
import logging
from random import Random

import pytest

from aiokq.connection.sasl.oauth_token import OAuthToken
from aiokq.connection.sasl.token_cache import RefreshPolicy, TokenCache
from aiokq.core.errors import AuthenticationFailed, Closed, ConnectionLost
from aiokq.core.supervisor import Supervisor
from tests.sim.harness.simulation import Simulation, run


class Provider:
    """A source of tokens that live for some seconds; it may fail or hang."""

    def __init__(self, simulation: Simulation, life: float | None = 3600.0) -> None:
        self.clock = simulation.clock
        self.life = life
        self.count = 0
        self.error: Exception | None = None
        self.hangs = False
        self.times: list[float] = []
        self.loop = simulation.loop

    async def fetch(self) -> OAuthToken:
        self.count += 1
        self.times.append(self.loop.time())
        await asyncio.sleep(0.01)
        if self.hangs:
            await asyncio.sleep(1e6)
        if self.error is not None:
            raise self.error
        ends = None if self.life is None else self.clock.timestamp_ms() / 1000 + self.life
        return OAuthToken(f"t{self.count}", ends)


def cache(simulation: Simulation, provider: Provider, supervisor: Supervisor | None) -> TokenCache:
    return TokenCache(
        provider, clock=simulation.clock, random=simulation.random, supervisor=supervisor
    )


def test_many_connections_share_one_fetch() -> None:
    async def main(simulation: Simulation) -> None:
        provider = Provider(simulation)
        async with Supervisor("test") as supervisor:
            tokens = cache(simulation, provider, supervisor)
            async with asyncio.TaskGroup() as tasks:
                waiting = [tasks.create_task(tokens.get()) for _ in range(20)]
            assert {task.result().value for task in waiting} == {"t1"}
            assert (await tokens.get()).value == "t1"
            assert provider.count == 1

    run(1, main)


def test_a_token_is_refreshed_ahead() -> None:
    """At 0.8 to 0.85 of its life, whether a connection asks for it or not."""

    async def main(simulation: Simulation) -> None:
        provider = Provider(simulation)
        async with Supervisor("test") as supervisor:
            tokens = cache(simulation, provider, supervisor)
            await tokens.get()
            await asyncio.sleep(4 * 3600)
            assert provider.count in (5, 6)
            pauses = [b - a for a, b in zip(provider.times, provider.times[1:], strict=False)]
            assert all(0.8 * 3600 <= pause <= 0.85 * 3600 + 1 for pause in pauses)
            assert (await tokens.get()).value == f"t{provider.count}"

    run(1, main, limit=1e6)


def test_a_failing_provider_leaves_the_token_until_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The refresh is repeated every ten seconds; only then the token is missing."""

    async def main(simulation: Simulation) -> None:
        provider = Provider(simulation)
        async with Supervisor("test") as supervisor:
            tokens = cache(simulation, provider, supervisor)
            await tokens.get()
            provider.error = ConnectionLost("the server is down")
            await asyncio.sleep(3500)
            assert (await tokens.get()).value == "t1"
            assert 20 < provider.count < 80
            await asyncio.sleep(100)
            with pytest.raises(ConnectionLost, match="the server is down"):
                await tokens.get()
            provider.error = None
            await asyncio.sleep(1)
            assert (await tokens.get()).value == f"t{provider.count}"

    with caplog.at_level(logging.WARNING):
        run(1, main, limit=1e6)
    assert "token not refreshed: retry_in=10s error=the server is down" in caplog.text


def test_a_provider_that_hangs_is_named() -> None:
    """Nobody waits for more than ten seconds, and the token that is still valid is used."""

    async def main(simulation: Simulation) -> None:
        provider = Provider(simulation)
        async with Supervisor("test") as supervisor:
            tokens = cache(simulation, provider, supervisor)
            provider.hangs = True
            began = simulation.loop.time()
            with pytest.raises(ConnectionLost, match="has not answered within 10 s") as caught:
                await tokens.get()
            assert 9.9 <= simulation.loop.time() - began <= 10.1
            assert caught.value.retriable
            assert not caught.value.may_have_been_written
            assert provider.count == 1

    run(1, main, limit=1e7)


def test_the_provider_may_hang_at_a_refresh() -> None:
    async def main(simulation: Simulation) -> None:
        provider = Provider(simulation)
        async with Supervisor("test") as supervisor:
            tokens = cache(simulation, provider, supervisor)
            await tokens.get()
            provider.hangs = True
            await asyncio.sleep(3500)
            assert (await tokens.get()).value == "t1"

    run(1, main, limit=1e7)


def test_a_token_without_a_known_end_is_asked_for_again() -> None:
    """It is used for half a minute, so that connections that are opened together share it."""

    async def main(simulation: Simulation) -> None:
        provider = Provider(simulation, life=None)
        async with Supervisor("test") as supervisor:
            tokens = cache(simulation, provider, supervisor)
            assert (await tokens.get()).value == (await tokens.get()).value == "t1"
            await asyncio.sleep(3600)
            assert provider.count == 1
            assert (await tokens.get()).value == "t2"

    run(1, main, limit=1e6)


def test_a_token_in_its_last_second_is_not_used() -> None:
    """Brokers would accept it, and close the connection at its first request."""

    async def main(simulation: Simulation) -> None:
        provider = Provider(simulation, life=10)
        tokens = cache(simulation, provider, None)
        await tokens.get()
        await asyncio.sleep(8.5)
        assert (await tokens.get()).value == "t1"
        await asyncio.sleep(1)
        assert (await tokens.get()).value == "t2"

    run(1, main)


def test_a_token_that_has_ended_is_an_error() -> None:
    async def main(simulation: Simulation) -> None:
        provider = Provider(simulation, life=-5)
        with pytest.raises(AuthenticationFailed, match="ended 5 s ago"):
            await cache(simulation, provider, None).get()

    run(1, main)


def test_a_failure_is_final_only_if_there_never_was_a_token() -> None:
    """A wrong secret fails at once, but records wait while a provider that worked is down. It is
    asked once a second, however many connections want a token.
    """

    async def main(simulation: Simulation) -> None:
        provider = Provider(simulation, life=10)
        tokens = cache(simulation, provider, None)
        provider.error = AuthenticationFailed("refused")
        with pytest.raises(AuthenticationFailed, match="refused"):
            await tokens.get()
        provider.error = None
        await asyncio.sleep(1)
        await tokens.get()
        await asyncio.sleep(10)
        provider.error = AuthenticationFailed("refused")
        before = provider.count
        for _ in range(30):
            with pytest.raises(ConnectionLost, match="refused") as caught:
                await tokens.get()
            assert caught.value.retriable
            await asyncio.sleep(0.1)
        assert provider.count - before == 3

    run(1, main)


def test_a_refused_token_is_not_used_again() -> None:
    async def main(simulation: Simulation) -> None:
        provider = Provider(simulation)
        async with Supervisor("test") as supervisor:
            tokens = cache(simulation, provider, supervisor)
            await tokens.get()
            tokens.refused()
            assert (await tokens.get()).value == "t2"
            assert "t2" not in repr(tokens)

    run(1, main)


def test_closing_the_client_ends_the_wait_and_the_refreshes() -> None:
    async def main(simulation: Simulation) -> None:
        provider = Provider(simulation)
        supervisor = Supervisor("test")
        await supervisor.start()
        tokens = cache(simulation, provider, supervisor)
        provider.hangs = True
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(_raises_closed(tokens))
            await asyncio.sleep(1)
            await supervisor.close()
        assert waiting.result()
        with pytest.raises(Closed):
            await tokens.get()

    run(1, main)


async def _raises_closed(tokens: TokenCache) -> bool:
    with pytest.raises(Closed):
        await tokens.get()
    return True


@pytest.mark.parametrize(
    ("life", "now", "least", "most"),
    [
        (3600, 0, 2880, 3060),  # factor and jitter
        (1000, 0, 700, 700),  # the buffer of 300 s
        (361, 0, 60, 61),  # the least period
        (300, 0, 240, 255),  # too short for both: factor and jitter
        (3600, 3590, 60, 60),  # an old token: the least period
        (100, 99, 10, 10),  # a short old token: not at once, again and again
    ],
)
def test_the_times_are_kafkas(life: float, now: float, least: float, most: float) -> None:
    for seed in range(50):
        delay = RefreshPolicy().delay(0.0, life, now, Random(seed))
        assert least - 1e-6 <= delay <= most + 1e-6
