"""run(): creates the consumer and the producer of one call of `process()`."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from typing import TYPE_CHECKING, Any

from aiokq.client.process.processor import Processor
from aiokq.core.errors import ConfigError

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping, Sequence

    from aiokq.client.cluster import Cluster
    from aiokq.client.process.handler_calls import Handler
    from aiokq.client.process.options import ProcessOptions, ProcessReport

__all__ = ["run"]


async def run(
    cluster: Cluster,
    topics: Sequence[str],
    handler: Handler,
    options: ProcessOptions,
    *,
    group_id: str,
    group_instance_id: str | None,
    output: Cluster | None,
    stop: asyncio.Event | None,
    consumer_overrides: Mapping[str, Any],
    producer_overrides: Mapping[str, Any],
    rng: random.Random,
) -> ProcessReport:
    """Process records until `stop` is set, or the process gets SIGTERM.

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
    if exactly_once and output is not None and output is not cluster:
        raise ConfigError(
            "a transaction spans one cluster: with output= use guarantee='at_least_once'"
        )
    producer_settings: dict[str, Any] = dict(producer_overrides)
    if exactly_once:
        suffix = group_instance_id or f"{rng.getrandbits(64):016x}"
        producer_settings.setdefault("transactional_id", f"{group_id}-{suffix}")
        producer_settings.setdefault("transaction_timeout_ms", options.transaction_timeout_ms)
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

    async def revoked(partitions: Any) -> None:
        if made:
            await made[0].revoked(partitions)

    async def lost(partitions: Any) -> None:
        if made:
            await made[0].lost(partitions)

    producer = (output or cluster).producer(**producer_settings)
    consumer = cluster.consumer(*topics, on_revoked=revoked, on_lost=lost, **consumer_settings)
    with _stopped_by_signal(stopping):
        async with producer, consumer:
            processor = Processor(consumer, producer, handler, options, stopping, rng)
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
