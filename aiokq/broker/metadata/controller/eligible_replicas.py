"""The records that clear the eligible leader replicas (ELR) of partitions (KIP-966).

Source: Kafka ``ConfigurationControlManager.createClearElrRecordsAsNeeded``.
Tests: ``tests/unit/broker/metadata/controller/test_broker_configs.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from aiokq.broker.metadata.controller.registration import MIN_INSYNC_REPLICAS
from aiokq.broker.metadata.image.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from aiokq.broker.metadata.image.records import TOPIC_CONFIG
from aiokq.wire.cluster_metadata_records import ClearElrRecord, ConfigRecord

if TYPE_CHECKING:
    from aiokq.broker.metadata.image.image import MetadataImage

__all__ = ["clear_elr_records", "elr_is_on"]


def elr_is_on(image: MetadataImage) -> bool:
    """Whether the feature ``eligible.leader.replicas.version`` is on."""
    return image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0


def clear_elr_records(image: MetadataImage, records: Iterable[object]) -> Iterator[ClearElrRecord]:
    """Yield a ``ClearElrRecord`` for each change of ``min.insync.replicas`` in ``records``.

    Nothing is yielded if the feature ``eligible.leader.replicas.version`` is off.

    When a replica left the in-sync replicas, the value of ``min.insync.replicas`` at that time
    decided whether the replica became eligible. After a change of the value, the recorded eligible
    replicas are therefore not valid.
    """
    if not elr_is_on(image):
        return
    for record in records:
        if isinstance(record, ConfigRecord) and record.name == MIN_INSYNC_REPLICAS:
            is_topic = record.resource_type == TOPIC_CONFIG
            yield ClearElrRecord(topic_name=record.resource_name if is_topic else "")
