"""confluent-kafka in a round's load: a producer and a group, in threads."""

from __future__ import annotations

import asyncio
import itertools
import time
from random import Random
from typing import Any

from aiokq.testing import Isolation
from tests.fault.misuse.checker import OTHER
from tests.fault.misuse.history import Sent, State
from tests.fault.misuse.plan import GroupPlan, ProducerPlan
from tests.fault.misuse.world import World

_COMMON: dict[str, Any] = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "log_level": 0,
}


async def produce(world: World, plan: ProducerPlan) -> None:
    """Produce until the load is over, then wait for the outcome of every record."""
    await asyncio.to_thread(_produce, world, plan)


def _produce(world: World, plan: ProducerPlan) -> None:
    from confluent_kafka import Producer

    random = Random(plan.seed)
    producer = Producer(
        {
            "bootstrap.servers": world.servers,
            "error_cb": lambda error: None,
            **_COMMON,
            **plan.settings,
        }
    )
    limit = plan.settings["message.timeout.ms"] / 1000

    def offer() -> Sent:
        return world.history.offer(
            plan.name,
            random.choice(plan.topics),
            world.now(),
            limit=limit,
            idempotent=bool(plan.settings["enable.idempotence"]),
            ordered=True,
            padding=bytes(random.randint(*plan.sizes)),
        )

    while not world.load_over.is_set():
        sent = offer()

        def delivered(error: Any, message: Any, sent: Sent = sent) -> None:
            sent.outcome_at = world.now()
            if error is None:
                sent.state = State.ACKNOWLEDGED
                sent.partition, sent.offset = message.partition(), message.offset()
            else:
                sent.state = State.FAILED  # it may be written or not
                sent.error = str(error)

        try:
            producer.produce(sent.topic, sent.value, callback=delivered)
        except BufferError as error:
            sent.state, sent.error = State.REFUSED, str(error)
            producer.poll(0.1)
            continue
        sent.accepted_at = world.now()
        if sent.state is State.OFFERED:
            sent.state = State.ACCEPTED
        producer.poll(0)
        time.sleep(random.uniform(0.1, 1.9) / plan.rate)
    producer.flush(limit + 15)


async def consume(world: World, plan: GroupPlan) -> None:
    """Run members, each replaced when it ends, until everything is read."""
    async with asyncio.TaskGroup() as tasks:
        for number in range(plan.members):
            tasks.create_task(asyncio.to_thread(_consume, world, plan, plan.seed + number))


def _consume(world: World, plan: GroupPlan, seed: int) -> None:
    from confluent_kafka import Consumer, KafkaException

    random = Random(seed)
    history = world.history.groups[plan.name]
    for life in itertools.count():
        if world.finished.is_set():
            break
        name = f"{plan.name}.{seed}.{life}"

        def assigned(_: Any, partitions: list[Any], name: str = name) -> None:
            places = [(each.topic, each.partition) for each in partitions]
            world.history.assigned(name, places, world.now())

        end = world.now() + random.uniform(3, 15)
        consumer = Consumer(
            {
                "bootstrap.servers": world.servers,
                "group.id": plan.name,
                "auto.offset.reset": "earliest",
                "enable.auto.offset.store": False,
                "heartbeat.interval.ms": 300,
                "error_cb": lambda error: None,
                **_COMMON,
                **plan.settings,
            }
        )
        consumer.subscribe(list(plan.topics), on_assign=assigned)
        while not world.finished.is_set() and (world.now() < end or world.load_over.is_set()):
            message = consumer.poll(0.2)
            if message is None or message.error() is not None:
                continue
            partition = (message.topic(), message.partition())
            polled = [(partition, message.offset(), message.value())]
            level = Isolation.READ_COMMITTED  # librdkafka's default
            world.history.handed(name, plan.name, polled, world.now(), level)
            wrong = history.hand(partition, message.offset(), message.value())
            if wrong is not None:
                world.history.complain(OTHER, f"{plan.name}: {wrong}")
            history.finish(partition, message.offset(), world.now())
            try:
                consumer.store_offsets(message)
            except KafkaException:  # the partition belongs to another member by now
                world.counts["confluent: offset not stored"] += 1
        consumer.close()
