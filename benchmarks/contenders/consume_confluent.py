"""confluent-kafka consuming: `consume(1000)`, value touched."""

from __future__ import annotations

from benchmarks.contenders.measure import arguments, measured


def main() -> None:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    load = arguments()
    options: dict[str, str | int | bool] = {
        "bootstrap.servers": load.bootstrap,
        "group.id": "bench-confluent",
    }
    options |= {"enable.auto.commit": False, **load.librdkafka_security}
    if not load.defaults:
        # With its defaults, the client stalls when its queue is refilled: 231k instead of 930k
        # records/s were measured.
        options |= {
            "check.crcs": True,
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 524_288,
            "fetch.queue.backoff.ms": 10,
        }
    consumer = Consumer(options)
    partitions = consumer.list_topics(load.topic, timeout=10).topics[load.topic].partitions
    consumer.assign([TopicPartition(load.topic, p, OFFSET_BEGINNING) for p in partitions])
    size = 0
    first = consumer.consume(1, 30)
    assert first
    with measured(load.records):
        seen = len(first)
        while seen < load.records:
            for message in consumer.consume(1000, 5):
                value = message.value()
                if value is not None:
                    size += len(value)
                seen += 1
    consumer.close()


if __name__ == "__main__":
    main()
