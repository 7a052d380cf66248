"""ClientQuotas: what counts for which quota, and for how long a client is throttled."""

from __future__ import annotations

import pytest

from aiokq.broker.security.quotas.client_quotas import ClientQuotas
from aiokq.broker.security.quotas.precedence import Applied
from aiokq.connection.loop_time import LoopTime
from aiokq.connection.quota_windows import QuotaWindow
from aiokq.connection.request_context import RequestContext, SessionState
from aiokq.core.counters import BrokerCounters
from aiokq.core.errors import ThrottlingQuotaExceeded

PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18

DEFAULT = (("client-id", None),)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0
        self.worked = 0.0

    def monotonic(self) -> float:
        return self.now

    def timestamp_ms(self) -> int:
        return int(self.now * 1000)

    def thread_time(self) -> float:
        return self.worked


class World:
    """Quotas of all client ids, and a connection that spends time of the loop."""

    def __init__(self, **values: float) -> None:
        self.clock = Clock()
        self.counters = BrokerCounters()
        self.quotas = ClientQuotas(self.clock, self.counters)
        self.quotas.configure({DEFAULT: values} if values else {})
        self.connection = connection()
        self.connection.loop_time = LoopTime(self.clock.thread_time)

    def request(
        self,
        key: int,
        nbytes: int = 0,
        *,
        ms: float = 0,
        answered: bool = True,
        in_login: bool = False,
        client: str = "c",
    ) -> int:
        self.spend(ms)
        return self.quotas.throttle_ms(
            self.connection, key, client, nbytes, answered=answered, in_login=in_login
        )

    def spend(self, ms: float) -> None:
        assert self.connection.loop_time is not None
        self.connection.loop_time.begin()
        self.clock.now += ms / 1000
        self.clock.worked += ms / 1000
        self.connection.loop_time.end()


def connection() -> RequestContext:
    return RequestContext(1, "127.0.0.1:5000", "127.0.0.1", "PLAINTEXT")


def test_without_quotas_nothing_is_needed() -> None:
    """The gate of such a node has no quotas, and its connections measure no time."""
    world = World()
    assert not world.quotas.is_needed
    assert not world.quotas.needs_loop_time
    world.quotas.configure({DEFAULT: {"producer_byte_rate": 1.0}})
    assert world.quotas.is_needed
    assert not world.quotas.needs_loop_time
    world.quotas.configure({DEFAULT: {"request_percentage": 1.0}})
    assert world.quotas.needs_loop_time
    world.quotas.configure({(("ip", None),): {"connection_creation_rate": 1.0}})
    assert not world.quotas.is_needed


def test_the_bytes_of_a_produce_request_count() -> None:
    """As measured on Kafka 4.2, and only those of Produce; another client id has its own rate."""
    world = World(producer_byte_rate=50_000)
    assert world.request(METADATA, 10_000_000) == 0
    assert world.request(PRODUCE, 700_100) == 4002
    assert world.request(PRODUCE, 700_100, client="other") == 4002
    assert world.request(PRODUCE, 0) == 4002
    assert world.counters.throttled["producer_byte_rate"] == 3
    assert world.counters.throttle_seconds == pytest.approx(3 * 4.002)


def test_produce_without_an_answer_counts_its_bytes_but_not_its_time() -> None:
    """Kafka exempts acks=0 from the quota of request time."""
    world = World(producer_byte_rate=50_000, request_percentage=1)
    assert world.request(PRODUCE, 700_100, ms=5_000, answered=False) == 4002
    assert world.request(METADATA) == 0


def test_a_response_to_a_fetch_beyond_the_quota_does_not_count() -> None:
    """It is not sent; the client asks again after the time, and gets the data."""
    world = World(consumer_byte_rate=1000)
    fetched = world.quotas.fetched
    assert world.quotas.fetch_bytes(world.connection, "c") == 10_000
    assert fetched(world.connection, "c", 4_000) == 0
    assert world.quotas.fetch_bytes(world.connection, "c") == 6_000
    assert fetched(world.connection, "c", 6_000) == 0
    assert world.quotas.fetch_bytes(world.connection, "c") == 1_000
    assert fetched(world.connection, "c", 10_000) == 10_000
    assert fetched(world.connection, "c", 10_000) == 10_000
    assert fetched(world.connection, "c", 1) == 1
    assert world.request(FETCH, 10_000) == 0
    world.clock.now += 11
    assert fetched(world.connection, "c", 10_000) == 0
    assert world.counters.throttled["consumer_byte_rate"] == 3


def test_a_client_without_a_quota_may_fetch_as_much_as_it_likes() -> None:
    """Only the quota of its own client id could limit it."""
    world = World()
    world.quotas.configure({(("client-id", "other"),): {"consumer_byte_rate": 1.0}})
    assert world.quotas.fetch_bytes(world.connection, "c") == 2**31 - 1
    assert world.quotas.fetched(world.connection, "c", 2**31) == 0


def test_the_time_of_the_loop_is_counted_in_percent() -> None:
    """10 % are one second of ten; no throttle is longer than a second."""
    world = World(request_percentage=10)
    assert world.request(METADATA, ms=1000) == 0
    assert world.request(METADATA, ms=20) == 180  # 102 % in 10.02 s
    assert world.request(METADATA, ms=5000) == 1000
    assert world.quotas.fetched(world.connection, "c", 100) == 1000
    assert world.counters.throttled["request_percentage"] == 3


def test_what_the_loop_does_between_requests_is_charged_in_proportion() -> None:
    """Polling and callbacks; work of the node itself, at most half of what was counted."""
    world = World(request_percentage=10)
    for _ in range(11):
        assert world.request(METADATA, ms=8) == 0
        world.clock.now += 0.092
        world.clock.worked += 0.002
    assert world.quotas._overhead == pytest.approx(1.25, abs=0.05)
    world.clock.now += 1
    world.clock.worked += 1
    world.request(METADATA, ms=8)
    assert world.quotas._overhead == 1.5


def test_time_after_the_response_counts_for_the_next_request() -> None:
    """Encoding and sending follow the decision."""
    world = World(request_percentage=10)
    assert world.request(METADATA, ms=990) == 0
    world.spend(30)
    assert world.request(METADATA) == 170  # 102 % in 10.03 s


@pytest.mark.parametrize("key", [17, 36])
def test_logins_are_exempt(key: int) -> None:
    """SaslHandshake and SaslAuthenticate; their time does not count later."""
    world = World(request_percentage=1)
    assert world.request(key, ms=10_000, in_login=True) == 0
    assert world.request(METADATA) == 0


@pytest.mark.parametrize("key", [17, 36])
def test_requests_of_a_login_without_a_login_are_not_exempt(key: int) -> None:
    """A client that has logged in could send any number of them; each is answered with 34."""
    world = World(request_percentage=1)
    assert world.request(key, ms=10_000) == 1000


def test_what_only_brokers_send_to_each_other_is_not_exempt() -> None:
    """No broker sends WriteTxnMarkers to this node, so a client sends it."""
    world = World(request_percentage=1)
    assert world.request(27, ms=10_000) == 1000


def test_requests_before_the_login_are_exempt() -> None:
    """The user is not known yet."""
    world = World(request_percentage=1)
    world.connection.session.state = SessionState.HANDSHAKE
    assert world.request(API_VERSIONS, ms=10_000) == 0


def test_of_two_quotas_the_longer_time_counts() -> None:
    """Both are recorded."""
    world = World(producer_byte_rate=50_000, request_percentage=10)
    assert world.request(PRODUCE, 550_000, ms=1050) == 1000
    assert world.request(PRODUCE, 150_100) > 3500


def test_one_user_is_one_budget_whatever_its_client_ids() -> None:
    """The quota of a user is shared by its clients."""
    world = World()
    world.quotas.configure({(("user", None),): {"producer_byte_rate": 50_000.0}})
    assert world.request(PRODUCE, 400_000, client="a") == 0
    assert world.request(PRODUCE, 300_100, client="b") == 4002


def test_a_changed_quota_applies_to_what_was_used_before() -> None:
    """A client that has been fast is throttled at once by a lower quota."""
    world = World(producer_byte_rate=100_000)
    assert world.request(PRODUCE, 700_100) == 0
    world.quotas.configure({DEFAULT: {"producer_byte_rate": 50_000.0}})
    assert world.request(PRODUCE, 0) == 4002


def test_partitions_are_refused_when_the_bucket_is_overdrawn() -> None:
    """Kafka 4.2 with a rate of 1: 5 and 10 partitions pass, the next one waits 3928 ms."""
    world = World(controller_mutation_rate=1)

    def mutations(*, is_strict: bool = True):  # type: ignore[no-untyped-def]
        quota = world.quotas.mutations(world.connection, "c", is_strict=is_strict)
        assert quota is not None
        return quota

    first = mutations()
    first.charge(5)
    first.charge(10)
    assert first.throttle_ms == 0
    world.clock.now += 0.072
    second = mutations()
    with pytest.raises(ThrottlingQuotaExceeded):
        second.charge(1)
    assert second.throttle_ms == 3928
    world.clock.now += 1
    assert second.throttle_ms == 2928
    permissive = mutations(is_strict=False)
    permissive.charge(1)
    assert permissive.throttle_ms == 3928
    assert world.counters.throttled["controller_mutation_rate"] == 2
    world.clock.now += 4
    mutations().charge(11)


def test_a_client_without_a_quota_of_partitions_is_not_asked() -> None:
    """None tells a handler to count nothing."""
    assert World().quotas.mutations(connection(), "c", is_strict=True) is None


def test_the_windows_are_settings() -> None:
    """A window of two samples of two seconds divides by two seconds."""
    clock = Clock()
    window = QuotaWindow(samples=2, sample_ms=2000)
    quotas = ClientQuotas(clock, BrokerCounters(), window=window, controller_window=window)
    quotas.configure({DEFAULT: {"producer_byte_rate": 1000.0, "controller_mutation_rate": 1.0}})
    assert (
        quotas.throttle_ms(connection(), PRODUCE, "c", 4000, answered=True, in_login=False) == 2000
    )
    partitions = quotas.mutations(connection(), "c", is_strict=True)
    assert partitions is not None
    partitions.charge(5)
    with pytest.raises(ThrottlingQuotaExceeded):
        partitions.charge(1)
    assert partitions.throttle_ms == 1000


def test_a_source_comes_before_the_metadata() -> None:
    """It is asked for the user's function; None leaves the client to the quotas in the metadata."""
    asked = []

    class Source:
        def applied(self, connection: RequestContext, client_id: str, key: str) -> Applied | None:
            asked.append((client_id, key))
            return Applied(50_000.0, (client_id[0],)) if client_id.startswith("c") else None

    quotas = ClientQuotas(Clock(), BrokerCounters(), source=Source())
    assert quotas.is_needed
    assert quotas.needs_loop_time
    quotas.configure({DEFAULT: {"producer_byte_rate": 100_000.0}})
    one = connection()

    def throttled(connection: RequestContext, key: int, client_id: str | None, nbytes: int) -> int:
        return quotas.throttle_ms(connection, key, client_id, nbytes, answered=True, in_login=False)

    assert throttled(one, PRODUCE, "c", 700_100) == 4002
    assert throttled(one, PRODUCE, "c2", 0) == 4002  # the same budget
    assert throttled(one, PRODUCE, "d", 700_100) == 0
    assert throttled(one, PRODUCE, None, 700_100) == 0
    assert asked[-1] == ("", "producer_byte_rate")
