"""Kafka topics as Spark DataFrames, in pure Python; needs ``pip install aiokq[spark]``.

    spark.read.format("aiokq").option("kafka.bootstrap.servers", ...).option("subscribe", "orders")

Spark finds the format as soon as the package is installed. The format takes the options of Spark's
own Kafka connector, and has the same columns. The names of this package are imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiokq.spark import bridge
    from aiokq.spark.exporting.columns import ExportColumns
    from aiokq.spark.exporting.failures import ExportFailed
    from aiokq.spark.exporting.run import Exported, export
    from aiokq.spark.exporting.sending import ExportProgress
    from aiokq.spark.exporting.transactions import ExportTransactions
    from aiokq.spark.exporting.verify import Checked
    from aiokq.spark.listener import AiokqProgressListener
    from aiokq.spark.loading.failures import LoadFailed
    from aiokq.spark.loading.options import LoadOptions, OptionError
    from aiokq.spark.loading.run import load
    from aiokq.spark.loading.summary import LoadProgress, LoadSummary, TopicLoad
    from aiokq.spark.loading.verify import Verification, verify_load
    from aiokq.spark.source import AiokqDataSource, register
    from aiokq.spark.worker import WorkerClient, worker_client

__all__ = [
    "AiokqDataSource",
    "AiokqProgressListener",
    "Checked",
    "ExportColumns",
    "ExportFailed",
    "ExportProgress",
    "ExportTransactions",
    "Exported",
    "LoadFailed",
    "LoadOptions",
    "LoadProgress",
    "LoadSummary",
    "OptionError",
    "TopicLoad",
    "Verification",
    "WorkerClient",
    "bridge",
    "export",
    "load",
    "register",
    "verify_load",
    "worker_client",
]

_HOMES = {
    "AiokqDataSource": "aiokq.spark.source",
    "AiokqProgressListener": "aiokq.spark.listener",
    "Checked": "aiokq.spark.exporting.verify",
    "ExportColumns": "aiokq.spark.exporting.columns",
    "ExportFailed": "aiokq.spark.exporting.failures",
    "ExportProgress": "aiokq.spark.exporting.sending",
    "ExportTransactions": "aiokq.spark.exporting.transactions",
    "Exported": "aiokq.spark.exporting.run",
    "LoadFailed": "aiokq.spark.loading.failures",
    "LoadOptions": "aiokq.spark.loading.options",
    "LoadProgress": "aiokq.spark.loading.summary",
    "LoadSummary": "aiokq.spark.loading.summary",
    "OptionError": "aiokq.spark.loading.options",
    "TopicLoad": "aiokq.spark.loading.summary",
    "Verification": "aiokq.spark.loading.verify",
    "WorkerClient": "aiokq.spark.worker",
    "export": "aiokq.spark.exporting.run",
    "load": "aiokq.spark.loading.run",
    "register": "aiokq.spark.source",
    "verify_load": "aiokq.spark.loading.verify",
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
