"""`ClientQuotas`: the quotas of users and client ids that the gate applies to requests.

Source: Kafka ``ClientQuotaManager``, ``ClientRequestQuotaManager``,
``ControllerMutationQuotaManager``, ``KafkaApis``; KIP-13, KIP-55, KIP-124, KIP-219, KIP-599.
Tests: ``tests/unit/broker/security/quotas/test_client_quotas.py``, ``tests/sim/test_quotas.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from aiokq.broker.security.quotas.precedence import quota_tables
from aiokq.connection.budgets import Budgets
from aiokq.connection.quota_windows import DEFAULT_WINDOW, QuotaWindow, Rate, TokenBucket
from aiokq.connection.request_context import SessionState
from aiokq.core.errors import ThrottlingQuotaExceeded
from aiokq.core.quota_keys import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)

if TYPE_CHECKING:
    from aiokq.broker.security.quotas.precedence import Applied
    from aiokq.connection.request_context import RequestContext
    from aiokq.core.clock import Clock
    from aiokq.core.counters import BrokerCounters
    from aiokq.core.quota_keys import QuotaEntity

__all__ = ["ClientQuotas", "Partitions", "QuotaSource", "user_of"]

PRODUCE: Final = 0
FETCH: Final = 1
OVERHEAD_MS: Final = 1000
MOST_OVERHEAD: Final = 1.5
"""Maximum of the loop's overhead, which is measured once in ``OVERHEAD_MS``.

The overhead is the ratio of the loop thread's CPU time to the time that is counted for connections.
The loop also works between the steps of connections: it polls sockets, runs callbacks and timers.
The time of each connection is therefore multiplied by the overhead. The overhead has a maximum, so
that a client does not pay for work of the node itself while there are few requests.
"""

MOST_FETCH_BYTES: Final = 2**31 - 1

_PERCENT: Final = 100.0


class QuotaSource(Protocol):
    """Gives quotas that take precedence over those in the metadata."""

    def applied(self, connection: RequestContext, client_id: str, key: str) -> Applied | None:
        """Return the quota of a client; None if the quotas in the metadata apply."""
        ...


class ClientQuotas:
    """The quotas of a node's clients. Used from the node's loop only.

    Args:
        clock: measures the windows.
        counters: the node's metrics.
        window: the window of byte rates and of loop time (`quota.window.*`).
        controller_window: the window of the token buckets (`controller.quota.window.*`).
        source: quotas that take precedence over those in the metadata.
    """

    def __init__(
        self,
        clock: Clock,
        counters: BrokerCounters,
        *,
        window: QuotaWindow = DEFAULT_WINDOW,
        controller_window: QuotaWindow = DEFAULT_WINDOW,
        source: QuotaSource | None = None,
    ) -> None:
        self._monotonic = clock.monotonic
        self._worked = clock.thread_time
        self._overhead = 1.0
        self._counted = 0.0  # seconds counted since the last measurement of the overhead
        self._measured_ms = self._now_ms()
        self._measured_work = self._worked()
        self._counters = counters
        self._window = window
        self._source = source
        self._tables = quota_tables({})
        self._rates = {
            key: Budgets(lambda: Rate(window))
            for key in (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE)
        }
        self._buckets = Budgets(lambda: TokenBucket(controller_window))

    def configure(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Replace all quotas. The usage of clients so far still counts."""
        self._tables = quota_tables(quotas)

    @property
    def is_needed(self) -> bool:
        """Whether any client may have a quota."""
        return self._source is not None or any(self._tables.values())

    @property
    def needs_loop_time(self) -> bool:
        """Whether any client may have a `request_percentage` quota."""
        return self._source is not None or bool(self._tables[REQUEST_PERCENTAGE])

    def throttle_ms(
        self,
        connection: RequestContext,
        api_key: int,
        client_id: str | None,
        nbytes: int,
        *,
        answered: bool,
        in_login: bool,
    ) -> int:
        """Count a request that was handled; see `gate.Quotas.throttle_ms`.

        The loop time of logins does not count, and neither does that of requests without a
        response. A SaslHandshake or SaslAuthenticate request outside of a login does count: the
        broker refuses it, and a client could send any number of them. WriteTxnMarkers counts, too.
        Kafka exempts it, because Kafka's brokers send it to each other. No broker sends it to this
        node, and every client can send it if there is no authorizer.
        """
        now_ms = self._now_ms()
        throttle_ms = 0
        if api_key != FETCH:
            is_exempt = (
                not answered or in_login or connection.session.state is not SessionState.READY
            )
            throttle_ms = self._used_loop(connection, client_id, now_ms, is_exempt=is_exempt)
        if api_key == PRODUCE:
            found = self._find(connection, client_id, PRODUCER_BYTE_RATE)
            if found is not None:
                rate = self._rates[PRODUCER_BYTE_RATE].get(found.budget, now_ms)
                rate.record(nbytes, now_ms)
                bytes_ms = rate.excess_ms(found.limit, now_ms)
                self._note(PRODUCER_BYTE_RATE, bytes_ms)
                throttle_ms = max(throttle_ms, bytes_ms)
        return throttle_ms

    def fetch_bytes(self, connection: RequestContext, client_id: str | None) -> int:
        """Return the largest Fetch response in bytes; see `gate.Quotas.fetch_bytes`.

        In Kafka the limit is the quota of the whole window. A client that has used a part of that
        quota would then wait until a response of that size fits, and might reach only half of its
        rate. Here the limit is the rest of the window's quota, but at least the quota of one
        sample, so that a client does not make many tiny fetches.
        """
        found = self._find(connection, client_id, CONSUMER_BYTE_RATE)
        if found is None:
            return MOST_FETCH_BYTES
        now_ms = self._now_ms()
        rate = self._rates[CONSUMER_BYTE_RATE].get(found.budget, now_ms)
        window = self._window
        least = found.limit * min(window.sample_ms, window.full_ms) / 1000
        left = max(rate.left(found.limit, now_ms), least)
        return int(min(left, found.limit * max(window.full_ms, 1) / 1000, MOST_FETCH_BYTES))

    def fetched(self, connection: RequestContext, client_id: str | None, nbytes: int) -> int:
        """Count a response to a consumer's Fetch; see `gate.Quotas.fetched`."""
        now_ms = self._now_ms()
        throttle_ms = self._used_loop(connection, client_id, now_ms, is_exempt=False)
        found = self._find(connection, client_id, CONSUMER_BYTE_RATE)
        if found is None:
            return throttle_ms
        rate = self._rates[CONSUMER_BYTE_RATE].get(found.budget, now_ms)
        bytes_ms = rate.excess_ms(found.limit, now_ms, more=nbytes)
        throttle_ms = max(throttle_ms, bytes_ms)
        if throttle_ms:
            self._note(CONSUMER_BYTE_RATE, bytes_ms)
        else:
            rate.record(nbytes, now_ms)
        return throttle_ms

    def mutations(
        self, connection: RequestContext, client_id: str | None, *, is_strict: bool
    ) -> Partitions | None:
        """Return the quota of partitions for one request; see `gate.Quotas.mutations`."""
        found = self._find(connection, client_id, CONTROLLER_MUTATION_RATE)
        if found is None:
            return None
        bucket = self._buckets.get(found.budget, self._now_ms())
        return Partitions(bucket, found.limit, self._now_ms, self._note, is_strict=is_strict)

    def _used_loop(
        self, connection: RequestContext, client_id: str | None, now_ms: int, *, is_exempt: bool
    ) -> int:
        """Count the loop time that a connection has used; return the throttle time in ms."""
        if connection.loop_time is None:
            return 0
        seconds = connection.loop_time.take()
        self._counted += seconds
        if now_ms - self._measured_ms >= OVERHEAD_MS:
            self._measure_overhead(now_ms)
        if is_exempt:
            return 0
        found = self._find(connection, client_id, REQUEST_PERCENTAGE)
        if found is None:
            return 0
        rate = self._rates[REQUEST_PERCENTAGE].get(found.budget, now_ms)
        rate.record(seconds * self._overhead * _PERCENT, now_ms)
        throttle_ms = min(rate.excess_ms(found.limit, now_ms), self._window.sample_ms)
        self._note(REQUEST_PERCENTAGE, throttle_ms)
        return throttle_ms

    def _measure_overhead(self, now_ms: int) -> None:
        """Set the ratio of the thread's CPU time to the time that was counted for connections."""
        worked = self._worked()
        if self._counted > 0:
            overhead = (worked - self._measured_work) / self._counted
            self._overhead = min(max(overhead, 1.0), MOST_OVERHEAD)
        self._counted, self._measured_ms, self._measured_work = 0.0, now_ms, worked

    def _find(self, connection: RequestContext, client_id: str | None, key: str) -> Applied | None:
        client_id = client_id or ""
        if self._source is not None:
            applied = self._source.applied(connection, client_id, key)
            if applied is not None:
                return applied
        table = self._tables[key]
        return table.find(user_of(connection), client_id) if table else None

    def _note(self, key: str, throttle_ms: int) -> None:
        if throttle_ms:
            self._counters.throttle_seconds += throttle_ms / 1000
            self._counters.throttled[key] += 1

    def _now_ms(self) -> int:
        return int(self._monotonic() * 1000)


class Partitions:
    """The quota of partitions that one request may create, delete or add (KIP-599)."""

    __slots__ = ("_bucket", "_is_strict", "_limit", "_note", "_now_ms", "_over_since", "_wait_ms")

    def __init__(
        self,
        bucket: TokenBucket,
        limit: float,
        now_ms: Callable[[], int],
        note: Callable[[str, int], None],
        *,
        is_strict: bool,
    ) -> None:
        self._bucket = bucket
        self._limit = limit
        self._now_ms = now_ms
        self._note = note
        self._is_strict = is_strict
        self._wait_ms = 0
        self._over_since = 0

    def charge(self, partitions: int) -> None:
        """Count partitions, before they are created or deleted.

        The last change that is accepted may overdraw the bucket, as in Kafka.

        Raises:
            ThrottlingQuotaExceeded: the bucket is overdrawn already, and the quota is strict.
        """
        now_ms = self._now_ms()
        if self._is_strict:
            self._exceeded(now_ms)
            if self._wait_ms:
                raise ThrottlingQuotaExceeded()
        self._bucket.take(partitions, self._limit, now_ms)
        if not self._is_strict:
            self._exceeded(now_ms)

    @property
    def throttle_ms(self) -> int:
        """The remaining throttle time in ms: the time since the quota was exceeded is deducted."""
        left = max(self._wait_ms - (self._now_ms() - self._over_since), 0)
        return left if self._wait_ms else 0

    def _exceeded(self, now_ms: int) -> None:
        wait_ms = self._bucket.excess_ms(self._limit, now_ms)
        if wait_ms:
            if not self._wait_ms:
                self._note(CONTROLLER_MUTATION_RATE, wait_ms)
            self._wait_ms, self._over_since = wait_ms, now_ms


def user_of(connection: RequestContext) -> str:
    """Return the name of a connection's principal, without the principal type, as in Kafka."""
    return connection.session.principal.name
