"""Counters, gauges and histograms of clients and brokers; `aiokq.metrics` exports them.

Each field declared below documents one metric, and `METRICS` is the table of all metrics. Update a
counter once per request or batch, never per record. Samples are computed only when they are
exported. Tests: tests/unit/core/test_counters.py.
"""

from __future__ import annotations

import weakref
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Final, Literal, Self, TypeAlias, TypeVar

from aiokq.core.named_tuple import NamedTuple

T = TypeVar("T")

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]
Labels: TypeAlias = tuple[str, ...]

LATENCY_BUCKETS: Final = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
"""Upper bounds of the buckets of a latency histogram, in seconds.

The histogram has one more bucket, for values above the last bound.
"""


class Metric(NamedTuple):
    """The declaration of one metric, as listed in `METRICS`."""

    name: str
    """Exported name, in Prometheus' style."""
    kind: Kind
    unit: str
    help: str
    labels: Labels
    attribute: str
    """Name of the attribute of ClientCounters or BrokerCounters that holds the value."""


class Sample(NamedTuple):
    """One value of a metric, with its label values."""

    labels: Labels
    value: int | float | Histogram


class Histogram:
    """Counts of values in fixed buckets, and their sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...] = LATENCY_BUCKETS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Add one value, in the metric's unit."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        return sum(self.counts)

    def merge(self, other: Histogram) -> None:
        """Add the values of another histogram with the same bounds.

        Raises:
            ValueError: the bounds differ.
        """
        if self.bounds != other.bounds:
            raise ValueError("histograms with different buckets cannot be added")
        self.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        self.sum += other.sum


class CounterBy(dict[str, int]):
    """Counters by the value of one label: `counters.errors["NOT_LEADER_OR_FOLLOWER"] += 1`."""

    __slots__ = ()

    def __missing__(self, label: str) -> int:
        return 0


class HistogramBy(dict[str, Histogram]):
    """Histograms by the value of one label: `counters.request_seconds["Produce"].observe(s)`."""

    __slots__ = ()

    def __missing__(self, label: str) -> Histogram:
        histogram = self[label] = Histogram()
        return histogram


class Gauge:
    """A gauge: `value`, which its owner sets, plus the current values of all sources.

    Each producer of a Cluster, for example, is a source of `buffered_bytes`.
    """

    __slots__ = ("_sources", "value")

    def __init__(self) -> None:
        self.value = 0
        self._sources: dict[object, Callable[[], int]] = {}

    def add_source(self, source: Callable[[], int]) -> Callable[[], None]:
        """Add `source()` to the gauge at every export; return a function that removes the source.

        Context: the source is called in the exporter's thread, so the source must only read.
        """
        key = object()
        self._sources[key] = source
        return lambda: self._sources.pop(key, None) and None

    def read(self) -> int:
        return self.value + sum(source() for source in list(self._sources.values()))


class Total(Gauge):
    """A counter: `value` plus the amounts that its sources report.

    A source reports what its owner has counted but not yet added to `value`. The owner must reset
    the source before it adds that amount to `value`, so that no export counts the amount twice. An
    export between these two steps repeats the previous total, because Prometheus would interpret a
    decrease as a restart.
    """

    __slots__ = ("_shown",)

    def __init__(self) -> None:
        super().__init__()
        self._shown = 0

    def read(self) -> int:
        self._shown = max(self._shown, super().read())
        return self._shown


class GaugeBy:
    """A gauge with labels; sources provide one value per combination of label values."""

    __slots__ = ("_sources",)

    def __init__(self) -> None:
        self._sources: dict[object, Callable[[], Mapping[Labels, int]]] = {}

    def add_source(self, source: Callable[[], Mapping[Labels, int]]) -> Callable[[], None]:
        """Add a source as `Gauge.add_source` does; values with equal labels are added up."""
        key = object()
        self._sources[key] = source
        return lambda: self._sources.pop(key, None) and None

    def read(self) -> dict[Labels, int]:
        total: dict[Labels, int] = {}
        for source in list(self._sources.values()):
            for labels, value in source().items():
                total[labels] = total.get(labels, 0) + value
        return total


class _Declared(NamedTuple):
    """A declared field of a counters class: the factory of its initial value, and its metric."""

    make: Callable[[], Any]
    kind: Kind
    unit: str
    help: str
    labels: Labels = ()


class _CountersType(type):
    """Metaclass of counters: turns the declarations of a class body into slots.

    A dataclass with as many fields would add half a millisecond to each import.
    """

    __declared__: dict[str, _Declared]

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any]
    ) -> _CountersType:
        """Create the class; its slots are the declared fields if it defines no `__slots__`."""
        declared = {key: value for key, value in namespace.items() if isinstance(value, _Declared)}
        for key in declared:
            del namespace[key]
        namespace.setdefault("__slots__", (*declared, "__weakref__"))
        namespace["__declared__"] = declared
        return super().__new__(mcs, name, bases, namespace)


class _Counters(metaclass=_CountersType):
    """Base of ClientCounters and BrokerCounters."""

    __slots__ = ("name",)

    DEFAULT_NAME: ClassVar[str]

    def __init__(self, name: str | None = None) -> None:
        self.name = self.DEFAULT_NAME if name is None else name
        for attribute, declared in type(self).__declared__.items():
            setattr(self, attribute, declared.make())
        LIVE.add(self)  # type: ignore[arg-type]  # every subclass is in Counters

    def moved(self, to: Self | None = None) -> Self:
        """Move the counts of a client or broker that has ended to `to`, or to a new object.

        Gauges stay, because they are about the present. Context: the owner's loop.

        Returns:
            The object that has the counts now.
        """
        to = type(self)(self.name) if to is None else to
        for attribute, declared in type(self).__declared__.items():
            if declared.kind == "gauge":
                continue
            theirs, ours = getattr(self, attribute), getattr(to, attribute)
            if isinstance(theirs, Total):
                ours.value += theirs.value
            elif isinstance(theirs, Histogram):
                ours.merge(theirs)
            elif isinstance(theirs, HistogramBy):
                for label, histogram in theirs.items():
                    ours[label].merge(histogram)
            elif isinstance(theirs, CounterBy):
                for label, count in theirs.items():
                    ours[label] += count
            else:
                setattr(to, attribute, ours + theirs)
            setattr(self, attribute, declared.make())
        return to

    def samples(self) -> Iterator[tuple[Metric, list[Sample]]]:
        """Yield each metric with its current samples. Context: any thread."""
        for metric in TABLES[type(self)]:
            value = getattr(self, metric.attribute)
            if isinstance(value, Gauge):
                yield metric, [Sample((), value.read())]
            elif isinstance(value, GaugeBy):
                yield metric, [Sample(labels, v) for labels, v in value.read().items()]
            elif isinstance(value, dict):
                # The loop may add a label in another thread. list() copies in one step.
                yield metric, [Sample((label,), v) for label, v in list(value.items())]
            else:
                yield metric, [Sample((), value)]


def _declare(make: Callable[[], T], kind: Kind, unit: str, help: str, labels: Labels = ()) -> T:
    """Return the declaration of a field; for type checkers, the result is the field's value."""
    declared: Any = _Declared(make, kind, unit, help, labels)
    return declared  # type: ignore[no-any-return]


def _counter(unit: str, help: str) -> int:
    return _declare(int, "counter", unit, help)


def _seconds(help: str) -> float:
    return _declare(float, "counter", "seconds", help)


def _counter_by(label: str, unit: str, help: str) -> CounterBy:
    return _declare(CounterBy, "counter", unit, help, (label,))


def _gauge(unit: str, help: str) -> Gauge:
    return _declare(Gauge, "gauge", unit, help)


def _total(unit: str, help: str) -> Total:
    return _declare(Total, "counter", unit, help)


def _gauge_by(labels: Labels, unit: str, help: str) -> GaugeBy:
    return _declare(GaugeBy, "gauge", unit, help, labels)


def _latency(help: str) -> Histogram:
    return _declare(Histogram, "histogram", "seconds", help)


def _latency_by(label: str, help: str) -> HistogramBy:
    return _declare(HistogramBy, "histogram", "seconds", help, (label,))


class ClientCounters(_Counters):
    """Counters of one Cluster and of all clients created from it; `name` is the client id."""

    DEFAULT_NAME = "aiokq"

    records_sent: int = _counter("records", "Records acknowledged by a broker.")
    record_bytes_sent: int = _counter(
        "bytes", "Uncompressed size of the records acknowledged by a broker."
    )
    records_failed: int = _counter("records", "Records whose delivery failed.")
    batches_sent: int = _counter("batches", "Record batches acknowledged by a broker.")
    batch_bytes_sent: int = _counter(
        "bytes", "Size, as sent, of the record batches acknowledged by a broker."
    )
    batches_retried: int = _counter("batches", "Record batches sent again.")
    batches_split: int = _counter(
        "batches",
        "Record batches split after MESSAGE_TOO_LARGE or RECORD_LIST_TOO_LARGE, or because a "
        "broker refused single records.",
    )
    buffered_bytes: Gauge = _gauge("bytes", "Part of buffer_memory in use.")
    buffer_waiters: Gauge = _gauge("tasks", "Tasks that wait for free space in buffer_memory.")
    queue_seconds: Histogram = _latency(
        "Time from the first append to a batch until the batch was first handed to a connection."
    )
    delivery_seconds: Histogram = _latency(
        "Time from the first append to a batch until the batch was acknowledged."
    )

    records_received: Total = _total("records", "Records returned to the application.")
    record_bytes_received: int = _counter("bytes", "Record bytes fetched, as received.")
    batches_received: int = _counter(
        "batches",
        "Portions of records received in fetch responses, one per partition and response.",
    )
    read_ahead_bytes: Gauge = _gauge(
        "bytes", "Size of fetched data whose records were not all returned to the application."
    )
    fetch_lag: GaugeBy = _gauge_by(
        ("topic", "partition"),
        "records",
        "Offsets from the consumer's position to the end of the records that it may read.",
    )

    transactions_ended: CounterBy = _counter_by(
        "outcome",
        "transactions",
        "Transactions of producers, by outcome: committed, aborted, unknown. A transaction whose "
        "commit was not answered counts again when a repeated commit is answered.",
    )
    process_records: int = _counter(
        "records", "Records that process() handled, and whose results are committed."
    )
    process_commits: int = _counter("commits", "Commits of process().")
    process_aborts: int = _counter("aborts", "Aborts of process(); the records were handled again.")
    process_retries: int = _counter(
        "retries", "Calls of a handler of process() that raised, and were repeated."
    )
    process_dead_letters: int = _counter(
        "records", "Records that process() sent to a dead-letter topic."
    )

    requests: CounterBy = _counter_by("api", "requests", "Requests that were answered.")
    request_seconds: HistogramBy = _latency_by(
        "api", "Time from writing a request until its response was read."
    )
    retries: CounterBy = _counter_by("api", "requests", "Requests sent again after an error.")
    errors: CounterBy = _counter_by(
        "error",
        "errors",
        "Errors, by Kafka's name of the error code or by the class of a local error.",
    )
    bytes_sent: int = _counter("bytes", "Bytes written to connections.")
    bytes_received: int = _counter("bytes", "Bytes read from connections.")
    connections: Gauge = _gauge("connections", "Open connections.")
    certificate_expiry_timestamp_seconds: Gauge = _gauge(
        "seconds",
        "Time at which this client's certificate expires, since 1970-01-01 UTC; 0 if there is "
        "none, or if ssl_context is set.",
    )
    connections_opened: int = _counter("connections", "Connections opened.")
    connections_failed: int = _counter("connections", "Failed connection attempts.")
    throttle_seconds: float = _seconds("Throttle time that brokers imposed (quotas).")
    metadata_refreshes: int = _counter("requests", "Metadata responses applied.")
    events_dropped: int = _counter(
        "events", "Events dropped because a reader of events() was too slow."
    )
    loop_stalls: int = _counter("stalls", "Stalls of the event loop that the watchdog detected.")


class BrokerCounters(_Counters):
    """Counters of one broker node. `name` is its node id."""

    DEFAULT_NAME = "0"

    requests: CounterBy = _counter_by("api", "requests", "Requests answered.")
    request_seconds: HistogramBy = _latency_by(
        "api", "From reading a request until its response was handed to the connection."
    )
    errors: CounterBy = _counter_by("error", "errors", "Error codes in responses, by Kafka's name.")
    bytes_in: int = _counter("bytes", "Bytes read from connections.")
    bytes_out: int = _counter("bytes", "Bytes written to connections.")
    records_appended: int = _counter("records", "Records appended to logs.")
    batches_appended: int = _counter("batches", "Record batches appended to logs.")
    record_bytes_appended: int = _counter("bytes", "Size of the record batches appended to logs.")
    record_bytes_fetched: int = _counter("bytes", "Record bytes sent in Fetch responses.")
    segments_deleted: int = _counter("segments", "Log segments deleted by retention.")
    cleaner_runs: int = _counter("runs", "Completed compactions of a log.")
    cleaner_seconds: float = _seconds("Total duration of completed compactions.")
    cleaner_bytes_read: int = _counter(
        "bytes", "Bytes read by completed compactions, in both passes."
    )
    cleaner_bytes_written: int = _counter("bytes", "Bytes written by completed compactions.")
    cleaner_bytes_freed: int = _counter(
        "bytes", "Bytes by which completed compactions shortened logs."
    )
    cleaner_records_read: int = _counter("records", "Records read by completed compactions.")
    cleaner_records_removed: int = _counter("records", "Records removed by completed compactions.")
    cleaner_dirty_percent: Gauge = _gauge(
        "percent", "Uncompacted part of the dirtiest log, when the cleaner last examined the logs."
    )
    cleaner_max_delay_seconds: Gauge = _gauge(
        "seconds",
        "Longest time by which uncompacted records exceeded max.compaction.lag.ms, when the "
        "cleaner last examined the logs.",
    )
    uncleanable_partitions: Gauge = _gauge(
        "partitions", "Logs excluded from compaction: a batch is invalid, or the cleaner failed."
    )
    uncleanable_bytes: Gauge = _gauge(
        "bytes", "Never compacted bytes of logs that are excluded from compaction."
    )
    log_bytes: GaugeBy = _gauge_by(
        ("topic", "partition"), "bytes", "Size of the partition's log segments."
    )
    partitions: Gauge = _gauge("partitions", "Partitions hosted.")
    offline_partitions: Gauge = _gauge(
        "partitions", "Partitions whose log cannot be opened or is in an offline log directory."
    )
    offline_log_directories: Gauge = _gauge(
        "directories", "Log directories that cannot be used until the broker restarts."
    )
    connections: Gauge = _gauge("connections", "Open connections.")
    certificate_expiry_timestamp_seconds: GaugeBy = _gauge_by(
        ("listener",),
        "seconds",
        "Time at which the certificate of a listener with TLS expires, since 1970-01-01 UTC.",
    )
    connections_accepted: int = _counter("connections", "Connections accepted.")
    connections_refused: int = _counter(
        "connections", "New connections closed at once, above a limit or for lack of descriptors."
    )
    connections_closed_for_room: int = _counter(
        "connections",
        "Idle connections closed for a new one, above max.connections or for lack of descriptors.",
    )
    connections_closed_before_login: int = _counter(
        "connections",
        "Connections closed before their login, because the memory for logins was used up, or they "
        "had sent too many requests.",
    )
    logins: CounterBy = _counter_by(
        "mechanism",
        "logins",
        "Successful logins by SASL, by mechanism; those of clients that log in again on the same "
        "connection have the word `again` after the mechanism.",
    )
    failed_logins: CounterBy = _counter_by(
        "mechanism",
        "logins",
        "Failed logins by SASL, by mechanism; `other` if the mechanism is not enabled. A login "
        "with a refused token counts once, even if the client then closes the connection or logs "
        "in by a second token. So does a login whose connection ends while a credential is "
        "checked.",
    )
    fetches_waiting: Gauge = _gauge("requests", "Fetch requests that wait for records (long poll).")
    groups: GaugeBy = _gauge_by(
        ("type", "state"),
        "groups",
        "Groups coordinated, by protocol and Kafka's name of the state.",
    )
    transactional_ids: GaugeBy = _gauge_by(
        ("state",),
        "ids",
        "Transactional ids that this broker coordinates, by Kafka's state; those in state Ongoing "
        "have an open transaction.",
    )
    transactions_ended: CounterBy = _counter_by(
        "cause",
        "transactions",
        "Open transactions that this broker, as their coordinator, decided to commit or abort, by "
        "cause: commit, abort (both EndTxn), timeout, init_producer_id (also by terminate), "
        "recovery (after an unclean shutdown).",
    )
    transaction_verifications_failed: CounterBy = _counter_by(
        "error",
        "batches",
        "Transactional batches and offset commits that this broker refused, because the "
        "transaction coordinator did not confirm that the partition is in the producer's "
        "transaction, or did not add the partition to it, by Kafka's name of the coordinator's "
        "error. After some of these errors, clients retry.",
    )
    producers_fenced: int = _counter(
        "producers",
        "Earlier producers of a transactional id that were fenced by InitProducerId. A producer "
        "sends InitProducerId when it starts, so each restart with the same transactional id "
        "counts as one. Each transactional id in a call of fence_producers or "
        "terminate_transaction counts as one, too.",
    )
    transactions_recovered: CounterBy = _counter_by(
        "verdict",
        "transactions",
        "Open transactions compared with the coordinator's log after an unclean shutdown, by what "
        "became of them.",
    )
    group_members: GaugeBy = _gauge_by(("type",), "members", "Members of coordinated groups.")
    group_rebalances: CounterBy = _counter_by(
        "type",
        "rebalances",
        "Generations started (classic) and target assignments computed (consumer).",
    )
    offsets_committed: int = _counter("offsets", "Partition offsets committed by groups.")
    throttle_seconds: float = _seconds("Time for which clients were throttled by quotas.")
    throttled: CounterBy = _counter_by(
        "quota", "requests", "Requests whose client was throttled, by the quota that it exceeded."
    )
    background_failures: CounterBy = _counter_by(
        "task",
        "failures",
        "Failures of background tasks (cleaner, retention, checkpoints, flushes, timers of "
        "groups ...); a failed task is retried.",
    )
    loop_stalls: int = _counter("stalls", "Stalls of the event loop that the watchdog detected.")


Counters: TypeAlias = ClientCounters | BrokerCounters

LIVE: Final[weakref.WeakSet[Counters]] = weakref.WeakSet()
"""All counters of this process, for `aiokq.metrics.register()` without arguments.

The set holds weak references: counters are exported only as long as their owner keeps them.
"""


def _table(cls: type[Counters], prefix: str) -> tuple[Metric, ...]:
    return tuple(
        Metric(
            f"{prefix}{attribute}_total" if row.kind == "counter" else prefix + attribute,
            row.kind,
            row.unit,
            row.help,
            row.labels,
            attribute,
        )
        for attribute, row in cls.__declared__.items()
    )


TABLES: Final[Mapping[type[_Counters], tuple[Metric, ...]]] = {
    ClientCounters: _table(ClientCounters, "aiokq_client_"),
    BrokerCounters: _table(BrokerCounters, "aiokq_broker_"),
}

METRICS: Final[tuple[Metric, ...]] = tuple(row for table in TABLES.values() for row in table)
