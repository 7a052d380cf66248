"""aiokq.spark: Kafka topics as Spark frames, in pure Python; needs ``pip install aiokq[spark]``.

    spark.read.format("aiokq").option("kafka.bootstrap.servers", ...).option("subscribe", "orders")

needs no more than the installed package. Options, schemas and messages are those of Spark's own
Kafka connector. Names are imported when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiokq.spark import bridge
    from aiokq.spark.listener import AiokqProgressListener
    from aiokq.spark.source import AiokqDataSource, register
    from aiokq.spark.worker import WorkerClient, worker_client

__all__ = [
    "AiokqDataSource",
    "AiokqProgressListener",
    "WorkerClient",
    "bridge",
    "register",
    "worker_client",
]

_HOMES = {
    "AiokqDataSource": "aiokq.spark.source",
    "AiokqProgressListener": "aiokq.spark.listener",
    "WorkerClient": "aiokq.spark.worker",
    "register": "aiokq.spark.source",
    "worker_client": "aiokq.spark.worker",
}


def __getattr__(name: str) -> object:
    if name == "bridge":
        return importlib.import_module("aiokq.spark.bridge")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
