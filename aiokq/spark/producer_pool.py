"""Producers of this process, each lent to one task at a time, and kept for later tasks.

A new producer needs a producer id and metadata from the brokers. A worker runs tasks one after
another, so one producer is usually enough. If a task fails, its producer is closed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from aiokq.spark.per_process import PerProcess
from aiokq.spark.security import producer_settings
from aiokq.spark.worker import WorkerClient, worker_client

if TYPE_CHECKING:
    from aiokq import Producer

__all__ = ["lent_producer"]


class _Idle:
    """The idle producers of this process, by client."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.producers: WeakKeyDictionary[WorkerClient, list[Producer]] = WeakKeyDictionary()


_of_this_process = PerProcess(_Idle)


@contextmanager
def lent_producer(kafka: Mapping[str, str]) -> Iterator[tuple[WorkerClient, Producer]]:
    """Yield a producer for one task, and the client that runs its coroutines.

    If the block raises, the producer is closed, and records that were not sent are discarded.

    Args:
        kafka: ``kafka.*`` options by Kafka's names.

    Raises:
        BootstrapFailed: no bootstrap address answered; the message has the reason for each address.
        ConfigError: an option is unknown, or out of range.
        KafkaError: the producer cannot be started.
    """
    client = worker_client(kafka)
    pool = _of_this_process()
    with pool.lock:
        idle = pool.producers.setdefault(client, [])
        producer = idle.pop() if idle else None
    if producer is None:
        producer = client.run(_started(client, kafka))
    try:
        yield client, producer
    except BaseException:
        client.run(producer.close(timeout=0))
        raise
    with pool.lock:
        idle.append(producer)


async def _started(client: WorkerClient, kafka: Mapping[str, str]) -> Producer:
    producer = client.cluster.producer(**producer_settings(kafka))  # type: ignore[arg-type]
    await producer.start()
    return producer
