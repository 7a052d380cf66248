"""confluent-kafka producing with a delivery callback per record."""

from __future__ import annotations

from typing import Any

from benchmarks.contenders.measure import Load, arguments, measured


def settings(load: Load) -> dict[str, Any]:
    if load.defaults:
        return {"bootstrap.servers": load.bootstrap, **load.librdkafka_security}
    held: dict[str, Any] = {**load.librdkafka_security}
    if load.buffer_bytes is not None:
        held["queue.buffering.max.kbytes"] = load.buffer_bytes // 1024
    return held | {
        "bootstrap.servers": load.bootstrap,
        "partitioner": "murmur2_random",
        "linger.ms": load.linger_ms,
        "batch.size": load.batch_bytes,
        "acks": load.acks,
        "enable.idempotence": load.idempotence,
        "queue.buffering.max.messages": 1_000_000,
    }


def main() -> None:
    from confluent_kafka import Producer

    load = arguments()
    producer = Producer(settings(load))
    value, keys = load.value, load.keys
    delivered = failed = 0

    def on_delivery(error: object, message: object) -> None:
        nonlocal delivered, failed
        if error is None:
            delivered += 1
        else:
            failed += 1

    def produce(count: int) -> None:
        for index in range(count):
            while True:
                try:
                    producer.produce(
                        load.topic, value, keys[index % len(keys)], on_delivery=on_delivery
                    )
                    break
                except BufferError:
                    producer.poll(0.01)
            if not index & 1023:
                producer.poll(0)
        producer.flush(60)

    produce(2_000)  # connections, metadata, caches
    delivered = 0
    with measured(load.records):
        produce(load.records)
    assert delivered == load.records, (delivered, failed)


if __name__ == "__main__":
    main()
