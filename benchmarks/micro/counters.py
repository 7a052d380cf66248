"""CPU time of the metrics per record: `python -m benchmarks.micro.counters`.

Measures all increments for one produced and one fetched batch in producer, connection and
consumer, with one partition per request, which is the most expensive case.
"""

from __future__ import annotations

import time

from aiokq.core.counters import ClientCounters

RECORDS_PER_BATCH = 1_100  # of 100 bytes in 128 KiB
ROUNDS = 100_000


def produced(counters: ClientCounters) -> None:
    counters.bytes_sent += 131_072
    counters.queue_seconds.observe(0.003)
    counters.requests["Produce"] += 1
    counters.request_seconds["Produce"].observe(0.002)
    counters.bytes_received += 60
    counters.records_sent += RECORDS_PER_BATCH
    counters.record_bytes_sent += 131_072
    counters.batches_sent += 1
    counters.batch_bytes_sent += 131_072
    counters.delivery_seconds.observe(0.005)


def fetched(counters: ClientCounters) -> None:
    counters.bytes_sent += 80
    counters.requests["Fetch"] += 1
    counters.request_seconds["Fetch"].observe(0.002)
    counters.bytes_received += 131_072
    counters.record_bytes_received += 131_072
    counters.batches_received += 1
    counters.records_received.value += RECORDS_PER_BATCH


def measure() -> dict[str, float]:
    """Return CPU nanoseconds per batch, including clock readings."""
    counters = ClientCounters("bench")
    result = {}
    for name, work in (("produced", produced), ("fetched", fetched)):
        best = float("inf")
        for _ in range(5):
            started = time.process_time()
            for _ in range(ROUNDS):
                work(counters)
                time.monotonic()
                time.monotonic()
            best = min(best, time.process_time() - started)
        result[name] = 1e9 * best / ROUNDS
    return result


def main() -> None:
    for name, nanoseconds in measure().items():
        per_record = nanoseconds / RECORDS_PER_BATCH
        print(f"{name}: {nanoseconds:,.0f} ns a batch, {per_record:.1f} ns a record")


if __name__ == "__main__":
    main()
