"""librdkafka's mock cluster as a process of its own.

Run as a program it prints its bootstrap address and serves until its standard input closes.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def mock_cluster(brokers: int = 1) -> Iterator[str]:
    """Starts a mock cluster, yields its bootstrap servers.

    Topics are made on first use, with four partitions.
    """
    process = subprocess.Popen(
        [sys.executable, __file__, str(brokers)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()


def serve(brokers: int) -> None:
    from confluent_kafka import Producer

    owner = Producer(
        {
            "bootstrap.servers": "mock",
            "test.mock.num.brokers": brokers,
        }
    )
    metadata = owner.list_topics(timeout=10)
    print(",".join(f"{b.host}:{b.port}" for b in metadata.brokers.values()), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
