"""run(): creates the consumer and the producer of one call of `process()`."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from typing import TYPE_CHECKING, Any, Final, cast

from aiokq.client.process.current_producer import CurrentProducer
from aiokq.client.process.processor import Processor
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
"""Settings of the consumer that the caller cannot set, and what to do instead, or why."""


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
        same_cluster: whether both belong to the same cluster.

    Raises:
        ConfigError: an option or a setting is wrong.
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
    # Nobody else can have fenced a producer whose transactional id is random.
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
                cast("ItemHandler", handler),
                options,
                stopping,
                group_id,
                engine,
            )
            made.append(processor)
            return await processor.run()


@contextlib.contextmanager
def _stopped_by_signal(stop: asyncio.Event) -> Iterator[None]:
    """Set `stop` on SIGTERM, unless the program handles SIGTERM itself."""
    loop = asyncio.get_running_loop()
    mine = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    )
    if mine:
        try:
            loop.add_signal_handler(signal.SIGTERM, stop.set)
        except (NotImplementedError, RuntimeError):
            mine = False
    try:
        yield
    finally:
        if mine:
            loop.remove_signal_handler(signal.SIGTERM)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
