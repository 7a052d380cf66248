"""Checks histories of Kafka clients for anomalies: `check(history)`.

::

    report = aiokq.testing.check("history.jsonl")
    assert report.ok, report

docs/guides/checking.md is the guide; docs/reference/histories.md has the format of histories.
"""

from __future__ import annotations

from aiokq.testing.adapters import (
    confluent_delivery,
    confluent_end,
    confluent_poll,
    transactional_message_copier,
    verifiable_consumer,
    verifiable_producer,
)
from aiokq.testing.anomalies import Anomaly, AnomalyKind
from aiokq.testing.checking import check
from aiokq.testing.history import (
    Assign,
    Copy,
    EndTransaction,
    Final,
    Isolation,
    LastStable,
    ObservedOffsets,
    Offset,
    Offsets,
    Operation,
    Outcome,
    Poll,
    Polled,
    Seek,
    Send,
)
from aiokq.testing.history_format import (
    HistoryError,
    from_json,
    read_history,
    to_json,
    write_history,
)
from aiokq.testing.recorded_consumer import RecordedConsumer
from aiokq.testing.recorded_producer import RecordedProducer
from aiokq.testing.recorder import Recorder
from aiokq.testing.report import Report
from aiokq.testing.workload import Workload

__all__ = [
    "Anomaly",
    "AnomalyKind",
    "HistoryError",
    "Report",
    "check",
    # operations
    "Assign",
    "Copy",
    "EndTransaction",
    "Final",
    "Isolation",
    "LastStable",
    "ObservedOffsets",
    "Offset",
    "Offsets",
    "Operation",
    "Outcome",
    "Poll",
    "Polled",
    "Seek",
    "Send",
    # the JSON-lines format
    "from_json",
    "read_history",
    "to_json",
    "write_history",
    # recorder and workload
    "RecordedConsumer",
    "RecordedProducer",
    "Recorder",
    "Workload",
    # adapters
    "confluent_delivery",
    "confluent_end",
    "confluent_poll",
    "transactional_message_copier",
    "verifiable_consumer",
    "verifiable_producer",
]
