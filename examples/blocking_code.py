"""A Kafka for blocking code and other clients: `python examples/blocking_code.py`.

`with EmbeddedCluster()` runs the broker on a thread of its own, so that a test of blocking code,
here with confluent-kafka, has a real Kafka without Docker or a JVM.
"""

from __future__ import annotations

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

import aiokq


def produce(bootstrap_servers: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for number in range(5):
        producer.produce("numbers", str(number).encode())
    producer.flush(10)


def consume(bootstrap_servers: str) -> list[bytes | None]:
    options = {"bootstrap.servers": bootstrap_servers, "group.id": "unused"}
    consumer = Consumer({**options, "enable.auto.commit": False})
    consumer.assign([TopicPartition("numbers", 0, OFFSET_BEGINNING)])
    messages = consumer.consume(5, timeout=10)
    consumer.close()
    return [message.value() for message in messages]


def main() -> None:
    with aiokq.EmbeddedCluster() as kafka:
        produce(kafka.bootstrap_servers)
        print("confluent-kafka read", consume(kafka.bootstrap_servers))


if __name__ == "__main__":
    main()
