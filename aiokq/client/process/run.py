"""run(): creates the consumer and the producer of one call of `process()`."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from typing import TYPE_CHECKING, Any, Final, cast
from weakref import WeakKeyDictionary

from aiokq.client.process.current_producer import CurrentProducer
from aiokq.client.process.handler_calls import deserializing
from aiokq.client.process.processor import Processor
from aiokq.consumer.deserializers import deserializer_of
from aiokq.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from aiokq.client.process.handler_calls import Handler, ItemHandler
    from aiokq.client.process.options import ProcessOptions, ProcessReport
    from aiokq.cluster.engine import ClusterEngine
    from aiokq.consumer.consumer import Consumer
    from aiokq.core.types import TopicPartition
    from aiokq.producer.producer import Producer

__all__ = ["run"]

CONTROLLED: Final = {
    "group_id": "pass group_id=",
    "group_instance_id": "pass group_instance_id=",
    "enable_auto_commit": "offsets are committed together with the results",
    "ack_mode": "a record is finished when its results are committed",
}
"""Consumer settings that the caller cannot set, each with the alternative or the reason."""

_stops: WeakKeyDictionary[asyncio.AbstractEventLoop, list[asyncio.Event]] = WeakKeyDictionary()
"""The events that SIGTERM sets, by the event loop of the `process()` calls."""


async def run(
    new_consumer: Callable[..., Consumer],
    new_producer: Callable[..., Producer],
    engine: ClusterEngine,
    topics: Sequence[str],
    handler: Handler,
    options: ProcessOptions,
    *,
    group_id: str,
    group_instance_id: str | None,
    same_cluster: bool,
    stop: asyncio.Event | None,
    consumer_overrides: Mapping[str, Any],
    producer_overrides: Mapping[str, Any],
) -> ProcessReport:
    """Process records until `stop` is set, or the process gets SIGTERM.

    Args:
        new_consumer, new_producer: create the clients from settings.
        same_cluster: whether consumer and producer belong to the same cluster.

    Raises:
        ConfigError: an option or a setting is wrong.
        TypeError: `handler` is not callable, or a number is not an int.
        Exception: see `Processor.run`.
    """
    options.check()
    if not callable(handler):
        raise TypeError(f"the handler of process() must be callable, not {handler!r}")
    if not isinstance(group_id, str) or not group_id:
        raise ConfigError("process() needs a group_id: it commits the offsets of a group")
    exactly_once = options.guarantee == "exactly_once"
    if exactly_once and not same_cluster:
        raise ConfigError(
            "a transaction spans one cluster: with output= use guarantee='at_least_once'"
        )
    producer_settings: dict[str, Any] = dict(producer_overrides)
    # Fenced producers are replaced if the transactional id is random: no other producer has the
    # same id, so only a timeout can have fenced the producer.
    renews = (
        exactly_once and group_instance_id is None and "transactional_id" not in producer_settings
    )
    if exactly_once:
        suffix = group_instance_id or f"{engine.environment.random.getrandbits(64):016x}"
        producer_settings.setdefault("transactional_id", f"{group_id}-{suffix}")
        producer_settings.setdefault("transaction_timeout_ms", options.transaction_timeout_ms)
    for name in CONTROLLED:
        if name in consumer_overrides:
            raise ConfigError(f"process() itself sets {name} of its consumer: {CONTROLLED[name]}")
    consumer_settings: dict[str, Any] = {
        "isolation_level": "read_committed",
        "auto_offset_reset": "earliest",
        **consumer_overrides,
        "group_id": group_id,
        "enable_auto_commit": False,
    }
    if group_instance_id is not None:
        consumer_settings["group_instance_id"] = group_instance_id
    deserializer = deserializer_of(
        consumer_settings.pop("key_deserializer", None),
        consumer_settings.pop("value_deserializer", None),
    )
    called = cast("ItemHandler", handler)
    if deserializer is not None:
        if options.batch:
            raise ConfigError(
                "with batch=True a handler gets batches of bytes: deserialize in the handler, "
                "instead of with key_deserializer or value_deserializer"
            )
        called = deserializing(called, deserializer)
    stopping = asyncio.Event() if stop is None else stop
    made: list[Processor] = []

    async def revoked(partitions: frozenset[TopicPartition]) -> None:
        if made:
            await made[0].revoked(partitions)

    def lost(partitions: frozenset[TopicPartition]) -> None:
        if made:
            made[0].lost(partitions)

    producers = CurrentProducer(lambda: new_producer(**producer_settings), stopping, renews=renews)
    consumer = new_consumer(*topics, on_revoked=revoked, on_lost=lost, **consumer_settings)
    with _stopped_by_signal(stopping):
        async with producers, consumer:
            processor = Processor(
                consumer,
                producers,
                called,
                options,
                stopping,
                group_id,
                engine,
            )
            made.append(processor)
            return await processor.run()


@contextlib.contextmanager
def _stopped_by_signal(stop: asyncio.Event) -> Iterator[None]:
    """Set `stop` on SIGTERM, unless the program handles SIGTERM itself.

    The first call on a loop installs the signal handler for all calls on that loop, and the last
    call removes it.
    """
    loop = asyncio.get_running_loop()
    stops = _stops.get(loop)
    if stops is None:
        stops = _take_over_signal(loop)
        if stops is None:
            yield
            return
        _stops[loop] = stops
    stops.append(stop)
    try:
        yield
    finally:
        stops.remove(stop)
        if not stops:
            del _stops[loop]
            loop.remove_signal_handler(signal.SIGTERM)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _take_over_signal(loop: asyncio.AbstractEventLoop) -> list[asyncio.Event] | None:
    """Let SIGTERM set the events in the returned list; return None if that is not possible.

    The result is None outside the main thread, if the program has its own handler of SIGTERM, or if
    the loop does not support signal handlers.
    """
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    ):
        return None
    stops: list[asyncio.Event] = []

    def stop_all() -> None:
        for stop in stops:
            stop.set()

    try:
        loop.add_signal_handler(signal.SIGTERM, stop_all)
    except (NotImplementedError, RuntimeError):
        return None
    return stops
