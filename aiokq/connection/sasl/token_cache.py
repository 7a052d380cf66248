"""`TokenCache`: fetches and refreshes the token that all connections of a client share.

The first connection that needs a token fetches it. The token is then refreshed before it expires,
at the times that Kafka's clients choose. A failed refresh is repeated every ten seconds, and the
old token is used until it expires.

Source: Kafka ``ExpiringCredentialRefreshingLogin.java``.
Tests: ``tests/unit/connection/sasl/test_token_cache.py``.
"""

from __future__ import annotations

import asyncio
import logging
from random import Random
from typing import TYPE_CHECKING, Final, Protocol

from aiokq.connection.sasl.jwt_lifetime import lifetime_of
from aiokq.connection.sasl.oauth_token import OAuthToken
from aiokq.core.errors import AuthenticationFailed, Closed, ConnectionLost, KafkaError, copy_error
from aiokq.core.frozen import frozen

if TYPE_CHECKING:
    from aiokq.core.clock import Clock
    from aiokq.core.supervisor import Supervisor

__all__ = ["RefreshPolicy", "TokenCache", "TokenSource"]

logger = logging.getLogger("aiokq.connection")

_RETRY_SECONDS: Final = 10.0
"""Time between a failed refresh and the next one, as in Java."""

_PAUSE_SECONDS: Final = 1.0
"""Seconds after a failed fetch during which connections get its error and no new fetch begins."""

_WAIT_SECONDS: Final = 10.0
"""Seconds for which a connection waits for a token, if none is valid."""

_MARGIN_SECONDS: Final = 1.0
"""Seconds before its expiry at which a token is no longer used.

If the token expires less than 10 seconds after the fetch, a tenth of that time counts instead. The
margin is needed, because brokers accept a token that has just expired, but close the connection at
its first request.
"""

_UNKNOWN_SECONDS: Final = 30.0
"""Seconds for which a token with an unknown expiry time is used."""

_LONGEST: Final = 30 * 86400.0
"""Longest time in seconds between two refreshes; asyncio refuses timers of many years."""


class TokenSource(Protocol):
    """Fetches tokens, for example from the user's function or from a server."""

    async def fetch(self) -> OAuthToken:
        """Return a new token.

        Raises:
            AuthenticationFailed: this configuration cannot give a token.
            ConnectionLost: there is no token at the moment.
        """
        ...


@frozen
class RefreshPolicy:
    """The times of refreshes: Kafka's settings `sasl.login.refresh.*`.

    Attributes:
        window_factor: fraction of the token's lifetime after which the token is refreshed.
        window_jitter: largest random fraction of the lifetime that is added to `window_factor`.
        buffer: the refresh happens at least this many seconds before the token expires.
        min_period: least number of seconds before a refresh.
    """

    window_factor: float = 0.8
    window_jitter: float = 0.05
    buffer: float = 300.0
    min_period: float = 60.0

    def delay(self, begins: float, ends: float, now: float, random: Random) -> float:
        """Return the seconds until a token is refreshed.

        `buffer` and `min_period` have no effect on a token whose lifetime is at most their sum.
        """
        life = ends - begins
        at = begins + life * (self.window_factor + self.window_jitter * random.random())
        if life > self.buffer + self.min_period:
            at = max(min(at, ends - self.buffer), now + self.min_period)
        # The time may be in the past for a token that was not new, such as one from a file.
        return at - now if at > now else _RETRY_SECONDS


class TokenCache:
    """Returns the current token, and keeps it fresh.

    Args:
        source: fetches tokens.
        clock: the clock with which expiry times are compared.
        random: spreads the refreshes of several clients.
        supervisor: runs the fetches and refreshes. With None, there are no refreshes: a token is
            fetched when none is valid.
        policy: when tokens are refreshed.
    """

    def __init__(
        self,
        source: TokenSource,
        *,
        clock: Clock,
        random: Random,
        supervisor: Supervisor | None,
        policy: RefreshPolicy | None = None,
    ) -> None:
        self._source = source
        self._clock = clock
        self._random = random
        self._supervisor = supervisor
        self._policy = policy or RefreshPolicy()
        self._token: OAuthToken | None = None
        self._usable_until = 0.0
        self._refresh_in: float | None = None
        self._fetching: asyncio.Future[OAuthToken] | None = None
        self._failure: KafkaError | None = None
        self._failed_at = 0.0
        self._keeping: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<TokenCache {'with' if self._token else 'without'} a token>"

    async def get(self) -> OAuthToken:
        """Return a token that is valid now; fetch one if there is none.

        Raises:
            AuthenticationFailed: this configuration cannot give a token, and has never given one.
            ConnectionLost: there is no token at the moment.
            Closed: the client was closed.
        """
        token = self._token
        if token is not None and self._now() < self._usable_until:
            return token
        loop = asyncio.get_running_loop()
        if self._failure is not None and loop.time() < self._failed_at + _PAUSE_SECONDS:
            raise copy_error(self._failure) from self._failure.__cause__
        limit = asyncio.timeout(_WAIT_SECONDS)
        try:
            async with limit:
                if self._supervisor is None:
                    return await self._fetched()
                fetching = self._fetching or self._begin(self._supervisor)
                # Cancelling a caller ends its wait, not the fetch.
                return await asyncio.shield(fetching)
        except TimeoutError:
            if not limit.expired():
                raise
            raise ConnectionLost(
                f"the provider of SASL tokens has not answered within {_WAIT_SECONDS:g} s",
                may_have_been_written=False,
            ) from None
        except KafkaError as error:
            raise copy_error(error) from error.__cause__

    def refused(self) -> None:
        """Forget the token, because a broker has refused it."""
        self._usable_until = 0.0

    def _now(self) -> float:
        return self._clock.timestamp_ms() / 1000

    def _begin(self, supervisor: Supervisor) -> asyncio.Future[OAuthToken]:
        fetching: asyncio.Future[OAuthToken] = asyncio.get_running_loop().create_future()
        self._fetching = fetching
        try:
            task = supervisor.spawn(self._fetch(fetching), name="fetch a SASL token")
        except Closed:
            self._fetching = None
            raise
        task.add_done_callback(lambda _: self._abandon(fetching))
        return fetching

    async def _fetch(self, fetching: asyncio.Future[OAuthToken]) -> None:
        try:
            token = await self._fetched()
        except KafkaError as error:
            self._fetching = None
            fetching.set_exception(error)
            fetching.exception()  # prevents asyncio's warning if all waiters are cancelled
            return
        self._fetching = None
        fetching.set_result(token)
        if self._refresh_in is not None and self._keeping is None:
            assert self._supervisor is not None
            try:
                self._keeping = self._supervisor.spawn(self._keep(), name="refresh the SASL token")
            except Closed:
                pass

    def _abandon(self, fetching: asyncio.Future[OAuthToken]) -> None:
        """Fail a fetch whose task was cancelled."""
        if self._fetching is fetching:
            self._fetching = None
        if not fetching.done():
            fetching.set_exception(Closed("the client was closed while it fetched a SASL token"))
            fetching.exception()

    async def _keep(self) -> None:
        """Refresh the token until the client is closed, or a token has no known expiry time."""
        try:
            while self._refresh_in is not None:
                await asyncio.sleep(min(self._refresh_in, _LONGEST))
                while True:
                    try:
                        await self._fetched()
                        break
                    except KafkaError as error:
                        logger.warning(
                            "token not refreshed: retry_in=%gs error=%s", _RETRY_SECONDS, error
                        )
                        await asyncio.sleep(_RETRY_SECONDS)
        finally:
            self._keeping = None

    async def _fetched(self) -> OAuthToken:
        """Fetch a token and keep it; if that fails, keep and raise the error."""
        try:
            token = await self._checked()
        except KafkaError as error:
            self._failed_at = asyncio.get_running_loop().time()
            self._failure = error
            if isinstance(error, AuthenticationFailed) and self._token is not None:
                # The configuration has given a token before, so the failure is treated as
                # temporary.
                self._failure = ConnectionLost(error.message, may_have_been_written=False)
            raise self._failure from error.__cause__
        self._failure = None
        return token

    async def _checked(self) -> OAuthToken:
        token = await self._source.fetch()
        issued, ends = lifetime_of(token.value)
        if token.expires_at is not None:
            ends = token.expires_at
        now = self._now()
        if ends is not None and ends <= now:
            raise AuthenticationFailed(
                f"the provider of SASL tokens returned a token that ended {now - ends:.0f} s ago; "
                "check the provider, and the clock of this machine"
            )
        begins = now if issued is None else min(issued, now)
        self._token = token
        if ends is None:
            # The token may expire at any time, so a later login asks the provider again.
            self._usable_until, self._refresh_in = now + _UNKNOWN_SECONDS, None
        else:
            self._usable_until = ends - min(_MARGIN_SECONDS, (ends - now) / 10)
            self._refresh_in = self._policy.delay(begins, ends, now, self._random)
        return token
