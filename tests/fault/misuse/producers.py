"""The producers of a round's load: one method per style of sending, every outcome recorded."""

from __future__ import annotations

import asyncio
import contextlib
from random import Random
from typing import Any

import aiokq
from aiokq import Delivery, KafkaError
from tests.fault.misuse.history import Sent, State
from tests.fault.misuse.plan import TOPICS, ProducerPlan
from tests.fault.misuse.world import TYPED, World

BYTES_PER_SECOND = 500_000
"""The limit of one producer: a round is about faults, not about throughput."""
POISON = b"poison:"


class LoadProducer:
    """Producers of one plan, one after the other, until the load is over."""

    def __init__(self, world: World, plan: ProducerPlan) -> None:
        self._world = world
        self._plan = plan
        self._random = Random(plan.seed)
        self._padding = bytes(100_000)
        self._lives = 0
        self._offered = 0
        self._name = plan.name
        settings = plan.settings
        self._limit = settings["delivery_timeout_ms"] / 1000
        self._block = settings["max_block_ms"] / 1000
        self._idempotent = settings["acks"] == "all" and settings.get("enable_idempotence", True)

    async def run(self) -> None:
        while not self._world.load_over.is_set():
            self._lives += 1
            self._name = f"{self._plan.name}.{self._lives}"
            life = self._random.uniform(3, 15)
            producer = aiokq.Producer(
                self._world.servers, bootstrap_timeout_ms=60_000, **self._plan.settings
            )
            try:
                await producer.start()
            except KafkaError as error:
                self._world.refused("Producer.start()", error)
                await producer.close()
                await asyncio.sleep(0.2)
                continue
            try:
                await self._send(producer, self._world.now() + life)
            except Exception as error:
                self._world.unexpected(f"producer {self._plan.style}", error)
            await self._close(producer)

    async def _close(self, producer: aiokq.Producer[Any, Any]) -> None:
        """Close the producer with enough time for its records, or with little."""
        patient = self._world.load_over.is_set() or self._random.random() < 0.5
        timeout = self._limit + self._block if patient else self._random.choice([0.0, 0.5, 3.0])
        with contextlib.suppress(KafkaError, asyncio.CancelledError):
            await self._world.within(
                timeout + self._limit + 20,
                f"Producer.close(timeout={timeout})",
                producer.close(timeout),
            )

    async def _send(self, producer: aiokq.Producer[Any, Any], end: float) -> None:
        style = getattr(self, f"_{self._plan.style}")
        calls: set[asyncio.Task[None]] = set()
        mean = sum(self._plan.sizes) / len(self._plan.sizes)
        rate = min(self._plan.rate, BYTES_PER_SECOND / mean)
        while self._world.now() < end and not self._world.load_over.is_set():
            self._offered = 0
            for _ in range(self._random.randint(1, max(1, int(rate / 20)))):
                await style(producer, calls)
                if self._offered > rate / 5:  # send_many() takes many records at a time
                    break
            await asyncio.sleep(self._offered / rate * self._random.uniform(0.1, 1.5))
        if calls:  # send() ends with the producer at the latest
            await self._world.within(
                self._limit + self._block + 15, "send()", asyncio.wait(list(calls))
            )

    def _offer(self, *, ordered: bool) -> tuple[Sent, dict[str, Any]]:
        """Note a new record; return it with its partition, key and headers."""
        random = self._random
        topic = random.choice(self._plan.topics)
        self._offered += 1
        sent = self._world.history.offer(
            self._name,
            topic,
            self._world.now(),
            limit=self._limit,
            idempotent=self._idempotent,
            ordered=ordered,
            prefix=POISON if random.random() < self._plan.poison else b"",
            padding=self._padding[: random.randint(*self._plan.sizes)],
        )
        target: dict[str, Any] = {}
        choice = random.random()
        if choice < 0.4:
            target["partition"] = random.randrange(TOPICS[topic])
        elif choice < 0.7:
            target["key"] = b"%d" % random.randrange(50)
        if random.random() < 0.1:
            target["headers"] = [("h", b"v"), ("h", None)]
        return sent, target

    def _accepted(self, sent: Sent, delivery: Delivery) -> None:
        sent.state = State.ACCEPTED
        sent.accepted_at = self._world.now()
        delivery.add_done_callback(lambda done: self._outcome(sent, done))

    def _outcome(self, sent: Sent, delivery: Delivery) -> None:
        error = delivery.exception()
        if error is None:
            self._acknowledged(sent, delivery.result())
        else:
            self._failed(sent, error)

    def _acknowledged(self, sent: Sent, metadata: Any) -> None:
        sent.outcome_at = self._world.now()
        sent.state = State.ACKNOWLEDGED
        sent.partition, sent.offset = metadata.partition, metadata.offset
        if metadata.topic != sent.topic:
            self._world.history.complain("acknowledged for another topic", repr(sent))

    def _failed(self, sent: Sent, error: BaseException) -> None:
        sent.outcome_at = self._world.now()
        sent.state = State.FAILED
        sent.error = f"{type(error).__name__}: {error}"
        sent.may_be_written = getattr(error, "may_have_been_written", None)
        if not isinstance(error, KafkaError):
            self._world.unexpected("a delivery", error)

    def _refused(self, sent: Sent, error: BaseException) -> None:
        sent.state = State.REFUSED
        sent.error = f"{type(error).__name__}: {error}"
        if not isinstance(error, TYPED):
            self._world.unexpected(f"producer {self._plan.style}", error)

    # -- styles of sending

    async def _enqueue(self, producer: aiokq.Producer[Any, Any], calls: object) -> None:
        sent, target = self._offer(ordered=True)
        try:
            if self._random.random() < 0.05:
                delivery = await asyncio.wait_for(
                    producer.enqueue(sent.topic, sent.value, **target),
                    self._random.choice([0.001, 0.1]),
                )
            else:
                delivery = await producer.enqueue(sent.topic, sent.value, **target)
        except Exception as error:
            self._refused(sent, error)
            return
        self._accepted(sent, delivery)

    async def _nowait(self, producer: aiokq.Producer[Any, Any], calls: object) -> None:
        sent, target = self._offer(ordered=True)
        try:
            delivery = producer.send_nowait(sent.topic, sent.value, **target)
        except Exception as error:
            self._refused(sent, error)
            await asyncio.sleep(0.01)
            return
        self._accepted(sent, delivery)

    async def _many(self, producer: aiokq.Producer[Any, Any], calls: object) -> None:
        first, target = self._offer(ordered=True)
        several = [first]
        for _ in range(self._random.choice([0, 1, 10, 50])):
            sent, _ = self._offer(ordered=True)
            sent.topic = first.topic
            several.append(sent)
        records = [(target.get("key"), sent.value) for sent in several]
        try:
            deliveries = await producer.send_many(
                first.topic, records, partition=target.get("partition")
            )
        except aiokq.BufferFull:  # the records before the first rejected one are accepted
            for sent in several:
                sent.state = State.UNKNOWN
            return
        except Exception as error:
            for sent in several:
                self._refused(sent, error)
            return
        for sent, delivery in zip(several, deliveries, strict=True):
            self._accepted(sent, delivery)

    async def _one_send(
        self,
        producer: aiokq.Producer[Any, Any],
        sent: Sent,
        target: dict[str, Any],
        patience: float | None,
    ) -> None:
        sent.accepted_at = sent.offered_at = self._world.now()
        sent.limit = self._limit + self._block
        sent.state = State.ACCEPTED
        try:
            call = producer.send(sent.topic, sent.value, **target)
            metadata = await (call if patience is None else asyncio.wait_for(call, patience))
        except aiokq.BufferFull as error:
            self._refused(sent, error)
        except TimeoutError as error:
            if isinstance(error, KafkaError):
                self._failed(sent, error)
            else:
                sent.state = State.UNKNOWN
        except asyncio.CancelledError:
            sent.state = State.UNKNOWN
            raise
        except Exception as error:
            self._failed(sent, error)
        else:
            self._acknowledged(sent, metadata)

    async def _send_call(
        self,
        producer: aiokq.Producer[Any, Any],
        calls: set[asyncio.Task[None]],
        patience: float | None,
    ) -> None:
        while len(calls) >= 200:
            await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        sent, target = self._offer(ordered=False)
        call = self._one_send(producer, sent, target, patience)
        task = asyncio.get_running_loop().create_task(call)
        calls.add(task)
        task.add_done_callback(calls.discard)

    async def _cancelled(
        self, producer: aiokq.Producer[Any, Any], calls: set[asyncio.Task[None]]
    ) -> None:
        patience = self._random.choice([0, 0.0005, 0.005, 0.05, 1.0, None])
        await self._send_call(producer, calls, patience)

    async def _awaited(
        self, producer: aiokq.Producer[Any, Any], calls: set[asyncio.Task[None]]
    ) -> None:
        await self._send_call(producer, calls, None)
