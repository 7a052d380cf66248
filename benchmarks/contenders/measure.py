"""Arguments, records and timing that all contenders share."""

from __future__ import annotations

import argparse
import gc
import json
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

KEYS = 10_000


@dataclass(slots=True)
class Load:
    """The records to produce or consume. Sizes in bytes."""

    bootstrap: str
    topic: str
    records: int
    value_bytes: int
    batch_bytes: int
    linger_ms: int
    acks: str
    idempotence: bool
    defaults: bool
    shape: str
    loop: str
    buffer_bytes: int | None
    tls: str | None

    @property
    def security(self) -> dict[str, Any]:
        """The settings of aiokq and aiokafka for a listener with TLS; empty without TLS."""
        if self.tls is None:
            return {}
        return {"security_protocol": "SSL", "ssl_cafile": self.tls}

    @property
    def librdkafka_security(self) -> dict[str, str]:
        """The same for confluent-kafka."""
        if self.tls is None:
            return {}
        return {"security.protocol": "SSL", "ssl.ca.location": self.tls}

    @property
    def value(self) -> bytes:
        return b"v" * self.value_bytes

    @property
    def keys(self) -> list[bytes]:
        """`KEYS` different keys of 10 bytes each."""
        return [b"key-%06d" % index for index in range(KEYS)]


def arguments() -> Load:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", default="bench")
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--buffer-bytes", type=int, help="of records held; the client's own if not")
    parser.add_argument("--batch-bytes", type=int, default=131_072)
    parser.add_argument("--linger-ms", type=int, default=5)
    parser.add_argument("--acks", default="1")
    parser.add_argument("--idempotence", action="store_true")
    parser.add_argument("--defaults", action="store_true", help="the client's own settings")
    parser.add_argument("--shape", default="")
    parser.add_argument("--loop", default="uvloop", choices=["uvloop", "asyncio"])
    parser.add_argument("--tls", help="the listener has TLS: file with its authority")
    return Load(**vars(parser.parse_args()))


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


@contextmanager
def measured(records: int) -> Iterator[None]:
    """Time the block, and print records, wall seconds and CPU seconds."""
    gc.collect()
    cpu = cpu_seconds()
    started = time.perf_counter()
    yield
    seconds = time.perf_counter() - started
    used = cpu_seconds() - cpu
    print(json.dumps({"records": records, "seconds": seconds, "cpu_seconds": used}))
